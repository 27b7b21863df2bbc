"""Signals: kept until they are waited for, received once, in the order of arrival, and JSON null is a value.

S76, S77, S82. Signals across Objects are the outbox's and not tested here.
"""

from typing import Any

import pytest

from operations.ground import HOUR_MS, begin, deployed, ids, pass_time, refused, state_of, wait_of
from quiesce import Run
from quiesce.errors import RefusalCode
from quiesce.states import State


async def listen(run: Run, timeout_ms: int | None) -> list[Any]:
    """Wait for one signal."""
    received = await run.signal("paid", timeout_ms=timeout_ms)
    return [received.payload, received.timed_out]


async def listen_after_approval(run: Run, count: int) -> list[Any]:
    """Let a person hold the Run up, and then wait for a number of signals."""
    await run.approval("go-on")
    return [(await run.signal("paid")).payload for _ in range(count)]


@pytest.mark.parametrize("payload", [{"by": ["card"]}, None, 0, "", False, []], ids=repr)
def test_a_signal_reaches_the_run_that_waits_for_it(payload: Any) -> None:
    """JSON null is a payload like any other, and no timeout."""
    with deployed(listen) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert lane.alarm_at_ms is None
        lane.signal(submission, "paid", payload)
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == [payload, False]


@pytest.mark.parametrize("before", ["pass", "wait"])
def test_signals_that_come_first_are_received_in_the_order_of_arrival(before: str) -> None:
    """The keys are in the other order, so that it is not theirs."""
    with deployed(listen_after_approval) as (deployment, lane):
        submission = lane.submit("work", 3).submission
        if before == "wait":
            deployment.run_until_quiet()
        for number in range(3):
            lane.signal(submission, "paid", number, key=f"key-{9 - number}")
        deployment.run_until_quiet()
        lane.approve(submission, "go-on")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == [0, 1, 2]


def test_early_and_late_signals_mix_in_order() -> None:
    with deployed(listen_after_approval) as (deployment, lane):
        submission = lane.submit("work", 3).submission
        deployment.run_until_quiet()
        lane.signal(submission, "paid", "early")
        lane.approve(submission, "go-on")
        deployment.run_until_quiet()
        lane.signal(submission, "paid", "second")
        lane.signal(submission, "paid", "third")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == ["early", "second", "third"]


def test_a_signal_of_another_name_wakes_nobody() -> None:
    with deployed(listen) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        lane.signal(submission, "shipped", 1)
        deployment.run_until_quiet()
        assert state_of(lane, submission) is State.SUSPENDED
        assert lane.alarm_at_ms is None
        lane.signal(submission, "paid", 2)
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == [2, False]


def test_a_signal_while_the_attempt_that_waits_still_runs_is_received() -> None:
    with deployed(listen) as (deployment, lane):
        submission = lane.submit("work").submission
        pause = lane.pause_at("release:before")
        delivery = begin(deployment, lane)
        assert pause.is_reached
        lane.signal(submission, "paid", 1)
        pause.release()
        deployment.run(delivery)
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == [1, False]


def test_none_comes_in_time_and_the_flag_says_so() -> None:
    """S77: a clean result, and exactly one alarm, at that time."""
    with deployed(listen) as (deployment, lane):
        submission = lane.submit("work", HOUR_MS).submission
        deployment.run_until_quiet(within_ms=1_000)
        until_ms = wait_of(lane, submission).until_ms
        assert lane.alarm_at_ms == until_ms
        wakes = lane.wakes
        deployment.advance(HOUR_MS)
        assert lane.wakes - wakes == 1
        settled = lane.settlement(submission)
        assert (settled.outcome, settled.result) == ("completed", [None, True])


def test_a_signal_just_in_time_wins_and_the_alarm_of_the_timeout_goes() -> None:
    with deployed(listen) as (deployment, lane):
        submission = lane.submit("work", HOUR_MS).submission
        deployment.run_until_quiet(within_ms=1_000)
        assert lane.alarm_at_ms is not None
        pass_time(deployment, lane.alarm_at_ms - deployment.now_ms - 1)
        lane.signal(submission, "paid", "just")
        pass_time(deployment, HOUR_MS)
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == ["just", False]
        assert lane.alarm_at_ms is None


@pytest.mark.parametrize("late_ms", [0, 1, HOUR_MS])
def test_a_signal_too_late_records_the_timeout_and_is_refused(late_ms: int) -> None:
    with deployed(listen) as (deployment, lane):
        submission = lane.submit("work", HOUR_MS).submission
        deployment.run_until_quiet(within_ms=1_000)
        assert lane.alarm_at_ms is not None
        pass_time(deployment, lane.alarm_at_ms - deployment.now_ms + late_ms)
        with refused(RefusalCode.DECISION_CONFLICT) as facts:
            lane.signal(submission, "paid", 1)
        assert facts["recorded"]["outcome"] == "expired"
        assert ids(lane, submission)[-1] == "paid/received"
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == [None, True]


def test_a_wait_that_timed_out_does_not_eat_the_next_signal() -> None:
    """S76."""

    async def handle(run: Run, _value: Any) -> list[Any]:
        first = await run.signal("paid", timeout_ms=1_000)
        second = await run.signal("paid")
        return [first.timed_out, second.payload]

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert wait_of(lane, submission).operation == "paid~1"
        lane.signal(submission, "paid", "for the second")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == [True, "for the second"]


@pytest.mark.parametrize("is_waiting", [True, False])
def test_the_same_key_and_payload_is_delivered_once(is_waiting: bool) -> None:  # noqa: FBT001
    with deployed(listen_after_approval) as (deployment, lane):
        submission = lane.submit("work", 2).submission
        deployment.run_until_quiet()
        if is_waiting:
            lane.approve(submission, "go-on")
            deployment.run_until_quiet()
        assert not lane.signal(submission, "paid", {"a": 1, "b": 2}, key="same").is_replayed
        log = lane.records()
        assert lane.signal(submission, "paid", {"b": 2, "a": 1}, key="same").is_replayed
        assert lane.records() == log
        deployment.run_until_quiet()
        if not is_waiting:
            lane.approve(submission, "go-on")
            deployment.run_until_quiet()
        assert state_of(lane, submission) is State.SUSPENDED
        assert lane.signal(submission, "paid", {"a": 1, "b": 2}, key="same").is_replayed
        lane.signal(submission, "paid", "next", key="other")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == [{"a": 1, "b": 2}, "next"]


@pytest.mark.parametrize("is_waiting", [True, False])
def test_the_same_key_with_another_payload_is_a_conflict(is_waiting: bool) -> None:  # noqa: FBT001
    with deployed(listen_after_approval) as (deployment, lane):
        submission = lane.submit("work", 2).submission
        deployment.run_until_quiet()
        if is_waiting:
            lane.approve(submission, "go-on")
            deployment.run_until_quiet()
        lane.signal(submission, "paid", 1, key="same")
        generation = lane.generation()
        with refused(RefusalCode.IDEMPOTENCY_CONFLICT) as facts:
            lane.signal(submission, "paid", 2, key="same")
        assert facts["differing"] == ["payload"]
        assert lane.generation() == generation
        # A key belongs to its signal's name.
        lane.signal(submission, "shipped", 2, key="same")


def test_pending_signals_are_limited_and_replays_are_exempt() -> None:
    with deployed(listen_after_approval, signals_pending_max=2) as (deployment, lane):
        submission = lane.submit("work", 3).submission
        deployment.run_until_quiet()
        lane.signal(submission, "paid", 0, key="a")
        lane.signal(submission, "paid", 1, key="b")
        with refused(RefusalCode.RATE_LIMITED) as facts:
            lane.signal(submission, "paid", 2, key="c")
        assert (facts["actual"], facts["maximum"]) == (2, 2)
        assert lane.signal(submission, "paid", 0, key="a").is_replayed
        lane.approve(submission, "go-on")
        deployment.run_until_quiet()
        lane.signal(submission, "paid", 2, key="c")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == [0, 1, 2]


def test_a_signal_that_is_waited_for_is_never_refused_for_what_is_pending() -> None:
    """The limit is for what waits in store: the one signal that would move the Run must come through."""
    with deployed(listen, signals_pending_max=1) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        lane.signal(submission, "noise", 1)
        lane.signal(submission, "paid", "through")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == ["through", False]


def test_a_payload_has_the_limit_of_an_input() -> None:
    with deployed(listen, input_bytes_max=100) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        with refused(RefusalCode.INPUT_TOO_LARGE):
            lane.signal(submission, "paid", "x" * 99)
        lane.signal(submission, "paid", "x" * 98)


@pytest.mark.parametrize("payload", [float("inf"), {"of": [float("nan")]}], ids=repr)
def test_a_payload_that_cannot_be_stored_is_refused_and_writes_nothing(payload: Any) -> None:
    """A JSON body can say 1e400."""
    with deployed(listen) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        before = (lane.records(), lane.generation(), lane.alarm_at_ms)
        with refused(RefusalCode.INVALID_REQUEST):
            lane.signal(submission, "paid", payload)
        assert (lane.records(), lane.generation(), lane.alarm_at_ms) == before
        lane.signal(submission, "paid", 1)
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == [1, False]


def test_a_settled_submission_receives_nothing_more() -> None:
    """S: the keys go with it, so a late duplicate is refused and not received."""
    with deployed(listen) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        lane.signal(submission, "paid", 1, key="same")
        deployment.run_until_quiet()
        generation = lane.generation()
        with refused(RefusalCode.ALREADY_SETTLED):
            lane.signal(submission, "paid", 1, key="same")
        with refused(RefusalCode.ALREADY_SETTLED):
            lane.signal(submission, "paid", 2)
        assert lane.generation() == generation


def test_two_waits_for_one_signal_get_one_each() -> None:
    async def handle(run: Run, _value: Any) -> list[Any]:
        return [(await run.signal("paid", key=key)).payload for key in ("a", "b")]

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        lane.signal(submission, "paid", 1)
        deployment.run_until_quiet()
        assert state_of(lane, submission) is State.SUSPENDED
        lane.signal(submission, "paid", 2)
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == [1, 2]
