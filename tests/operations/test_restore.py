"""An Object that is put back to an earlier time: what was recorded by then holds, what came after is not guessed.

ND-1. Not tested: the platform's own point-in-time recovery. Here a disk is copied while its Object is at work, and
the copy is found by another incarnation.
"""

from typing import Any

import pytest

from operations.ground import World, agent, begin, deployed, kinds, refused, state_of
from quiesce import Agent, Run
from quiesce.errors import RefusalCode, StorageUnavailable
from quiesce.ids import SubmissionId
from quiesce.states import State
from quiesce.testing import Conversation, Deployment


def served(world: World) -> list[Agent]:
    async def echo(_run: Run, value: Any) -> Any:
        return value

    async def charge(run: Run, _value: Any) -> Any:
        return await run.tool("charge", world.act, "charge")

    return [agent(echo, "echo"), agent(charge, "charge")]


def backed_up(
    deployment: Deployment, lane: Conversation, world: World
) -> tuple[SubmissionId, bytes]:
    """Settle one submission, and copy the disk while the charge of a second has happened and is not recorded."""
    lane.submit("echo", "before", key="before")
    deployment.run_until_quiet()
    submission = lane.submit("charge", key="charge").submission
    pause = lane.pause_at("step:before")
    delivery = begin(deployment, lane)
    assert pause.is_reached
    assert world.calls == {"charge": 1}
    image = lane.disk.image()
    pause.release()
    deployment.run(delivery)
    deployment.run_until_quiet()
    assert lane.settlement(submission).result == "charge done"
    return submission, image


def test_what_had_settled_by_then_is_there_and_what_came_after_is_not() -> None:
    world = World()
    with deployed(*served(world)) as (deployment, lane):
        charge, image = backed_up(deployment, lane, world)
        later = lane.submit("echo", "after", key="after").submission
        deployment.run_until_quiet()
        history = lane.records()
    with deployed(*served(world)) as (deployment, restored):
        restored.disk.restore(image)
        assert restored.records() == history[:5]
        assert [each.kind for each in history[:5]] == [
            "conversation-created",
            "input-applied",
            "settlement",
            "input-applied",
            "tool-prepared",
        ]
        with refused(RefusalCode.NOT_FOUND):
            restored.status(later)
        assert restored.submit("echo", "before", key="before").sequence == 1
        assert restored.submit("echo", "after", key="after").submission == later
        deployment.run_until_quiet()
        assert state_of(restored, charge) is State.UNKNOWN
        restored.resolve(charge, "charge", "failed")
        deployment.run_until_quiet()
        assert restored.settlement(later).result == "after"


def test_a_call_whose_result_was_recorded_only_afterwards_is_unknown_and_never_made_again() -> None:
    """The world was not put back: the charge stands, and a person says so."""
    world = World()
    with deployed(*served(world)) as (deployment, lane):
        charge, image = backed_up(deployment, lane, world)
    with deployed(*served(world)) as (deployment, restored):
        restored.disk.restore(image)
        deployment.run_until_quiet()
        assert state_of(restored, charge) is State.UNKNOWN
        assert restored.alarm_at_ms is None
        assert world.calls == {"charge": 1}
        restored.resolve(charge, "charge", "completed", "charge done")
        deployment.run_until_quiet()
        assert restored.settlement(charge).result == "charge done"
        assert kinds(restored, charge).count("tool-prepared") == 1
        assert world.calls == {"charge": 1}


@pytest.mark.parametrize("resolution", ["never-happened", "safe-to-retry"])
def test_an_attempt_of_the_time_that_is_gone_writes_nothing_into_what_was_put_back(
    resolution: Any,
) -> None:
    """Its epoch was made after the copy, so no row of the copy has it. Its pass dies, as the platform has it."""
    world = World(charge=[ConnectionError(), "charge done"])
    with deployed(*served(world)) as (deployment, lane):
        charge = lane.submit("charge").submission
        deployment.run_until_quiet()
        assert state_of(lane, charge) is State.UNKNOWN
        image = lane.disk.image()
        lane.resolve(charge, "charge", resolution)
        pause = lane.pause_at("step:before")
        gone = begin(deployment, lane)
        assert pause.is_reached
        lane.forget()
        lane.disk.restore(image)
        lane.fail_at("maintenance:finish:before", StorageUnavailable("the Object was reset"))
        before = (lane.records(), lane.generation(), state_of(lane, charge))
        pause.release()
        deployment.run(gone)
        assert (lane.records(), lane.generation(), state_of(lane, charge)) == before
        assert state_of(lane, charge) is State.UNKNOWN
        lane.abort(charge)
        deployment.run_until_quiet()
        assert lane.settlement(charge).effects_may_have_happened
