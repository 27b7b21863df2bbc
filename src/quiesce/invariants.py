"""The laws of a whole conversation, checked over an export of it.

 1. Record sequences start at 1 and have no gap; record ids are unique.
 2. Every content digest and every link of the chain can be recomputed.
 3. A settled submission has exactly one settlement record, with the outcome that its row names; an open one none.
 4. An input is applied at most once, and before anything else of its submission.
 5. Inputs are applied in the order of admission, and nothing of a submission follows its settlement.
 6. Work that ran is settled in the order in which its inputs were applied.
 7. The totals of the tail say how many submissions are settled and which one heads the queue.
 8. Only a submission that has its input in the log is owned, suspended or unknown.
 9. A lane that is owed a pass, or waits for a clock, has an alarm.

Everything is pure: an export comes in, sentences about broken laws come out.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from quiesce.records import CHAIN_START, Record, chain_digest, content_digest
from quiesce.states import State

_WITHOUT_INPUT = frozenset(
    {"input-applied", "input-joined", "abort-requested", "operator-acted", "settlement"}
)
"""The kinds of record that a submission may have before its input is applied."""


@dataclass(frozen=True, slots=True)
class SubmissionFacts:
    """What the laws need to know of one row of the ledger."""

    sequence: int
    id: str
    state: State
    outcome: str | None
    is_owned: bool


@dataclass(frozen=True, slots=True)
class Export:
    """A conversation as it stands."""

    submissions: tuple[SubmissionFacts, ...]
    records: tuple[Record, ...]
    settled_total: int
    head: int
    dirty: int
    processed: int
    due_at_ms: int | None
    alarm_at_ms: int | None


def broken_laws(export: Export) -> list[str]:
    """Return one sentence for each law that the conversation breaks; none means that it holds."""
    return [
        *_log_laws(export),
        *_settlement_laws(export),
        *_order_laws(export),
        *_total_laws(export),
        *_liveness_laws(export),
    ]


def _log_laws(export: Export) -> Iterator[str]:
    chain = CHAIN_START
    seen: set[str] = set()
    for place, record in enumerate(export.records, start=1):
        if record.sequence != place:
            yield f"record {place} has sequence {record.sequence}"
        if record.record_id in seen:
            yield f"record id {record.record_id} stands twice"
        seen.add(record.record_id)
        content = content_digest(
            record.record_id, record.kind, record.submission, record.epoch, record.payload
        )
        if content != record.digest:
            yield f"record {record.sequence} does not have the digest of its content"
        chain = chain_digest(chain, record.sequence, content, record.created_at_ms)
        if chain != record.chain:
            yield f"the chain is broken at record {record.sequence}"


def _settlement_laws(export: Export) -> Iterator[str]:
    recorded: dict[str, list[str]] = {}
    for record in export.records:
        if record.kind == "settlement":
            outcome = str(getattr(record.parsed(), "outcome", ""))
            recorded.setdefault(str(record.submission), []).append(outcome)
    for submission in export.submissions:
        outcomes = recorded.pop(submission.id, [])
        expected = [submission.outcome] if submission.state is State.SETTLED else []
        if outcomes != expected:
            yield f"{submission.id} is {submission.state} with settlement records {outcomes}"
    for unknown in recorded:
        yield f"a settlement belongs to no submission: {unknown}"


def _order_laws(export: Export) -> Iterator[str]:
    places = {submission.id: submission.sequence for submission in export.submissions}
    applied: list[str] = []
    ended: list[str] = []
    for record in export.records:
        owner = record.submission or ""
        if owner and record.kind not in _WITHOUT_INPUT and owner not in applied:
            yield f"record {record.sequence} stands before the input of {owner}"
        if owner in ended:
            yield f"record {record.sequence} follows the settlement of {owner}"
        if record.kind == "input-applied":
            applied.append(owner)
        if record.kind == "settlement":
            ended.append(owner)
    if len(set(applied)) != len(applied):
        yield f"an input is applied twice: {applied}"
    if applied != sorted(applied, key=lambda owner: places.get(owner, 0)):
        yield f"inputs were applied out of the order of admission: {applied}"
    ran = [owner for owner in ended if owner in applied]
    if ran != [owner for owner in applied if owner in ended]:
        yield f"work that ran was settled out of order: {ran}"
    yield from _input_laws(export, set(applied))


def _input_laws(export: Export, applied: set[str]) -> Iterator[str]:
    running = {State.INPUT_APPLIED, State.SUSPENDED, State.UNKNOWN}
    for submission in export.submissions:
        needs_input = submission.is_owned or submission.state in running
        if needs_input and submission.id not in applied:
            yield f"{submission.id} is {submission.state} and its input is not in the log"


def _total_laws(export: Export) -> Iterator[str]:
    settled = sum(submission.state is State.SETTLED for submission in export.submissions)
    if settled != export.settled_total:
        yield f"the tail counts {export.settled_total} settled submissions, the ledger {settled}"
    open_places = [
        submission.sequence
        for submission in export.submissions
        if submission.state is not State.SETTLED
    ]
    last = max((submission.sequence for submission in export.submissions), default=0)
    head = min(open_places, default=last + 1)
    if head != export.head:
        yield f"the tail names {export.head} as the head of the queue, the ledger {head}"


def _liveness_laws(export: Export) -> Iterator[str]:
    if export.alarm_at_ms is not None:
        return
    if export.dirty > export.processed:
        yield f"generation {export.dirty} is owed ({export.processed} processed) and no alarm is set"
    if export.due_at_ms is not None:
        yield f"something is due at {export.due_at_ms} and no alarm is set"
