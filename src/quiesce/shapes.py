"""What answers say: one JSON document for each shape of the contract.

1. A document is built from what inspection read, and adds nothing but the dollars, which are never stored.
2. Times are RFC 3339 in UTC with milliseconds; generations are decimal strings, because they have no bound.
3. What does not apply is left out only where the contract marks it so; everything else is null.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema

from quiesce.admission import Receipt
from quiesce.agent import Agent
from quiesce.explain import Explanation, Freshness, LaneExplanation
from quiesce.generation_record import Cost
from quiesce.inspection import LaneState, MaintenanceView, Status, parsed_payload
from quiesce.ledger import Submission
from quiesce.records import Record
from quiesce.recovery import Wait, WaitKind
from quiesce.settlement_shape import cost_body, settlement_body, timestamp
from quiesce.states import State
from quiesce.verifying import Verification


def tombstone_body(conversation: str, purged: Submission) -> dict[str, Any]:
    """Write what is left of a submission whose payloads were purged."""
    return {
        "conversation": conversation,
        "submission": purged.id,
        "sequence": purged.sequence,
        "accepted_at": timestamp(purged.accepted_at_ms),
        "outcome": purged.outcome,
        "settled_at": timestamp(purged.settled_at_ms),
        "purged_at": timestamp(purged.purged_at_ms),
    }


def receipt_body(receipt: Receipt) -> dict[str, Any]:
    """Write a receipt."""
    settled = receipt.settlement
    return {
        "conversation": receipt.conversation,
        "submission": receipt.submission,
        "sequence": receipt.sequence,
        "accepted_at": timestamp(receipt.accepted_at_ms),
        "settlement": None if settled is None else settlement_body(receipt.conversation, settled),
    }


_DECISION_ROUTES = {
    WaitKind.APPROVAL: "approvals",
    WaitKind.RESOLUTION: "resolutions",
    WaitKind.SIGNAL: "signals",
}


def wait_body(conversation: str, submission: str, wait: Wait | None) -> dict[str, Any] | None:
    """Write what a submission waits for; what does not apply is left out.

    An operation that somebody has to decide carries the URL that takes the decision.
    """
    if wait is None:
        return None
    route = _DECISION_ROUTES.get(wait.kind)
    last = wait.name if wait.kind is WaitKind.SIGNAL else wait.operation
    url = f"/v1/conversations/{conversation}/submissions/{submission}/{route}/{last}"
    optional = {
        "operation": wait.operation,
        "name": wait.name,
        "behind": wait.behind,
        "until": timestamp(wait.until_ms),
        "url": url if route is not None else None,
    }
    return {
        "kind": wait.kind.value,
        "since": timestamp(wait.since_ms),
        **{name: value for name, value in optional.items() if value is not None},
    }


def status_body(found: Status) -> dict[str, Any]:
    """Write the status of a submission."""
    submission, settled = found.submission, found.settlement
    cost = submission.cost if settled is None else Cost(**settled.recorded.cost)
    return {
        "conversation": found.conversation,
        "submission": submission.id,
        "sequence": submission.sequence,
        "agent": submission.agent,
        "state": submission.state.value,
        "attempts": submission.attempts,
        "interruptions": 0 if submission.has_progressed else submission.interruptions,
        "waiting_for": wait_body(found.conversation, submission.id, found.waiting_for),
        "next_attempt_at": timestamp(found.next_attempt_at_ms),
        "settlement": None if settled is None else settlement_body(found.conversation, settled),
        "cost": cost_body(cost),
        **_tombstone(found),
    }


def _tombstone(found: Status) -> dict[str, Any]:
    if found.submission.purged_at_ms is None:
        return {}
    return {"tombstone": tombstone_body(found.conversation, found.submission)}


def explanation_body(conversation: str, found: Explanation) -> dict[str, Any]:
    """Write why one open submission is where it is."""
    submission = found.submission
    return {
        "conversation": conversation,
        "submission": submission.id,
        "sequence": submission.sequence,
        "agent": submission.agent,
        "state": submission.state.value,
        "waiting_for": wait_body(conversation, submission.id, found.waiting_for),
        "why": "it runs or can run" if found.waiting_for is None else found.waiting_for.reason,
        "moved_by": found.moved_by,
        "age_ms": found.age_ms,
        "freshness": found.freshness.value,
        "open_operations": [
            {
                "operation": each.operation,
                "name": each.name,
                "kind": each.kind.value,
                "state": each.state.value,
                "since": timestamp(each.opened_at_ms),
                "until": timestamp(each.due_at_ms),
                **({"call": each.detail["call"]} if "call" in each.detail else {}),
            }
            for each in found.open_operations
        ],
    }


def lane_explanation_body(conversation: str, found: LaneExplanation) -> dict[str, Any]:
    """Write why a lane is where it is."""
    head = found.head
    blocked_on = None
    if head is not None:
        blocked_on = wait_body(conversation, head.submission.id, head.waiting_for)
    return {
        "nonterminal": found.nonterminal,
        "owed": found.is_owed,
        "head": None if head is None else head.submission.id,
        "blocked_on": blocked_on,
        "freshness": (Freshness.OK if head is None else head.freshness).value,
        "age_ms": found.age_ms,
        "undecided": {kind.value: count for kind, count in found.undecided.items()},
        "unknown_calls": found.unknown_calls,
    }


def recorded_body(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Write a recorded decision; its times are instants."""
    return {
        name.removesuffix("_ms"): timestamp(value) if name.endswith("_at_ms") else value
        for name, value in recorded.items()
    }


def generation_body(view: MaintenanceView) -> dict[str, str]:
    """Write the two counters of the generation."""
    return {"dirty": str(view.record.dirty), "processed": str(view.record.processed)}


def last_pass_body(view: MaintenanceView) -> dict[str, Any] | None:
    """Write the report of the last pass that finished."""
    report = view.record.last_pass
    if report is None:
        return None
    times = {"at": timestamp(report["at_ms"]), "next_due": timestamp(report["next_due_ms"])}
    rest = {name: value for name, value in report.items() if name not in {"at_ms", "next_due_ms"}}
    return {**times, **rest}


def maintenance_body(view: MaintenanceView) -> dict[str, Any]:
    """Write the generation record and the alarm."""
    record = view.record
    return {
        "generation": generation_body(view),
        "nonterminal": record.nonterminal,
        "due_at": timestamp(record.due_at_ms),
        "alarm_at": timestamp(view.alarm_at_ms),
        "failures": record.failures,
        "idle_wakes": record.idle_wakes,
        "parked": view.is_parked,
        "alarm_repaired": record.alarm_repaired,
        "last_pass": last_pass_body(view),
    }


def lane_body(state: LaneState) -> dict[str, Any]:
    """Write the lane."""
    view = state.maintenance
    return {
        "conversation": state.conversation,
        "counts": {each.value: state.counts[each] for each in State},
        "head": state.head,
        "blocked_on": wait_body(state.conversation, state.head or "", state.blocked_on),
        "generation": generation_body(view),
        "alarm_at": timestamp(view.alarm_at_ms),
        "due_at": timestamp(view.record.due_at_ms),
        "parked": view.is_parked,
        "last_pass": last_pass_body(view),
        "cost": cost_body(view.record.cost),
    }


def record_body(record: Record) -> dict[str, Any]:
    """Write one record of the log."""
    body: dict[str, Any] = {
        "sequence": record.sequence,
        "record_id": record.record_id,
        "kind": record.kind,
        "epoch": record.epoch,
        "created_at": timestamp(record.created_at_ms),
        "payload": parsed_payload(record),
        "digest": record.digest,
    }
    if record.submission is not None:
        body["submission"] = record.submission
    return body


def verification_body(found: Verification) -> dict[str, Any]:
    """Write what a check of a conversation has found; a broken law says where only if it knows."""
    return {
        "conversation": found.conversation,
        "ok": not found.broken,
        "checked": {"records": found.records, "submissions": found.submissions},
        "tail": {"sequence": found.tail_sequence, "digest": found.tail_digest},
        "problems": [
            {
                "law": each.law.value,
                "found": each.found,
                **({} if each.sequence is None else {"sequence": each.sequence}),
                **({} if each.submission is None else {"submission": each.submission}),
            }
            for each in found.broken
        ],
        "truncated": found.is_truncated,
    }


def page_body(items: list[dict[str, Any]], last: int | None) -> dict[str, Any]:
    """Write a page; `next` is the place to go on from, as an opaque cursor, or null at the end."""
    return {"items": items, "next": None if last is None else str(last)}


def agents_body(agents: Iterable[Agent]) -> dict[str, Any]:
    """Write what a deployment serves: each agent with the JSON Schemas of its input and output."""
    items = [
        {
            "name": agent.name,
            "version": agent.version,
            "input_schema": _schema(agent.input_adapter, is_output=False),
            "output_schema": _schema(agent.output_adapter, is_output=True),
        }
        for agent in sorted(agents, key=lambda agent: agent.name)
    ]
    return page_body(items, None)


def _schema(adapter: TypeAdapter[Any], *, is_output: bool) -> dict[str, Any] | None:
    try:
        return adapter.json_schema(mode="serialization" if is_output else "validation")
    except PydanticInvalidForJsonSchema:
        # A type with a validator of its own making may have no schema; the agent works all the same.
        return None
