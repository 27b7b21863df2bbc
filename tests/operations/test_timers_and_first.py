"""Timers wake once, at their time; of several waits the first to end wins and the others are closed with it.

S7, S25, S81, S82, S88.
"""

from typing import Any

import pytest

from operations.ground import (
    DAY_MS,
    HOUR_MS,
    deployed,
    ids,
    kinds,
    pass_time,
    refused,
    state_of,
    wait_of,
)
from quiesce import Approval, Run, Signal, Timer
from quiesce.errors import RefusalCode
from quiesce.states import State


async def nap(run: Run, delay_ms: int) -> int:
    return await run.sleep("nap", delay_ms=delay_ms)


def test_a_timer_has_exactly_one_alarm_at_its_time() -> None:
    """S7."""
    with deployed(nap) as (deployment, lane):
        submission = lane.submit("work", 2 * HOUR_MS).submission
        deployment.run_until_quiet(within_ms=1_000)
        set_at_ms = lane.records()[2].created_at_ms
        assert lane.alarm_at_ms == set_at_ms + 2 * HOUR_MS
        assert wait_of(lane, submission).until_ms == lane.alarm_at_ms
        wakes, log = lane.wakes, lane.records()
        deployment.advance(2 * HOUR_MS - 1_000)
        assert (lane.wakes, lane.records()) == (wakes, log)
        deployment.advance(1_000)
        assert lane.wakes == wakes + 1
        assert lane.settlement(submission).result == 2 * HOUR_MS


@pytest.mark.parametrize("early_ms", [1, HOUR_MS])
def test_an_early_alarm_leaves_the_timer_as_it_is(early_ms: int) -> None:
    with deployed(nap) as (deployment, lane):
        submission = lane.submit("work", 2 * HOUR_MS).submission
        deployment.run_until_quiet(within_ms=1_000)
        due_ms = lane.alarm_at_ms
        assert due_ms is not None
        pass_time(deployment, due_ms - deployment.now_ms - early_ms)
        lane.alarm()
        assert state_of(lane, submission) is State.SUSPENDED
        assert lane.alarm_at_ms == due_ms
        lane.crash()
        lane.alarm()
        assert lane.alarm_at_ms == due_ms
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == 2 * HOUR_MS


def test_a_late_alarm_says_how_long_it_really_was() -> None:
    with deployed(nap) as (deployment, lane):
        submission = lane.submit("work", HOUR_MS).submission
        deployment.run_until_quiet(within_ms=1_000)
        assert lane.alarm_at_ms is not None
        pass_time(deployment, lane.alarm_at_ms - deployment.now_ms + 5_000)
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == HOUR_MS + 5_000


@pytest.mark.parametrize("delay_ms", [0, -5])
def test_no_time_at_all_goes_on_in_the_same_attempt(delay_ms: int) -> None:
    with deployed(nap) as (deployment, lane):
        submission = lane.submit("work", delay_ms).submission
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == 0
        assert lane.status(submission).submission.epoch == 1


@pytest.mark.parametrize("delay_ms", [1, 30, 60])
def test_a_time_shorter_than_the_pre_armed_alarm_is_kept(delay_ms: int) -> None:
    with deployed(nap) as (deployment, lane):
        submission = lane.submit("work", delay_ms).submission
        deployment.run_until_quiet()
        assert delay_ms <= lane.settlement(submission).result <= delay_ms + 60


@pytest.mark.parametrize("ahead_ms", [DAY_MS, 0, -DAY_MS])
def test_sleep_until_an_instant(ahead_ms: int) -> None:
    async def handle(run: Run, at_ms: int) -> int:
        return await run.sleep_until("nap", at_ms=at_ms)

    with deployed(handle) as (deployment, lane):
        at_ms = deployment.now_ms + ahead_ms
        submission = lane.submit("work", at_ms).submission
        deployment.run_until_quiet()
        lane.settlement(submission)
        fired = next(each for each in lane.records() if each.kind == "timer-fired")
        assert fired.created_at_ms == max(at_ms, lane.records()[2].created_at_ms)


def test_the_slot_is_the_least_of_all_that_is_due() -> None:
    """S25: the deadline of a queued submission, the timer of the head, and never the last writer."""

    async def handle(run: Run, delay_ms: int) -> int:
        return await run.sleep("nap", delay_ms=delay_ms)

    with deployed(handle) as (deployment, lane):
        head = lane.submit("work", 2 * HOUR_MS).submission
        deployment.run_until_quiet(within_ms=1_000)
        timer_ms = lane.alarm_at_ms
        queued = lane.submit("work", 1, deadline_ms=HOUR_MS).submission
        deployment.advance(1_000)
        assert lane.alarm_at_ms == lane.status(queued).submission.deadline_at_ms
        deployment.advance(HOUR_MS)
        assert state_of(lane, queued) is State.SETTLED
        assert lane.alarm_at_ms == timer_ms
        assert state_of(lane, head) is State.SUSPENDED


async def race(run: Run, _value: Any) -> list[Any]:
    """Approve, or cancel, or run out of time."""
    won = await run.first(
        "decide",
        Approval("allow", reason="may I"),
        Signal("cancel"),
        Timer("too-late", delay_ms=HOUR_MS),
    )
    value = getattr(won.value, "approved", getattr(won.value, "payload", won.value))
    await run.approval("go-on")
    return [won.name, value]


@pytest.mark.parametrize("winner", ["allow", "cancel", "too-late"])
def test_the_first_of_several_waits_wins_and_the_others_go_in_its_transaction(winner: str) -> None:
    """S81, S82: approve or cancel or timeout, and no loser keeps an alarm or a row."""
    with deployed(race) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet(within_ms=1_000)
        assert lane.alarm_at_ms is not None
        if winner == "allow":
            lane.approve(submission, "allow")
        elif winner == "cancel":
            lane.signal(submission, "cancel", "stop")
        else:
            deployment.advance(HOUR_MS)
        rows = lane.storage.execute("SELECT operation FROM operations")
        assert [row[0] for row in rows] in ([], ["go-on"])
        deployment.run_until_quiet(within_ms=1_000)
        assert wait_of(lane, submission).operation == "go-on"
        assert lane.alarm_at_ms is None
        assert kinds(lane, submission).count("choice-made") == 1
        lane.crash()
        lane.approve(submission, "go-on")
        deployment.run_until_quiet()
        values = {"allow": True, "cancel": "stop", "too-late": HOUR_MS}
        assert lane.settlement(submission).result == [winner, values[winner]]


def test_a_loser_cannot_be_decided_any_more() -> None:
    with deployed(race) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet(within_ms=1_000)
        lane.signal(submission, "cancel", "stop")
        with refused(RefusalCode.NOT_WAITING):
            lane.approve(submission, "allow")
        # A second cancel is kept, for a wait that may come, and ends nothing.
        lane.signal(submission, "cancel", "again")
        deployment.run_until_quiet(within_ms=1_000)
        assert wait_of(lane, submission).operation == "go-on"


def test_a_signal_that_came_first_wins_as_the_choice_opens() -> None:
    with deployed(race) as (deployment, lane):
        submission = lane.submit("work").submission
        lane.signal(submission, "cancel", "early")
        deployment.run_until_quiet()
        assert ids(lane, submission)[-2] == "decide/chosen"
        lane.approve(submission, "go-on")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == ["cancel", "early"]


def test_a_decision_after_the_timer_of_its_choice_has_come_due_is_too_late() -> None:
    """Time decides in the transaction: the timer won at its time, however late the alarm that says so."""
    with deployed(race) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet(within_ms=1_000)
        assert lane.alarm_at_ms is not None
        pass_time(deployment, lane.alarm_at_ms - deployment.now_ms + 1)
        with refused(RefusalCode.DECISION_CONFLICT):
            lane.approve(submission, "allow")
        deployment.run_until_quiet()
        lane.approve(submission, "go-on")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result[0] == "too-late"


def test_of_two_times_that_have_both_come_the_earlier_has_won() -> None:
    """The alarm was late, and both are due when it comes; their names are in the other order."""

    async def handle(run: Run, _value: Any) -> str:
        won = await run.first(
            "decide", Timer("a-later", delay_ms=2 * HOUR_MS), Timer("b-earlier", delay_ms=HOUR_MS)
        )
        return won.name

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet(within_ms=1_000)
        pass_time(deployment, 3 * HOUR_MS)
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == "b-earlier"


def test_a_choice_can_be_made_again_under_the_same_name() -> None:
    async def handle(run: Run, _value: Any) -> list[str]:
        return [(await run.first("decide", Signal("a"), Signal("b"))).name for _ in range(2)]

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        lane.signal(submission, "a", 1)
        deployment.run_until_quiet()
        lane.signal(submission, "b", 1)
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == ["a", "b"]


@pytest.mark.parametrize("branches", [(), (Signal("a"), Signal("a")), (Signal("a"), Timer("a"))])
def test_branches_need_names_that_differ(branches: tuple[Any, ...]) -> None:
    async def handle(run: Run, _value: Any) -> str:
        return (await run.first("decide", *branches)).name

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        failure = lane.settlement(submission).failure
        assert failure is not None
        assert failure["error_type"] == "ValueError"
