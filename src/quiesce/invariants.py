"""The laws of a whole conversation, checked while its log and its ledger are read.

 1. Record sequences start at 1 and have no gap; record ids are unique, and a submission's begin with its id.
 2. Every content digest and every link of the chain can be recomputed; a payload is one of its kind, and is missing
    only where its submission was purged. Its digest is then the stored one, which the chain covers.
 3. A settled submission has exactly one settlement record, with the outcome that its row names; an open one none.
 4. An input is applied at most once, and before anything else of its submission.
 5. Inputs are applied in the order of admission, and nothing of a submission follows its settlement.
 6. Work that ran is settled in the order in which its inputs were applied.
 7. The totals of the tail say how many submissions are settled and which one heads the queue.
 8. Only a submission that has its input in the log is owned, suspended or unknown.
 9. A lane that is owed a pass, or waits for a clock, has an alarm, or a pass that runs.
10. A lane that is caught up remembers how many submissions are open, and operations stand of these only.
11. The generation record can be read, and none that could not be was put aside.

Everything is pure: records and rows come in, broken laws come out. A Checker forgets a submission once its row and
its settlement agree, so that what it keeps grows with what is open, and with history only by the ids of records
that are of no submission. Whoever feeds it a page of records gives it the rows of their submissions as they stood
in the same turn; the row of a settled submission comes once, whenever that may be, and that of an open one in the
turn in which the check ends.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from quiesce.errors import Corruption
from quiesce.laws import BrokenLaw, Law, Standing, SubmissionFacts
from quiesce.records import (
    CHAIN_START,
    ConversationCreated,
    Payload,
    Record,
    chain_digest,
    content_digest,
)
from quiesce.states import OPEN, State

BROKEN_MAX = 100
"""So many broken laws are told; what more there are is only noted."""
_WITHOUT_INPUT = frozenset(
    {"input-applied", "input-joined", "abort-requested", "operator-acted", "settlement"}
)
"""The kinds of record that a submission may have before its input is applied."""
_NEED_INPUT = frozenset({State.INPUT_APPLIED, State.SUSPENDED, State.UNKNOWN})


@dataclass(frozen=True, slots=True)
class Export:
    """A conversation as it stands, all of it in memory."""

    submissions: tuple[SubmissionFacts, ...]
    records: tuple[Record, ...]
    settled_total: int
    head: int
    dirty: int
    processed: int
    due_at_ms: int | None
    alarm_at_ms: int | None
    nonterminal: int | None = None


def broken_laws(export: Export) -> list[str]:
    """Return one sentence for each law that the conversation breaks; none means that it holds."""
    checker = Checker()
    checker.read_records(export.records, {each.id: each for each in export.submissions})
    checker.read_rows(export.submissions)
    checker.finish(
        Standing(
            settled_total=export.settled_total,
            head=export.head,
            dirty=export.dirty,
            processed=export.processed,
            due_at_ms=export.due_at_ms,
            alarm_at_ms=export.alarm_at_ms,
            nonterminal=export.nonterminal,
        )
    )
    return [each.found for each in checker.broken]


@dataclass(slots=True)
class _Story:
    """What the log has told of one submission that is not done with."""

    began_at: int | None = None
    applied_at: int | None = None
    settled_at: int | None = None
    outcomes: list[str | None] = field(default_factory=list)
    """What its settlement records say; None where that was purged."""
    record_ids: set[str] = field(default_factory=set)
    row: SubmissionFacts | None = None
    is_told: bool = False
    """That its records stand before its input was said once."""

    def agrees(self) -> bool:
        """Say whether its row and its settlement are there, and say the same."""
        if self.row is None or self.row.state != State.SETTLED or len(self.outcomes) != 1:
            return False
        return self.outcomes[0] in {self.row.outcome, None}


class Checker:
    """One check under way."""

    def __init__(self, conversation: str | None = None) -> None:
        self._conversation = conversation
        self.broken: list[BrokenLaw] = []
        self.is_truncated = False
        """More laws are broken than are told."""
        self.records = 0
        self.submissions = 0
        self.sequence = 0
        """The last record that was read."""
        self.chain = CHAIN_START
        self.applied_place = 0
        """The greatest place in the queue whose input was applied."""
        self._link = CHAIN_START
        """What the chain should have been there."""
        self._stories: dict[str, _Story] = {}
        self._loose_ids: set[str] = set()
        self._ran_until = 0
        self._settled = 0
        self._open: list[int] = []
        self._last = 0

    @property
    def kept(self) -> int:
        """How many submissions are remembered: the open ones, and those that are not yet told of in full."""
        return len(self._stories)

    def read_records(self, page: Iterable[Record], rows: Mapping[str, SubmissionFacts]) -> None:
        """Take in the next records, in the order of the log, with the rows of their submissions by id."""
        for record in page:
            self.records += 1
            self._check_place(record)
            payload = self._check_content(record, rows)
            if record.sequence == 1:
                self._check_first(record, payload)
            if record.submission is not None:
                story = self._tell(record, record.submission)
                if record.kind == "input-applied":
                    self._apply(record, story, rows.get(record.submission))
                elif record.kind == "settlement":
                    self._settle(record, story, payload)
                    self._forget(record.submission, story)
            elif record.record_id in self._loose_ids:
                self._break_at(record, Law.RECORD_ID, f"record id {record.record_id} stands twice")
            else:
                self._loose_ids.add(record.record_id)

    def read_rows(self, rows: Iterable[SubmissionFacts]) -> None:
        """Take in rows of the ledger, each once, and an open one only in the turn in which the check ends."""
        for row in rows:
            self.submissions += 1
            self._last = max(self._last, row.sequence)
            story = self._stories.setdefault(row.id, _Story())
            story.row = row
            if row.state == State.SETTLED:
                self._settled += 1
            else:
                self._open.append(row.sequence)
            self._forget(row.id, story)

    def finish(self, standing: Standing) -> None:
        """Hold what is left against how the lane stands; every row and every record has been read."""
        if self.records == 0:
            self._break(Law.CONVERSATION, "the log is empty")
        for submission, story in self._stories.items():
            if story.row is None:
                self._check_orphan(submission, story)
            else:
                self._check_row(story, story.row)
        self._check_totals(standing)
        self._check_liveness(standing)

    # One record.

    def _check_place(self, record: Record) -> None:
        if record.sequence != self.sequence + 1:
            found = f"record {self.sequence + 1} has sequence {record.sequence}"
            self._break_at(record, Law.SEQUENCE, found)
        self.sequence = record.sequence
        rest = (record.sequence, record.digest, record.created_at_ms)
        link = chain_digest(self.chain, *rest)
        if record.chain == link:
            self._link = link
        # Behind a broken link, what should have stood there is as good: each break is told once.
        elif self._link == self.chain or record.chain != chain_digest(self._link, *rest):
            found = f"the chain is broken at record {record.sequence}"
            self._break_at(record, Law.CHAIN, found)
            self._link = link
        else:
            self._link = record.chain
        self.chain = record.chain

    def _check_content(self, record: Record, rows: Mapping[str, SubmissionFacts]) -> Payload | None:
        if record.payload is None:
            row = rows.get(record.submission or "")
            if row is None or not row.is_purged:
                found = f"record {record.sequence} has no payload, and nothing was purged there"
                self._break_at(record, Law.PAYLOAD, found)
            return None
        content = content_digest(
            record.record_id,
            record.kind,
            record.submission,
            record.epoch,
            record.payload,
            version=record.version,
        )
        if content != record.digest:
            found = f"record {record.sequence} does not have the digest of its content"
            self._break_at(record, Law.DIGEST, found)
        try:
            return record.parsed()
        except Corruption as corruption:
            found = f"record {record.sequence} is no {record.kind}: {corruption.found}"
            self._break_at(record, Law.PAYLOAD, found)
            return None

    def _check_first(self, record: Record, payload: Payload | None) -> None:
        named = payload.conversation if isinstance(payload, ConversationCreated) else None
        if payload is not None and (named is None or self._conversation not in {None, named}):
            found = f"the first record names {named!r}, the conversation is {self._conversation!r}"
            self._break_at(record, Law.CONVERSATION, found)

    def _tell(self, record: Record, owner: str) -> _Story:
        story = self._stories.setdefault(owner, _Story())
        story.began_at = story.began_at or record.sequence
        if record.record_id in story.record_ids:
            self._break_at(record, Law.RECORD_ID, f"record id {record.record_id} stands twice")
        story.record_ids.add(record.record_id)
        if not record.record_id.startswith(f"{owner}/"):
            found = f"record {record.sequence} of {owner} is named {record.record_id}"
            self._break_at(record, Law.RECORD_ID, found)
        if story.settled_at is not None:
            found = f"record {record.sequence} follows the settlement of {owner}"
            self._break_at(record, Law.ORDER, found)
        is_early = record.kind not in _WITHOUT_INPUT and story.applied_at is None
        if is_early and not story.is_told:
            story.is_told = True
            found = f"record {record.sequence} stands before the input of {owner}"
            self._break_at(record, Law.INPUT, found)
        return story

    def _apply(self, record: Record, story: _Story, row: SubmissionFacts | None) -> None:
        owner = record.submission
        if story.applied_at is not None:
            self._break_at(record, Law.INPUT, f"an input is applied twice: {owner}")
            return
        story.applied_at = record.sequence
        if row is None:
            return
        if row.sequence < self.applied_place:
            found = f"inputs were applied out of the order of admission: number {row.sequence}"
            self._break_at(record, Law.ORDER, f"{found} after number {self.applied_place}")
        self.applied_place = max(self.applied_place, row.sequence)

    def _settle(self, record: Record, story: _Story, payload: Payload | None) -> None:
        is_purged = record.payload is None
        story.outcomes.append(None if is_purged else str(getattr(payload, "outcome", "")))
        if story.settled_at is None and story.applied_at is not None:
            if story.applied_at < self._ran_until:
                found = f"work that ran was settled out of order: {record.submission}"
                self._break_at(record, Law.ORDER, found)
            self._ran_until = max(self._ran_until, story.applied_at)
        story.settled_at = record.sequence

    def _forget(self, owner: str, story: _Story) -> None:
        if story.agrees():
            del self._stories[owner]

    # One submission, once everything is read.

    def _check_orphan(self, owner: str, story: _Story) -> None:
        if story.outcomes:
            found = f"a settlement belongs to no submission: {owner}"
            self._break(Law.SETTLEMENT, found, story.settled_at, owner)
        else:
            found = f"record {story.began_at} belongs to no submission that was open then: {owner}"
            self._break(Law.ORDER, found, story.began_at, owner)

    def _check_row(self, story: _Story, row: SubmissionFacts) -> None:
        is_settled = row.state == State.SETTLED
        if not is_settled and row.state not in OPEN:
            self._break(Law.STATE, f"{row.id} stands in no known state: {row.state}", None, row.id)
        if is_settled or story.outcomes:
            said = ["purged" if each is None else each for each in story.outcomes]
            found = f"{row.id} is {row.state} with settlement records {said}"
            self._break(Law.SETTLEMENT, found, story.settled_at, row.id)
        needs_input = row.is_owned or row.state in _NEED_INPUT
        if needs_input and story.applied_at is None:
            found = f"{row.id} is {row.state} and its input is not in the log"
            self._break(Law.INPUT, found, None, row.id)

    # The lane.

    def _check_totals(self, standing: Standing) -> None:
        if self._settled != standing.settled_total:
            found = f"the tail counts {standing.settled_total} settled submissions, the ledger {self._settled}"
            self._break(Law.TOTALS, found)
        head = min(self._open, default=self._last + 1)
        if head != standing.head:
            found = f"the tail names {standing.head} as the head of the queue, the ledger {head}"
            self._break(Law.TOTALS, found)
        is_caught_up = standing.dirty <= standing.processed and not standing.pass_runs
        remembered = standing.nonterminal
        if is_caught_up and remembered is not None and remembered != len(self._open):
            found = f"the generation record remembers {remembered} open submissions"
            self._break(Law.NONTERMINAL, f"{found}, the ledger has {len(self._open)}")
        for place in standing.stray_operations:
            found = f"operations are open of submission number {place}, which is not"
            self._break(Law.OPERATIONS, found)

    def _check_liveness(self, standing: Standing) -> None:
        if standing.unreadable is not None:
            self._break(Law.GENERATION_RECORD, standing.unreadable)
        if standing.alarm_at_ms is not None or standing.pass_runs or standing.is_in_delivery:
            return
        if standing.dirty > standing.processed:
            owed = f"generation {standing.dirty} is owed ({standing.processed} processed)"
            self._break(Law.ALARM, f"{owed} and no alarm is set")
        if standing.due_at_ms is not None:
            self._break(Law.ALARM, f"something is due at {standing.due_at_ms} and no alarm is set")

    def _break_at(self, record: Record, law: Law, found: str) -> None:
        self._break(law, found, record.sequence, record.submission)

    def _break(
        self, law: Law, found: str, sequence: int | None = None, submission: str | None = None
    ) -> None:
        if len(self.broken) < BROKEN_MAX:
            self.broken.append(BrokenLaw(law, found, sequence, submission))
        else:
            self.is_truncated = True
