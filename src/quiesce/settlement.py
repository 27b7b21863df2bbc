"""The one terminal outcome: record and row in one commit.

1. A submission is settled exactly once. The record's id is derived from the submission, the row is left only by
   the state and epoch that were read, and both happen in one commit or not at all.
2. The log is the authority: a settlement that stands there is finished in the ledger as it stands.
3. The settled submission leaves the head of the queue in that same commit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from quiesce import conversation_log, ledger
from quiesce.conversation_log import Entry
from quiesce.errors import Corruption
from quiesce.generation_record import Cost
from quiesce.ids import RecordId, SubmissionId, record_id
from quiesce.ledger import Submission
from quiesce.records import Record, SettlementRecorded
from quiesce.states import OutcomeKind, State
from quiesce.storage import Storage

FAILURE_TYPE_MAX = 100
FAILURE_MESSAGE_MAX = 2_000
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
    effects_may_have_happened: bool = False


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
) -> None:
    """Append the settlement and finalize the row. Runs inside a commit; `cost` is all the work before it."""
    payload = _payload(storage, submission, verdict, cost)
    end = conversation_log.tail(storage)
    head = end.head
    if submission.sequence == end.head:
        head = ledger.head_behind(storage, submission.sequence)
    entry = Entry(settlement_id(submission.id), submission.id, submission.epoch or None, payload)
    conversation_log.append(storage, end, entry, now_ms, settles=1, head=head)
    _finalize(storage, submission, payload.outcome, now_ms, cost)


def finish_from_history(storage: Storage, submission: Submission, now_ms: int) -> None:
    """Bring a row to the settlement that the log holds for it. Runs inside a commit."""
    found = read(storage, submission)
    if found is None:
        raise Corruption(f"{submission.id} has a settlement record", "none")
    _finalize(storage, submission, found.recorded.outcome, now_ms, submission.cost)


def _finalize(
    storage: Storage, submission: Submission, outcome: OutcomeKind, now_ms: int, cost: Cost
) -> None:
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


def _payload(
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
        case Aborted(reason=reason, effects_may_have_happened=effects):
            return SettlementRecorded(
                outcome=OutcomeKind.ABORTED,
                reason=reason[:FAILURE_MESSAGE_MAX],
                effects_may_have_happened=effects,
                completed_operations=_completed_operations(storage, submission),
                cost=spent,
            )


def _completed_operations(storage: Storage, submission: Submission) -> list[str]:
    records: Sequence[Record] = conversation_log.of_submission(storage, submission.id)
    return [record.record_id.split("/")[1] for record in records if record.kind in _COMPLETED_KINDS]


def read(storage: Storage, submission: Submission) -> Settlement | None:
    """Read the settlement of a submission from the log, or None while it is owed."""
    record = conversation_log.read(storage, settlement_id(submission.id))
    if record is None:
        return None
    recorded = record.parsed()
    if not isinstance(recorded, SettlementRecorded):
        raise Corruption(f"{record.record_id} is a settlement", record.kind)
    return Settlement(submission, record.created_at_ms, recorded)
