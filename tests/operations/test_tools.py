"""Tools: a call that may have an effect is prepared, made once, and settled, or becomes unknown and visible.

DT-1 to DT-3, DT-6 to DT-9, EV-29 to EV-31, AL-6; S99, S106, S113, S114. The model's own tools are
not tested here.

Parity: SN-32, SN-33, NC-14.
"""

import asyncio
import itertools
from typing import Any

import pytest

from operations.ground import (
    HANG,
    HOUR_MS,
    World,
    agent,
    deployed,
    ids,
    kinds,
    state_of,
    wait_of,
)
from quiesce import (
    Approval,
    Failed,
    Happened,
    NeverStarted,
    Retryable,
    Run,
    SafeToRetry,
    Timer,
    ToolFailed,
    UncertainCall,
    Unproven,
)
from quiesce.recovery import WaitKind
from quiesce.settings import Settings
from quiesce.states import State
from quiesce.testing import Conversation

EFFECTS = ["uncertain", "idempotent", "readonly"]


def charging(world: World, **options: Any) -> Any:
    """A handler of one tool call that then waits for a person, so that it is replayed."""

    async def handle(run: Run, _value: Any) -> Any:
        value = await run.tool("charge", world.act, "charge", 5, **options)
        await run.approval("go-on")
        return value

    return handle


def catching(world: World, caught: list[tuple[str, str, str]], **options: Any) -> Any:
    """A handler that catches the failure of its tool, waits, and returns what it caught."""

    async def handle(run: Run, _value: Any) -> Any:
        try:
            await run.tool("charge", world.act, "charge", 5, **options)
        except ToolFailed as failure:
            caught.append((type(failure).__name__, failure.error_type, str(failure)))
        await run.approval("go-on")
        return caught[-1][1]

    return handle


def assert_unknown(lane: Conversation, submission: Any, world: World) -> None:
    """The call is visible as unknown, nothing wakes the lane, and no alarm makes it a second time."""
    assert state_of(lane, submission) is State.UNKNOWN
    assert wait_of(lane, submission).kind is WaitKind.RESOLUTION
    assert lane.alarm_at_ms is None
    calls = world.calls["charge"]
    lane.alarm()
    lane.crash()
    lane.alarm()
    lane.deployment.advance(24 * HOUR_MS)
    assert world.calls["charge"] == calls
    assert state_of(lane, submission) is State.UNKNOWN


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_tool_that_returns_is_called_once_and_its_value_replayed(effect: str) -> None:
    """DT-1, DT-2: an uncertain and an idempotent call have a prepared record, a readonly one has none."""
    world = World(charge=[{"reference": [1, None]}])
    with deployed(charging(world, effect=effect)) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        lane.approve(submission, "go-on")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == {"reference": [1, None]}
        assert world.calls["charge"] == 1
        prepared = [each for each in ids(lane, submission) if "prepared" in each]
        assert prepared == ([] if effect == "readonly" else ["charge/prepared-1"])
        assert "charge/settled" in ids(lane, submission)


def test_the_first_attempt_gets_the_stored_form_of_a_value_too() -> None:
    """A tuple becomes a list before the handler sees it, as it would on a replay."""
    seen: list[Any] = []

    async def handle(run: Run, _value: Any) -> None:
        seen.append(await run.tool("pair", lambda: (1, {2: "two"})))
        await run.approval("go-on")

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        lane.approve(submission, "go-on")
        deployment.run_until_quiet()
        assert seen == [[1, {"2": "two"}]] * 2


@pytest.mark.parametrize("effect", EFFECTS)
def test_tool_failed_is_a_result_and_raised_again_on_replay(effect: str) -> None:
    world = World(charge=[ToolFailed("no funds", error_type="declined")])
    caught: list[tuple[str, str, str]] = []
    with deployed(catching(world, caught, effect=effect)) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        lane.approve(submission, "go-on")
        deployment.run_until_quiet()
        assert caught == [("ToolFailed", "declined", "no funds")] * 2
        assert world.calls["charge"] == 1
        assert lane.settlement(submission).result == "declined"


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_type_in_fails_with_is_raised_as_tool_failed_from_the_first_time_on(effect: str) -> None:
    world = World(charge=[ValueError("bad card")])
    caught: list[tuple[str, str, str]] = []
    handle = catching(world, caught, effect=effect, fails_with=(ValueError,))
    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        lane.approve(submission, "go-on")
        deployment.run_until_quiet()
        assert caught == [("ToolFailed", "ValueError", "bad card")] * 2
        assert world.calls["charge"] == 1


def test_a_tool_failure_that_nobody_catches_settles_failed_without_a_retry() -> None:
    world = World(charge=[ToolFailed("no funds", error_type="declined")])
    with deployed(charging(world)) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        settled = lane.settlement(submission)
        assert settled.outcome == "failed"
        assert settled.failure is not None
        assert settled.failure["message"] == "no funds"
        assert not settled.effects_may_have_happened
        assert world.calls["charge"] == 1


@pytest.mark.parametrize(
    "raised",
    [
        ConnectionError("reset"),
        TimeoutError("late"),
        Retryable("again"),
        Failed("for good"),
        KeyError("bug"),
        asyncio.CancelledError(),
    ],
    ids=lambda each: type(each).__name__,
)
def test_any_other_exception_leaves_an_uncertain_call_unknown(raised: BaseException) -> None:
    """DT-6, S113: what the exception says does not prove what happened on the other side."""
    world = World(charge=[raised])
    with deployed(charging(world)) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert_unknown(lane, submission, world)
        assert world.calls["charge"] == 1
        assert ids(lane, submission)[-1] == "charge/unknown-1"


def test_a_handler_cannot_swallow_an_uncertain_call() -> None:
    """It catches everything and returns: the call is unknown all the same, and nothing is completed."""
    world = World(charge=[ConnectionError("reset")])

    async def handle(run: Run, _value: Any) -> str:
        try:
            await run.tool("charge", world.act, "charge")
        except BaseException:  # noqa: BLE001 - the handler that this is about
            return "all is well"
        return "done"

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert_unknown(lane, submission, world)


@pytest.mark.parametrize(
    ("answer", "calls", "result"),
    [
        (Happened({"reference": 7}), 1, {"reference": 7}),
        (Happened(None), 1, None),
        (NeverStarted(), 2, "second"),
        (SafeToRetry("idempotent at the bank"), 2, "second"),
    ],
    ids=["happened", "happened-with-null", "never-started", "safe-to-retry"],
)
def test_the_reconciler_proves_what_became_of_a_call(answer: Any, calls: int, result: Any) -> None:
    """DT-8, RC-16 to RC-18."""
    world = World(charge=[ConnectionError("reset"), "second"])
    asked: list[UncertainCall] = []
    work = agent(charging(world))

    @work.reconciler("charge")
    async def _(call: UncertainCall) -> Any:
        asked.append(call)
        return answer

    with deployed(work) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert wait_of(lane, submission).kind is WaitKind.APPROVAL
        lane.approve(submission, "go-on")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == result
        assert world.calls["charge"] == calls
        assert len(asked) == 1
        call = asked[0]
        assert (call.operation, call.name, call.arguments, call.call) == (
            "charge",
            "charge",
            ["charge", 5],
            1,
        )
        assert call.idempotency_key == f"{submission}:charge"


class _Lazy:
    """What no reconciler may answer."""


@pytest.mark.parametrize(
    "answer",
    [
        Unproven("no idea"),
        RuntimeError("down"),
        HANG,
        Happened({1, 2}),
        Happened("x" * 5_000),
        None,
        "happened",
        _Lazy(),
        asyncio.CancelledError(),
    ],
    ids=[
        "unproven",
        "raising",
        "hanging",
        "happened-without-json",
        "happened-too-large",
        "none",
        "another-type",
        "an-object",
        "cancelled",
    ],
)
def test_a_reconciler_that_proves_nothing_leaves_the_call_unknown(answer: Any) -> None:
    """RC-19: whatever goes wrong in it is no proof, and does not break the pass."""
    world = World(charge=[ConnectionError("reset")], reconcile=[answer])
    work = agent(charging(world))

    @work.reconciler("charge")
    async def _(_call: UncertainCall) -> Any:
        return await world.act("reconcile")

    with deployed(work, value_bytes_max=4_000, input_bytes_max=1_000) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert not lane.errors
        assert_unknown(lane, submission, world)
        assert world.calls["reconcile"] == 1


def test_a_reconciler_that_ignores_its_cancellation_does_not_hold_the_pass() -> None:
    """S14 for the one other place where recovery awaits an application."""
    world = World(charge=[ConnectionError("reset")])
    work = agent(charging(world))

    @work.reconciler("charge")
    async def _(_call: UncertainCall) -> Any:
        until_ms = deployment.now_ms + 4 * HOUR_MS
        while deployment.now_ms < until_ms:
            try:
                await asyncio.sleep(HOUR_MS / 1_000)
            except asyncio.CancelledError:
                continue
        return NeverStarted()

    with deployed(work) as (deployment, lane):
        submission = lane.submit("work").submission
        started_ms = deployment.now_ms
        deployment.advance(HOUR_MS)
        assert all(report.duration_ms <= 120_000 for report in lane.reports), lane.reports
        assert deployment.now_ms - started_ms <= HOUR_MS
        assert state_of(lane, submission) is State.UNKNOWN


def test_reconciled_calls_can_be_made_again_and_reconciled_again() -> None:
    """Each call has its own number, and each may leave no result."""
    world = World(charge=[ConnectionError(), ConnectionError(), "third"])
    numbers: list[int] = []
    work = agent(charging(world))

    @work.reconciler("charge")
    async def _(call: UncertainCall) -> Any:
        numbers.append(call.call)
        return NeverStarted()

    with deployed(work) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert numbers == [1, 2]
        assert world.calls["charge"] == 3
        assert ids(lane, submission)[1:7] == [
            "charge/prepared-1",
            "charge/resolved-1",
            "charge/prepared-2",
            "charge/resolved-2",
            "charge/prepared-3",
            "charge/settled",
        ]


def test_a_call_that_a_reconciler_lets_be_made_again_spends_an_attempt_each_time() -> None:
    """Else a tool that always raises and a reconciler that always answers would call each other for ever."""
    world = World(charge=[ConnectionError("reset")])
    at_ms: list[int] = []
    work = agent(charging(world))

    @work.reconciler("charge")
    async def _(_call: UncertainCall) -> Any:
        at_ms.append(deployment.now_ms)
        return NeverStarted() if len(at_ms) < 50 else Unproven("it is asked again and again")

    with deployed(work, attempts_max=4) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        settled = lane.settlement(submission)
        assert settled.failure is not None
        assert settled.failure["error_type"] == "attempts-exhausted"
        assert "ConnectionError: reset" in settled.failure["message"]
        assert not settled.effects_may_have_happened
        assert world.calls["charge"] == 4
        gaps = [later - earlier for earlier, later in itertools.pairwise(at_ms)]
        assert min(gaps) >= Settings().backoff_base_ms / 2
        assert gaps[2] > gaps[0]


def test_two_calls_that_are_reconciled_after_one_attempt_spend_one() -> None:
    world = World(one=[ConnectionError(), "one"], other=[ConnectionError(), "other"])

    async def handle(run: Run, _value: Any) -> Any:
        calls = (run.tool(name, world.act, name) for name in ("one", "other"))
        return await asyncio.gather(*calls)

    work = agent(handle)
    for name in ("one", "other"):

        @work.reconciler(name)
        async def _(_call: UncertainCall) -> Any:
            return NeverStarted()

    with deployed(work) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == ["one", "other"]
        assert lane.status(submission).submission.attempts == 1


@pytest.mark.parametrize("effect", ["idempotent", "readonly"])
def test_what_can_be_made_again_is_tried_again_as_a_failed_attempt(effect: str) -> None:
    """DT-9."""
    world = World(charge=[ConnectionError("reset"), KeyError("odd"), "third"])
    with deployed(charging(world, effect=effect)) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert lane.status(submission).submission.attempts == 2
        lane.approve(submission, "go-on")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == "third"
        assert world.calls["charge"] == 3
        prepared = [each for each in kinds(lane, submission) if each == "tool-prepared"]
        assert len(prepared) == (1 if effect == "idempotent" else 0)


@pytest.mark.parametrize("effect", ["idempotent", "readonly"])
def test_a_call_that_never_succeeds_exhausts_the_attempts(effect: str) -> None:
    world = World(charge=[ConnectionError("reset")])
    with deployed(charging(world, effect=effect), attempts_max=3) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        settled = lane.settlement(submission)
        assert settled.failure is not None
        assert settled.failure["error_type"] == "attempts-exhausted"
        assert "ConnectionError: reset" in settled.failure["message"]
        assert world.calls["charge"] == 3
        assert not settled.effects_may_have_happened


def test_a_call_that_can_be_made_again_cannot_be_swallowed_either() -> None:
    world = World(charge=[ConnectionError("reset"), "second"])

    async def handle(run: Run, _value: Any) -> Any:
        try:
            return await run.tool("charge", world.act, "charge", effect="idempotent")
        except Exception:  # noqa: BLE001 - the handler that this is about
            return "swallowed"

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == "second"


def test_a_call_over_its_time_is_unknown_and_not_failed() -> None:
    """S114: the provider may have charged after the clock ran out."""
    world = World(charge=[HANG])
    with deployed(charging(world, timeout_ms=2_000)) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert_unknown(lane, submission, world)


def test_a_call_over_its_time_is_made_again_if_that_does_no_harm() -> None:
    world = World(charge=[HANG, "second"])
    handle = charging(world, effect="idempotent", timeout_ms=2_000)
    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        lane.approve(submission, "go-on")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == "second"


def test_a_timeout_is_a_result_where_the_tool_says_so() -> None:
    world = World(charge=[HANG])
    caught: list[tuple[str, str, str]] = []
    handle = catching(world, caught, fails_with=(TimeoutError,), timeout_ms=2_000)
    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert caught[0][:2] == ("ToolFailed", "TimeoutError")
        assert wait_of(lane, submission).kind is WaitKind.APPROVAL


@pytest.mark.parametrize(
    ("value", "error_type"),
    [("x" * 5_000, "result-too-large"), ({1, 2}, "TypeError")],
    ids=["too-large", "no-json"],
)
@pytest.mark.parametrize("effect", EFFECTS)
def test_a_value_that_cannot_be_stored_settles_failed_and_is_not_retried(
    value: Any, error_type: str, effect: str
) -> None:
    world = World(charge=[value])
    handle = charging(world, effect=effect)
    with deployed(handle, value_bytes_max=4_000, input_bytes_max=1_000) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        settled = lane.settlement(submission)
        assert settled.failure is not None
        assert settled.failure["error_type"] == error_type
        assert world.calls["charge"] == 1
        # The call returned, so it did happen; only its value is lost.
        assert settled.effects_may_have_happened is (effect == "uncertain")


@pytest.mark.parametrize(
    ("failpoint", "calls", "is_unknown"),
    [
        ("prepare:before", 1, False),
        ("prepare:after", 0, True),
        ("step:before", 1, True),
        ("step:after", 1, False),
    ],
)
def test_a_crash_around_an_uncertain_call_never_makes_it_twice(
    failpoint: str,
    calls: int,
    is_unknown: bool,  # noqa: FBT001
) -> None:
    """EV-29, DT-4: prepared and not settled is unknown, whether or not the call was made."""
    world = World()
    with deployed(charging(world)) as (deployment, lane):
        submission = lane.submit("work").submission
        lane.crash_at(failpoint, keeps_unsynced=False)
        deployment.run_until_quiet()
        assert len(lane.errors) == 1
        assert world.calls["charge"] == calls
        if is_unknown:
            assert_unknown(lane, submission, world)
        else:
            assert wait_of(lane, submission).kind is WaitKind.APPROVAL


@pytest.mark.parametrize("failpoint", ["reconcile:before", "reconcile:after"])
def test_a_crash_around_the_mark_marks_once(failpoint: str) -> None:
    """EV-30, EV-31."""
    world = World(charge=[ConnectionError("reset")])
    with deployed(charging(world)) as (deployment, lane):
        submission = lane.submit("work").submission
        lane.crash_at(failpoint)
        deployment.run_until_quiet()
        assert kinds(lane, submission).count("tool-unknown") == 1
        assert_unknown(lane, submission, world)


def test_an_unknown_call_holds_the_lane_but_no_alarm() -> None:
    """AL-6, AL-8: what is queued behind it is blocked, not autonomous."""
    world = World(charge=[ConnectionError("reset")])
    with deployed(charging(world)) as (deployment, lane):
        submission = lane.submit("work").submission
        behind = lane.submit("work").submission
        deployment.run_until_quiet()
        assert_unknown(lane, submission, world)
        assert wait_of(lane, behind).kind is WaitKind.HEAD
        assert wait_of(lane, behind).behind == submission


LARGE = "x" * 1_001


async def large_tool(run: Run, effect: Any, world: World) -> None:
    await run.tool("large", world.act, "large", LARGE, effect=effect)


async def large_delegation(run: Run, _effect: Any, _world: World) -> None:
    await run.delegate("work", LARGE, name="large")


async def large_reason(run: Run, _effect: Any, _world: World) -> None:
    await run.approval("large", reason=LARGE)


async def large_reason_among_others(run: Run, _effect: Any, _world: World) -> None:
    await run.first("any", Timer("nap", delay_ms=HOUR_MS), Approval("large", reason=LARGE))


@pytest.mark.parametrize(
    ("asks", "effect"),
    [
        *((large_tool, effect) for effect in EFFECTS),
        (large_delegation, None),
        (large_reason, None),
        (large_reason_among_others, None),
    ],
)
def test_what_is_recorded_of_a_question_is_bounded_as_values_are(asks: Any, effect: Any) -> None:
    """More than a row holds could not be written at any try: it fails at once, in words that name the bound."""
    world = World()

    async def handle(run: Run, _value: Any) -> None:
        await asks(run, effect, world)

    with deployed(handle, value_bytes_max=1_000, input_bytes_max=1_000) as (deployment, lane):
        submission = lane.submit("work").submission
        lane_count = len(list(deployment))
        deployment.run_until_quiet(within_ms=1_000)
        settled = lane.settlement(submission)
        assert settled.failure is not None
        assert settled.failure["error_type"] == "result-too-large"
        assert "'large'" in settled.failure["message"]
        assert "bytes, VALUE_BYTES_MAX allows 1000" in settled.failure["message"]
        assert (lane.wakes, world.calls.total()) == (1, 0)
        assert len(list(deployment)) == lane_count, "no child was asked for"
        assert kinds(lane, submission) == ["input-applied", "settlement"]


def test_names_keys_and_ordinals_make_distinct_calls() -> None:
    world = World()

    async def handle(run: Run, _value: Any) -> None:
        await run.tool("charge", world.act, "a")
        await run.tool("charge", world.act, "b")
        await run.tool("charge", world.act, "c", key="north")
        await run.tool("charge", world.act, "d", key="north")
        await run.approval("go-on")

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        settled = [each for each in ids(lane, submission) if each.endswith("/settled")]
        assert settled == [
            f"{each}/settled" for each in ("charge", "charge~1", "charge@north", "charge@north~1")
        ]
        lane.approve(submission, "go-on")
        deployment.run_until_quiet()
        assert world.calls.total() == 4


def test_the_idempotency_key_is_the_same_on_every_attempt_and_unlike_any_other() -> None:
    keys: list[tuple[str, str]] = []

    async def handle(run: Run, _value: Any) -> None:
        keys.append((run.submission, run.idempotency_key("charge")))
        await run.approval("go-on")

    with deployed(handle) as (deployment, lane):
        submissions = [lane.submit("work").submission for _ in range(2)]
        for submission in submissions:
            deployment.run_until_quiet()
            lane.crash()
            lane.approve(submission, "go-on")
            deployment.run_until_quiet()
        assert len(keys) == 4
        assert len(set(keys)) == 2


def test_progress_is_shown_and_not_recorded() -> None:
    shown: list[Any] = []

    async def handle(run: Run, _value: Any) -> None:
        run.progress({"half": True})

    with deployed(handle) as (deployment, lane):
        lane.lane.publish = lambda submission, value: shown.append((submission, value))
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert shown == [(submission, {"half": True})]
        assert kinds(lane, submission) == ["input-applied", "settlement"]
