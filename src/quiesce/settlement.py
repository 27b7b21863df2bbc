"""The one terminal outcome: record and row in one commit.

1. A submission is settled exactly once. The record's id is derived from the submission, the row is left only by
   the state and epoch that were read, and both happen in one commit or not at all.
2. The log is the authority: a settlement that stands there is finished in the ledger as it stands.
3. What had joined the submission settles with it, and whatever was open of it is closed, in that same commit.
4. A call that may have happened is listed as unknown, never as undone.
5. An abort that was recorded first wins over a result that comes later.
"""

from dataclasses import dataclass, replace
from typing import Any

from quiesce import conversation_log, ledger, operations, signals
from quiesce.conversation_log import Entry, Tail
from quiesce.errors import Corruption
from quiesce.generation_record import Cost
from quiesce.ids import RecordId, SubmissionId, record_id
from quiesce.ledger import Submission
from quiesce.operations import OpenOperation
from quiesce.records import SettlementRecorded
from quiesce.states import OutcomeKind, State
from quiesce.storage import Storage

FAILURE_TYPE_MAX = 100
FAILURE_MESSAGE_MAX = 2_000
JOINS_MAX = 64
"""So many submissions can join one host: they settle with it in one commit."""
_COMPLETED_KINDS = frozenset({"step-completed", "tool-settled"})


@dataclass(frozen=True, slots=True)
class Completed:
    """The handler returned this value."""

    result: Any


@dataclass(frozen=True, slots=True)
class FailedForGood:
    """The submission failed: a bounded diagnostic, without a stack and without a cause."""

    error_type: str
    message: str


@dataclass(frozen=True, slots=True)
class Aborted:
    """Somebody ended it."""

    reason: str


type Verdict = Completed | FailedForGood | Aborted


@dataclass(frozen=True, slots=True)
class Settlement:
    """A recorded settlement, as it is read back."""

    submission: Submission
    settled_at_ms: int
    recorded: SettlementRecorded


def settlement_id(submission: SubmissionId) -> RecordId:
    """Derive the id of the one settlement record of a submission."""
    return record_id(submission, "settlement")


def settle(
    storage: Storage, submission: Submission, verdict: Verdict, now_ms: int, cost: Cost
) -> list[SubmissionId]:
    """Append the settlement and finalize the row; returns every submission that this has settled.

    Runs inside a commit. `cost` is all the work before it.
    """
    closed: list[OpenOperation] = []
    if submission.state is not State.READY:
        closed = operations.close_all(storage, submission.sequence)
    signals.delete_all(storage, submission.sequence)
    recorded = _recorded(storage, submission, verdict, cost)
    unknown = [each.operation for each in closed if each.detail.get("effect") == "uncertain"]
    if unknown:
        update = {"effects_may_have_happened": True, "unknown_operations": unknown}
        recorded = recorded.model_copy(update=update)
    joined = joined_to(storage, submission)
    end = conversation_log.tail(storage)
    if submission.sequence == end.head:
        last = joined[-1] if joined else submission
        end = replace(end, head=ledger.head_behind(storage, last.sequence))
    end = _append(storage, end, submission, recorded, now_ms)
    _finalize(storage, submission, recorded.outcome, now_ms, cost)
    for each in joined:
        with_host = SettlementRecorded(
            outcome=recorded.outcome, host=submission.id, cost=each.cost.model_dump()
        )
        end = _append(storage, end, each, with_host, now_ms)
        _finalize(storage, each, recorded.outcome, now_ms, each.cost)
    return [submission.id, *(each.id for each in joined)]


def joined_to(storage: Storage, host: Submission) -> list[Submission]:
    """Read the submissions that have joined a host: the unbroken run of open rows directly behind it."""
    if host.host_sequence != host.sequence:
        return []
    behind = ledger.open_page(storage, host.sequence, JOINS_MAX + 1)
    joined: list[Submission] = []
    for each in behind:
        if each.host_sequence != host.sequence:
            break
        joined.append(each)
    return joined


def _append(
    storage: Storage, end: Tail, submission: Submission, recorded: SettlementRecorded, now_ms: int
) -> Tail:
    entry = Entry(settlement_id(submission.id), submission.id, submission.epoch or None, recorded)
    return conversation_log.append(storage, end, entry, now_ms, settles=1)


def finish_from_history(storage: Storage, submission: Submission) -> None:
    """Bring a row to the settlement that the log holds for it, at the time it has there. Runs inside a commit."""
    found = read(storage, submission)
    if found is None:
        raise Corruption(f"{submission.id} has a settlement record", "none")
    outcome = found.recorded.outcome
    _finalize(storage, submission, outcome, found.settled_at_ms, submission.cost)
    operations.close_all(storage, submission.sequence)


def _finalize(
    storage: Storage, submission: Submission, outcome: OutcomeKind, now_ms: int, cost: Cost
) -> None:
    ledger.drop_deadline(storage, submission)
    ledger.move(
        storage,
        submission,
        State.SETTLED,
        now_ms,
        cost,
        outcome=outcome.value,
        settled_at_ms=now_ms,
        not_before_ms=None,
        interruptions=0,
    )


def _recorded(
    storage: Storage, submission: Submission, verdict: Verdict, cost: Cost
) -> SettlementRecorded:
    spent = cost.model_dump()
    match verdict:
        case Completed(result=result):
            return SettlementRecorded(outcome=OutcomeKind.COMPLETED, result=result, cost=spent)
        case FailedForGood(error_type=error_type, message=message):
            failure = {
                "error_type": error_type[:FAILURE_TYPE_MAX],
                "message": message[:FAILURE_MESSAGE_MAX],
            }
            return SettlementRecorded(
                outcome=OutcomeKind.FAILED,
                failure=failure,
                completed_operations=_completed_operations(storage, submission),
                cost=spent,
            )
        case Aborted(reason=reason):
            return SettlementRecorded(
                outcome=OutcomeKind.ABORTED,
                reason=reason[:FAILURE_MESSAGE_MAX],
                completed_operations=_completed_operations(storage, submission),
                cost=spent,
            )


def _completed_operations(storage: Storage, submission: Submission) -> list[str]:
    records = conversation_log.of_submission(storage, submission.id)
    return [record.record_id.split("/")[1] for record in records if record.kind in _COMPLETED_KINDS]


def read(storage: Storage, submission: Submission) -> Settlement | None:
    """Read the settlement of a submission from the log, or None while it is owed.

    What had joined a host is answered with the host's result.
    """
    found = _read_record(storage, submission.id)
    if found is None:
        return None
    settled_at_ms, recorded = found
    if recorded.host is not None:
        host = _read_record(storage, SubmissionId(recorded.host))
        if host is None:
            raise Corruption(
                f"{submission.id} settled with its host {recorded.host}", "no settlement"
            )
        recorded = recorded.model_copy(
            update={"result": host[1].result, "failure": host[1].failure}
        )
    return Settlement(submission, settled_at_ms, recorded)


def _read_record(
    storage: Storage, submission: SubmissionId
) -> tuple[int, SettlementRecorded] | None:
    record = conversation_log.read(storage, settlement_id(submission))
    if record is None:
        return None
    recorded = record.parsed()
    if not isinstance(recorded, SettlementRecorded):
        raise Corruption(f"{record.record_id} is a settlement", record.kind)
    return record.created_at_ms, recorded
