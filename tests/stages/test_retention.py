"""Retention: what was settled long ago is purged, its key is answered by its tombstone, and nothing else changes.

S137: the sweep is scheduled with the data, once. S29, S49: nothing is purged by a request, and a purge that dies
half-way is begun again. S56: what a sweep reads and writes is bounded.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from quiesce import Agent, Run
from quiesce.admission import Receipt
from quiesce.errors import Refusal, RefusalCode
from quiesce.generation_record import Swept
from quiesce.ids import SubmissionId
from quiesce.records import CHAIN_START, chain_digest
from quiesce.retention import SWEEP_MAX, sweep_at_ms
from quiesce.settings import Settings
from quiesce.testing import Conversation, CrashPlan, Deployment, commit_counter, crash_plans

DAY_MS = 86_400_000
RETENTION_MS = 30 * DAY_MS
SWEPT_BY_MS = RETENTION_MS + RETENTION_MS // 10
SECRET = "the words of a customer"
HOOK = "https://hooks.example.com"
SETTINGS = Settings(
    retention_ms=RETENTION_MS,
    callback_origins=(HOOK,),
    callback_secret="a secret of the deployment",
)


def agents() -> list[Agent]:
    echo, waiting = Agent("echo", input=Any), Agent("waiting", input=Any)
    hosting = Agent("hosting", input=Any)

    @echo.handler
    async def repeat(run: Run, value: Any) -> Any:
        return await run.step("say", lambda: _said(value))

    @waiting.handler
    async def wait(run: Run, _value: Any) -> bool:
        return (await run.approval("may-it")).approved

    @hosting.handler
    async def host(run: Run, _value: Any) -> int:
        await run.signal("begin")
        return len(await run.inbox())

    delegating = Agent("delegating", input=Any)

    @delegating.handler
    async def delegate(run: Run, value: Any) -> Any:
        return (await run.delegate("waiting", value)).result

    return [echo, waiting, hosting, delegating]


async def _said(value: Any) -> Any:
    return value


@contextmanager
def kept(settings: Settings = SETTINGS) -> Iterator[tuple[Deployment, Conversation]]:
    with Deployment(agents(), settings) as deployment:
        yield deployment, deployment.conversation("chat")


def settle(lane: Conversation, key: str = "key", **terms: Any) -> Receipt:
    receipt = lane.submit("echo", {"said": SECRET}, key=key, **terms)
    lane.deployment.advance(1_000)
    return receipt


def gone(act: Any) -> Refusal:
    with pytest.raises(Refusal) as refused:
        act()
    assert refused.value.code is RefusalCode.GONE
    return refused.value


def everything(lane: Conversation) -> str:
    return "".join(lane.disk.connection.iterdump())


def test_nothing_is_purged_without_a_retention() -> None:
    with kept(Settings()) as (deployment, lane):
        receipt = settle(lane)
        assert lane.alarm_at_ms is None
        deployment.advance(10 * SWEPT_BY_MS)
        assert lane.settlement(receipt.submission).result == {"said": SECRET}
        assert lane.generation().swept is None


def test_a_settled_submission_is_kept_for_the_retention_and_purged_within_a_tenth_more() -> None:
    with kept() as (deployment, lane):
        receipt = settle(lane)
        settled_at_ms = lane.status(receipt.submission).submission.settled_at_ms
        assert settled_at_ms is not None
        assert lane.alarm_at_ms == settled_at_ms + SWEPT_BY_MS
        wakes = lane.wakes
        deployment.advance(RETENTION_MS)
        assert lane.settlement(receipt.submission).result == {"said": SECRET}
        assert lane.wakes == wakes, "it sleeps until then"
        deployment.advance(RETENTION_MS // 10)
        gone(lambda: lane.settlement(receipt.submission))
        assert SECRET not in everything(lane)
        assert lane.wakes == wakes + 1
        assert lane.alarm_at_ms is None, "nothing is left to purge"


def test_the_old_key_is_answered_by_the_tombstone_and_never_runs_again() -> None:
    with kept() as (deployment, lane):
        receipt = settle(lane)
        deployment.advance(SWEPT_BY_MS)
        before = lane.records()
        tombstone = gone(lambda: settle(lane)).facts["tombstone"]
        assert (tombstone.id, tombstone.sequence) == (receipt.submission, receipt.sequence)
        assert (tombstone.accepted_at_ms, tombstone.outcome) == (
            receipt.accepted_at_ms,
            "completed",
        )
        with pytest.raises(Refusal) as conflict:
            lane.submit("echo", "something else", key="key")
        assert conflict.value.code is RefusalCode.IDEMPOTENCY_CONFLICT
        deployment.run_until_quiet()
        assert lane.records() == before


def test_nothing_is_kept_of_a_callback_url_that_was_purged_but_its_digest() -> None:
    url = f"{HOOK}/told?token=of-the-customer"
    with kept() as (deployment, lane):
        settle(lane, callback_url=url)
        deployment.advance(SWEPT_BY_MS)
        assert "of-the-customer" not in everything(lane)
        gone(lambda: settle(lane, callback_url=url))
        for other in (None, f"{HOOK}/elsewhere"):
            with pytest.raises(Refusal) as conflict:
                settle(lane, callback_url=other)
            assert conflict.value.facts["differing"] == ["callback_url"]


def test_every_command_about_what_was_purged_is_refused_with_the_tombstone() -> None:
    with kept() as (deployment, lane):
        purged = settle(lane).submission
        deployment.advance(SWEPT_BY_MS)
        for act in (
            lambda: lane.status(purged),
            lambda: lane.abort(purged),
            lambda: lane.approve(purged, "may-it"),
            lambda: lane.signal(purged, "news"),
            lambda: lane.retry(purged),
            lambda: lane.resolve(purged, "charge", "completed"),
        ):
            gone(act)


def test_the_log_keeps_its_sequence_its_identities_and_its_chain() -> None:
    with kept() as (deployment, lane):
        purged = settle(lane, "first").submission
        before = lane.records()
        deployment.advance(SWEPT_BY_MS)
        after = lane.records()
        assert [each.record_id for each in after] == [each.record_id for each in before]
        assert [each.payload is None for each in after] == [
            each.submission == purged for each in before
        ]
        chain = CHAIN_START
        for record in after:
            chain = chain_digest(chain, record.sequence, record.digest, record.created_at_ms)
            assert record.chain == chain
        later = settle(lane, "second")
        assert later.sequence == 2
        assert [each.sequence for each in lane.records()][-1] > after[-1].sequence
        assert lane.state().counts["settled"] == 2


def test_what_is_open_is_never_purged_and_what_settled_behind_it_is() -> None:
    with kept() as (deployment, lane):
        head = lane.submit("waiting", SECRET).submission
        behind = lane.submit("echo", "x").submission
        deployment.advance(1_000)
        lane.abort(behind)
        deployment.advance(SWEPT_BY_MS + 1_000)
        gone(lambda: lane.status(behind))
        assert lane.status(head).submission.state == "suspended"
        assert lane.alarm_at_ms is None
        lane.approve(head, "may-it")
        deployment.advance(1_000)
        assert lane.settlement(head).result is True
        deployment.advance(SWEPT_BY_MS)
        gone(lambda: lane.status(head))


def test_one_wake_purges_what_a_tenth_of_the_retention_has_settled() -> None:
    with kept() as (deployment, lane):
        submissions = [settle(lane, str(place)).submission for place in range(10)]
        wakes = lane.wakes
        deployment.advance(SWEPT_BY_MS)
        assert lane.wakes == wakes + 1
        for each in submissions:
            gone(lambda each=each: lane.status(each))
        assert lane.alarm_at_ms is None


def test_a_sweep_keeps_what_is_younger_than_the_retention() -> None:
    with kept() as (deployment, lane):
        old = settle(lane, "old").submission
        deployment.advance(RETENTION_MS)
        young = settle(lane, "young").submission
        deployment.advance(RETENTION_MS // 10)
        gone(lambda: lane.status(old))
        assert lane.settlement(young).result == {"said": SECRET}
        deployment.advance(RETENTION_MS)
        gone(lambda: lane.status(young))


def test_a_sweep_is_bounded_and_goes_on_until_all_is_purged() -> None:
    with kept() as (deployment, lane):
        many = 2 * SWEEP_MAX + 3
        submissions = [settle(lane, str(place)).submission for place in range(many)]
        passes = len(lane.reports)
        deployment.advance(SWEPT_BY_MS)
        purged = [each.purged for each in lane.reports[passes:]]
        assert sum(purged) == many
        assert max(purged) == SWEEP_MAX
        for each in submissions:
            gone(lambda each=each: lane.status(each))
        assert lane.alarm_at_ms is None
        swept = lane.generation().swept
        assert swept is not None
        assert (swept.through, swept.settled, swept.oldest_ms) == (many, many, None)


def test_a_retention_costs_no_row_until_it_purges() -> None:
    written = []
    for settings in (Settings(), SETTINGS):
        with kept(settings) as (_, lane):
            settle(lane, "first")
            passes = len(lane.reports)
            settle(lane, "second")
            written.append([each.rows_written for each in lane.reports[passes:]])
    assert written[0] == written[1]
    assert len(written[0]) == 1


def test_a_longer_retention_keeps_what_a_shorter_one_would_have_purged() -> None:
    with kept() as (deployment, lane):
        receipt = settle(lane)
        deployment.settings = Settings(retention_ms=2 * RETENTION_MS)
        lane.evict()
        deployment.advance(SWEPT_BY_MS)
        assert lane.settlement(receipt.submission).result == {"said": SECRET}
        deployment.advance(2 * SWEPT_BY_MS - SWEPT_BY_MS)
        gone(lambda: lane.settlement(receipt.submission))


def test_a_retention_that_is_set_later_reaches_what_had_settled_before() -> None:
    with kept(Settings()) as (deployment, lane):
        old = settle(lane, "old").submission
        deployment.advance(10 * SWEPT_BY_MS)
        deployment.settings = SETTINGS
        lane.evict()
        lane.force_pass()
        deployment.advance(60_000)
        gone(lambda: lane.status(old))


def test_a_retention_that_is_taken_away_purges_nothing_more() -> None:
    with kept() as (deployment, lane):
        receipt = settle(lane)
        deployment.settings = Settings()
        lane.evict()
        deployment.advance(2 * SWEPT_BY_MS)
        assert lane.settlement(receipt.submission).result == {"said": SECRET}
        assert lane.alarm_at_ms is None


def test_what_is_still_owed_to_a_callback_url_is_told_before_it_is_purged() -> None:
    with kept(SETTINGS.model_copy(update={"retention_ms": 60_000})) as (deployment, lane):
        deployment.network.answers = lambda _post: 500
        receipt = settle(lane, callback_url=f"{HOOK}/told")
        deployment.advance(70_000)
        assert lane.settlement(receipt.submission).result == {"said": SECRET}, "it is owed"
        deployment.advance(3 * DAY_MS)
        gone(lambda: lane.settlement(receipt.submission))
        assert SECRET not in everything(lane)
        gone(lambda: lane.retry(receipt.submission))
        assert lane.alarm_at_ms is None


def join(lane: Conversation, joining: int, **terms: Any) -> list[SubmissionId]:
    """Settle a host together with what has joined it."""
    host = lane.submit("hosting", SECRET).submission
    behind = [
        lane.submit("hosting", SECRET, mode="join", **terms).submission for _ in range(joining)
    ]
    lane.deployment.advance(1)
    lane.signal(host, "begin")
    lane.deployment.advance(1)
    return [host, *behind]


def test_a_host_is_kept_while_what_had_joined_it_is_owed_to_others() -> None:
    """What joined is answered with the host's result: were that purged first, the lane could never tell it."""
    with kept(SETTINGS.model_copy(update={"retention_ms": 60_000})) as (deployment, lane):
        deployment.network.answers = lambda _post: 500
        host, joined = join(lane, 1, callback_url=f"{HOOK}/told")
        deployment.advance(70_000)
        assert lane.settlement(joined).result == 1, "it is owed"
        assert lane.settlement(host).result == 1
        behind = lane.submit("echo", "later").submission
        deployment.advance(1_000)
        assert lane.settlement(behind).result == "later"
        assert lane.errors == []
        deployment.network.answers = lambda _post: 200
        deployment.advance(DAY_MS)
        for each in (host, joined, behind):
            gone(lambda each=each: lane.status(each))
        assert SECRET not in everything(lane)
        assert lane.alarm_at_ms is None


def test_a_bounded_sweep_never_parts_a_host_from_what_had_joined_it() -> None:
    with kept() as (deployment, lane):
        families = [join(lane, SWEEP_MAX + 1) for _ in range(2)]
        passes = len(lane.reports)
        deployment.advance(SWEPT_BY_MS + 1_000)
        purged = [each.purged for each in lane.reports[passes:] if each.purged]
        assert purged == [len(family) for family in families]
        for family in families:
            for each in family:
                gone(lambda each=each: lane.status(each))


def test_a_signal_that_nobody_took_goes_with_what_it_was_for() -> None:
    with kept() as (deployment, lane):
        host = lane.submit("hosting", SECRET).submission
        joined = lane.submit("hosting", SECRET, mode="join").submission
        deployment.advance(1)
        for each in (host, joined):
            lane.signal(each, "unasked", SECRET)
        lane.signal(host, "begin")
        deployment.advance(1)
        assert lane.settlement(joined).host == host
        deployment.advance(SWEPT_BY_MS)
        gone(lambda: lane.status(joined))
        assert SECRET not in everything(lane)


def test_what_is_owed_to_an_unreachable_parent_wakes_nobody_for_a_sweep() -> None:
    """Messages to parents are never given up, so what cannot be purged must not be looked for again and again."""

    def woken(settings: Settings) -> int:
        with kept(settings) as (deployment, lane):
            lane.submit("delegating", SECRET)
            deployment.advance(1_000)
            (child,) = [each for each in deployment if each.name != lane.name]
            deployment.network.rule = lambda conversation, _text: (
                "lost" if conversation == lane.name else "arrives"
            )
            listed = next(each.submission for each in child.records() if each.submission)
            child.approve(listed, "may-it")
            deployment.advance(60_000)
            before = child.wakes
            deployment.advance(DAY_MS)
            assert child.settlement(listed).result is True, "it is owed"
            deployment.network.rule = lambda _conversation, _text: "arrives"
            deployment.advance(DAY_MS)
            if settings.retention_ms is not None:
                gone(lambda: child.status(listed))
                assert child.alarm_at_ms is None
            return child.wakes - before

    assert woken(Settings(retention_ms=60_000)) <= woken(Settings()) + 2


def test_a_sweep_is_due_a_tenth_late() -> None:
    assert sweep_at_ms(Swept(), SETTINGS) is None
    assert sweep_at_ms(Swept(oldest_ms=5), SETTINGS) == SWEPT_BY_MS + 5
    assert sweep_at_ms(Swept(oldest_ms=5), Settings()) is None


def test_a_purge_that_dies_at_any_commit_is_finished_by_the_alarm() -> None:
    counter = commit_counter()
    sweep(counter)
    assert counter.seen >= 5, "begin, each purge and finish are commits of their own"
    for plan in crash_plans(counter.seen):
        sweep(plan)
        assert plan.fired, f"{plan} never happened"


def sweep(plan: CrashPlan) -> None:
    with kept() as (deployment, lane):
        submissions = [settle(lane, str(place)).submission for place in range(3)]
        lane.plan_crash(plan)
        deployment.advance(SWEPT_BY_MS + DAY_MS)
        for each in submissions:
            gone(lambda each=each: lane.status(each))
        assert lane.alarm_at_ms is None
        assert SECRET not in everything(lane)
        swept = lane.generation().swept
        assert swept is not None
        assert (swept.through, swept.oldest_ms) == (len(submissions), None)
