"""What waiting costs, in the simulation: alarms, writes and statements. Rows read are measured in bench.

S1, S3, S5, S7, S9; gap 1 and gap 10 of the parity list.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from operations.ground import DAY_MS, HOUR_MS, World, deployed, state_of
from quiesce import Run
from quiesce.states import State
from quiesce.storage import Counts
from quiesce.testing import Conversation, Deployment


async def work(run: Run, kind: Any) -> None:
    match kind:
        case "approval":
            await run.approval("ask")
        case "signal":
            await run.signal("paid")
        case "timer":
            await run.sleep("nap", delay_ms=DAY_MS)
        case "unknown":
            await run.tool("charge", World(charge=[ConnectionError()]).act, "charge")


@contextmanager
def unchecked(lane: Conversation) -> Iterator[None]:
    """Check the laws once at the end, not after each of hundreds of events: the check reads everything."""
    lane.check_laws = lambda: None  # type: ignore[method-assign]
    yield
    del lane.check_laws
    lane.check_laws()


def suspended(deployment: Deployment, lane: Conversation, kind: str, queued: int) -> None:
    """Bring a lane to where its head waits, with rows queued behind it."""
    lane.submit("work", kind)
    deployment.run_until_quiet(within_ms=1_000)
    with unchecked(lane):
        for _ in range(queued):
            lane.submit("work")
        deployment.run_until_quiet(within_ms=1_000)


@pytest.mark.parametrize("queued", [0, 200])
@pytest.mark.parametrize("kind", ["approval", "signal", "unknown"])
def test_an_hour_of_waiting_costs_nothing(kind: str, queued: int) -> None:
    """S3, gap 1: no alarm, no write, not even a read, alone or with 200 queued behind it."""
    with deployed(work) as (deployment, lane):
        suspended(deployment, lane, kind, queued)
        assert lane.alarm_at_ms is None
        before, generation = lane.storage.counts(), lane.generation()
        assert deployment.advance(HOUR_MS) == 0
        assert lane.storage.counts() == before
        assert lane.generation() == generation
        assert generation.idle_wakes == 0


def test_a_day_asleep_on_one_timer_costs_one_alarm() -> None:
    """S7."""
    with deployed(work) as (deployment, lane):
        suspended(deployment, lane, "timer", 0)
        before = lane.storage.counts()
        assert deployment.advance(DAY_MS - 2_000) == 0
        assert lane.storage.counts() == before
        assert deployment.advance(4_000) == 1
        assert lane.state().counts[State.SETTLED] == 1
        assert lane.alarm_at_ms is None


def test_admissions_behind_a_blocked_head_cost_one_pass_each_and_park_nothing() -> None:
    with deployed(work, idle_wakes_max=8) as (deployment, lane):
        suspended(deployment, lane, "approval", 0)
        for _ in range(20):
            submission = lane.submit("work").submission
            assert deployment.run_until_quiet() == 1
            assert state_of(lane, submission) is State.READY
        assert lane.generation().idle_wakes == 0


def test_a_thousand_idle_conversations_wake_for_nobody() -> None:
    """S5, in the small: fifty lanes, each settled or waiting, for a day."""
    with deployed(work) as (deployment, _):
        for number in range(50):
            lane = deployment.conversation(f"lane-{number}")
            lane.submit("work", "approval" if number % 2 else None)
        deployment.run_until_quiet()
        assert deployment.advance(DAY_MS) == 0
        assert sum(each.wakes for each in deployment) <= 100


def forced_pass(lane: Conversation) -> Counts:
    """Force a pass and return what it asked of the store."""
    lane.force_pass()
    before = lane.storage.counts()
    lane.deployment.run_until_quiet(within_ms=1_000)
    return lane.storage.counts().since(before)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["approval", "unknown", "timer"])
def test_a_pass_over_a_waiting_head_costs_the_same_whatever_the_history_and_the_queue(
    kind: str,
) -> None:
    """S9: statements, rows and writes at 0 and 2,000 records of history, and at 0 and 200 queued."""
    costs: list[Counts] = []
    for history, queued in ((0, 0), (0, 200), (20, 0)):
        with deployed(work, history_agent()) as (deployment, lane):
            with unchecked(lane):
                for _ in range(history):
                    lane.submit("history")
                deployment.run_until_quiet(within_ms=60_000)
            assert len(lane.records()) >= 100 * history
            suspended(deployment, lane, kind, queued)
            costs.append(forced_pass(lane))
    assert costs[0] == costs[1] == costs[2]


def history_agent() -> Any:
    from operations.ground import agent  # noqa: PLC0415 - only this function makes one

    async def handle(run: Run, _value: Any) -> None:
        for _ in range(100):
            await run.step("one", lambda: None)

    return agent(handle, "history")


@pytest.mark.parametrize("operation", ["approve", "signal"])
def test_a_decision_costs_the_same_whatever_the_queue(operation: str) -> None:
    costs = []
    for queued in (1, 200):
        with deployed(work) as (deployment, lane):
            suspended(deployment, lane, "approval" if operation == "approve" else "signal", queued)
            head = lane.state().head
            assert head is not None
            before = lane.storage.counts()
            if operation == "approve":
                lane.approve(head, "ask")
            else:
                lane.signal(head, "paid", 1)
            costs.append(lane.storage.counts().since(before))
    assert costs[0] == costs[1]


def test_open_operations_and_signals_leave_no_rows_behind() -> None:
    """Evidence costs what is open, never what is history."""
    with deployed(work) as (deployment, lane):
        for _ in range(3):
            submission = lane.submit("work", "signal").submission
            lane.signal(submission, "noise", 1)
            deployment.run_until_quiet()
            lane.signal(submission, "paid", 1)
            deployment.run_until_quiet()
        for table in ("operations", "signals", "agenda"):
            assert lane.storage.execute(f"SELECT * FROM {table}") == []
