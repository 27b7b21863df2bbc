"""Aborts in every race: the wish is durable first, wins over what comes later, and never claims too much.

S90, S92, S98, S99, S102, S104; DA-5, DT-10, DJ-8, DJ-9, EV-40 to EV-43, EV-48, LG-10, LG-31, RC-12 to RC-14,
RC-25, RC-26, RC-33, RC-71, RC-76, RT-2.
S93: a loop that never awaits cannot be interrupted on one thread; the platform ends it, and the claim's count
bounds how often. S94: one cancel and a grace of a second are tested with the attempt in tests/stages.

Parity: DRT-7 to DRT-9, NC-10 to NC-12.
"""

import asyncio
from typing import Any

import pytest

from operations.ground import (
    HANG,
    HOUR_MS,
    World,
    agent,
    begin,
    deployed,
    kinds,
    refused,
    state_of,
)
from quiesce import Failed, Retryable, Run
from quiesce.errors import RefusalCode
from quiesce.ids import SubmissionId
from quiesce.states import State
from quiesce.testing import Conversation


def assert_aborted(lane: Conversation, submission: SubmissionId, reason: str = "asked to") -> None:
    settled = lane.settlement(submission)
    assert (settled.outcome, settled.reason) == ("aborted", reason)
    assert kinds(lane, submission).count("abort-requested") == 1
    assert kinds(lane, submission)[-1] == "settlement"


async def echo(_run: Run, value: Any) -> Any:
    return value


async def ask(run: Run, _value: Any) -> bool:
    return (await run.approval("ask")).approved


def test_a_queued_submission_is_settled_in_the_transaction_of_its_abort() -> None:
    """EV-40, EV-42, RC-12, RC-76: it never ran, and does not wait for the head."""
    with deployed(ask) as (deployment, lane):
        lane.submit("work")
        behind = lane.submit("work").submission
        deployment.run_until_quiet()
        accepted = lane.abort(behind, "not needed")
        assert accepted.settlement is not None
        assert_aborted(lane, behind, "not needed")
        assert kinds(lane, behind) == ["abort-requested", "settlement"]
        deployment.run_until_quiet()
        assert lane.alarm_at_ms is None


def test_an_aborted_head_lets_the_next_one_run() -> None:
    with deployed(ask) as (deployment, lane):
        head = lane.submit("work").submission
        behind = lane.submit("work").submission
        deployment.run_until_quiet()
        assert lane.abort(head).settlement is not None
        assert_aborted(lane, head)
        deployment.run_until_quiet()
        assert state_of(lane, behind) is State.SUSPENDED


@pytest.mark.parametrize("kind", ["approval", "signal", "timer", "first"])
def test_a_suspended_submission_is_settled_at_once_and_its_waits_are_closed(kind: str) -> None:
    """DA-5, RC-33: no row, no alarm and no answer is left of them."""
    from quiesce import Signal, Timer  # noqa: PLC0415 - only this test chooses

    async def handle(run: Run, _value: Any) -> None:
        match kind:
            case "approval":
                await run.approval("wait", expires_in_s=60)
            case "signal":
                await run.signal("wait", timeout_ms=60_000)
            case "timer":
                await run.sleep("wait", delay_ms=60_000)
            case _:
                await run.first("choose", Signal("wait"), Timer("nap", delay_ms=60_000))

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        lane.signal(submission, "other", 1)
        deployment.run_until_quiet(within_ms=1_000)
        assert lane.alarm_at_ms is not None
        assert lane.abort(submission).settlement is not None
        assert_aborted(lane, submission)
        assert not lane.settlement(submission).effects_may_have_happened
        for table in ("operations", "signals", "agenda"):
            assert lane.storage.execute(f"SELECT * FROM {table}") == []
        assert deployment.advance(HOUR_MS) <= 2
        assert lane.alarm_at_ms is None
        with refused(RefusalCode.ALREADY_SETTLED):
            lane.approve(submission, "wait")


def test_an_abort_in_the_retry_delay_settles_at_once() -> None:
    async def handle(_run: Run, _value: Any) -> None:
        raise Retryable("later")

    with deployed(handle, backoff_base_ms=10_000) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.advance(100)
        assert lane.status(submission).next_attempt_at_ms is not None
        assert lane.abort(submission).settlement is not None
        assert_aborted(lane, submission)
        deployment.run_until_quiet()
        assert lane.status(submission).submission.attempts == 1


def test_an_abort_of_a_quarantined_submission_settles_at_once() -> None:
    async def handle(_run: Run, _value: Any) -> None:
        raise Retryable("later")

    with deployed(agent(handle, on_exhausted="quarantine"), attempts_max=1) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert state_of(lane, submission) is State.QUARANTINED
        assert lane.abort(submission).settlement is not None
        assert_aborted(lane, submission)


@pytest.mark.parametrize("point", ["claim:before", "claim:after"])
def test_an_abort_between_claim_and_handler_keeps_the_handler_from_starting(point: str) -> None:
    """S90: before the claim it settles at once; after it, before the first operation."""
    world = World()

    async def handle(run: Run, _value: Any) -> Any:
        return await run.tool("charge", world.act, "charge")

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        pause = lane.pause_at(point)
        delivery = begin(deployment, lane)
        assert pause.is_reached
        lane.abort(submission)
        pause.release()
        deployment.run(delivery)
        deployment.run_until_quiet()
        assert_aborted(lane, submission)
        assert world.calls["charge"] == 0


def test_an_abort_between_claim_and_start_ends_a_run_of_steps_at_its_first_one() -> None:
    """What has been done is recorded and nothing more begins, though no tool asks whether it may."""
    world = World()

    async def handle(run: Run, _value: Any) -> None:
        for number in range(4):
            await run.step(f"step-{number}", world.act, "step")

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        pause = lane.pause_at("claim:after")
        delivery = begin(deployment, lane)
        assert pause.is_reached
        lane.abort(submission)
        pause.release()
        deployment.run(delivery)
        deployment.run_until_quiet()
        assert_aborted(lane, submission)
        assert world.calls["step"] == 1
        assert lane.settlement(submission).completed_operations == ["step-0"]


@pytest.mark.parametrize("ends", ["returns", "raises", "swallows", "fails", "retries"])
def test_an_abort_during_a_step_is_aborted_whatever_the_handler_makes_of_it(ends: str) -> None:
    """S92, S99: the handler returns, raises, swallows the cancellation, fails for good or asks for a retry."""

    async def handle(run: Run, _value: Any) -> Any:
        try:
            await run.step("slow", asyncio.sleep, 100)
        except asyncio.CancelledError:
            if ends == "raises":
                raise
        finally:
            if ends == "fails":
                raise Failed("no")
            if ends == "retries":
                raise Retryable("again")
        if ends == "swallows":
            await run.step("more", lambda: "done")
        return "completed"

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        delivery = begin(deployment, lane)
        assert lane.abort(submission).settlement is None
        deployment.run(delivery)
        deployment.run_until_quiet()
        assert_aborted(lane, submission)
        assert "step-completed" not in kinds(lane, submission)
        assert lane.status(submission).submission.attempts == 0


def test_a_handler_that_ends_at_the_very_moment_is_aborted_if_the_wish_was_recorded_first() -> None:
    """S92: what committed first wins."""
    with deployed(echo) as (deployment, lane):
        submission = lane.submit("work").submission
        pause = lane.pause_at("settle:before")
        delivery = begin(deployment, lane)
        assert pause.is_reached
        lane.abort(submission)
        pause.release()
        deployment.run(delivery)
        deployment.run_until_quiet()
        assert_aborted(lane, submission)


def test_a_completed_settlement_that_committed_first_wins() -> None:
    """LG-10, RT-2: the refusal shows it, and writes nothing."""
    with deployed(echo) as (deployment, lane):
        submission = lane.submit("work", "value").submission
        deployment.run_until_quiet()
        log, generation = lane.records(), lane.generation()
        with refused(RefusalCode.ALREADY_SETTLED) as facts:
            lane.abort(submission)
        assert facts["settlement"].recorded.result == "value"
        assert (lane.records(), lane.generation()) == (log, generation)


def test_an_abort_during_an_uncertain_call_says_that_it_may_have_happened() -> None:
    """S98, DT-10, RC-25: aborted, and the open call is listed as unknown, never as undone."""
    world = World(charge=[HANG])

    async def handle(run: Run, _value: Any) -> Any:
        return await run.tool("charge", world.act, "charge")

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        delivery = begin(deployment, lane)
        assert world.calls["charge"] == 1
        assert lane.abort(submission).settlement is None
        deployment.run(delivery)
        deployment.run_until_quiet()
        assert_aborted(lane, submission)
        settled = lane.settlement(submission)
        assert settled.effects_may_have_happened
        assert settled.unknown_operations == ["charge"]
        assert world.calls["charge"] == 1


def test_an_abort_after_a_tool_completed_lists_it_as_completed() -> None:
    world = World()

    async def handle(run: Run, _value: Any) -> None:
        await run.tool("charge", world.act, "charge")
        await run.step("look", lambda: 1)
        await run.approval("ask")

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        lane.abort(submission)
        settled = lane.settlement(submission)
        assert settled.completed_operations == ["charge", "look"]
        assert not settled.effects_may_have_happened


def test_an_abort_of_an_unknown_call_settles_and_lists_it() -> None:
    """RC-26: abort beats unknown."""
    world = World(charge=[ConnectionError()])

    async def handle(run: Run, _value: Any) -> Any:
        return await run.tool("charge", world.act, "charge")

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        lane.abort(submission)
        deployment.run_until_quiet()
        assert_aborted(lane, submission)
        assert lane.settlement(submission).unknown_operations == ["charge"]


def test_a_resolution_to_abort_after_an_abort_is_no_second_wish() -> None:
    """Both before the pass: the first wish stands with its reason, and nothing is corrupt."""
    world = World(charge=[ConnectionError()])

    async def handle(run: Run, _value: Any) -> Any:
        return await run.tool("charge", world.act, "charge")

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        lane.abort(submission, "first")
        lane.resolve(submission, "charge", "abort", reason="second")
        deployment.run_until_quiet()
        assert_aborted(lane, submission, "first")


@pytest.mark.parametrize("resolution", ["completed", "never-happened"])
def test_a_resolution_after_an_abort_does_not_bring_the_work_back(resolution: Any) -> None:
    world = World(charge=[ConnectionError()])

    async def handle(run: Run, _value: Any) -> Any:
        return await run.tool("charge", world.act, "charge")

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        lane.abort(submission)
        lane.resolve(submission, "charge", resolution, 1)
        deployment.run_until_quiet()
        assert_aborted(lane, submission)
        assert world.calls["charge"] == 1


def test_the_same_abort_again_is_the_same_answer() -> None:
    """LG-10: while it is under way and when it is done; the first reason stands."""
    with deployed(echo) as (deployment, lane):
        submission = lane.submit("work").submission
        pause = lane.pause_at("settle:before")
        delivery = begin(deployment, lane)
        assert not lane.abort(submission, "first").is_replayed
        log = lane.records()
        assert lane.abort(submission, "second").is_replayed
        assert lane.records() == log
        pause.release()
        deployment.run(delivery)
        deployment.run_until_quiet()
        again = lane.abort(submission, "third")
        assert again.is_replayed
        assert again.settlement is not None
        assert again.settlement.recorded.reason == "first"


def test_a_wish_survives_the_death_of_the_attempt_that_it_is_for() -> None:
    """EV-41, EV-48: durable before anything acts on it."""
    with deployed(echo) as (deployment, lane):
        submission = lane.submit("work").submission
        lane.pause_at("settle:before")
        begin(deployment, lane)
        lane.abort(submission)
        lane.crash()
        deployment.run_until_quiet()
        assert_aborted(lane, submission)


def test_a_cancellation_never_enters_the_journal() -> None:
    """S102: work submitted again under a new key is not cancelled by what stands in the log."""
    world = World(charge=[HANG, "second"])

    async def handle(run: Run, _value: Any) -> Any:
        return await run.step("charge", world.act, "charge")

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        delivery = begin(deployment, lane)
        lane.abort(submission)
        deployment.run(delivery)
        again = lane.submit("work").submission
        deployment.run_until_quiet()
        assert_aborted(lane, submission)
        assert lane.settlement(again).result == "second"


def test_an_abort_needs_no_handler_of_its_version() -> None:
    """S104: control reads durable state, not what is deployed."""
    old, new = agent(ask, version="1"), agent(ask, version="2")
    with deployed(old) as (deployment, lane):
        suspended = lane.submit("work").submission
        queued = lane.submit("work").submission
        deployment.run_until_quiet()
        deployment.deploy([new])
        deployment.run_until_quiet(within_ms=1_000)
        for each in (queued, suspended):
            lane.abort(each)
            assert_aborted(lane, each)


def test_a_submission_that_never_was_cannot_be_aborted() -> None:
    with deployed(echo) as (deployment, lane):
        lane.submit("work")
        deployment.run_until_quiet()
        with refused(RefusalCode.NOT_FOUND):
            lane.abort(SubmissionId("sub_" + "0" * 32))


def test_an_abort_in_a_gather_ends_every_branch() -> None:
    world = World(one=[HANG], two=[HANG])

    async def handle(run: Run, _value: Any) -> Any:
        await asyncio.gather(
            run.tool("one", world.act, "one"),
            run.tool("two", world.act, "two", effect="idempotent"),
            run.approval("ask"),
        )

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        delivery = begin(deployment, lane)
        assert world.calls == {"one": 1, "two": 1}
        lane.abort(submission)
        deployment.run(delivery)
        deployment.run_until_quiet()
        assert_aborted(lane, submission)
        assert lane.settlement(submission).unknown_operations == ["one"]
        assert lane.storage.execute("SELECT * FROM operations") == []
        assert lane.alarm_at_ms is None


def test_an_approval_after_the_wish_to_abort_changes_nothing() -> None:
    """Beside a running call the abort goes through the pass; a decision in between does not revive the Run."""
    world = World(one=[HANG])

    async def handle(run: Run, _value: Any) -> Any:
        await asyncio.gather(run.tool("one", world.act, "one"), run.approval("ask"))
        await run.tool("two", world.act, "two")

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        delivery = begin(deployment, lane)
        lane.abort(submission)
        lane.approve(submission, "ask")
        deployment.run(delivery)
        deployment.run_until_quiet()
        assert_aborted(lane, submission)
        assert world.calls == {"one": 1}
