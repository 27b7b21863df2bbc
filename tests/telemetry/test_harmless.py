"""A reporter that raises changes nothing: the same answers, the same rows, the same alarms.

Every scene of the operations is played with nobody listening, and then with each part of the reporter broken.

Parity: OB-3, OB-4.
"""

from typing import Any

import pytest

from children.family import delegate, echo
from operations.ground import World, agent, deployed
from operations.scenes import SCENES, Client, Scene, agents
from quiesce.telemetry import Reporter, harmless
from quiesce.testing import Deployment
from telemetry.helpers.reporters import Recorder

PARTS = ("hear", "start_span", "note", "start", "end")
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def everything(deployment: Deployment) -> list[Any]:
    """All that is stored and armed, and what every pass reported."""
    return [
        (lane.name, lane.alarm_at_ms, list(lane.disk.connection.iterdump()), lane.reports)
        for lane in deployment
    ]


def played(scene: Scene, reporter: Reporter | None) -> list[Any]:
    world = World(**scene.world)
    with Deployment(agents(world)) as deployment:
        deployment.reporter = reporter
        client = Client(deployment, world, deployment.conversation("one"), scene.resolution)
        scene.play(client)
        client.wait()
        return [client.receipts, world.seen, *everything(deployment)]


@pytest.mark.parametrize(
    "scene",
    [
        pytest.param(each, id=each.name, marks=[pytest.mark.slow] if each.is_long else [])
        for each in SCENES
    ],
)
def test_a_scene_is_the_same_whoever_listens(scene: Scene) -> None:
    alone = played(scene, None)
    working, broken = Recorder(), Recorder("hear", "note", "end")
    assert played(scene, working) == alone
    assert played(scene, broken) == alone
    assert working.lines
    assert working.spans
    assert broken.failures > len(working.lines)


@pytest.mark.parametrize("part", PARTS)
def test_a_family_is_the_same_with_any_part_broken(part: str) -> None:
    def lived(reporter: Reporter | None) -> list[Any]:
        with deployed(agent(delegate, "delegate"), agent(echo, "echo")) as (deployment, lane):
            deployment.reporter = reporter
            receipts = [
                lane.submit("delegate", ["echo", each], traceparent=TRACEPARENT)
                for each in range(3)
            ]
            deployment.run_until_quiet()
            lane.evict()
            lane.submit("delegate", ["echo", 4])
            deployment.run_until_quiet()
            return [receipts, *everything(deployment)]

    broken = Recorder(part)
    assert lived(broken) == lived(None)
    assert broken.failures > 0


def test_only_what_an_exception_says_is_dropped() -> None:
    """What ends the process or a task is no failure of whoever listens."""
    assert harmless(lambda: 7) == 7
    assert harmless(lambda: {}["lost"]) is None
    for end in (KeyboardInterrupt, SystemExit, GeneratorExit):
        with pytest.raises(end):
            harmless(_raising(end))


def _raising(end: type[BaseException]) -> Any:
    def act() -> None:
        raise end

    return act
