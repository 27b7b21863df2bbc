"""verify: a whole conversation is held against its laws, a page at a time, while its work goes on.

1. It writes nothing, and mends nothing that it finds: not even an alarm, which any other request would put right.
2. A turn reads one page of the log with the rows of its submissions, then one page of the ledger, and gives way; so
   the Object is never held for long. What is kept in memory grows with what is open, and with history only by the
   ids of records that are of no submission.
3. What work may still change is looked at in one last turn, which the storage's transaction makes whole: the rest
   of the log, the open rows, the tail, the generation record and the alarm. Work that goes on is no problem then.
4. One check of a conversation runs at a time; another is refused meanwhile.
5. What cannot be parsed is a broken law like any other. Only a conversation that is not there is refused.
"""

import asyncio
from dataclasses import dataclass, field

from quiesce import conversation_log, ledger_facts, maintenance, operations, wake
from quiesce.errors import Refusal, RefusalCode
from quiesce.ids import ConversationId
from quiesce.invariants import BROKEN_MAX, Checker
from quiesce.lane import Lane
from quiesce.laws import BrokenLaw, Standing
from quiesce.states import State

RECORDS_MAX = 256
BYTES_MAX = 1_000_000
"""A turn reads at most so many records, and so many bytes of payload or one record."""
ROWS_MAX = 256
REST_MAX = 32
"""So little is left to the last turn, of the log and of the ledger."""
RETRY_AFTER_S = 5
PAUSE_S = 0.01
"""Between two turns: what has come in meanwhile is served."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What a check has read, up to which record, and every law that it found broken, up to a bound."""

    conversation: ConversationId
    records: int
    submissions: int
    tail_sequence: int
    tail_digest: str
    """The chain up to and with the last record."""
    broken: tuple[BrokenLaw, ...]
    is_truncated: bool


async def verify(lane: Lane, conversation: ConversationId) -> Verification:
    """Hold a conversation against its laws.

    Raises Refusal: `not-found`, `rate-limited`. Raises NewerStorage.
    """
    if wake.load(lane.storage) is None:
        # Only what is virgin is refused: a first record that names nobody, or somebody else, is told.
        lane.require_conversation(conversation)
    if lane.is_verifying:
        message = "this conversation is being verified already; try again when that is over"
        raise Refusal(RefusalCode.RATE_LIMITED, message, {"retry_after_s": RETRY_AFTER_S})
    checker = Checker(conversation)
    check = _Check(lane, checker)
    lane.is_verifying = True
    try:
        while check.goes_on():
            check.take_page()
            await asyncio.sleep(PAUSE_S)
        await lane.storage.transaction(lambda slot: check.end(slot.at_ms))
    finally:
        lane.is_verifying = False
    return Verification(
        conversation=conversation,
        records=checker.records,
        submissions=checker.submissions,
        tail_sequence=checker.sequence,
        tail_digest=checker.chain,
        broken=tuple(checker.broken),
        is_truncated=checker.is_truncated,
    )


@dataclass(slots=True)
class _Check:
    lane: Lane
    checker: Checker
    place: int = 0
    """Up to where the ledger has been read."""
    open_places: set[int] = field(default_factory=set)
    """Where a row was open when it was read: it is read again in the last turn."""

    def goes_on(self) -> bool:
        """Say whether more is left than the last turn may read."""
        end = conversation_log.tail(self.lane.storage)
        return max(end.sequence - self.checker.sequence, end.last - self.place) > REST_MAX

    def take_page(self) -> None:
        """Read one page of the log, and of the ledger as far as the log has come."""
        is_at_end = self._take_records() < RECORDS_MAX
        if is_at_end or self.place < self.checker.applied_place:
            self._take_rows()

    def end(self, alarm_at_ms: int | None) -> None:
        """Read the rest, and hold the lane against what was read."""
        storage = self.lane.storage
        while self._take_records():
            pass
        while self._take_rows():
            pass
        self.checker.read_rows(ledger_facts.facts_at(storage, self.open_places))
        self.checker.finish(self._standing(alarm_at_ms))

    def _take_records(self) -> int:
        storage = self.lane.storage
        page = conversation_log.page(storage, self.checker.sequence, RECORDS_MAX, BYTES_MAX)
        owners = {each.submission for each in page if each.submission is not None}
        rows = {each.id: each for each in ledger_facts.facts_of(storage, owners)}
        self.checker.read_records(page, rows)
        return len(page)

    def _take_rows(self) -> int:
        rows = ledger_facts.facts(self.lane.storage, self.place, ROWS_MAX)
        for row in rows:
            self.place = row.sequence
            if row.state != State.SETTLED:
                self.open_places.add(row.sequence)
        self.checker.read_rows(each for each in rows if each.state == State.SETTLED)
        return len(rows)

    def _standing(self, alarm_at_ms: int | None) -> Standing:
        lane = self.lane
        end, record = conversation_log.tail(lane.storage), wake.load(lane.storage)
        assert record is not None
        return Standing(
            settled_total=end.settled,
            head=end.head,
            dirty=record.dirty,
            processed=record.processed,
            due_at_ms=record.due_at_ms,
            alarm_at_ms=alarm_at_ms,
            pass_runs=lane.gates.passing > 0,
            is_in_delivery=maintenance.may_be_in_delivery(lane, lane.clock()),
            nonterminal=record.nonterminal,
            stray_operations=tuple(operations.strays(lane.storage, BROKEN_MAX)),
            unreadable=wake.unreadable(lane.storage),
        )
