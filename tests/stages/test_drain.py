"""Drain and attempt: order, counting, delays, exhaustion, deadlines, fences, and how a handler may end.

What cannot happen: S38, S47 and S54: a settlement's record and its row are one commit, so there are no two
ledgers to disagree; `classify` lets the log win all the same, and the laws of an export name it. S46: nothing that
a handler waits for can come only from itself: a signal may be sent by anyone, and a wait may have a deadline. S56:
startup reads one value. S59: attempts, interruptions and deadlines are separate limits, each named. S106: control
flow leaves a step as Unwind, which no step records. S117: nothing is registered at a deploy. S133: a handler module
that cannot be imported fails the Worker's start, which the platform refuses to deploy.

Parity: DRT-13, DRT-17, DT-14, SEC-2, SEC-3, RJ-7, BD-2.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Self

import pytest

from quiesce import Agent, Failed, Retryable, Run
from quiesce.errors import StorageUnavailable
from quiesce.ids import SubmissionId
from quiesce.ledger import Submission
from quiesce.recovery import WaitKind
from quiesce.settings import Settings
from quiesce.states import State
from quiesce.testing import Conversation, Deployment

Handler = Callable[[Run, Any], Any]


@pytest.fixture
def one() -> Iterator["One"]:
    with One() as subject:
        yield subject


class One:
    """One conversation whose agent `work` does what a test says; `echo` returns its input."""

    def __init__(self) -> None:
        self.calls = 0
        self.behaviour: Handler = _returns
        self.deployment = Deployment([])
        self.lane: Conversation = self.deployment.conversation("one")
        self.serve()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.deployment.__exit__(*error)  # type: ignore[arg-type]

    def serve(self, version: str = "1", **policies: Any) -> None:
        """Deploy the two agents."""
        work, echo = Agent("work", input=Any, version=version, **policies), Agent("echo", input=Any)

        @work.handler
        async def _(run: Run, value: Any) -> Any:
            self.calls += 1
            return await self.behaviour(run, value)

        @echo.handler
        async def _(_run: Run, value: Any) -> Any:
            return value

        self.deployment.deploy([work, echo])

    def set(self, **settings: Any) -> None:
        """Change the settings of the deployment."""
        self.deployment.settings = Settings(**settings)

    def submit(self, behaviour: Handler, value: Any = None, **terms: Any) -> SubmissionId:
        """Say what the handler does, and submit."""
        self.behaviour = behaviour
        return self.lane.submit("work", value, **terms).submission

    def run(self, behaviour: Handler, value: Any = None, **terms: Any) -> Any:
        """Submit, let alarms come until quiet, and return the settlement."""
        submission = self.submit(behaviour, value, **terms)
        self.deployment.run_until_quiet()
        return self.lane.settlement(submission)

    def row(self, submission: SubmissionId) -> Submission:
        """Read the row of a submission."""
        return self.lane.status(submission).submission

    def deliver(self) -> None:
        """Let time pass to the next alarm, and deliver it."""
        at_ms = self.lane.delivery_at_ms
        assert at_ms is not None
        self.deployment.advance(max(0, at_ms - self.deployment.now_ms))


async def _returns(_run: Run, value: Any) -> Any:
    return value


async def _never(_run: Run, _value: Any) -> None:
    raise Retryable("no", error_type="never")


async def _resets(_run: Run, _value: Any) -> None:
    raise StorageUnavailable("Network connection lost.")


def times(count: int, error: BaseException) -> Handler:
    """Raise an error so many times, then return."""
    left = [count]

    async def behave(_run: Run, value: Any) -> Any:
        if left[0] > 0:
            left[0] -= 1
            raise error
        return value

    return behave


# Order


def test_lane_is_first_in_first_out(one: One) -> None:
    """LG-3, LG-4: the queue is the order of admission; a failing head is not overtaken."""
    one.submit(times(2, Retryable("not yet")), "head")
    behind = [one.lane.submit("echo", number) for number in range(5)]
    one.deployment.run_until_quiet()
    order = [each.submission for each in one.lane.records() if each.kind == "settlement"]
    assert order[1:] == [each.submission for each in behind]


def test_lanes_do_not_wait_for_each_other(one: One) -> None:
    one.submit(_never)
    other = one.deployment.conversation("other")
    receipt = other.submit("echo", 1)
    one.deployment.advance(10)
    assert other.settlement(receipt.submission).result == 1
    one.deployment.run_until_quiet()


def test_pass_is_bounded_by_count_and_goes_on_in_the_next(one: One) -> None:
    """S18."""
    one.set(pass_submissions_max=10)
    for number in range(25):
        one.lane.submit("echo", number)
    assert one.deployment.run_until_quiet() == 3
    assert [report.settled for report in one.lane.reports] == [10, 10, 5]


def test_pass_is_bounded_by_what_it_has_recorded(one: One) -> None:
    """The submissions of one invocation share its subrequests: none is refused a call for its neighbours'."""
    one.deployment.checks_every_event = False
    done = [0]

    async def calls(run: Run, _value: Any) -> None:
        for number in range(20):
            await run.step(f"look-{number}", lambda: done.append(done.pop() + 1))

    for _ in range(64):
        one.submit(calls)
    most = 0
    while one.lane.delivery_at_ms is not None:
        before = done[0]
        one.deliver()
        most = max(most, done[0] - before)
    assert 256 <= most <= 300
    assert done == [64 * 20]
    assert one.lane.state().counts[State.SETTLED] == 64


def test_small_work_fills_a_pass_by_count(one: One) -> None:
    for number in range(64):
        one.lane.submit("echo", number)
    one.deliver()
    assert [report.settled for report in one.lane.reports] == [64]


def test_s18_pass_is_bounded_by_time(one: One) -> None:
    async def slow(_run: Run, value: Any) -> Any:
        await asyncio.sleep(30)
        return value

    for number in range(40):
        one.submit(slow, number)
    one.deployment.run_until_quiet()
    assert max(report.duration_ms for report in one.lane.reports) <= 60_000 + 30_000
    assert one.lane.state().counts[State.SETTLED] == 40


def test_s124_lane_is_its_first_open_row_and_no_lock(one: One) -> None:
    """S31, S51: a claim of a dead incarnation is dead at once, whatever it was called."""
    submission = one.submit(_returns, 1)
    one.lane.crash_at("claim:after")
    one.lane.deliver()
    assert one.row(submission).owner is not None
    wakes = one.deployment.run_until_quiet()
    assert wakes == 1
    assert one.lane.settlement(submission).result == 1


# Attempts and interruptions


def test_retryable_failure_counts_an_attempt_and_no_interruption(one: One) -> None:
    submission = one.submit(times(3, Retryable("not yet")), 1)
    seen = []
    while one.row(submission).state is not State.SETTLED:
        one.deliver()
        seen.append((one.row(submission).attempts, one.row(submission).interruptions))
    assert seen == [(1, 0), (2, 0), (3, 0), (3, 0)]


def test_retry_time_is_durable_and_grows(one: One) -> None:
    """S4: neither a restart nor an early alarm bypasses it."""
    submission = one.submit(_never)
    waits = []
    for _ in range(6):
        one.deliver()
        not_before_ms = one.row(submission).not_before_ms
        assert not_before_ms is not None
        waits.append(not_before_ms - one.deployment.now_ms)
        calls = one.calls
        one.lane.evict()
        one.lane.force_pass()
        one.lane.alarm()
        assert one.calls == calls
        assert one.row(submission).not_before_ms == not_before_ms
    assert all(
        low <= wait <= 2 * low
        for low, wait in zip((50, 100, 200, 400, 800, 1_600), waits, strict=True)
    )
    one.deployment.run_until_quiet()


def test_status_says_when_the_next_attempt_is(one: One) -> None:
    """S131."""
    submission = one.submit(_never)
    one.deliver()
    status = one.lane.status(submission)
    assert status.waiting_for is not None
    assert status.waiting_for.kind is WaitKind.RETRY
    assert status.next_attempt_at_ms == one.row(submission).not_before_ms
    one.deployment.run_until_quiet()


def test_exhausted_attempts_settle_failed_and_the_lane_goes_on(one: One) -> None:
    one.set(attempts_max=3)
    submission = one.submit(_never)
    behind = one.lane.submit("echo", 1)
    one.deployment.run_until_quiet()
    settled = one.lane.settlement(submission)
    assert settled.failure is not None
    assert settled.failure["error_type"] == "attempts-exhausted"
    assert "3 attempts" in settled.failure["message"]
    assert "never" in settled.failure["message"]
    assert one.calls == 3
    assert one.lane.settlement(behind.submission).result == 1


def test_s62_exhaustion_lists_what_was_completed(one: One) -> None:
    one.set(attempts_max=2)

    async def partly(run: Run, _value: Any) -> None:
        for number in range(3):
            await run.step(f"step-{number}", lambda: None)
        raise Retryable("no")

    assert one.run(partly).completed_operations == ["step-0", "step-1", "step-2"]


def test_claim_counts_before_any_work(one: One) -> None:
    """S55: a handler that takes the process down is counted, though it never said a word."""
    submission = one.submit(_returns)
    one.lane.crash_at("claim:after", keeps_unsynced=False)
    one.lane.deliver()
    row = one.row(submission)
    assert (row.interruptions, row.attempts, row.epoch) == (1, 0, 1)
    one.deployment.run_until_quiet()
    assert one.row(submission).interruptions == 0


def test_s55_process_killer_is_delayed_by_a_durable_growing_time_and_exhausted_by_its_window(
    one: One,
) -> None:
    """The first costs nothing; then 2 s, 4 s, 8 s, … 15 min; the eighth in a row settles it after ten minutes."""

    async def kills(_run: Run, _value: Any) -> None:
        one.lane.crash_at("step:before")
        await _run.step("deadly", lambda: None)

    submission = one.submit(kills)
    behind = one.lane.submit("echo", 1)
    started: list[int] = []
    while one.row(submission).state is not State.SETTLED:
        calls = one.calls
        one.deliver()
        started += [one.deployment.now_ms] * (one.calls - calls)
    waits = [round((after - before) / 1_000) for before, after in itertools.pairwise(started)]
    assert waits == [0, 2, 4, 8, 16, 32, 64, 128, 256]
    failure = one.lane.settlement(submission).failure
    assert failure is not None
    assert failure["error_type"] == "attempts-exhausted"
    one.deployment.run_until_quiet()
    assert one.lane.settlement(behind.submission).result == 1
    assert one.row(submission).attempts == 0


def test_interruptions_within_their_window_never_exhaust(one: One) -> None:
    """S61: deploys come in bursts; eight in ten seconds say nothing about the work."""
    one.set(interruptions_max=2, interruption_window_ms=3_600_000)
    assert one.run(times(6, StorageUnavailable("deploy")), 1).result == 1


def test_s58_progress_resets_interruptions(one: One) -> None:
    """Ten resets of a run that advances each time: every step was taken once, and nothing is exhausted."""
    one.set(interruptions_max=3, interruption_window_ms=0)
    taken: list[int] = []

    async def advances(run: Run, _value: Any) -> str:
        for number in range(10):
            fresh = len(taken) == number
            await run.step(f"step-{number}", lambda number=number: taken.append(number))
            if fresh:
                raise StorageUnavailable("reset")
        return "done"

    submission = one.submit(advances)
    one.deployment.run_until_quiet()
    assert one.lane.settlement(submission).result == "done"
    assert taken == [*range(10)]
    assert one.deployment.now_ms < 1_767_225_600_000 + 60_000, "no delay grew"


def test_waiting_spends_nothing(one: One) -> None:
    async def asks(run: Run, _value: Any) -> Any:
        return (await run.approval("may-i")).approved

    submission = one.submit(asks)
    one.deployment.run_until_quiet()
    row = one.row(submission)
    assert (row.state, row.attempts, row.interruptions) == (State.SUSPENDED, 0, 0)
    one.lane.approve(submission, "may-i")
    one.deployment.run_until_quiet()
    assert one.row(submission).attempts == 0


# How a handler may end


@pytest.mark.parametrize(
    ("error", "error_type"),
    [
        (Failed("no", error_type="refused"), "refused"),
        (TypeError("a bug"), "TypeError"),
        (TimeoutError(), "TimeoutError"),
        (ValueError("not valid"), "ValueError"),
        (AssertionError("impossible"), "AssertionError"),
    ],
)
def test_s64_s105_s107_only_what_is_declared_retryable_is_retried(
    one: One, error: Exception, error_type: str
) -> None:
    settled = one.run(times(1, error))
    assert settled.failure is not None
    assert settled.failure["error_type"] == error_type
    assert one.calls == 1


def test_failure_is_bounded_and_carries_no_stack(one: One) -> None:
    async def loud(_run: Run, _value: Any) -> None:
        try:
            raise KeyError("secret cause")  # noqa: TRY301 - this is the case
        except KeyError as cause:
            raise ValueError("x" * 10_000) from cause

    failure = one.run(loud).failure
    assert set(failure) == {"error_type", "message"}
    assert len(failure["message"]) <= 2_000
    assert "secret" not in str(failure)


PLATFORM_WORDINGS = (
    "Durable Object reset because its code was updated.",
    "This script has been upgraded. Please send a new request to connect to the new version.",
    "This script has been upg",
    "Network connection lost.",
    "SqlError: Network connection lost",
    "Internal error in Durable Object storage caused object to be reset.",
    "Durable Object is overloaded. Too many requests queued.",
    "a wording that nobody has seen yet",
)


@pytest.mark.parametrize("wording", PLATFORM_WORDINGS)
def test_s41_s42_platform_error_is_an_interruption_whatever_its_wording(
    one: One, wording: str
) -> None:
    """BD-2: it is known by its type; the seam gives every platform error one, and no wording is ever read."""
    submission = one.submit(times(2, StorageUnavailable(wording)), 1)
    one.deployment.run_until_quiet()
    assert one.lane.settlement(submission).result == 1
    assert one.row(submission).attempts == 0


@pytest.mark.parametrize("link", ["cause", "context"])
def test_s42_platform_error_inside_another_error_is_an_interruption(one: One, link: str) -> None:
    left = [1]

    async def wraps(_run: Run, value: Any) -> Any:
        if not left:
            return value
        left.pop()
        try:
            raise StorageUnavailable(PLATFORM_WORDINGS[1])  # noqa: TRY301 - this is the case
        except StorageUnavailable as error:
            if link == "cause":
                raise RuntimeError("wrapped") from error
            raise RuntimeError("wrapped")  # noqa: B904 - this is the case

    assert one.run(wraps, 1).result == 1


def test_s42_platform_error_for_ever_is_bounded(one: One) -> None:
    settled = one.run(_resets)
    assert settled.failure["error_type"] == "attempts-exhausted"
    assert one.calls <= 12


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), SystemExit(3), KeyboardInterrupt(), GeneratorExit()]
)
def test_s150_end_that_nobody_asked_for_is_an_interruption(one: One, error: BaseException) -> None:
    submission = one.submit(times(2, error), 1)
    one.deployment.run_until_quiet()
    assert one.lane.settlement(submission).result == 1
    assert one.row(submission).attempts == 0


def test_handler_that_cancels_itself_and_returns_is_an_interruption(one: One) -> None:
    """Its task ends as cancelled although it has returned: that ends the attempt, and not the pass."""

    async def cancels(_run: Run, value: Any) -> Any:
        task = asyncio.current_task()
        assert task is not None
        if one.calls == 1:
            task.cancel()
        return value

    submission = one.submit(cancels, 1)
    behind = one.lane.submit("echo", 2)
    assert one.lane.deliver() is not None, "the pass came to its own end"
    assert "cancelled itself" in (one.row(submission).last_failure or "")
    one.deployment.run_until_quiet()
    assert one.lane.settlement(submission).result == 1
    assert one.lane.settlement(behind.submission).result == 2
    assert (one.calls, one.row(submission).attempts) == (2, 0)


def test_cause_of_an_interruption_is_told_while_it_is_tried_again_and_at_the_end(one: One) -> None:
    """Who reads it should not have to find the platform's own log."""
    submission = one.submit(_resets)
    one.deployment.advance(2_000)
    last = one.row(submission).last_failure
    assert last is not None
    assert "Network connection lost." in last
    one.deployment.run_until_quiet()
    failure = one.lane.settlement(submission).failure
    assert failure is not None
    assert failure["error_type"] == "attempts-exhausted"
    assert "Network connection lost." in failure["message"]


def test_cancelled_step_is_not_recorded(one: One) -> None:
    """S102: cancellation never enters the journal."""
    left = [1]

    async def cancelled() -> str:
        if left:
            left.pop()
            raise asyncio.CancelledError
        return "value"

    async def steps(run: Run, _value: Any) -> Any:
        return await run.step("once", cancelled)

    assert one.run(steps).result == "value"


def test_result_over_the_limit_settles_failed_and_is_not_retried(one: One) -> None:
    one.set(value_bytes_max=1_000, input_bytes_max=1_000)

    async def large(_run: Run, _value: Any) -> str:
        return "é" * 500

    assert one.run(large).failure["error_type"] == "result-too-large"
    assert one.calls == 1


def test_step_over_the_limit_settles_failed(one: One) -> None:
    one.set(value_bytes_max=1_000, input_bytes_max=1_000)

    async def large(run: Run, _value: Any) -> None:
        await run.step("large", lambda: "x" * 1_001)

    assert one.run(large).failure["error_type"] == "result-too-large"


def test_result_at_the_limit_is_stored(one: One) -> None:
    one.set(value_bytes_max=1_000, input_bytes_max=1_000)

    async def fits(_run: Run, _value: Any) -> str:
        return "x" * 998

    assert one.run(fits).result == "x" * 998


def test_result_that_is_no_json_fails(one: One) -> None:
    async def odd(_run: Run, _value: Any) -> Any:
        return object()

    assert one.run(odd).outcome == "failed"
    assert one.calls == 1


def test_s130_settlement_stands_whatever_ends_its_pass(one: One) -> None:
    submission = one.submit(_returns, 1)
    one.lane.fail_at("maintenance:finish:before", RuntimeError("the invocation ends badly"))
    one.lane.deliver()
    assert one.lane.settlement(submission).result == 1
    one.deployment.run_until_quiet()
    assert one.calls == 1


# Operations


def test_ev_39_recorded_step_replays_and_the_next_one_runs(one: One) -> None:
    taken: list[str] = []

    async def two(run: Run, _value: Any) -> list[str]:
        return [
            await run.step(name, lambda name=name: taken.append(name) or name)
            for name in ("a", "b")
        ]

    one.lane.crash_at("step:after")
    assert one.run(two).result == ["a", "b"]
    assert taken == ["a", "b"]


@pytest.mark.parametrize("failpoint", ["step:before", "step:after"])
def test_step_between_act_and_record_runs_again_and_behind_it_never(
    one: One, failpoint: str
) -> None:
    taken: list[int] = []

    async def once(run: Run, _value: Any) -> None:
        await run.step("once", lambda: taken.append(1))

    one.lane.crash_at(failpoint, keeps_unsynced=False)
    one.run(once)
    assert len(taken) == (2 if failpoint == "step:before" else 1)


def test_s116_other_arguments_under_a_recorded_name_diverge(one: One) -> None:
    async def diverges(run: Run, _value: Any) -> None:
        await run.step("same", lambda number: number, one.calls)
        raise Retryable("again")

    failure = one.run(diverges).failure
    assert failure["error_type"] == "diverged"
    assert "same" in failure["message"]
    assert one.calls == 2


def test_s116_other_kind_under_a_recorded_name_diverges(one: One) -> None:
    async def diverges(run: Run, _value: Any) -> None:
        if one.calls == 1:
            await run.step("same", lambda: None)
        else:
            await run.approval("same")
        raise Retryable("again")

    failure = one.run(diverges).failure
    assert failure["error_type"] == "diverged"
    assert "step" in failure["message"]
    assert "approval" in failure["message"]


def test_same_name_twice_is_two_operations_and_both_replay(one: One) -> None:
    taken: list[int] = []

    async def twice(run: Run, _value: Any) -> list[int]:
        values = [await run.step("again", lambda: taken.append(1) or len(taken)) for _ in range(2)]
        if one.calls == 1:
            raise Retryable("once more")
        return values

    assert one.run(twice).result == [1, 2]
    assert len(taken) == 2


# Deadlines


def test_deadline_passes_in_the_queue(one: One) -> None:
    one.set(attempts_max=100)
    head = one.submit(_never)
    expired = one.lane.submit("echo", 1, deadline_ms=1_000)
    behind = one.lane.submit("echo", 2)
    one.deployment.advance(1_001)
    failure = one.lane.settlement(expired.submission).failure
    assert failure is not None
    assert failure["error_type"] == "deadline-exceeded"
    assert one.row(head).state is State.INPUT_APPLIED
    one.behaviour = _returns
    one.deployment.run_until_quiet()
    assert one.lane.settlement(behind.submission).result == 2


def test_deadline_beats_a_retry(one: One) -> None:
    one.set(attempts_max=100)
    assert one.run(_never, deadline_ms=5_000).failure["error_type"] == "deadline-exceeded"


def test_deadline_alone_is_one_alarm(one: One) -> None:
    """S7."""

    async def asks(run: Run, _value: Any) -> Any:
        return (await run.approval("may-i")).approved

    submission = one.submit(asks, deadline_ms=7_200_000)
    one.lane.deliver()
    assert one.deployment.advance(7_199_000) == 0
    assert one.deployment.advance(2_000) == 1
    assert one.lane.settlement(submission).failure["error_type"] == "deadline-exceeded"  # type: ignore[index]


async def _hangs(_run: Run, _value: Any) -> None:
    while True:
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            continue


def test_s14_deadline_ends_a_handler_that_never_returns(one: One) -> None:
    start_ms = one.deployment.now_ms
    submission = one.submit(_hangs, deadline_ms=30_000)
    one.deployment.run_until_quiet()
    status = one.lane.status(submission)
    assert status.settlement is not None
    assert status.settlement.recorded.failure is not None
    assert status.settlement.recorded.failure["error_type"] == "deadline-exceeded"
    assert status.settlement.settled_at_ms - start_ms <= 35_000


def test_s14_second_alarm_during_a_hanging_attempt_does_no_harm(one: One) -> None:
    one.set(attempts_max=1)
    submission = one.submit(_hangs)
    one.lane.start_delivery()
    one.deployment.advance(1_000)
    one.deployment.run_until_quiet()
    assert one.lane.settlement(submission).failure["error_type"] == "attempts-exhausted"  # type: ignore[index]
    assert not one.lane.generation().is_owed


def test_s108_s132_attempt_has_a_deadline_by_default(one: One) -> None:
    async def silent(_run: Run, value: Any) -> Any:
        if one.calls == 1:
            await asyncio.sleep(86_400)
        return value

    submission = one.submit(silent, 1)
    one.deployment.run_until_quiet()
    assert one.lane.settlement(submission).result == 1
    assert one.row(submission).attempts == 1
    assert not one.lane.errors, "it ended when it was cancelled"


def test_s34_stuck_handler_ends_the_object_and_its_late_result_changes_nothing(one: One) -> None:
    """S32, S35: one cancel, one second, the failure committed, then the Object ends; the late task is fenced."""
    late: list[str] = []
    release = asyncio.Event()

    async def stuck(run: Run, value: Any) -> Any:
        if one.calls > 1:
            return value
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        late.append("woke")
        await run.step("late", lambda: late.append("step"))
        late.append("wrote")
        return "late result"

    submission = one.submit(stuck, "new result")
    one.deliver()
    assert "ignored its cancellation" in str(one.lane.errors[0])
    assert one.row(submission).attempts == 1
    assert not one.lane.is_built
    one.deployment.run_until_quiet()
    log = one.lane.records()
    release.set()
    one.deployment.run_until_idle()
    assert late == ["woke"], "it ran on, and could begin nothing"
    assert one.lane.records() == log
    assert one.lane.settlement(submission).result == "new result"


def test_s35_task_of_a_superseded_incarnation_is_fenced_by_its_epoch(one: One) -> None:
    """Even if the platform let both live: the new one claims at a higher epoch, the old one writes nothing."""
    release = asyncio.Event()

    async def waits(run: Run, value: Any) -> Any:
        if one.calls == 1:
            await release.wait()
            await run.step("late", lambda: None)
            return "late result"
        return value

    submission = one.submit(waits, "new result")
    old = one.lane.start_delivery()
    one.lane.forget()
    one.lane.force_pass()
    one.deployment.run_until_quiet()
    assert one.lane.settlement(submission).result == "new result"
    log = one.lane.records()
    release.set()
    one.deployment.run_until_idle()
    assert old.done()
    assert one.lane.records() == log
    assert one.row(submission).epoch == 2


def test_s35_result_of_a_superseded_incarnation_changes_nothing(one: One) -> None:
    """S34, S130: the old attempt only returns; its settlement names an epoch that is gone."""
    release = asyncio.Event()

    async def waits(_run: Run, value: Any) -> Any:
        if one.calls == 1:
            await release.wait()
            return "late result"
        return value

    submission = one.submit(waits, "new result")
    one.lane.start_delivery()
    one.lane.forget()
    one.lane.force_pass()
    one.deployment.run_until_quiet()
    release.set()
    one.deployment.run_until_idle()
    assert one.lane.settlement(submission).result == "new result"
    assert one.calls == 2
    one.lane.check_laws()


# Quarantine


def test_quarantine_holds_the_lane_without_an_alarm_until_it_is_released(one: One) -> None:
    one.set(attempts_max=2)
    one.serve(on_exhausted="quarantine")
    submission = one.submit(_never)
    behind = one.lane.submit("echo", 1)
    one.deployment.run_until_quiet()
    assert one.row(submission).state is State.QUARANTINED
    assert one.deployment.advance(86_400_000) == 0
    state = one.lane.state()
    assert state.blocked_on is not None
    assert state.blocked_on.kind is WaitKind.OPERATOR
    waits = one.lane.status(behind.submission).waiting_for
    assert waits is not None
    assert (waits.kind, waits.behind) == (WaitKind.HEAD, submission)
    one.behaviour = _returns
    one.lane.retry(submission, "fixed")
    assert one.row(submission).attempts == 0
    one.deployment.run_until_quiet()
    assert one.lane.state().counts[State.SETTLED] == 2


def test_admissions_behind_a_quarantined_head_never_park_the_lane(one: One) -> None:
    one.set(attempts_max=1, idle_wakes_max=8)
    one.serve(on_exhausted="quarantine")
    one.submit(_never)
    one.deployment.run_until_quiet()
    for number in range(20):
        one.lane.submit("echo", number)
        assert one.deployment.run_until_quiet() == 1
    assert not one.lane.state().maintenance.is_parked


# Versions


def test_s115_missing_version_is_a_timed_wait_and_is_picked_up_after_a_deploy(one: One) -> None:
    """S4: no retry loop; an hourly look, and the first event after the deploy that has it."""
    one.submit(_returns, 1)
    one.serve(version="2")
    one.deployment.advance(1)
    status = one.lane.state().blocked_on
    assert status is not None
    assert (status.kind, status.name) == (WaitKind.AGENT_VERSION, "work@1")
    assert one.deployment.advance(24 * 3_600_000) == 24
    newer = one.lane.submit("work", 2)
    one.serve(version="1")
    one.lane.visit()
    one.deployment.advance(10)
    assert one.lane.state().counts[State.SETTLED] == 1
    one.serve(version="2")
    one.lane.visit()
    one.deployment.run_until_quiet()
    assert one.lane.settlement(newer.submission).result == 2


def test_version_that_comes_back_is_picked_up_within_an_hour_without_a_request(one: One) -> None:
    submission = one.submit(_returns, 1)
    one.serve(version="2")
    one.deployment.advance(1)
    one.serve(version="1")
    one.deployment.advance(3_600_000)
    assert one.lane.settlement(submission).result == 1


def test_s118_deploy_with_twenty_in_flight_settles_each_once(one: One) -> None:
    receipts = [one.lane.submit("echo", number) for number in range(20)]
    one.lane.crash_at("settle:after")
    one.lane.deliver()
    one.serve()
    one.deployment.run_until_quiet()
    assert [one.lane.settlement(each.submission).result for each in receipts] == [*range(20)]


# One authority


def test_s45_settled_work_is_invisible_to_recovery(one: One) -> None:
    submission = one.submit(_returns, 1)
    one.lane.crash_at("settle:after", keeps_unsynced=True)
    one.lane.deliver()
    one.deployment.run_until_quiet()
    assert one.calls == 1
    assert one.lane.settlement(submission).result == 1


def test_s121_s122_requeue_is_the_same_row(one: One) -> None:
    submission = one.submit(times(1, Retryable("stalled")), 1)
    behind = one.lane.submit("work", 1)
    one.deployment.run_until_quiet()
    rows = one.lane.disk.connection.execute("SELECT count(*) FROM submissions").fetchone()
    assert rows == (2,)
    assert one.row(submission).sequence == 1
    assert one.lane.settlement(behind.submission).result == 1


def test_s52_attempt_that_nobody_watches_is_found_when_its_process_has_gone(one: One) -> None:
    async def long(_run: Run, value: Any) -> Any:
        await asyncio.sleep(137)
        return value

    submission = one.submit(long, 1)
    one.lane.start_delivery()
    one.lane.crash(keeps_unsynced=False)
    one.deployment.run_until_quiet()
    assert one.lane.settlement(submission).result == 1
    assert one.calls == 2


def test_ev_15_claim_that_never_committed_is_made_later(one: One) -> None:
    submission = one.submit(_returns, 1)
    one.lane.crash_at("claim:before")
    one.lane.deliver()
    assert one.row(submission).epoch == 0
    one.deployment.run_until_quiet()
    assert one.row(submission).epoch == 1


@pytest.mark.parametrize("keeps_unsynced", [True, False])
def test_ev_14_ev_16_claim_that_committed_is_taken_over_at_a_higher_epoch(
    one: One, *, keeps_unsynced: bool
) -> None:
    """LG-5: and its input is applied once."""
    submission = one.submit(_returns, 1)
    one.lane.crash_at("claim:after", keeps_unsynced=keeps_unsynced)
    one.lane.deliver()
    one.deployment.run_until_quiet()
    assert one.row(submission).epoch == 2
    assert [each.kind for each in one.lane.records()].count("input-applied") == 1
