"""Crash at every commit of the Objects of a family, for children and callbacks.

For each scenario, and each commit that its undisturbed run makes in the parent's Object or in the child's, that
Object dies before and after the commit, keeping or losing what was not synced. The client repeats an act that
died; all else comes from alarms. The laws of the family (`children/laws.py`) are checked after every event and at
every call, and the end must be that of the undisturbed run.

SX-1 to SX-6, SX-8 to SX-12, SX-14 to SX-16; DSB-2, DSB-6 to DSB-9; TP-7; RC-40 to RC-47, RC-57, RC-58, RC-65 to
RC-70, RC-72 to RC-75, RC-77, RC-78; S47, S48, S98. SX-11, SX-12, RC-53 and RC-54 also speak of a budget that is
reserved for the child and released, which has no counterpart here.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from children.family import TERMS, Family, child_of, insist, lane_of, root_of, served
from operations.ground import World, agent
from quiesce import Failed, Retryable, Run
from quiesce.ids import SubmissionId
from quiesce.settings import Settings
from quiesce.states import State
from quiesce.testing import Conversation, CrashPlan, commit_counter, crash_plans

pytestmark = pytest.mark.slow

ROOT = root_of("a")


class Actor:
    """A client that repeats what has died, and knows where everything is."""

    def __init__(self, deployment: Family) -> None:
        self.deployment = deployment
        self.lane = deployment.conversation("one")

    def submit(self, name: str, value: Any, **terms: Any) -> None:
        insist(lambda: self.lane.submit(name, value, key="a", **terms))

    def child(self, *operations: str) -> tuple[Conversation, SubmissionId]:
        """Return the lane and submission at the end of a path of delegations."""
        found = ROOT
        lane = self.lane
        for operation in operations:
            lane, found = lane_of(self.deployment, found, operation), child_of(found, operation)[1]
        return lane, found

    def wait(self) -> None:
        self.deployment.run_until_quiet()

    def approve(self, *operations: str) -> None:
        lane, submission = self.child(*operations)
        insist(lambda: lane.approve(submission, "ask"))


@dataclass(frozen=True)
class Scenario:
    name: str
    play: Callable[[Actor], None]
    crashing: tuple[tuple[str, ...], ...]
    """The Objects that die in turn, each as a path of delegations from the root."""
    settings: Settings
    is_loose: bool
    """Which clock or which attempt comes first decides how the child ends; its parent ends in one way."""
    is_small: bool


CORPUS: list[Scenario] = []
BOTH: tuple[tuple[str, ...], ...] = ((), ("child",))


def scenario(
    *crashing: tuple[str, ...], is_loose: bool = False, is_small: bool = False, **settings: Any
) -> Callable[[Callable[[Actor], None]], None]:
    """Add a function to the corpus."""

    def add(play: Callable[[Actor], None]) -> None:
        CORPUS.append(
            Scenario(
                play.__name__, play, crashing or BOTH, Settings(**settings), is_loose, is_small
            )
        )

    return add


@scenario(is_small=True)
def a_child_with_steps(actor: Actor) -> None:
    actor.submit("delegate", ["steps", 2])
    actor.wait()


@scenario()
def a_failed_child(actor: Actor) -> None:
    actor.submit("delegate", ["fail", "no"])
    actor.wait()


@scenario(())
def a_refused_child(actor: Actor) -> None:
    actor.submit("delegate", ["nobody", 1])
    actor.wait()


@scenario((), ("b",))
def three_children(actor: Actor) -> None:
    actor.submit("fan-out", {name: ["echo", name] for name in ("a", "b", "c")})
    actor.wait()


@scenario((), ("child",), ("child", "child"))
def a_child_of_a_child(actor: Actor) -> None:
    actor.submit("delegate", ["delegate", ["echo", 1]])
    actor.wait()


@scenario()
def a_child_that_waits_for_a_person(actor: Actor) -> None:
    actor.submit("delegate", ["ask", None])
    actor.wait()
    actor.approve("child")
    actor.wait()


@scenario((), ("a",))
def an_abort_that_waits_for_its_children(actor: Actor) -> None:
    actor.submit("fan-out", {"a": ["ask", 1], "b": ["ask", 2]})
    actor.wait()
    insist(lambda: actor.lane.abort(ROOT))
    actor.wait()


@scenario((), ("child",), ("child", "child"))
def an_abort_of_a_child_of_a_child(actor: Actor) -> None:
    actor.submit("delegate", ["delegate", ["ask", 1]])
    actor.wait()
    insist(lambda: actor.lane.abort(ROOT))
    actor.wait()


@scenario()
def an_abort_before_the_child_is_asked(actor: Actor) -> None:
    actor.deployment.fates = lambda _name, call: "lost" if call.kind == "admit-child" else "arrives"
    actor.submit("delegate", ["ask", 1])
    actor.deployment.advance(1_000)
    insist(lambda: actor.lane.abort(ROOT))
    actor.deployment.advance(1_000)
    actor.deployment.fates = lambda _name, _call: "arrives"
    actor.wait()


@scenario()
def an_abort_before_the_child_is_established(actor: Actor) -> None:
    actor.deployment.fates = lambda _name, call: (
        "lost" if call.kind == "establish-child" else "arrives"
    )
    actor.submit("delegate", ["ask", 1])
    actor.deployment.advance(1_000)
    insist(lambda: actor.lane.abort(ROOT))
    actor.wait()


@scenario()
def an_abort_that_detaches(actor: Actor) -> None:
    actor.submit("delegate", ["ask", 1])
    actor.wait()
    insist(lambda: actor.lane.abort(ROOT, detaches=True))
    actor.wait()
    actor.approve("child")
    actor.wait()


@scenario(is_loose=True)
def a_deadline_with_a_child(actor: Actor) -> None:
    actor.submit("delegate", ["ask", 1], deadline_ms=60_000)
    actor.wait()


@scenario((), ("a",), is_loose=True)
def a_failure_beside_an_open_child(actor: Actor) -> None:
    actor.submit("failing", {"a": ["ask", 1]})
    actor.wait()


@scenario((), ("a",), is_loose=True)
def a_result_although_a_child_is_open(actor: Actor) -> None:
    actor.submit("leaving", {"a": ["ask", 1]})
    actor.wait()


@scenario((), is_small=True, **TERMS)
def a_callback(actor: Actor) -> None:
    actor.submit("echo", 1, callback_url="https://example.com/hook")
    actor.wait()


@scenario((), **TERMS)
def a_callback_that_is_given_up_and_revived(actor: Actor) -> None:
    actor.deployment.network.answers = lambda _post: 500
    actor.submit("echo", 1, callback_url="https://example.com/hook")
    actor.wait()
    actor.deployment.network.answers = lambda _post: 204
    insist(lambda: revive(actor.lane))
    actor.wait()


def revive(lane: Conversation) -> None:
    """Revive the callback, unless the act that died has done so."""
    if not any(each.kind == "operator-acted" for each in lane.records()):
        lane.retry(ROOT)


def agents(world: World) -> list[Any]:
    async def failing(run: Run, wanted: Any) -> None:
        name, each = next(iter(wanted.items()))
        branch = asyncio.ensure_future(run.delegate(*each, name=name))
        await asyncio.wait({branch})
        assert branch.exception() is not None
        raise Failed("the other branch", error_type="no-luck")

    async def leaving(run: Run, wanted: Any) -> str:
        async def flaky() -> None:
            raise Retryable("not yet")

        if run.attempt == 1:
            name, each = next(iter(wanted.items()))
            await asyncio.gather(
                run.delegate(*each, name=name), run.tool("flaky", flaky, effect="idempotent")
            )
        return "left"

    return [*served(world), agent(failing, "failing"), agent(leaving, "leaving")]


def play(scenario: Scenario, plans: Mapping[tuple[str, ...], list[CrashPlan]]) -> Any:
    """Run a scenario with Objects that die, and return what it came to."""
    world = World()
    with Family(agents(world), scenario.settings) as deployment:
        actor = Actor(deployment)
        for crashing, planned in plans.items():
            actor.child(*crashing)[0].plan_crash(*planned)
        scenario.play(actor)
        for each in deployment:
            assert each.alarm_at_ms is None, f"{each.name} keeps an alarm that it does not need"
            if not each.is_virgin:
                counts = each.state().counts
                assert {state for state in State if counts[state]} <= {State.SETTLED}, counts
        found = outcomes(deployment)
        mine = f"{ROOT}/settlement"
        return {mine: found[mine]} if scenario.is_loose else found


def outcomes(deployment: Family) -> Any:
    """Return how every submission was settled, and what was recorded of children and callbacks."""
    found = {}
    for lane in deployment:
        for record in lane.records():
            payload: Any = record.parsed()
            match record.kind:
                case "settlement":
                    failure = (payload.failure or {}).get("error_type")
                    unknown = tuple(payload.unknown_operations)
                    found[record.record_id] = (payload.outcome, payload.result, failure, unknown)
                case "child-joined" | "child-late":
                    found[record.record_id] = payload.outcome
                case "callback-ended":
                    found["callback", payload.is_delivered] = payload.submission
    return found


def matrix() -> Iterator[Any]:
    for each in CORPUS:
        for crashing in each.crashing:
            name = "-".join([each.name, *(crashing or ["root"])])
            marks = [] if each.is_small else [pytest.mark.slow]
            yield pytest.param(each, crashing, id=name, marks=marks)


@pytest.mark.parametrize(("scenario", "crashing"), list(matrix()))
def test_crash_at_every_commit_of_a_family_converges(
    scenario: Scenario, crashing: tuple[str, ...]
) -> None:
    counter = commit_counter()
    control = play(scenario, {crashing: [counter]})
    assert counter.seen > 3
    for plan in crash_plans(counter.seen):
        found = play(scenario, {crashing: [plan]})
        assert plan.fired or scenario.is_loose, f"{plan} never happened"
        assert found == control, str(plan)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", ["a_child_with_steps", "an_abort_that_waits_for_its_children"])
def test_both_objects_die_at_every_pair_of_commits(
    name: str, when: Literal["before", "after"]
) -> None:
    scenario = next(each for each in CORPUS if each.name == name)
    parent, child = scenario.crashing
    counters = {parent: [commit_counter()], child: [commit_counter()]}
    control = play(scenario, counters)
    for first in range(1, counters[parent][0].seen + 1):
        for second in range(1, counters[child][0].seen + 1):
            plans = [CrashPlan(each, when, keeps_unsynced=False) for each in (first, second)]
            found = play(scenario, {parent: plans[:1], child: plans[1:]})
            assert found == control, f"the parent {plans[0]}, the child {plans[1]}"


@pytest.mark.parametrize("scenario", CORPUS, ids=lambda each: each.name)
def test_undisturbed_scenarios_end_as_they_should(scenario: Scenario) -> None:
    found = play(scenario, {})
    expected = {
        "a_failed_child": "completed",
        "an_abort_that_waits_for_its_children": "aborted",
        "an_abort_of_a_child_of_a_child": "aborted",
        "an_abort_before_the_child_is_asked": "aborted",
        "an_abort_before_the_child_is_established": "aborted",
        "an_abort_that_detaches": "aborted",
        "a_deadline_with_a_child": "failed",
        "a_failure_beside_an_open_child": "failed",
    }
    assert found[f"{ROOT}/settlement"][0] == expected.get(scenario.name, "completed")
