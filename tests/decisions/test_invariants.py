"""Each law of a whole conversation is broken on purpose, and is reported; one that keeps them reports nothing.

Not tested here: that the engine keeps them; every test of a stage checks so at its end.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from quiesce.ids import RecordId, SubmissionId, record_id
from quiesce.invariants import Checker, Export, broken_laws
from quiesce.laws import Standing, SubmissionFacts
from quiesce.records import (
    CHAIN_START,
    RECORD_VERSION,
    ConversationCreated,
    InputApplied,
    Payload,
    Record,
    SettlementRecorded,
    StepCompleted,
    chain_digest,
    content_digest,
    payload_json,
)
from quiesce.states import OutcomeKind, State

ONE, TWO, THREE = (SubmissionId(f"sub_{digit * 32}") for digit in "123")
Entry = tuple[RecordId, SubmissionId | None, Payload]
CREATED: Entry = (record_id("conversation", "created"), None, ConversationCreated(conversation="c"))


def applied(owner: SubmissionId, part: str = "input") -> Entry:
    says = InputApplied(agent="echo", agent_version="1", input=None)
    return record_id(owner, part), owner, says


def step(owner: SubmissionId, name: str) -> Entry:
    says = StepCompleted(operation=name, arguments_digest="d", value=1)
    return record_id(owner, name, "completed"), owner, says


def settled(
    owner: SubmissionId, outcome: OutcomeKind = OutcomeKind.COMPLETED, part: str = "settlement"
) -> Entry:
    return record_id(owner, part), owner, SettlementRecorded(outcome=outcome, cost={})


def log(*entries: Entry) -> tuple[Record, ...]:
    """Chain records as the log does, written out here in its own words."""
    chain = CHAIN_START
    records = []
    for sequence, (identity, owner, says) in enumerate(entries, start=1):
        payload = payload_json(says)
        content = content_digest(identity, says.kind, owner, 1, payload)
        chain = chain_digest(chain, sequence, content, 1_000 + sequence)
        records.append(
            Record(
                sequence=sequence,
                record_id=identity,
                kind=says.kind,
                submission=owner,
                epoch=1,
                created_at_ms=1_000 + sequence,
                version=RECORD_VERSION,
                payload=payload,
                digest=content,
                chain=chain,
            )
        )
    return tuple(records)


def facts(
    sequence: int,
    owner: SubmissionId,
    state: State,
    outcome: str | None = None,
    *,
    is_owned: bool = False,
) -> SubmissionFacts:
    return SubmissionFacts(sequence, owner, state, outcome, is_owned)


DONE = facts(1, ONE, State.SETTLED, "completed")
RUNNING = facts(2, TWO, State.INPUT_APPLIED, is_owned=True)
WAITING = facts(3, THREE, State.READY)
ENTRIES = (CREATED, applied(ONE), step(ONE, "a"), settled(ONE), applied(TWO), step(TWO, "a"))
LAWFUL = Export(
    submissions=(DONE, RUNNING, WAITING),
    records=log(*ENTRIES),
    settled_total=1,
    head=2,
    dirty=9,
    processed=8,
    due_at_ms=None,
    alarm_at_ms=5_000,
)


def with_records(*entries: Entry) -> Export:
    return replace(LAWFUL, records=log(*entries))


def edited(place: int, change: Callable[[Record], Record]) -> Export:
    records = list(LAWFUL.records)
    records[place] = change(records[place])
    return replace(LAWFUL, records=tuple(records))


def without(records: Iterable[Record], place: int) -> tuple[Record, ...]:
    return tuple(each for each in records if each.sequence != place)


@pytest.mark.parametrize(
    "export",
    [
        pytest.param(LAWFUL, id="one-settled-one-running-one-queued"),
        pytest.param(
            Export((), log(CREATED), 0, 1, dirty=1, processed=1, due_at_ms=None, alarm_at_ms=None),
            id="nothing-submitted",
        ),
        pytest.param(
            replace(
                LAWFUL,
                submissions=(
                    DONE,
                    RUNNING,
                    replace(WAITING, state=State.SETTLED, outcome="aborted"),
                ),
                records=log(*ENTRIES, settled(THREE, OutcomeKind.ABORTED)),
                settled_total=2,
            ),
            id="settled-out-of-order-and-never-ran",
        ),
        pytest.param(replace(LAWFUL, dirty=8, alarm_at_ms=None), id="caught-up-and-no-alarm"),
        pytest.param(replace(LAWFUL, dirty=8, nonterminal=2), id="caught-up-and-remembered"),
        pytest.param(replace(LAWFUL, nonterminal=7), id="owed-and-not-yet-remembered"),
        pytest.param(
            replace(
                LAWFUL,
                submissions=(replace(DONE, is_purged=True), RUNNING, WAITING),
                records=tuple(
                    replace(each, payload=None) if each.submission == ONE else each
                    for each in LAWFUL.records
                ),
            ),
            id="one-is-purged",
        ),
        pytest.param(
            replace(LAWFUL, dirty=8, due_at_ms=9_000, alarm_at_ms=9_000), id="waits-for-a-clock"
        ),
    ],
)
def test_a_conversation_that_keeps_its_laws_reports_nothing(export: Export) -> None:
    assert broken_laws(export) == []


BROKEN = [
    pytest.param(
        replace(LAWFUL, records=without(LAWFUL.records, 3)), "record 3 has sequence 4", id="1-a-gap"
    ),
    pytest.param(
        replace(LAWFUL, records=without(LAWFUL.records, 1)),
        "record 1 has sequence 2",
        id="1-the-first-is-missing",
    ),
    pytest.param(
        with_records(*ENTRIES, step(TWO, "a")),
        f"{TWO}/a/completed stands twice",
        id="1-an-id-twice",
    ),
    pytest.param(
        edited(2, lambda each: replace(each, payload=each.payload.replace("1", "2"))),
        "record 3 does not have the digest of its content",
        id="2-a-payload-was-changed",
    ),
    pytest.param(
        edited(2, lambda each: replace(each, epoch=2)),
        "record 3 does not have the digest of its content",
        id="2-an-epoch-was-changed",
    ),
    pytest.param(
        edited(2, lambda each: replace(each, submission=TWO)),
        "record 3 does not have the digest of its content",
        id="2-an-owner-was-changed",
    ),
    pytest.param(
        edited(2, lambda each: replace(each, digest="0" * 64)),
        "record 3 does not have the digest of its content",
        id="2-a-digest-was-changed",
    ),
    pytest.param(
        edited(2, lambda each: replace(each, chain="0" * 64)),
        "the chain is broken at record 3",
        id="2-a-link-was-changed",
    ),
    pytest.param(
        edited(2, lambda each: replace(each, created_at_ms=1)),
        "the chain is broken at record 3",
        id="2-a-time-was-changed",
    ),
    pytest.param(
        with_records(*(each for each in ENTRIES if each != settled(ONE))),
        f"{ONE} is settled with settlement records []",
        id="3-settled-without-a-record",
    ),
    pytest.param(
        with_records(*ENTRIES, settled(TWO)),
        f"{TWO} is input-applied with settlement records ['completed']",
        id="3-a-record-and-still-open",
    ),
    pytest.param(
        with_records(*ENTRIES, settled(ONE, part="settlement-2")),
        f"{ONE} is settled with settlement records ['completed', 'completed']",
        id="3-settled-twice",
    ),
    pytest.param(
        replace(LAWFUL, submissions=(replace(DONE, outcome="failed"), RUNNING, WAITING)),
        f"{ONE} is settled with settlement records ['completed']",
        id="3-another-outcome",
    ),
    pytest.param(
        replace(LAWFUL, submissions=(RUNNING, WAITING), settled_total=0),
        f"a settlement belongs to no submission: {ONE}",
        id="3-a-settlement-of-nobody",
    ),
    pytest.param(
        with_records(*ENTRIES, applied(TWO, "input-2")),
        "an input is applied twice",
        id="4-an-input-twice",
    ),
    pytest.param(
        with_records(CREATED, step(ONE, "a"), applied(ONE), settled(ONE), applied(TWO)),
        "input",
        id="4-a-step-before-its-input",
    ),
    pytest.param(
        with_records(CREATED, applied(TWO), applied(ONE), settled(ONE)),
        "inputs were applied out of the order of admission",
        id="5-inputs-out-of-order",
    ),
    pytest.param(
        with_records(*ENTRIES, step(ONE, "b")),
        f"record 7 follows the settlement of {ONE}",
        id="5-something-after-the-settlement",
    ),
    pytest.param(
        replace(
            LAWFUL,
            submissions=(
                DONE,
                facts(2, TWO, State.SETTLED, "completed"),
                facts(3, THREE, State.SETTLED, "completed"),
            ),
            records=log(*ENTRIES, applied(THREE), settled(THREE), settled(TWO)),
            settled_total=3,
            head=4,
        ),
        "work that ran was settled out of order",
        id="6-work-settled-out-of-order",
    ),
    pytest.param(
        replace(LAWFUL, settled_total=2),
        "the tail counts 2 settled submissions, the ledger 1",
        id="7-the-settled-total",
    ),
    pytest.param(
        replace(LAWFUL, head=3),
        "the tail names 3 as the head of the queue, the ledger 2",
        id="7-the-head",
    ),
    pytest.param(
        replace(LAWFUL, head=5),
        "the tail names 5 as the head of the queue, the ledger 2",
        id="7-the-head-beyond-the-queue",
    ),
    *[
        pytest.param(
            replace(LAWFUL, submissions=(DONE, RUNNING, replace(WAITING, state=state))),
            f"{THREE} is {state} and its input is not in the log",
            id=f"8-{state}-without-its-input",
        )
        for state in (State.INPUT_APPLIED, State.SUSPENDED, State.UNKNOWN)
    ],
    pytest.param(
        replace(
            LAWFUL,
            submissions=(DONE, RUNNING, facts(3, THREE, State.RUNNING, is_owned=True)),
        ),
        f"{THREE} is running and its input is not in the log",
        id="8-owned-without-its-input",
    ),
    pytest.param(
        with_records(*ENTRIES, (record_id(ONE, "b"), TWO, step(TWO, "b")[2])),
        f"record 7 of {TWO} is named {ONE}/b",
        id="1-named-after-another",
    ),
    pytest.param(
        edited(2, lambda each: replace(each, version=2)),
        "record 3 does not have the digest of its content",
        id="2-a-version-was-changed",
    ),
    pytest.param(
        edited(2, lambda each: replace(each, payload=None)),
        "record 3 has no payload, and nothing was purged there",
        id="2-a-payload-is-missing",
    ),
    pytest.param(
        replace(
            LAWFUL,
            submissions=(DONE, RUNNING, replace(WAITING, state="lost")),
        ),
        f"{THREE} stands in no known state: lost",
        id="8-a-state-that-nobody-knows",
    ),
    pytest.param(
        replace(LAWFUL, dirty=8, nonterminal=3),
        "the generation record remembers 3 open submissions, the ledger has 2",
        id="10-too-many-are-remembered",
    ),
    pytest.param(
        replace(LAWFUL, alarm_at_ms=None), "generation 9 is owed (8 processed)", id="9-owed"
    ),
    pytest.param(
        replace(LAWFUL, dirty=8, due_at_ms=7_000, alarm_at_ms=None),
        "something is due at 7000 and no alarm is set",
        id="9-due",
    ),
]


@pytest.mark.parametrize(("export", "sentence"), BROKEN)
def test_a_broken_law_is_reported(export: Export, sentence: str) -> None:
    assert [said for said in broken_laws(export) if sentence in said]


def checked_in_pages(export: Export, size: int) -> Checker:
    """Check an export as it is checked where it is too large for memory: settled rows as soon as they may come."""
    checker = Checker()
    rows = {each.id: each for each in export.submissions}
    settled = [each for each in export.submissions if each.state == State.SETTLED]
    for place in range(0, max(len(export.records), len(settled)), size):
        checker.read_records(export.records[place : place + size], rows)
        checker.read_rows(settled[place : place + size])
    checker.read_rows(each for each in export.submissions if each.state != State.SETTLED)
    checker.finish(
        Standing(
            export.settled_total,
            export.head,
            export.dirty,
            export.processed,
            export.due_at_ms,
            export.alarm_at_ms,
            nonterminal=export.nonterminal,
        )
    )
    return checker


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize(("export", "sentence"), BROKEN)
def test_a_law_that_is_broken_is_broken_page_by_page_too(
    export: Export, sentence: str, size: int
) -> None:
    """Perhaps in other words: what is done with is forgotten, and what then comes of it belongs to nobody."""
    told = [each.found for each in checked_in_pages(export, size).broken]
    forgotten = "belongs to no submission"
    assert [said for said in told if sentence in said or forgotten in said]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_what_keeps_its_laws_does_so_page_by_page_and_only_what_is_open_is_kept(size: int) -> None:
    checker = checked_in_pages(LAWFUL, size)
    assert checker.broken == []
    assert checker.kept == 2


def test_a_pass_that_runs_or_an_alarm_on_its_way_is_as_good_as_an_alarm() -> None:
    for standing in (
        Standing(0, 1, 9, 8, None, None, pass_runs=True),
        Standing(0, 1, 8, 8, 7_000, None, is_in_delivery=True),
    ):
        checker = Checker()
        checker.read_records(log(CREATED), {})
        checker.finish(standing)
        assert checker.broken == []


def test_an_alarm_on_its_way_excuses_no_wrong_count_and_a_pass_that_runs_does() -> None:
    for standing, broken in (
        (Standing(0, 1, 8, 8, None, None, is_in_delivery=True, nonterminal=1), 1),
        (Standing(0, 1, 8, 8, None, None, pass_runs=True, nonterminal=1), 0),
    ):
        checker = Checker()
        checker.read_records(log(CREATED), {})
        checker.finish(standing)
        assert len(checker.broken) == broken
