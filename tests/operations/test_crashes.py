"""Crash at every commit, for every kind of operation and for what clients and people do about it: design 18.1.

For every scene and every commit that its undisturbed run makes, the process dies before and after that commit,
keeping or losing what was not synced. A client whose answer died asks the same again. Then: every submission ends
as in the undisturbed run; no uncertain call was ever made again without a resolution that allows it; no alarm is
left; and the kit has checked the laws of the conversation after every event.

EV-29 to EV-50, CH-1, DA-6, DA-7, DJ-4 to DJ-11, DT-4, DT-5, RC-16 to RC-38; S12, S113. What EV-32, EV-33 and EV-51
to EV-54 tell apart is one commit here.
"""

from collections import Counter

import pytest

from operations.ground import World
from operations.scenes import IDEMPOTENT, SCENES, Client, Scene, agents
from quiesce.records import CallResolved
from quiesce.testing import Conversation, CrashPlan, Deployment, commit_counter, crash_plans

pytestmark = pytest.mark.slow

type Outcome = tuple[object, ...]


def play(scene: Scene, *plans: CrashPlan) -> list[Outcome]:
    """Play a scene with these crashes; returns how each submission ended."""
    world = World(**scene.world)
    with Deployment(agents(world)) as deployment:
        lane = deployment.conversation("one")
        lane.plan_crash(*plans)
        client = Client(deployment, world, lane, scene.resolution)
        scene.play(client)
        client.wait()
        assert lane.alarm_at_ms is None
        proven = proven_by_a_reconciler(lane)
        for name, calls in world.calls.items():
            allowed = 1 + client.allowed[name] + proven[name]
            assert name in IDEMPOTENT or calls <= allowed, f"{name}: {calls} calls"
        return [ended(client, place) for place in range(len(client.receipts))]


def proven_by_a_reconciler(lane: Conversation) -> Counter[str]:
    """Count, of each call, how often a recorded proof lets it be made once more."""
    payloads = [each.parsed() for each in lane.records() if each.kind == "call-resolved"]
    resolved = [each for each in payloads if isinstance(each, CallResolved)]
    return Counter(each.operation for each in resolved if each.author == "reconciler")


def ended(client: Client, place: int) -> Outcome:
    settled = client.lane.settlement(client.receipts[place].submission)
    failure = (settled.failure or {}).get("error_type")
    return settled.outcome, settled.result, failure, settled.host


def check(scene: Scene) -> None:
    counter = commit_counter()
    control = play(scene, counter)
    assert counter.seen > 3
    for plan in crash_plans(counter.seen):
        assert play(scene, plan) == control, f"{plan}"
        assert plan.fired, f"{plan} never happened"


@pytest.mark.parametrize(
    "scene",
    [
        pytest.param(each, id=each.name, marks=[pytest.mark.slow] if each.is_long else [])
        for each in SCENES
    ],
)
def test_a_crash_at_any_commit_ends_as_the_undisturbed_run(scene: Scene) -> None:
    check(scene)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["refund_that_a_person_approves", "abort_during_a_call"])
def test_a_second_crash_at_any_commit_of_the_recovery_ends_so_too(name: str) -> None:
    """EV-55's kind: each first crash is followed by one at each of the next six commits."""
    scene = next(each for each in SCENES if each.name == name)
    counter = commit_counter()
    control = play(scene, counter)
    for first in crash_plans(counter.seen):
        if first.when == "before" and not first.keeps_unsynced:
            continue
        for second in range(1, 7, 2):
            plan = CrashPlan(first.commit, first.when, first.keeps_unsynced)
            again = CrashPlan(second, "after", keeps_unsynced=False)
            assert play(scene, plan, again) == control, f"{plan}, then {again}"
            assert plan.fired
