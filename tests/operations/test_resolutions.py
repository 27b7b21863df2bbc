"""Resolutions: a person says what became of an unknown call, once, and the Run goes on accordingly.

DT-7, DT-10 to DT-13, LG-19, AL-6, EV-46 to EV-48, RC-20 to RC-27.
"""

import asyncio
from typing import Any

import pytest

from operations.ground import (
    HOUR_MS,
    World,
    agent,
    deployed,
    ids,
    refused,
    state_of,
    wait_of,
)
from quiesce import Agent, NeverStarted, Run, ToolFailed, UncertainCall
from quiesce.errors import Refusal, RefusalCode
from quiesce.records import CallResolved
from quiesce.states import State
from quiesce.testing import Conversation, Deployment

RESOLUTIONS = ["completed", "failed", "never-happened", "safe-to-retry", "abort"]


def charging(world: World) -> Any:
    """A handler of one uncertain call that catches its failure and then waits, so that it is replayed."""

    async def handle(run: Run, _value: Any) -> Any:
        try:
            value = await run.tool("charge", world.act, "charge")
        except ToolFailed as failure:
            value = ["failed", failure.error_type, str(failure)]
        await run.approval("go-on")
        return value

    return handle


def resolved(lane: Conversation) -> list[CallResolved]:
    """Return every resolution in the log."""
    payloads = [each.parsed() for each in lane.records() if each.kind == "call-resolved"]
    return [each for each in payloads if isinstance(each, CallResolved)]


@pytest.mark.parametrize(
    ("resolution", "result", "outcome", "calls"),
    [
        ("completed", {"reference": 7}, {"reference": 7}, 1),
        ("completed", None, None, 1),
        ("failed", None, ["failed", "tool-failed", "looked it up"], 1),
        ("never-happened", None, "second", 2),
        ("safe-to-retry", None, "second", 2),
    ],
)
def test_each_resolution_lets_the_run_go_on_as_it_says(
    resolution: Any, result: Any, outcome: Any, calls: int
) -> None:
    """DT-7, AL-6, EV-47: who and why stand in the log, and the value is the same on every replay."""
    world = World(charge=[ConnectionError("reset"), "second"])
    with deployed(charging(world)) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert not lane.resolve(submission, "charge", resolution, result).is_replayed
        assert state_of(lane, submission) is State.INPUT_APPLIED
        assert lane.alarm_at_ms is not None
        deployment.run_until_quiet()
        [found] = resolved(lane)
        assert (found.resolution, found.call, found.author) == (resolution, 1, "tester")
        assert found.reason == "looked it up"
        lane.approve(submission, "go-on")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == outcome
        assert world.calls["charge"] == calls


def test_abort_as_a_resolution_settles_aborted_and_says_what_may_have_happened() -> None:
    """DT-11."""
    world = World(charge=[ConnectionError("reset"), "second"])
    with deployed(charging(world)) as (deployment, lane):
        submission = lane.submit("work").submission
        behind = lane.submit("work").submission
        deployment.run_until_quiet()
        lane.resolve(submission, "charge", "abort")
        deployment.run_until_quiet()
        settled = lane.settlement(submission)
        assert settled.outcome == "aborted"
        assert settled.effects_may_have_happened
        assert settled.unknown_operations == ["charge"]
        assert world.calls["charge"] == 2
        assert state_of(lane, behind) is State.SUSPENDED


@pytest.mark.parametrize("resolution", RESOLUTIONS)
def test_the_same_resolution_again_is_the_same_answer(resolution: Any) -> None:
    """DT-12: before the pass, after it, and after the settlement."""
    world = World(charge=[ConnectionError("reset"), "second"])
    with deployed(charging(world)) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        lane.resolve(submission, "charge", resolution, 7 if resolution == "completed" else None)
        for _ in range(3):
            log = lane.records()
            again = lane.resolve(
                submission, "charge", resolution, 7 if resolution == "completed" else None
            )
            assert again.is_replayed
            assert lane.records() == log
            deployment.run_until_quiet()
            if state_of(lane, submission) is State.SUSPENDED:
                lane.approve(submission, "go-on")
        assert state_of(lane, submission) is State.SETTLED


@pytest.mark.parametrize("first", RESOLUTIONS)
@pytest.mark.parametrize("second", RESOLUTIONS)
def test_another_resolution_is_a_conflict_that_shows_the_recorded_one(
    first: Any, second: Any
) -> None:
    if first == second:
        return
    world = World(charge=[ConnectionError("reset"), "second"])
    with deployed(charging(world)) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        lane.resolve(submission, "charge", first)
        for _ in range(2):
            log = lane.records()
            with refused(RefusalCode.DECISION_CONFLICT) as facts:
                lane.resolve(submission, "charge", second)
            assert facts["recorded"]["resolution"] == first
            assert lane.records() == log
            deployment.run_until_quiet()


def test_completed_with_another_result_is_another_resolution() -> None:
    """The caller would otherwise believe that the second result is the call's."""
    world = World(charge=[ConnectionError("reset")])
    with deployed(charging(world)) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        lane.resolve(submission, "charge", "completed", {"reference": 7})
        assert lane.resolve(submission, "charge", "completed", {"reference": 7}).is_replayed
        with refused(RefusalCode.DECISION_CONFLICT):
            lane.resolve(submission, "charge", "completed", {"reference": 8})


def test_a_second_unknown_call_of_one_operation_needs_a_resolution_of_its_own() -> None:
    """RC-22: the first resolution does not cover it, and is not taken for it."""
    world = World(charge=[ConnectionError(), ConnectionError()])
    with deployed(charging(world)) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        lane.resolve(submission, "charge", "never-happened")
        deployment.run_until_quiet()
        assert state_of(lane, submission) is State.UNKNOWN
        assert world.calls["charge"] == 2
        deployment.advance(24 * HOUR_MS)
        assert world.calls["charge"] == 2
        assert not lane.resolve(submission, "charge", "completed", "found it").is_replayed
        deployment.run_until_quiet()
        lane.approve(submission, "go-on")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == "found it"
        assert [each.call for each in resolved(lane)] == [1, 2]
        assert "charge/resolved-2" in ids(lane, submission)


@pytest.mark.parametrize("operation", ["other", "charge~1", "go-on"])
def test_what_is_no_unknown_call_cannot_be_resolved(operation: str) -> None:
    world = World()
    with deployed(charging(world)) as (deployment, lane):
        submission = lane.submit("work").submission
        with refused(RefusalCode.NOT_WAITING):
            lane.resolve(submission, operation, "completed")
        deployment.run_until_quiet()
        for _ in range(2):
            generation = lane.generation()
            code = (
                RefusalCode.ALREADY_SETTLED
                if state_of(lane, submission) is State.SETTLED
                else RefusalCode.NOT_WAITING
            )
            with refused(code):
                lane.resolve(submission, operation, "completed")
            with refused(code):
                lane.resolve(submission, "charge", "completed", 1)
            assert lane.generation() == generation
            if state_of(lane, submission) is not State.SETTLED:
                lane.approve(submission, "go-on")
                deployment.run_until_quiet()


def test_what_a_reconciler_proved_cannot_be_resolved_again() -> None:
    world = World(charge=[ConnectionError(), "second"])
    work = agent(charging(world))

    @work.reconciler("charge")
    async def _(_call: UncertainCall) -> Any:
        return NeverStarted()

    with deployed(work) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        with refused(RefusalCode.NOT_WAITING):
            lane.resolve(submission, "charge", "completed", 1)


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (float("inf"), RefusalCode.INVALID_REQUEST),
        ({"paid": [float("nan")]}, RefusalCode.INVALID_REQUEST),
        ("x" * 999, RefusalCode.INPUT_TOO_LARGE),
    ],
    ids=["infinite", "no number", "too large"],
)
def test_a_result_that_cannot_be_stored_is_refused_and_the_call_stays_unknown(
    result: Any, code: RefusalCode
) -> None:
    """A JSON body can say 1e400, and more than a tool may return: neither can stand in a record."""
    world = World(charge=[ConnectionError()])
    settings = {"value_bytes_max": 1_000, "input_bytes_max": 1_000}
    with deployed(charging(world), **settings) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        before = (lane.records(), lane.generation(), lane.alarm_at_ms)
        with refused(code) as facts:
            lane.resolve(submission, "charge", "completed", result)
        if code is RefusalCode.INPUT_TOO_LARGE:
            assert (facts["actual"], facts["maximum"]) == (1_001, 1_000)
        assert (lane.records(), lane.generation(), lane.alarm_at_ms) == before
        assert state_of(lane, submission) is State.UNKNOWN
        lane.resolve(submission, "charge", "completed", "x" * 998)
        deployment.run_until_quiet()
        lane.approve(submission, "go-on")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == "x" * 998


def test_a_wait_beside_the_unknown_call_is_named_by_explain_too() -> None:
    """Unknown beats suspension: what is named first is the resolution."""
    world = World(charge=[ConnectionError()])

    async def handle(run: Run, _value: Any) -> None:
        await asyncio.gather(run.approval("ask"), run.tool("charge", world.act, "charge"))

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert wait_of(lane, submission).operation == "charge"


def test_a_resolution_that_names_its_call_decides_about_no_later_one() -> None:
    """The first answer was lost, and the call made again is unknown again: the repeat decides nothing."""
    agent = Agent("twice", input=Any, output=Any)

    async def lost() -> None:
        raise ConnectionError

    @agent.handler
    async def handle(run: Run, _value: Any) -> Any:
        return await run.tool("pay", lost)

    with Deployment([agent]) as deployment:
        lane = deployment.conversation("c")
        submission = lane.submit("twice").submission
        deployment.run_until_quiet()
        lane.resolve(submission, "pay", "safe-to-retry", number=1)
        deployment.run_until_quiet()
        with pytest.raises(Refusal, match="call 2 is unknown"):
            lane.resolve(submission, "pay", "safe-to-retry", number=1)
        lane.resolve(submission, "pay", "completed", 7, number=2)
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == 7


@pytest.mark.parametrize(
    ("resolution", "terms", "result"),
    [
        ("completed", {"result": "proven"}, "proven"),
        ("never-happened", {}, "second"),
        ("safe-to-retry", {}, "second"),
    ],
)
def test_an_unknown_call_spends_no_attempt_and_its_resolution_counts_at_the_last_one(
    resolution: Any, terms: dict[str, Any], result: str
) -> None:
    """What a person has proven is not thrown away because calls have failed before."""
    world = World(charge=[ConnectionError("reset"), "second"])
    with deployed(charging(world), attempts_max=1) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        status = lane.status(submission).submission
        assert (status.state, status.attempts) == (State.UNKNOWN, 0)
        lane.resolve(submission, "charge", resolution, **terms)
        deployment.run_until_quiet()
        lane.approve(submission, "go-on")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == result
