"""An operator and a stuck head: retry lets it go on at once, skip ends it, and both are records. S96.

Parity: AO-4.
"""

import contextlib

import pytest

from operations.ground import HOUR_MS, World, agent, deployed, kinds, refused, state_of
from quiesce import Retryable, Run
from quiesce.errors import Refusal, RefusalCode
from quiesce.records import OperatorActed
from quiesce.states import State
from quiesce.testing import Conversation, Crashed, CrashPlan, commit_counter, crash_plans

SLOW = {"backoff_base_ms": HOUR_MS, "backoff_cap_ms": HOUR_MS, "parked_wake_ms": HOUR_MS}


async def ask(run: Run, _value: object) -> bool:
    return (await run.approval("ask")).approved


def audited(lane: Conversation) -> list[tuple[str, str, str]]:
    acted = [each.parsed() for each in lane.records() if each.kind == "operator-acted"]
    return [
        (each.action, each.author, each.reason) for each in acted if isinstance(each, OperatorActed)
    ]


def test_a_head_that_waits_for_its_next_attempt_goes_on_at_once() -> None:
    world = World(pay=[Retryable("come back"), "paid"])

    async def work(_run: Run, _value: object) -> object:
        return await world.act("pay")

    with deployed(work, **SLOW) as (deployment, lane):
        head = lane.submit("work").submission
        behind = lane.submit("work").submission
        deployment.advance(1_000)
        assert world.calls["pay"] == 1
        assert lane.status(head).next_attempt_at_ms is not None
        lane.retry(head, "the bank is back")
        deployment.advance(1_000)
        assert lane.settlement(head).result == "paid"
        assert lane.settlement(behind).result == "paid"
        assert audited(lane) == [("retry-hastened", "operator", "the bank is back")]


def test_a_retry_that_dies_at_any_commit_is_asked_again_and_changes_nothing_else() -> None:
    """The operator whose answer was lost asks the same again, and may be told that it goes on already."""
    counter = commit_counter()
    hasten(counter)
    assert counter.seen > 3
    for plan in crash_plans(counter.seen):
        hasten(plan)
        assert plan.fired, f"{plan} never happened"


def hasten(plan: CrashPlan) -> None:
    world = World(pay=[Retryable("come back"), "paid"])

    async def work(_run: Run, _value: object) -> object:
        return await world.act("pay")

    with deployed(work, **SLOW) as (deployment, lane):
        head = lane.submit("work").submission
        deployment.advance(1_000)
        lane.plan_crash(plan)
        try:
            lane.retry(head)
        except Crashed:
            with contextlib.suppress(Refusal):
                lane.retry(head)
        deployment.advance(2 * HOUR_MS)
        assert lane.settlement(head).result == "paid"
        assert [action for action, _, _ in audited(lane)] == ["retry-hastened"]
        assert lane.alarm_at_ms is None


def test_a_hastened_attempt_counts_like_any_other() -> None:
    world = World(pay=[Retryable("come back")])

    async def work(_run: Run, _value: object) -> object:
        return await world.act("pay")

    with deployed(work, attempts_max=3, **SLOW) as (deployment, lane):
        head = lane.submit("work").submission
        for attempt in (1, 2):
            deployment.advance(1_000)
            assert lane.status(head).submission.attempts == attempt
            lane.retry(head)
        deployment.advance(1_000)
        failure = lane.settlement(head).failure
        assert failure is not None
        assert failure["error_type"] == "attempts-exhausted"
        assert world.calls["pay"] == 3


def test_what_runs_waits_or_is_queued_cannot_be_retried() -> None:
    with deployed(ask) as (deployment, lane):
        head = lane.submit("work").submission
        behind = lane.submit("work").submission
        deployment.run_until_quiet()
        before = lane.records()
        for submission in (head, behind):
            with refused(RefusalCode.NOT_WAITING):
                lane.retry(submission)
        assert lane.records() == before


def test_a_stuck_head_is_skipped_and_the_queue_goes_on() -> None:
    with deployed(ask) as (deployment, lane):
        queue = [lane.submit("work").submission for _ in range(6)]
        deployment.run_until_quiet()
        assert lane.skip(queue[0], "nobody will answer").settlement is not None
        deployment.run_until_quiet()
        settled = lane.settlement(queue[0])
        assert (settled.outcome, settled.reason) == ("aborted", "nobody will answer")
        assert state_of(lane, queue[1]) is State.SUSPENDED
        assert audited(lane) == [("head-skipped", "operator", "nobody will answer")]
        assert kinds(lane, queue[0])[-3:] == ["operator-acted", "abort-requested", "settlement"]


def test_only_the_head_can_be_skipped() -> None:
    """An operator who looked at a queue that has moved on since ends nobody else's work."""
    with deployed(ask) as (deployment, lane):
        head, behind = (lane.submit("work").submission for _ in range(2))
        deployment.run_until_quiet()
        before = lane.records()
        with refused(RefusalCode.NOT_WAITING):
            lane.skip(behind)
        assert lane.records() == before
        lane.approve(head, "ask")
        deployment.run_until_quiet()
        with refused(RefusalCode.ALREADY_SETTLED):
            lane.skip(head)


def test_a_lane_s_cost_holds_all_that_a_skip_has_written() -> None:
    with deployed(ask) as (deployment, lane):
        head = lane.submit("work").submission
        deployment.run_until_quiet()
        before, cost = lane.storage.counts(), lane.generation().cost
        lane.skip(head)
        written = lane.storage.counts().since(before).rows_written
        assert lane.generation().cost.rows_written - cost.rows_written == written


def test_a_skip_that_is_sent_again_is_the_same_skip() -> None:
    with deployed(ask) as (deployment, lane):
        head = lane.submit("work").submission
        deployment.run_until_quiet()
        first = lane.skip(head)
        before = lane.records()
        again = lane.skip(head)
        assert again.is_replayed
        assert again.settlement is not None
        assert first.settlement is not None
        assert again.settlement.recorded == first.settlement.recorded
        assert lane.records() == before


def test_a_head_with_an_unproven_call_is_skipped_as_one_that_may_have_had_effects() -> None:
    world = World(pay=[ConnectionError("cut off")])

    async def work(run: Run, _value: object) -> object:
        return await run.tool("pay", lambda: world.act("pay"), effect="uncertain")

    with deployed(work) as (deployment, lane):
        head = lane.submit("work").submission
        deployment.run_until_quiet()
        assert state_of(lane, head) is State.UNKNOWN
        lane.skip(head)
        deployment.run_until_quiet()
        settled = lane.settlement(head)
        assert settled.outcome == "aborted"
        assert settled.effects_may_have_happened
        assert settled.unknown_operations
        assert world.calls["pay"] == 1


@pytest.mark.parametrize("is_quarantined", [True, False])
def test_a_quarantined_head_is_released_or_skipped(*, is_quarantined: bool) -> None:
    world = World(pay=[Retryable("come back"), "paid"])

    async def work(_run: Run, _value: object) -> object:
        return await world.act("pay")

    with deployed(agent(work, on_exhausted="quarantine"), attempts_max=1) as (deployment, lane):
        head = lane.submit("work").submission
        deployment.run_until_quiet()
        assert state_of(lane, head) is State.QUARANTINED
        if is_quarantined:
            lane.retry(head)
        else:
            lane.skip(head)
        deployment.run_until_quiet()
        assert lane.settlement(head).outcome == ("completed" if is_quarantined else "aborted")
