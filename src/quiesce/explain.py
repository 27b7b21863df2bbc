"""explain: for every open submission, what it waits for, what would move it, and how old that is.

1. The answer is what recovery decides about the submission, said for a person.
2. Age is measured from when the submission began to wait as it does now. Under an hour it is *ok*, under a day
   *aging*, beyond that *overdue*; a time that has passed by more than a minute is overdue at once.
3. It writes nothing, and reads a page at a time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from quiesce import conversation_log, inspection, ledger, operations, wake
from quiesce.ids import ConversationId, SubmissionId
from quiesce.lane import Lane
from quiesce.ledger import Submission
from quiesce.operations import OpenOperation, OperationKind, OperationState
from quiesce.recovery import Wait, WaitKind

AGING_MS = 3_600_000
OVERDUE_MS = 86_400_000
LATE_MS = 60_000

_MOVED_BY = {
    WaitKind.APPROVAL: "a decision, at the URL of the wait",
    WaitKind.SIGNAL: "the signal, at the URL of the wait",
    WaitKind.TIMER: "the clock",
    WaitKind.CHILD: "the settlement of the child",
    WaitKind.RESOLUTION: "a resolution, at the URL of the wait",
    WaitKind.RETRY: "the clock",
    WaitKind.HEAD: "the settlement of the submission in front of it",
    WaitKind.PARENT: "the parent, which has to establish it",
    WaitKind.AGENT_VERSION: "a deployment that serves this version of the agent",
    WaitKind.OPERATOR: "an operator, who retries or aborts it",
}


class Freshness(StrEnum):
    """Whether a wait has lasted so long that somebody should look."""

    OK = "ok"
    AGING = "aging"
    OVERDUE = "overdue"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why one open submission is where it is."""

    submission: Submission
    waiting_for: Wait | None
    moved_by: str
    age_ms: int
    freshness: Freshness
    open_operations: tuple[OpenOperation, ...]
    """Everything that is undecided or unproven of it, which may be more than the one that is named first."""


@dataclass(frozen=True, slots=True)
class LaneExplanation:
    """Why a lane is where it is: what is open, what heads it, and what nobody has decided."""

    nonterminal: int
    is_owed: bool
    """A pass is owed, and its alarm is set."""
    head: Explanation | None
    age_ms: int
    """How long ago the oldest open submission was accepted."""
    undecided: Mapping[OperationKind, int]
    """How many waits of each kind are open."""
    unknown_calls: int


def explain_lane(lane: Lane, conversation: ConversationId) -> LaneExplanation:
    """Explain the lane as a whole; what this reads grows with what is open, and not with history."""
    lane.require_conversation(conversation)
    record = wake.load(lane.storage)
    assert record is not None
    head = ledger.head(lane.storage)
    counted = operations.counted(lane.storage)
    waits = [kind for kind in OperationKind if kind is not OperationKind.TOOL]
    return LaneExplanation(
        nonterminal=conversation_log.tail(lane.storage).nonterminal,
        is_owed=record.is_owed,
        head=None if head is None else _explain(lane, head, head),
        age_ms=0 if head is None else max(0, lane.clock() - head.accepted_at_ms),
        undecided={kind: counted.get((kind, OperationState.WAITING), 0) for kind in waits},
        unknown_calls=counted.get((OperationKind.TOOL, OperationState.UNKNOWN), 0),
    )


def explain(lane: Lane, conversation: ConversationId, after: int, limit: int) -> list[Explanation]:
    """Explain a page of the open submissions, in the order of the queue."""
    lane.require_conversation(conversation)
    head = ledger.head(lane.storage)
    # What is open stands from the head on: history is not read to find it.
    after = max(after, conversation_log.tail(lane.storage).head - 1)
    return [_explain(lane, each, head) for each in ledger.open_page(lane.storage, after, limit)]


def explain_one(
    lane: Lane, conversation: ConversationId, submission: SubmissionId
) -> Explanation | None:
    """Explain one submission, or return None if it is settled."""
    found = lane.require_submission(conversation, submission)
    return _explain(lane, found, ledger.head(lane.storage)) if found.is_open else None


def _explain(lane: Lane, found: Submission, head: Submission | None) -> Explanation:
    now_ms = lane.clock()
    wait = inspection.waiting_for(lane, found, head)
    since_ms = found.state_since_ms if wait is None else wait.since_ms
    age_ms = max(0, now_ms - since_ms)
    return Explanation(
        submission=found,
        waiting_for=wait,
        moved_by="the lane's own alarm" if wait is None else _MOVED_BY[wait.kind],
        age_ms=age_ms,
        freshness=_freshness(wait, age_ms, now_ms),
        open_operations=tuple(operations.of_submission(lane.storage, found.sequence)),
    )


def _freshness(wait: Wait | None, age_ms: int, now_ms: int) -> Freshness:
    until_ms = None if wait is None else wait.until_ms
    if until_ms is not None:
        # A clock ends the wait: it is late when the clock has passed, however long it was meant to take.
        return Freshness.OVERDUE if now_ms > until_ms + LATE_MS else Freshness.OK
    if age_ms >= OVERDUE_MS:
        return Freshness.OVERDUE
    return Freshness.AGING if age_ms >= AGING_MS else Freshness.OK
