"""The one terminal outcome: record and row in one commit.

1. A submission is settled exactly once. The record's id is derived from the submission, the row is left only by
   the state and epoch that were read, and both happen in one commit or not at all.
2. The log is the authority: a settlement that stands there is finished in the ledger as it stands.
3. A submission with children that have not settled only reserves its settlement, which is then fixed: the children
   are aborted, and it settles exactly so when the last of them has.
4. What had joined the submission settles with it, and whatever was open of it is closed, in that same commit.
5. A call that may have happened is listed as unknown, never as undone.
6. An abort that was recorded first wins over a result that comes later.
"""

from dataclasses import dataclass, replace
from typing import Any

from quiesce import agenda, conversation_log, ledger, operations, outbox, signals
from quiesce.conversation_log import Entry, Tail
from quiesce.errors import Corruption
from quiesce.generation_record import Cost
from quiesce.ids import RecordId, SubmissionId, parse_json, record_id
from quiesce.ledger import Submission
from quiesce.operations import OpenOperation, OperationKind
from quiesce.outbox import MessageKind
from quiesce.records import SettlementRecorded, SettlementReserved
from quiesce.states import OutcomeKind, State
from quiesce.storage import Storage
from quiesce.telemetry import Settled

FAILURE_TYPE_MAX = 100
FAILURE_MESSAGE_MAX = 2_000
JOINS_MAX = 64
"""So many submissions can join one host: they settle with it in one commit."""
COMPLETED_SHOWN_MAX = 1_000
"""A settlement names so many completed operations: its record is one row, and a row has a limit."""
_COMPLETED_KINDS = ("step-completed", "tool-settled")


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
    """Somebody ended it; its children are aborted first, unless it `detaches` them."""

    reason: str
    detaches: bool = False


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


def conclude(
    storage: Storage, submission: Submission, verdict: Verdict, now_ms: int, cost: Cost
) -> list[Settled]:
    """Settle a submission, or reserve its settlement while it has children that have not settled.

    Runs inside a commit; returns every submission that this has settled. `cost` is all the work before it.
    """
    closed: list[OpenOperation] = []
    if submission.epoch > 0 and submission.is_entangled:
        # What was never claimed has opened nothing; what was, and is ready again, may have.
        closed = operations.of_submission(storage, submission.sequence)
    children = [each for each in closed if each.kind is OperationKind.CHILD]
    if closed:
        operations.close_all(storage, submission.sequence)
    unknown: list[str] = [
        each.operation for each in closed if each.detail.get("effect") == "uncertain"
    ]
    if children and isinstance(verdict, Aborted) and verdict.detaches:
        unknown += [each.operation for each in children]
        _let_go(storage, children, now_ms)
    elif children:
        _reserve(storage, submission, _reserved(verdict, unknown), now_ms, cost)
        _owe_aborts(storage, children)
        return []
    recorded = _recorded(storage, submission, verdict, cost)
    if unknown:
        update = {"effects_may_have_happened": True, "unknown_operations": unknown}
        recorded = recorded.model_copy(update=update)
    return _settle(storage, submission, recorded, now_ms, cost)


def settle_reserved(
    storage: Storage, submission: Submission, now_ms: int, cost: Cost
) -> list[Settled]:
    """Settle a submission exactly as it was reserved, inside a commit; children that are still open are let go."""
    left = operations.close_all(storage, submission.sequence)
    _let_go(storage, left, now_ms)
    record = conversation_log.read(storage, record_id(submission.id, "reserved"))
    reserved = None if record is None else record.parsed()
    if not isinstance(reserved, SettlementReserved):
        raise Corruption(f"{submission.id} has a reserved settlement", "none")
    unknown = [*reserved.unknown_operations, *(each.operation for each in left)]
    recorded = SettlementRecorded(
        outcome=reserved.outcome,
        result=reserved.result,
        failure=reserved.failure,
        reason=reserved.reason,
        effects_may_have_happened=bool(unknown),
        completed_operations=_completed_operations(storage, submission),
        unknown_operations=unknown,
        cost=cost.fields(),
    )
    return _settle(storage, submission, recorded, now_ms, cost)


def _reserved(verdict: Verdict, unknown: list[str]) -> SettlementReserved:
    match verdict:
        case Completed(result=result):
            return SettlementReserved(
                outcome=OutcomeKind.COMPLETED, result=result, unknown_operations=unknown
            )
        case FailedForGood():
            return SettlementReserved(
                outcome=OutcomeKind.FAILED,
                failure=_failure(verdict),
                unknown_operations=unknown,
            )
        case Aborted(reason=reason):
            return SettlementReserved(
                outcome=OutcomeKind.ABORTED,
                reason=reason[:FAILURE_MESSAGE_MAX],
                unknown_operations=unknown,
            )


def _reserve(
    storage: Storage,
    submission: Submission,
    reserved: SettlementReserved,
    now_ms: int,
    cost: Cost,
) -> None:
    """Fix how the submission will settle."""
    identity = record_id(submission.id, "reserved")
    entry = Entry(identity, submission.id, submission.epoch or None, reserved)
    conversation_log.append(storage, conversation_log.tail(storage), entry, now_ms)
    if submission.deadline_at_ms is not None:
        agenda.remove(storage, agenda.deadline(submission.sequence, submission.deadline_at_ms))
    ledger.move(
        storage,
        submission,
        State.TERMINALIZING,
        now_ms,
        cost,
        interruptions=0,
        not_before_ms=None,
        abort=None,
    )


def _owe_aborts(storage: Storage, children: list[OpenOperation]) -> None:
    for child in children:
        detail = {
            **child.detail,
            "is_aborting": True,
            "is_owed": True,
            "tries": 0,
            "next_try_ms": 0,
        }
        operations.open_(storage, replace(child, detail=detail))


def _let_go(storage: Storage, children: list[OpenOperation], now_ms: int) -> None:
    """Owe their end to children that nobody has established: no parent is left to do it."""
    for each in children:
        if each.detail.get("is_owed"):
            outbox.owe_orphan(storage, each, now_ms)


def _settle(
    storage: Storage,
    submission: Submission,
    recorded: SettlementRecorded,
    now_ms: int,
    cost: Cost,
) -> list[Settled]:
    joined = joined_to(storage, submission)
    end = conversation_log.tail(storage)
    if submission.sequence == end.head:
        last = joined[-1] if joined else submission
        end = replace(end, head=ledger.head_behind(storage, last.sequence))
    end = _append(storage, end, submission, recorded, now_ms)
    _finalize(storage, submission, recorded.outcome, now_ms, cost)
    settled = [_settled(submission, recorded, now_ms, cost)]
    for each in joined:
        with_host = SettlementRecorded(
            outcome=recorded.outcome, host=submission.id, cost=each.cost.fields()
        )
        end = _append(storage, end, each, with_host, now_ms)
        _finalize(storage, each, recorded.outcome, now_ms, each.cost)
        settled.append(_settled(each, recorded, now_ms, each.cost))
    return settled


def settled_as(found: Settlement) -> Settled:
    """Say how a submission has settled, for whoever is told."""
    submission = found.submission
    return _settled(submission, found.recorded, found.settled_at_ms, submission.cost)


def _settled(
    submission: Submission, recorded: SettlementRecorded, settled_at_ms: int, cost: Cost
) -> Settled:
    error_type = None if recorded.failure is None else str(recorded.failure["error_type"])
    return Settled(submission, recorded.outcome, error_type, settled_at_ms, cost)


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


def finish_from_history(storage: Storage, submission: Submission) -> list[Settled]:
    """Bring a row to the settlement that the log holds for it, at the time it has there. Runs inside a commit."""
    found = read(storage, submission)
    if found is None:
        raise Corruption(f"{submission.id} has a settlement record", "none")
    outcome = found.recorded.outcome
    _finalize(storage, submission, outcome, found.settled_at_ms, submission.cost)
    operations.close_all(storage, submission.sequence)
    return [settled_as(found)]


def _finalize(
    storage: Storage, submission: Submission, outcome: OutcomeKind, now_ms: int, cost: Cost
) -> None:
    if submission.is_entangled:
        signals.delete_all(storage, submission.sequence)
    if submission.deadline_at_ms is not None:
        agenda.remove(storage, agenda.deadline(submission.sequence, submission.deadline_at_ms))
    if submission.parent is not None:
        outbox.owe(storage, MessageKind.PARENT, submission.id, now_ms)
    if parse_json(submission.terms)["callback_url"] is not None:
        outbox.owe(storage, MessageKind.CALLBACK, submission.id, now_ms)
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
    spent = cost.fields()
    match verdict:
        case Completed(result=result):
            return SettlementRecorded(outcome=OutcomeKind.COMPLETED, result=result, cost=spent)
        case FailedForGood():
            return SettlementRecorded(
                outcome=OutcomeKind.FAILED,
                failure=_failure(verdict),
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


def _failure(verdict: FailedForGood) -> dict[str, Any]:
    return {
        "error_type": verdict.error_type[:FAILURE_TYPE_MAX],
        "message": verdict.message[:FAILURE_MESSAGE_MAX],
    }


def _completed_operations(storage: Storage, submission: Submission) -> list[str]:
    """Name what the submission has completed, as far as one record can hold it; the log has it all."""
    found = conversation_log.ids_of(storage, submission.id, _COMPLETED_KINDS, COMPLETED_SHOWN_MAX)
    return [each.split("/")[1] for each in found]


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
