"""recover: carry out every decision that is not "run it", for each open submission that can move.

1. Only the head can move, and what a clock or a person has released out of order; so recovery reads these, and
   what it costs does not grow with the queue or with history.
2. A decision is applied in one commit that names the state and the epoch which the evidence was read from.
3. Recovery precedes any claim. The one thing that it asks the outside world is what became of a call that left no
   result, and it asks that of the application's reconciler, for a bounded time; no answer is no proof.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from quiesce import agenda, conversation_log, ledger, operations, outbox, settlement, waits
from quiesce.agent import (
    Happened,
    NeverStarted,
    Reconciliation,
    SafeToRetry,
    UncertainCall,
    Unproven,
)
from quiesce.conversation_log import Entry
from quiesce.diagnostics import storable, type_of, words_of
from quiesce.errors import IncarnationEnded
from quiesce.evidence import Evidence, Limits, OpenCall, OpenWait
from quiesce.ids import canonical_json, parse_json, record_id
from quiesce.lane import Lane, Pass
from quiesce.ledger import Submission
from quiesce.operations import OpenOperation, OperationKind, OperationState
from quiesce.pacing import backoff_ms
from quiesce.records import CallResolved, Payload, ToolPrepared, ToolSettled, ToolUnknown
from quiesce.recovery import (
    Await,
    AwaitUntil,
    Claim,
    CloseDue,
    Decision,
    FinishFromHistory,
    Nothing,
    Postpone,
    Quarantine,
    Reconcile,
    Resume,
    SettleAborted,
    SettleFailed,
    SettleReserved,
    Suspend,
    classify,
)
from quiesce.settlement import Aborted, FailedForGood, Verdict
from quiesce.states import State
from quiesce.telemetry import Settled

PAGE_MAX = 64
DECISIONS_MAX = 256
"""A pass repairs at most so many submissions; the rest stays due for the next one."""
MESSAGES_MAX = 8
"""No more messages than are sent at once: a receiver that does not answer holds the queue for one try in a pass."""
RECONCILE_S = 30.0
REASON_MAX = 500
GRACE_S = 1.0
_WITHOUT_OPERATIONS = frozenset({State.ADMITTED, State.READY, State.JOINED, State.SETTLED})


def fold(lane: Lane, submission: Submission, now_ms: int, *, is_head: bool) -> Evidence:
    """Gather the facts about one submission."""
    settings = lane.settings
    agent = lane.agents.version(submission.agent, submission.agent_version)
    open_operations: list[OpenOperation] = []
    if submission.state not in _WITHOUT_OPERATIONS:
        open_operations = operations.of_submission(lane.storage, submission.sequence)
    return Evidence(
        now_ms=now_ms,
        state=submission.state,
        state_since_ms=submission.state_since_ms,
        is_head=is_head,
        is_owned=submission.owner is not None,
        attempts=submission.attempts,
        interruptions=0 if submission.has_progressed else submission.interruptions,
        interrupted_since_ms=submission.interrupted_since_ms,
        not_before_ms=submission.not_before_ms,
        deadline_at_ms=submission.deadline_at_ms,
        has_settlement_record=submission.is_settled_in_log,
        is_abort_wanted=submission.abort is not None,
        calls=tuple(map(_open_call, filter(_is_call, open_operations))),
        waits=tuple(_open_wait(each) for each in open_operations if not _is_call(each)),
        agent=submission.agent,
        agent_version=submission.agent_version,
        is_agent_served=agent is not None,
        on_exhausted="fail" if agent is None else agent.on_exhausted,
        limits=Limits(
            attempts_max=settings.attempts_max,
            interruptions_max=settings.interruptions_max,
            interruption_window_ms=settings.interruption_window_ms,
            version_check_ms=settings.parked_wake_ms,
        ),
    )


def _is_call(operation: OpenOperation) -> bool:
    return operation.kind is OperationKind.TOOL


def _open_call(operation: OpenOperation) -> OpenCall:
    return OpenCall(
        operation=operation.operation,
        name=operation.name,
        is_uncertain=operation.detail["effect"] == "uncertain",
        is_unknown=operation.state is OperationState.UNKNOWN,
        since_ms=operation.opened_at_ms,
    )


def _open_wait(operation: OpenOperation) -> OpenWait:
    return OpenWait(
        operation=operation.operation,
        name=operation.name,
        kind=operation.kind.value,
        since_ms=operation.opened_at_ms,
        due_at_ms=operation.due_at_ms,
    )


async def recover(lane: Lane, work: Pass) -> tuple[Submission, Decision] | None:
    """Settle what is overdue anywhere in the queue, then bring the head to where it waits or can run.

    The messages that are due are left in `work`, for delivery.
    """
    now_ms = lane.clock()
    due = agenda.due(lane.storage, now_ms, PAGE_MAX)
    messages = [outbox.message_of(each) for each in due if each.kind == "message"]
    work.messages = messages[:MESSAGES_MAX]
    for sequence in [int(each.subject) for each in due if each.kind == "deadline"]:
        head = ledger.head(lane.storage)
        submission = ledger.at(lane.storage, sequence)
        assert submission is not None
        assert head is not None
        is_head = sequence == head.sequence
        decision = classify(fold(lane, submission, now_ms, is_head=is_head))
        await apply(lane, work, submission, decision)
    return await recover_head(lane, work)


async def recover_head(lane: Lane, work: Pass) -> tuple[Submission, Decision] | None:
    """Apply what is decided for the head until it waits or can run; returns that last decision."""
    for _ in range(DECISIONS_MAX):
        submission = ledger.head(lane.storage)
        if submission is None:
            return None
        decision = classify(fold(lane, submission, lane.clock(), is_head=True))
        if not await apply(lane, work, submission, decision):
            return submission, decision
    return None


async def apply(lane: Lane, work: Pass, submission: Submission, decision: Decision) -> bool:
    """Carry out one decision in one commit; returns whether there was anything to do."""
    match decision:
        case Nothing() | Await() | AwaitUntil() | Claim():
            return False
        case Reconcile(operations=unproven):
            for operation in unproven:
                await _reconcile(lane, submission, operation)
        case FinishFromHistory():
            settled = lane.storage.commit(
                lambda: settlement.finish_from_history(lane.storage, submission)
            )
            work.settled += 1
            lane.announce(settled)
        case SettleFailed() | SettleAborted():
            _settle(lane, work, submission, _verdict(submission, decision))
        case SettleReserved():
            _settle(lane, work, submission, None)
        case CloseDue(operations=due):
            now_ms = lane.clock()
            lane.storage.commit(lambda: waits.close_due(lane.storage, submission, due, now_ms))
        case Quarantine() | Suspend() | Resume() | Postpone():
            _move(lane, submission, decision)
    work.recovered += 1
    return True


def _verdict(submission: Submission, decision: SettleFailed | SettleAborted) -> Verdict:
    if isinstance(decision, SettleAborted):
        wish = ledger.abort_wish(submission)
        assert wish is not None
        return Aborted(wish.reason, wish.detaches)
    message = decision.message
    if submission.last_failure is not None:
        failure = parse_json(submission.last_failure)
        message = f"{message}; the last failure: {failure['error_type']}: {failure['message']}"
    return FailedForGood(decision.error_type, message)


def _settle(lane: Lane, work: Pass, submission: Submission, verdict: Verdict | None) -> None:
    """Settle with a verdict, or as it was reserved."""
    storage, now_ms = lane.storage, lane.clock()
    cost = submission.cost.plus(work.charge(submission.id, storage.counts(), now_ms))

    def step() -> list[Settled]:
        if verdict is None:
            return settlement.settle_reserved(storage, submission, now_ms, cost)
        return settlement.conclude(storage, submission, verdict, now_ms, cost)

    settled = storage.commit(step)
    work.settled += len(settled)
    lane.announce(settled)


def _move(
    lane: Lane, submission: Submission, decision: Quarantine | Suspend | Resume | Postpone
) -> None:
    enters = submission.state
    changes: dict[str, Any] = {}
    match decision:
        case Quarantine():
            enters = State.QUARANTINED
        case Suspend():
            enters, changes = State.SUSPENDED, {"interruptions": 0, "not_before_ms": None}
        case Resume():
            enters = State.INPUT_APPLIED
        case Postpone(not_before_ms=not_before_ms, interruptions=interruptions):
            changes = {"not_before_ms": not_before_ms, "interruptions": interruptions}
    storage, now_ms = lane.storage, lane.clock()
    storage.commit(lambda: ledger.move(storage, submission, enters, now_ms, **changes))


async def _reconcile(lane: Lane, submission: Submission, operation: str) -> None:
    """Ask what became of one call, and write down the answer or that there is none."""
    open_call = next(
        each
        for each in operations.of_submission(lane.storage, submission.sequence)
        if each.operation == operation
    )
    answer, is_stuck = await _ask(lane, submission, open_call)
    storage, now_ms, call = lane.storage, lane.clock(), int(open_call.detail["call"])

    def append(part: str, payload: Payload) -> None:
        entry = Entry(record_id(submission.id, operation, part), submission.id, None, payload)
        conversation_log.append(storage, conversation_log.tail(storage), entry, now_ms)

    def step() -> None:
        match answer:
            case Unproven(reason=reason):
                unknown = ToolUnknown(operation=operation, call=call, reason=reason)
                append(f"unknown-{call}", unknown)
                operations.mark_unknown(storage, open_call)
                fresh = ledger.at(storage, submission.sequence)
                assert fresh is not None
                if fresh.state is not State.UNKNOWN:
                    # Whoever resolves it waits for nothing more: the retry time was for what nobody had decided.
                    ledger.move(
                        storage,
                        fresh,
                        State.UNKNOWN,
                        now_ms,
                        interruptions=0,
                        not_before_ms=None,
                    )
            case NeverStarted() | SafeToRetry():
                is_new = isinstance(answer, NeverStarted)
                resolved = CallResolved(
                    operation=operation,
                    call=call,
                    resolution="never-happened" if is_new else "safe-to-retry",
                    author="reconciler",
                    reason=answer.reason,
                )
                append(f"resolved-{call}", resolved)
                operations.close(storage, open_call)
                _spend_an_attempt(lane, submission, now_ms)
            case Happened():
                settled = ToolSettled(
                    operation=operation,
                    arguments_digest=open_call.arguments_digest,
                    value=parse_json(canonical_json(answer.result)),
                    proof="reconciled",
                )
                append("settled", settled)
                operations.close(storage, open_call)

    await lane.failpoints.reach("reconcile:before")
    storage.commit(step)
    await storage.sync()
    await lane.failpoints.reach("reconcile:after")
    if is_stuck:
        lane.abort_object("a reconciler ignored its cancellation")


def _spend_an_attempt(lane: Lane, submission: Submission, now_ms: int) -> None:
    """Count that a call is to be made again because a reconciler says so, and set the durable time of that.

    A tool that always raises and a reconciler that always says it never started would call each other for ever.
    Counted already is what was interrupted or has failed retryably, and a person's answer is waited for.
    """
    fresh, settings = ledger.at(lane.storage, submission.sequence), lane.settings
    assert fresh is not None
    is_counted = fresh.interruptions > 0 or (fresh.not_before_ms or 0) > now_ms
    if is_counted or fresh.state is State.UNKNOWN:
        return
    delay_ms = backoff_ms(
        settings.backoff_base_ms, settings.backoff_cap_ms, fresh.attempts, lane.jitter()
    )
    changes: dict[str, Any] = {
        "attempts": fresh.attempts + 1,
        "not_before_ms": now_ms + delay_ms,
    }
    ledger.move(lane.storage, fresh, fresh.state, now_ms, **changes)


async def _ask(
    lane: Lane, submission: Submission, open_call: OpenOperation
) -> tuple[Reconciliation, bool]:
    """Ask the application's reconciler for a bounded time; whatever goes wrong there is no proof."""
    agent = lane.agents.version(submission.agent, submission.agent_version)
    reconcile = None if agent is None else agent.reconciler_of(open_call.name)
    if reconcile is None:
        return Unproven("the call left no result, and its tool has no reconciler"), False
    call = int(open_call.detail["call"])
    prepared_id = record_id(submission.id, open_call.operation, f"prepared-{call}")
    record = conversation_log.read(lane.storage, prepared_id)
    payload = None if record is None else record.parsed()
    assert isinstance(payload, ToolPrepared), prepared_id
    uncertain = UncertainCall(
        submission=submission.id,
        operation=open_call.operation,
        name=open_call.name,
        arguments=payload.arguments,
        call=call,
        prepared_at_ms=open_call.opened_at_ms,
    )
    return await _bounded(lane, reconcile, uncertain)


async def _bounded(
    lane: Lane, reconcile: Callable[[UncertainCall], Any], uncertain: UncertainCall
) -> tuple[Reconciliation, bool]:
    """Run a reconciler for a bounded time; returns its answer, and whether it ignored its cancellation."""
    task = asyncio.ensure_future(_answer(lane, reconcile, uncertain))
    done, _ = await asyncio.wait({task}, timeout=RECONCILE_S)
    if not done:
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=GRACE_S)
        return Unproven(f"the reconciler did not answer within {RECONCILE_S:.0f} s"), not done
    return task.result(), False


async def _answer(
    lane: Lane, reconcile: Callable[[UncertainCall], Any], uncertain: UncertainCall
) -> Reconciliation:
    try:
        answer = await reconcile(uncertain)
        if isinstance(answer, Happened):
            size = len(canonical_json(answer.result).encode())
            if size > lane.settings.value_bytes_max:
                return Unproven(f"the reconciler's result has {size} bytes, which cannot be stored")
            return answer
        if isinstance(answer, NeverStarted | SafeToRetry | Unproven):
            return replace(answer, reason=storable(answer.reason, REASON_MAX))
        return Unproven(f"the reconciler answered a {type(answer).__name__}, which is no answer")
    except (IncarnationEnded, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - it proves nothing about the call
        return Unproven(f"the reconciler failed: {type_of(error)}: {words_of(error, REASON_MAX)}")
