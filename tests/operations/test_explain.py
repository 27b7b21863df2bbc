"""explain: for every open submission what it waits for, what would move it, and how old that is.

AD-1, AD-4, AO-1, AO-6, S85, S131. What HTTP makes of it is tested in tests/worker.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from operations.ground import DAY_MS, HOUR_MS, World, agent, deployed, pass_time
from quiesce import Retryable, Run
from quiesce.explain import Explanation, explain, explain_lane, explain_one
from quiesce.inspection import page
from quiesce.recovery import WaitKind
from quiesce.states import State
from quiesce.testing import Conversation


def explained(lane: Conversation) -> list[Explanation]:
    """Explain the whole lane, and check that this has written nothing."""
    log, generation, alarm = lane.records(), lane.generation(), lane.alarm_at_ms
    written = lane.storage.counts().rows_written
    found = explain(lane.lane, lane.name, 0, 100)
    assert lane.storage.counts().rows_written == written
    assert (lane.records(), lane.generation(), lane.alarm_at_ms) == (log, generation, alarm)
    for each in found:
        assert explain_one(lane.lane, lane.name, each.submission.id) == each
    return found


WORLD = World(charge=[ConnectionError()])


async def wait(run: Run, kind: str) -> None:
    """Wait in one way or another."""
    match kind:
        case "approval":
            await run.approval("ask", reason="may I")
        case "expiring":
            await run.approval("ask", expires_in_s=7_200)
        case "signal":
            await run.signal("paid")
        case "timer":
            await run.sleep("nap", delay_ms=2 * HOUR_MS)
        case "resolution":
            await run.tool("charge", WORLD.act, "charge")
        case "retry":
            raise Retryable("later")


@pytest.mark.parametrize(
    ("kind", "name", "moved_by"),
    [
        ("approval", "ask", "a decision"),
        ("signal", "paid", "the signal"),
        ("timer", "nap", "the clock"),
        ("resolution", "charge", "a resolution"),
        ("retry", None, "the clock"),
        ("operator", None, "an operator"),
    ],
)
def test_each_kind_of_wait_says_what_would_move_it(
    kind: str, name: str | None, moved_by: str
) -> None:
    settings: dict[str, Any] = {"backoff_base_ms": 60_000}
    work = agent(wait)
    if kind == "operator":
        settings["attempts_max"] = 1
        work = agent(wait, on_exhausted="quarantine")
    with deployed(work, **settings) as (deployment, lane):
        head = lane.submit("work", "retry" if kind == "operator" else kind).submission
        behind = lane.submit("work", kind).submission
        deployment.advance(1_000)
        first, second = explained(lane)
        assert first.waiting_for is not None
        assert (first.waiting_for.kind, first.waiting_for.name) == (WaitKind(kind), name)
        assert first.moved_by.startswith(moved_by)
        assert first.waiting_for.reason
        assert second.waiting_for is not None
        assert (second.waiting_for.kind, second.waiting_for.behind) == (WaitKind.HEAD, head)
        assert second.submission.id == behind


def test_what_can_run_waits_for_nothing_and_what_is_settled_is_not_explained() -> None:
    async def handle(_run: Run, _value: Any) -> None:
        return None

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        [found] = explained(lane)
        assert found.waiting_for is None
        assert found.moved_by == "the lane's own alarm"
        deployment.run_until_quiet()
        assert explained(lane) == []
        assert explain_one(lane.lane, lane.name, submission) is None


@pytest.mark.parametrize(
    ("age_ms", "freshness"),
    [
        (0, "ok"),
        (HOUR_MS - 1, "ok"),
        (HOUR_MS, "aging"),
        (DAY_MS - 1, "aging"),
        (DAY_MS, "overdue"),
        (30 * DAY_MS, "overdue"),
    ],
)
def test_a_wait_for_a_person_ages(age_ms: int, freshness: str) -> None:
    """AO-6, S85: under a virtual clock, at each edge."""
    with deployed(wait) as (deployment, lane):
        lane.submit("work", "approval")
        deployment.run_until_quiet()
        [found] = explained(lane)
        assert found.waiting_for is not None
        pass_time(deployment, found.waiting_for.since_ms + age_ms - deployment.now_ms)
        [found] = explained(lane)
        assert (found.age_ms, found.freshness.value) == (age_ms, freshness)


@pytest.mark.parametrize("kind", ["timer", "expiring"])
def test_a_wait_that_a_clock_ends_is_fresh_until_its_alarm_is_late(kind: str) -> None:
    with deployed(wait) as (deployment, lane):
        lane.submit("work", kind)
        deployment.run_until_quiet(within_ms=1_000)
        until_ms = lane.alarm_at_ms
        assert until_ms is not None
        [found] = explained(lane)
        assert found.waiting_for is not None
        assert (found.waiting_for.until_ms, found.freshness.value) == (until_ms, "ok")
        pass_time(deployment, until_ms - deployment.now_ms - 1)
        assert explained(lane)[0].freshness.value == "ok"


def test_everything_that_is_open_is_listed_beside_the_wait_that_is_named_first() -> None:
    async def handle(run: Run, _value: Any) -> None:
        await asyncio.gather(
            run.approval("ask"), run.signal("paid"), run.sleep("nap", delay_ms=HOUR_MS)
        )

    with deployed(handle) as (deployment, lane):
        lane.submit("work")
        deployment.run_until_quiet(within_ms=1_000)
        [found] = explained(lane)
        assert {each.operation for each in found.open_operations} == {"ask", "paid", "nap"}
        assert found.waiting_for is not None
        assert found.waiting_for.operation in {"ask", "paid", "nap"}


def test_an_interrupted_attempt_shows_when_it_will_be_tried_again() -> None:
    """S131."""

    async def handle(_run: Run, _value: Any) -> None:
        return None

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        for _ in range(3):
            lane.crash_at("claim:after")
        deployment.advance(2_500)
        [found] = explained(lane)
        assert found.waiting_for is not None
        assert found.waiting_for.kind is WaitKind.RETRY
        assert lane.status(submission).next_attempt_at_ms == found.waiting_for.until_ms


def test_a_timed_wait_with_several_clocks_names_the_one_that_comes_first() -> None:
    async def handle(run: Run, _value: Any) -> None:
        await asyncio.gather(
            run.sleep("a-long", delay_ms=2 * HOUR_MS), run.sleep("b-short", delay_ms=HOUR_MS)
        )

    with deployed(handle) as (deployment, lane):
        lane.submit("work")
        deployment.run_until_quiet(within_ms=1_000)
        [found] = explained(lane)
        assert found.waiting_for is not None
        assert found.waiting_for.until_ms == lane.alarm_at_ms


def test_the_lane_as_a_whole_counts_what_nobody_has_decided() -> None:
    """AO-6: what is owed, what heads it, how old that is, and how many decisions are wanted."""

    async def both(run: Run, _value: Any) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(run.approval("ask"))
            group.create_task(run.approval("ask-again"))
            group.create_task(run.signal("paid"))

    with deployed(both) as (deployment, lane):
        head = lane.submit("work").submission
        lane.submit("work")
        assert explain_lane(lane.lane, lane.name).is_owed
        deployment.run_until_quiet()
        pass_time(deployment, DAY_MS + 1)
        found = explain_lane(lane.lane, lane.name)
        assert (found.nonterminal, found.is_owed) == (2, False)
        assert found.head is not None
        assert found.head.submission.id == head
        assert found.head.freshness == "overdue"
        assert found.age_ms > DAY_MS
        assert found.undecided == {"approval": 2, "signal": 1, "timer": 0, "child": 0}
        assert found.unknown_calls == 0
        lane.approve(head, "ask")
        assert explain_lane(lane.lane, lane.name).undecided["approval"] == 1


def test_the_lane_as_a_whole_counts_unknown_calls_and_an_empty_one_is_fresh() -> None:
    world = World(charge=[ConnectionError()])

    async def charge(run: Run, _value: Any) -> None:
        await run.tool("charge", world.act, "charge")

    with deployed(charge) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert explain_lane(lane.lane, lane.name).unknown_calls == 1
        lane.resolve(submission, "charge", "completed", "paid")
        deployment.run_until_quiet()
        found = explain_lane(lane.lane, lane.name)
        assert (found.nonterminal, found.head, found.age_ms, found.unknown_calls) == (0, None, 0, 0)


def steps_of(lane: Conversation, read: Callable[[], object]) -> int:
    """Count how many instructions of its machine SQLite executes: rows that it only passes over count too."""
    taken = [0]

    def step() -> int:
        taken[0] += 1
        return 0

    lane.disk.connection.set_progress_handler(step, 1)
    try:
        read()
    finally:
        lane.disk.connection.set_progress_handler(None, 1)
    return taken[0]


def test_what_is_open_is_found_without_reading_history() -> None:
    """A lane lives for years, and its open submissions stand at its end."""

    async def handle(run: Run, value: Any) -> None:
        if value == "wait":
            await run.approval("ask")

    def taken(history: int) -> list[int]:
        with deployed(handle, queue_depth_max=history) as (deployment, lane):
            deployment.checks_every_event = False
            for number in range(history):
                lane.submit("work", number)
            deployment.run_until_quiet()
            waiting = lane.submit("work", "wait").submission
            deployment.run_until_quiet()
            assert [each.submission.id for each in explain(lane.lane, lane.name, 0, 50)] == [
                waiting
            ]
            listed, _ = page(lane.lane, lane.name, 0, 50, State.SUSPENDED)
            assert [each.submission.id for each in listed] == [waiting]
            return [
                steps_of(lane, lambda: explain(lane.lane, lane.name, 0, 50)),
                steps_of(lane, lambda: page(lane.lane, lane.name, 0, 50, State.SUSPENDED)),
                steps_of(lane, lambda: page(lane.lane, lane.name, 0, 50, State.QUARANTINED)),
            ]

    assert taken(300) == taken(30)
