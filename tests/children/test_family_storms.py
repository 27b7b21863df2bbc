"""Random storms over a family: messages lost, doubled and late, Objects that die at random commits, alarms at once.

Seeded, so that a failure is repeated by its seed. While the storm lasts, the laws of the family are checked after
every event and at every call; when it is over, alarms alone bring everything to the one end that it can have.
CHM-1, CHM-2 for families; TP-3, TP-4, TP-7.

Parity: CHM-3.
"""

import random
from typing import Any

import pytest

from children.family import Family, child_of, family, insist, lane_of, root_of
from operations.ground import World
from quiesce.errors import Refusal
from quiesce.ids import SubmissionId
from quiesce.ports import Call
from quiesce.states import State
from quiesce.testing import Conversation, CrashPlan
from quiesce.testing.network import Fate

pytestmark = pytest.mark.slow

ROOT = root_of("a")
TURNS = 60
WORK: dict[str, Any] = {
    "steps": ["steps", 2],
    "ask": ["ask", None],
    "nested": ["delegate", ["steps", 1]],
}


class Storm:
    """What goes wrong in one run, drawn from a seed."""

    def __init__(self, deployment: Family, seed: int) -> None:
        self.deployment = deployment
        self.draw = random.Random(seed)
        deployment.fates = self.fate

    def fate(self, _conversation: str, _call: Call) -> Fate:
        fates: list[Fate] = ["arrives", "lost", "answer-lost", "twice", "late"]
        return self.draw.choices(fates, [50, 15, 15, 10, 10])[0]

    def turn(self) -> None:
        """Let one thing happen."""
        lanes = [each for each in self.deployment if not each.is_virgin]
        lane = self.draw.choice(lanes)
        match self.draw.randrange(7):
            case 0 | 1:
                self.deployment.advance(self.draw.choice([1, 60, 500, 5_000]))
            case 2:
                self.plan(lane)
            case 3:
                lane.crash(keeps_unsynced=self.draw.random() < 0.5)
            case 4 if self.deployment.network.late:
                late = self.deployment.network.late
                insist(
                    lambda: (
                        self.deployment.arrive_late(self.draw.randrange(len(late)))
                        if late
                        else None
                    )
                )
            case 5:
                # Several alarms at once: passes of different Objects that call each other.
                tasks = [each.start_delivery() for each in lanes if each.alarm_at_ms is not None]
                self.deployment.run_until_idle()
                assert all(task.done() for task in tasks)
                for each in lanes:
                    each.check_laws()
            case _:
                lane.alarm()

    def plan(self, lane: Conversation) -> None:
        when = self.draw.choice(["before", "after"])
        plan = CrashPlan(self.draw.randrange(1, 9), when, keeps_unsynced=self.draw.random() < 0.5)
        lane.plan_crash(plan)

    def end(self, *, forgets_late: bool) -> None:
        """Let the storm be over: nothing is lost any more, and what is late arrives, unless it is hours old."""
        if forgets_late:
            self.deployment.network.late.clear()
        self.deployment.fates = lambda _name, _call: "arrives"
        for lane in self.deployment:
            lane.plan_crash()
        while self.deployment.network.late:
            self.deployment.arrive_late(self.draw.randrange(len(self.deployment.network.late)))


def approve_whoever_asks(deployment: Family) -> None:
    for name in WORK:
        lane, child = lane_of(deployment, ROOT, name), child_of(ROOT, name)[1]
        if not lane.is_virgin and lane.status(child).submission.state is State.SUSPENDED:
            try:
                lane.approve(child, "ask")
            except Refusal:
                continue


def check_end(deployment: Family, world: World, outcome: str) -> None:
    lane = deployment.conversation("one")
    settled = lane.settlement(ROOT)
    assert settled.outcome == outcome, settled
    if outcome == "completed":
        nested = {"outcome": "completed", "result": 1, "failure": None}
        assert settled.result == {"steps": 2, "ask": "approved", "nested": nested}
        # A step may run once more for each death, and never once its record stands.
        assert set(world.calls) == {"step-0", "step-1"}
    for each in deployment:
        assert each.alarm_at_ms is None, each.name
        if not each.is_virgin:
            open_ = {state for state, count in each.state().counts.items() if count} - {
                State.SETTLED
            }
            assert not open_, f"{each.name}: {open_}"
    assert sum(not each.is_virgin for each in deployment) <= 2 + len(WORK)


def storm(seed: int, *, acts: bool) -> None:
    world = World()
    with family(world=world, seed=seed) as (deployment, lane):
        lane.submit("fan-out", WORK, key="a")
        weather = Storm(deployment, seed)
        abort_at = weather.draw.randrange(TURNS) if acts else TURNS + 1
        detaches = acts and seed % 3 == 0
        for number in range(TURNS):
            if number == abort_at:
                insist(lambda: abort(lane, ROOT, detaches=detaches))
            weather.turn()
        weather.end(forgets_late=detaches)
        deployment.run_until_quiet()
        approve_whoever_asks(deployment)
        deployment.run_until_quiet()
        check_end(deployment, world, "aborted" if acts else "completed")


def abort(lane: Conversation, root: SubmissionId, *, detaches: bool) -> None:
    lane.abort(root, detaches=detaches)


@pytest.mark.parametrize("seed", range(12))
def test_a_family_in_a_storm_ends_as_in_fair_weather(seed: int) -> None:
    storm(seed, acts=False)


@pytest.mark.parametrize("seed", range(12))
def test_a_family_aborted_in_a_storm_ends_aborted(seed: int) -> None:
    storm(seed, acts=True)


@pytest.mark.slow
@pytest.mark.parametrize("acts", [False, True], ids=["finishes", "aborted"])
@pytest.mark.parametrize("seed", range(100, 200))
def test_a_family_in_many_more_storms(seed: int, acts: bool) -> None:  # noqa: FBT001 - pytest hands parameters so
    storm(seed, acts=acts)
