"""A parent's lane and its child's are two: each has its own epochs and fences, and what dies in one moves no other.

NS-7 to NS-10 in the simulation; RC-55. Kills of a real process stand in test_families_in_workerd.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from children.family import Family, child_of, family, lane_of
from operations.ground import World, agent, begin, kinds, pass_time, state_of, wait_of
from quiesce import Agent, Run
from quiesce.ids import SubmissionId
from quiesce.recovery import WaitKind
from quiesce.states import State
from quiesce.testing import Conversation

type Said = list[tuple[str, int]]


def said(lane: Conversation) -> Said:
    """Return what a log says and under which epochs."""
    return [(each.record_id, each.epoch) for each in lane.records()]


def gated(world: World, gate: asyncio.Event) -> Agent:
    """Make an agent whose first attempt waits for a gate, and acts late."""

    async def handle(run: Run, _value: Any) -> Any:
        world.calls["attempt"] += 1
        if world.calls["attempt"] == 1:
            await gate.wait()
            return await run.tool("late", world.act, "late")
        return await run.step("fresh", world.act, "fresh")

    return agent(handle, "gated")


def established(deployment: Family, lane: Conversation) -> SubmissionId:
    """Delegate to the gated agent, and let the parent's passes do what they can before the child has run."""
    root = lane.submit("delegate", ["gated", None]).submission
    child = lane_of(deployment, root)
    while child.is_virgin or state_of(child, child_of(root)[1]) is State.ADMITTED:
        assert lane.alarm_at_ms is not None
        pass_time(deployment, lane.alarm_at_ms - deployment.now_ms)
        lane.deliver()
    assert state_of(lane, root) is State.SUSPENDED
    return root


def test_a_superseded_attempt_of_a_child_touches_neither_log() -> None:
    """NS-9: the parent's log and epochs are those of a family whose child was never disturbed."""
    gate, world = asyncio.Event(), World()
    with family(gated(world, gate), world=world) as (deployment, lane):
        root = established(deployment, lane)
        child = lane_of(deployment, root)
        before = said(lane)
        old = begin(deployment, child)
        assert world.calls["attempt"] == 1
        child.forget()
        assert said(lane) == before
        deployment.run_until_quiet()
        assert lane.settlement(root).result["result"] == "fresh done"
        logs = said(lane), said(child)
        gate.set()
        deployment.run(old)
        assert (said(lane), said(child)) == logs
        assert world.calls["late"] == 0
    undisturbed = World()
    undisturbed.calls["attempt"] += 1
    with family(gated(undisturbed, gate), world=undisturbed) as (deployment, lane):
        lane.submit("delegate", ["gated", None])
        deployment.run_until_quiet()
        assert said(lane) == logs[0]


def test_a_superseded_attempt_of_a_parent_joins_nothing_and_leaves_the_child_alone() -> None:
    """NS-8: a child's outcome comes in a message, once, whoever runs its parent then."""
    gate, world = asyncio.Event(), World()

    async def handle(run: Run, _value: Any) -> Any:
        world.calls["attempt"] += 1
        is_first = world.calls["attempt"] == 1

        async def slow() -> str:
            if is_first:
                await gate.wait()
            return "late" if is_first else "fresh"

        child, step = await asyncio.gather(
            run.delegate("echo", 7, name="child"), run.step("slow", slow)
        )
        return [child.result, step]

    with family(agent(handle, "both"), world=world) as (deployment, lane):
        root = lane.submit("both").submission
        old = begin(deployment, lane)
        assert world.calls["attempt"] == 1
        lane.forget()
        deployment.run_until_quiet()
        assert lane.settlement(root).result == [7, "fresh"]
        child = lane_of(deployment, root)
        before = said(lane), said(child)
        gate.set()
        deployment.run(old)
        assert (said(lane), said(child)) == before
        assert kinds(lane, root).count("child-joined") == 1


@pytest.mark.parametrize("dies_first", ["parent", "child"])
def test_both_die_at_once_and_there_is_one_child_one_settlement_one_join(dies_first: str) -> None:
    """NS-7: the parent after it has recorded the start, the child within its attempt."""
    gate, world = asyncio.Event(), World()
    with family(gated(world, gate), world=world) as (deployment, lane):
        root = established(deployment, lane)
        child = lane_of(deployment, root)
        begin(deployment, child)
        assert world.calls["attempt"] == 1
        pair = (lane, child) if dies_first == "parent" else (child, lane)
        for each in pair:
            each.crash(keeps_unsynced=False)
        deployment.run_until_quiet()
        assert lane.settlement(root).result["result"] == "fresh done"
        assert kinds(lane, root).count("child-started") == 1
        assert kinds(lane, root).count("child-joined") == 1
        assert kinds(child, child_of(root)[1]).count("settlement") == 1


@pytest.mark.parametrize("first", ["approval", "child"])
def test_a_run_that_asks_a_person_and_a_child_goes_on_once_when_both_have_answered(
    first: str,
) -> None:
    """RC-55: whichever answers first, the other is still waited for."""
    runs: list[int] = []

    async def handle(run: Run, _value: Any) -> Any:
        runs.append(1)
        decision, child = await asyncio.gather(
            run.approval("go-on"), run.delegate("ask", None, name="child")
        )
        return [decision.approved, child.result]

    with family(agent(handle, "both")) as (deployment, lane):
        root = lane.submit("both").submission
        deployment.run_until_quiet()
        child = lane_of(deployment, root)
        answers: dict[WaitKind, Callable[[], object]] = {
            WaitKind.APPROVAL: lambda: lane.approve(root, "go-on"),
            WaitKind.CHILD: lambda: child.approve(child_of(root)[1], "ask"),
        }
        answers.pop(WaitKind(first))()
        deployment.run_until_quiet()
        [(left, answer)] = answers.items()
        assert wait_of(lane, root).kind is left
        assert len(runs) == 1
        answer()
        deployment.run_until_quiet()
        assert lane.settlement(root).result == [True, "approved"]
        assert len(runs) == 2
