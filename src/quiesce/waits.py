"""How an open wait ends: by a decision, a signal, its time, a child's settlement, or because another branch won.

1. What ends a wait is a record; the record, the row of the wait and the state of its submission change in one
   commit.
2. In a wait-any, the first branch to end wins, and the others are closed in that same commit.
3. A suspended submission goes on when nothing of what it waits for is undecided, and not before.
"""

from collections.abc import Iterable

from quiesce import conversation_log, ledger, operations
from quiesce.conversation_log import Entry
from quiesce.generation_record import Cost
from quiesce.ids import OperationId, SubmissionId, record_id
from quiesce.ledger import Submission
from quiesce.operations import OpenOperation, OperationKind, OperationState
from quiesce.records import ApprovalDecided, ChoiceMade, Payload, SignalReceived, TimerFired
from quiesce.states import State
from quiesce.storage import Storage

ENDED_AS = {
    OperationKind.APPROVAL: "decided",
    OperationKind.SIGNAL: "received",
    OperationKind.TIMER: "fired",
    OperationKind.CHILD: "joined",
}
"""The last part of the id of the record that ends a wait of each kind."""


def end_wait(
    storage: Storage, submission: SubmissionId, wait: OpenOperation, payload: Payload, now_ms: int
) -> None:
    """End one wait by appending what ended it. Runs inside a commit; does not move the submission."""
    end = conversation_log.tail(storage)
    identity = record_id(submission, wait.operation, ENDED_AS[wait.kind])
    end = conversation_log.append(storage, end, Entry(identity, submission, None, payload), now_ms)
    operations.close(storage, wait)
    choice = wait.detail.get("choice")
    if choice is None:
        return
    made = ChoiceMade(operation=choice, winner=wait.operation)
    identity = record_id(submission, choice, "chosen")
    conversation_log.append(storage, end, Entry(identity, submission, None, made), now_ms)
    for other in operations.of_submission(storage, wait.submission_sequence):
        if other.detail.get("choice") == choice:
            operations.close(storage, other)


def resume_if_decided(storage: Storage, submission: Submission, now_ms: int, spent: Cost) -> None:
    """Let a suspended submission go on if nothing that it waits for is undecided. Runs inside a commit."""
    cost = submission.cost.plus(spent)
    left = operations.of_submission(storage, submission.sequence)
    undecided = [each for each in left if each.state is OperationState.WAITING]
    if submission.state is State.SUSPENDED and not undecided:
        ledger.move(storage, submission, State.INPUT_APPLIED, now_ms, cost)


def close_due(storage: Storage, submission: Submission, due: Iterable[str], now_ms: int) -> None:
    """Close the waits whose time has come, the earliest first, and go on if they were the last."""
    found = [operations.find(storage, submission.sequence, OperationId(each)) for each in due]
    for wait in sorted((each for each in found if each is not None), key=_due_at_ms):
        # An earlier one may have won a choice, and closed this one with it.
        if operations.find(storage, submission.sequence, wait.operation) is not None:
            end_wait(storage, submission.id, wait, expiry_of(wait, now_ms), now_ms)
    resume_if_decided(storage, submission, now_ms, Cost())


def earliest_due(storage: Storage, wait: OpenOperation, now_ms: int) -> OpenOperation | None:
    """Return what has come to its time first, of a wait and the branches beside it; None if nothing has."""
    beside = [wait]
    choice = wait.detail.get("choice")
    if choice is not None:
        left = operations.of_submission(storage, wait.submission_sequence)
        beside = [each for each in left if each.detail.get("choice") == choice]
    due = [each for each in beside if each.due_at_ms is not None and each.due_at_ms <= now_ms]
    return min(due, key=_due_at_ms, default=None)


def _due_at_ms(wait: OpenOperation) -> int:
    assert wait.due_at_ms is not None
    return wait.due_at_ms


def expiry_of(wait: OpenOperation, now_ms: int) -> Payload:
    """Return what is recorded when a wait comes to its time."""
    match wait.kind:
        case OperationKind.APPROVAL:
            return ApprovalDecided(
                operation=wait.operation,
                decision="expired",
                author=None,
                reason="nobody decided in time",
                decided_at_ms=now_ms,
            )
        case OperationKind.SIGNAL:
            return SignalReceived(
                operation=wait.operation,
                signal=wait.detail["signal"],
                payload=None,
                timed_out=True,
                author=None,
            )
        case _:
            return TimerFired(operation=wait.operation)
