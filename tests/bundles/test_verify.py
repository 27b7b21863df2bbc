"""verify on simulated Objects: every law, broken by hand, is told and no other is; work that goes on breaks none.

Parity: AD-2 and the verify of AO-2 and AO-3. Not tested here: HTTP, which is in test_in_workerd.py.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest

from agents import REGISTRY
from bundles.helpers.asking import ask, laws, verify
from bundles.helpers.scenes import deployed, forge, meddle, put_back, talked, tamper
from quiesce import generation, verbs, verifying, wake
from quiesce.errors import Refusal
from quiesce.invariants import BROKEN_MAX, Checker
from quiesce.laws import Law
from quiesce.settings import Settings
from quiesce.testing import Conversation, Deployment

pytestmark = pytest.mark.slow

type Deed = Callable[[Conversation], None]


def sql(text: str, *params: Any) -> Deed:
    return lambda lane: tamper(lane, text, *params)


def forged(text: str, *params: Any) -> Deed:
    """Change rows, and compute every digest anew: only what the log says can tell."""

    def deed(lane: Conversation) -> None:
        tamper(lane, text, *params)
        forge(lane)

    return deed


def kv(key: str, text: str) -> Deed:
    def deed(lane: Conversation) -> None:
        lane.disk.put(key, text)
        lane.disk.sync()

    return deed


def remembering(**changes: Any) -> Deed:
    def deed(lane: Conversation) -> None:
        record = lane.generation().changed(**changes)
        kv(wake.RECORD_KEY, record.model_dump_json())(lane)

    return deed


def swapped(first: int, second: int) -> Deed:
    """Exchange two records' places, and compute every digest anew."""

    def deed(lane: Conversation) -> None:
        for leaves, enters in ((first, 1_000), (second, first), (1_000, second)):
            tamper(lane, "UPDATE records SET sequence = ? WHERE sequence = ?", enters, leaves)
        forge(lane)

    return deed


def both(*deeds: Deed) -> Deed:
    def deed(lane: Conversation) -> None:
        for each in deeds:
            each(lane)

    return deed


def unalarmed(lane: Conversation) -> None:
    """Lose the alarm of a lane that is owed a pass, and let the time go by in which it might be on its way."""
    lane.submit("echo", "owed")
    lane.lose_alarm()
    lane.deployment.advance(2 * generation.STALE_ALARM_MS)


STATED = {
    "the-first-record-names-another": (
        forged("""UPDATE records SET payload = '{"conversation":"two"}' WHERE sequence = 1"""),
        ["conversation"],
    ),
    "the-first-record-is-of-another-kind": (
        forged(
            """UPDATE records SET kind = 'operator-acted', payload ="""
            """ '{"action":"pass-forced","author":"a","reason":""}' WHERE sequence = 1"""
        ),
        ["conversation"],
    ),
    "no-records": (
        sql("DELETE FROM records"),
        ["conversation", "settlement", "input", "totals"],
    ),
    "a-record-is-missing": (sql("DELETE FROM records WHERE sequence = 10"), ["sequence", "chain"]),
    "a-record-has-another-number": (
        sql("UPDATE records SET sequence = 99 WHERE sequence = 16"),
        ["sequence", "chain"],
    ),
    "a-record-is-named-after-another": (
        forged("UPDATE records SET record_id = 'sub_0/input' WHERE sequence = 2"),
        ["record-id"],
    ),
    "a-byte-of-a-payload": (
        sql("UPDATE records SET payload = replace(payload, '2', '3') WHERE sequence = 9"),
        ["digest"],
    ),
    "an-owner": (
        sql(
            "UPDATE records SET submission = (SELECT id FROM submissions WHERE sequence = 5)"
            " WHERE sequence = 9"
        ),
        ["digest", "record-id", "input"],
    ),
    "an-epoch": (sql("UPDATE records SET epoch = epoch + 1 WHERE sequence = 9"), ["digest"]),
    "a-version": (sql("UPDATE records SET version = 2 WHERE sequence = 9"), ["digest"]),
    "a-digest": (
        sql(f"UPDATE records SET digest = '{'0' * 64}' WHERE sequence = 9"),
        ["chain", "digest"],
    ),
    "a-link": (sql(f"UPDATE records SET chain = '{'0' * 64}' WHERE sequence = 9"), ["chain"]),
    "a-time": (sql("UPDATE records SET created_at_ms = 1 WHERE sequence = 9"), ["chain"]),
    "a-payload-that-is-no-json": (
        forged("UPDATE records SET payload = '{' WHERE sequence = 9"),
        ["payload"],
    ),
    "a-payload-that-nests-too-deep": (
        forged("UPDATE records SET payload = ? WHERE sequence = 9", "[" * 5_000 + "]" * 5_000),
        ["payload"],
    ),
    "a-payload-that-is-no-object": (
        forged("UPDATE records SET payload = '3' WHERE sequence = 9"),
        ["payload"],
    ),
    "a-kind-that-nobody-knows": (
        forged("UPDATE records SET kind = 'dream-dreamt' WHERE sequence = 9"),
        ["payload"],
    ),
    "a-payload-is-missing": (
        sql("UPDATE records SET payload = NULL WHERE sequence = 9"),
        ["payload"],
    ),
    "a-settlement-is-missing": (
        sql("DELETE FROM records WHERE sequence = 3"),
        ["sequence", "chain", "settlement"],
    ),
    "a-settlement-says-something-else": (
        forged(
            """UPDATE records SET payload = replace(payload, '"completed"', '"aborted"')"""
            " WHERE sequence = 3"
        ),
        ["settlement"],
    ),
    "a-settlement-that-cannot-be-read": (
        forged("UPDATE records SET payload = '{}' WHERE sequence = 3"),
        ["payload", "settlement"],
    ),
    "a-row-names-another-outcome": (
        sql("UPDATE submissions SET outcome = 'failed' WHERE sequence = 1"),
        ["settlement"],
    ),
    "a-row-is-missing": (
        sql("DELETE FROM submissions WHERE sequence = 2"),
        ["settlement", "totals"],
    ),
    "a-row-is-open-again": (
        sql(
            "UPDATE submissions SET state = 'ready', outcome = NULL, settled_at_ms = NULL"
            " WHERE sequence = 1"
        ),
        ["settlement", "totals", "nonterminal"],
    ),
    "a-row-is-settled-by-nobody": (
        sql(
            "UPDATE submissions SET state = 'settled', outcome = 'completed', settled_at_ms = 1"
            " WHERE sequence = 7"
        ),
        ["settlement", "totals", "nonterminal"],
    ),
    "a-state-that-nobody-knows": (
        sql("UPDATE submissions SET state = 'lost' WHERE sequence = 7"),
        ["state"],
    ),
    "an-input-twice": (
        forged(
            "UPDATE records SET kind = 'input-applied', payload ="
            " (SELECT payload FROM records WHERE sequence = 8) WHERE sequence = 9"
        ),
        ["input"],
    ),
    "a-step-before-its-input": (swapped(8, 9), ["input"]),
    "an-input-is-nowhere": (
        sql("UPDATE submissions SET state = 'suspended', input = NULL WHERE sequence = 7"),
        ["input"],
    ),
    "inputs-out-of-order": (both(swapped(2, 4), swapped(3, 5)), ["order"]),
    "settled-out-of-order": (swapped(3, 4), []),
    "something-behind-a-settlement": (swapped(11, 12), ["order"]),
    "the-total": (
        sql("UPDATE records SET settled = settled + 1 WHERE sequence = 16"),
        ["totals"],
    ),
    "the-head": (sql("UPDATE records SET head = 2 WHERE sequence = 16"), ["totals"]),
    "an-operation-of-what-is-settled": (
        sql("UPDATE operations SET submission_sequence = 1"),
        ["operations"],
    ),
    "too-few-are-remembered": (remembering(nonterminal=1), ["nonterminal"]),
    "a-clock-without-an-alarm": (remembering(due_at_ms=10**13), ["alarm"]),
    "a-pass-without-an-alarm": (unalarmed, ["alarm"]),
    "no-generation-record": (
        lambda lane: (lane.disk.delete(wake.RECORD_KEY), lane.disk.sync())[1],
        ["generation-record", "alarm"],
    ),
    "an-unreadable-generation-record": (
        kv(wake.RECORD_KEY, "{}"),
        ["generation-record", "alarm"],
    ),
    "a-generation-record-put-aside": (kv(wake.UNREADABLE_KEY, "{}"), ["generation-record"]),
}


@pytest.mark.parametrize("name", STATED)
def test_a_law_that_was_broken_by_hand_is_told_and_no_other(name: str) -> None:
    """AO-3: what was tampered with is detected, and said; nothing is written, and nothing raises."""
    deed, broken = STATED[name]
    with deployed() as deployment:
        lane = talked(deployment)
        assert laws(lane) == []
        with put_back(lane):
            deed(lane)
            image = lane.disk.image()
            assert laws(lane) == broken
            assert lane.disk.image() == image


def test_every_law_is_broken_by_some_deed() -> None:
    assert {law for _, broken in STATED.values() for law in broken} == set(Law)


def test_a_sound_conversation_is_told_with_its_tail_and_what_was_checked() -> None:
    """AD-2 and AO-2: the report is of one shape, and counts every record and every submission."""
    with deployed() as deployment:
        lane = talked(deployment)
        last = lane.records()[-1]
        assert verify(lane) == {
            "conversation": "one",
            "ok": True,
            "checked": {"records": 16, "submissions": 7},
            "tail": {"sequence": last.sequence, "digest": last.chain},
            "problems": [],
            "truncated": False,
        }


def test_a_problem_says_where_it_is() -> None:
    with deployed() as deployment:
        lane = talked(deployment)
        owner = lane.records()[8].submission
        with put_back(lane):
            tamper(lane, "UPDATE records SET epoch = 77 WHERE sequence = 9")
            (problem,) = verify(lane)["problems"]
        found = "record 9 does not have the digest of its content"
        assert problem == {"law": "digest", "found": found, "sequence": 9, "submission": owner}


def test_problems_are_told_up_to_a_bound() -> None:
    with deployed(queue_depth_max=1_000) as deployment:
        lane = deployment.conversation("one")
        for number in range(BROKEN_MAX):
            lane.submit("echo", number)
        deployment.run_until_quiet()
        with put_back(lane):
            tamper(lane, "UPDATE records SET epoch = epoch + 1 WHERE sequence <= 100")
            found = verify(lane)
            assert (len(found["problems"]), found["truncated"]) == (100, False)
            tamper(lane, "UPDATE records SET epoch = epoch + 1 WHERE sequence = 101")
            found = verify(lane)
            assert (len(found["problems"]), found["truncated"]) == (100, True)


def test_what_is_not_there_is_not_found_and_stays_so() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        status, _, _ = deployment.run(ask(lane, verbs.Verify(conversation="one")))
        assert status == 404
        assert lane.is_virgin


def test_a_newer_storage_is_refused_and_left_alone() -> None:
    with deployed() as deployment:
        lane = talked(deployment)
        with put_back(lane):
            kv(wake.RECORD_KEY, '{"schema_version": 99}')(lane)
            verify(lane, status=503)


def test_a_lost_alarm_is_told_by_verify_and_set_again_by_any_other_request() -> None:
    with deployed() as deployment:
        lane = talked(deployment)
        with put_back(lane):
            unalarmed(lane)
            assert laws(lane) == ["alarm"]
            assert laws(lane) == ["alarm"]
            lane.visit()
            assert laws(lane) == []


def test_one_check_runs_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifying, "REST_MAX", 0)
    with deployed() as deployment:
        lane = talked(deployment)
        first = lane.start(lambda: verifying.verify(lane.lane, lane.name))
        assert not first.done()
        with pytest.raises(Refusal) as refused:
            lane.event(lambda: verifying.verify(lane.lane, lane.name))
        assert refused.value.code == "rate-limited"
        assert deployment.run(first).broken == ()
        assert laws(lane) == []


def test_what_was_purged_is_counted_and_is_no_problem() -> None:
    with deployed(retention_ms=1_000) as deployment:
        lane = talked(deployment)
        deployment.advance(10_000)
        records = lane.records()
        assert sum(each.payload is None for each in records) == 13
        assert verify(lane)["checked"] == {"records": 16, "submissions": 7}
        assert laws(lane) == []
        for place, broken in (
            (2, ["payload"]),  # One whose row says nothing of a purge.
            (16, ["payload"]),  # One that is open.
        ):
            with put_back(lane):
                tamper(lane, "UPDATE submissions SET purged_at_ms = NULL")
                tamper(lane, "UPDATE records SET payload = NULL WHERE sequence = ?", place)
                assert laws(lane) == broken
        with put_back(lane):
            tamper(lane, f"UPDATE records SET digest = '{'0' * 64}' WHERE sequence = 2")
            assert laws(lane) == ["chain"]


def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every turn read next to nothing, so that as much as possible comes in between."""
    small = {"RECORDS_MAX": 2, "ROWS_MAX": 2, "REST_MAX": 1, "PAUSE_S": 0.001}
    for name, value in small.items():
        monkeypatch.setattr(verifying, name, value)


@pytest.mark.parametrize("seed", range(12))
def test_work_that_goes_on_meanwhile_breaks_no_law(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every turn reads two records; between two turns anything may happen, purges included."""
    small_pages(monkeypatch)
    chance = random.Random(seed)
    with Deployment(
        REGISTRY, Settings(retention_ms=1_000), jitter=0.0, seed=seed, checks_every_event=False
    ) as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 0)
        for _ in range(60):
            meddle(lane, chance)
        turns = grown = 0
        for _ in range(8):
            before = lane.records()[-1].sequence
            check = lane.start(lambda: verifying.verify(lane.lane, lane.name))
            while not check.done():
                turns += 1
                meddle(lane, chance)
                deployment.advance(1)
            assert [each.found for each in check.result().broken] == []
            grown += check.result().tail_sequence > before
        assert turns > 20
        assert grown > 2
        deployment.run_until_quiet()
        assert laws(lane) == []


def test_a_check_keeps_what_is_open_and_forgets_history(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    pages: list[int] = []
    read = Checker.read_records

    def watched(self: Checker, page: Any, rows: Any) -> None:
        read(self, page, rows)
        kept.append(self.kept)
        pages.append(len(page))

    monkeypatch.setattr(Checker, "read_records", watched)
    with Deployment(
        REGISTRY, Settings(queue_depth_max=1_000), jitter=0.0, checks_every_event=False
    ) as deployment:
        lane = deployment.conversation("one")
        for _ in range(8):
            for number in range(300):
                lane.submit("echo", number)
            deployment.run_until_quiet()
        kept.clear()
        pages.clear()
        assert verify(lane)["checked"] == {"records": 4_801, "submissions": 2_400}
        assert max(pages) == verifying.RECORDS_MAX
        assert len(pages) == 4_801 // verifying.RECORDS_MAX + 2
        # What one page of the log tells of is forgotten with the page of the ledger behind it.
        assert max(kept) <= verifying.RECORDS_MAX
