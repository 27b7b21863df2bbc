"""The laws that hold between the logs of a family of conversations, checked over what stands on their disks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quiesce.ids import OperationId, SubmissionId, parse_json
from quiesce.ledger import Submission, page
from quiesce.records import ChildJoined, ChildRequested, Payload
from quiesce.states import State
from quiesce.testing import Conversation

REFUSED = frozenset(
    {"queue-full", "unknown-agent", "invalid-request", "input-too-large", "database-full"}
)
"""With what a child may be joined that was never admitted."""


@dataclass(frozen=True)
class Facts:
    """What one conversation's disk says."""

    log: dict[str, Payload]
    submissions: dict[SubmissionId, Submission]


def payloads(lane: Conversation) -> dict[str, Payload]:
    """Return what the log says, by record id."""
    return {each.record_id: each.parsed() for each in lane.records()}


def facts_of(lane: Conversation) -> Facts:
    """Read one conversation as it stands on its disk."""
    rows = page(lane._reader.storage, 0, 1_000, None)  # noqa: SLF001 - the watcher reads the disk itself
    return Facts(payloads(lane), {each.id: each for each in rows})


def laws_of(facts: Mapping[str, Facts]) -> None:
    """Check what must hold between the logs of a family, at every moment.

    1. A delegation has at most one child, whatever was lost, doubled or late.
    2. A child has no attempt, and no record but its abort, before its parent has recorded its start.
    3. A parent is given what the child's settlement says, and only after it; a refused child was never admitted.
    4. A parent settles after every child that it has not detached, and those it has are listed as unproven.
    """
    children: dict[tuple[str, str], list[tuple[str, Submission]]] = {}
    for name, found in facts.items():
        for each in found.submissions.values():
            if each.parent is not None:
                link = parse_json(each.parent)
                place = (link["submission"], link["operation"])
                children.setdefault(place, []).append((name, each))
    for place, born in children.items():
        assert len(born) == 1, f"delegation {place} has children {born}"
        _check_child(facts, place, *born[0])
    for found in facts.values():
        for identity, payload in found.log.items():
            if isinstance(payload, ChildRequested):
                _check_parent(facts, found, SubmissionId(identity.split("/")[0]), payload)


def _check_child(
    facts: Mapping[str, Facts], place: tuple[str, str], name: str, child: Submission
) -> None:
    parent, operation = place
    started = f"{parent}/{operation}/started"
    is_started = any(started in found.log for found in facts.values())
    if child.epoch > 0 or child.state not in {State.ADMITTED, State.SETTLED}:
        assert is_started, f"{child.id} is {child.state} before its parent has recorded it"
    if not is_started:
        log = facts[name].log
        kinds = {log[each].kind for each in log if each.startswith(f"{child.id}/")}
        assert kinds <= {"abort-requested", "settlement"}, kinds


def _check_parent(
    facts: Mapping[str, Facts], found: Facts, parent: SubmissionId, requested: ChildRequested
) -> None:
    operation = OperationId(requested.operation)
    joined = found.log.get(f"{parent}/{operation}/joined")
    home = facts.get(requested.conversation)
    child = None if home is None else home.submissions.get(SubmissionId(requested.submission))
    if isinstance(joined, ChildJoined):
        if child is None:
            code = (joined.failure or {}).get("error_type")
            assert code in REFUSED, f"{operation} is joined without a child: {joined}"
        else:
            assert not child.is_open, f"{operation} is joined before its child has settled"
            assert (child.outcome, child.id) == (joined.outcome, joined.submission)
    settled: Any = found.log.get(f"{parent}/settlement")
    if settled is not None and joined is None:
        assert operation in settled.unknown_operations, f"{parent} has settled without {operation}"
        assert settled.effects_may_have_happened
