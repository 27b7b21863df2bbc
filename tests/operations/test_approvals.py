"""Approvals: a person decides, or time does, in the transaction that says so; waiting costs nothing.

DA-1 to DA-4, DA-6 to DA-8, DA-10, AL-1, AL-2, AL-5, AL-8, LG-18, LG-20, EV-36, EV-38, EV-44, EV-45; S3, S85, S87,
S111, S112. Policies that decide by themselves (DA-9, DA-11 to DA-13) are not part of Quiesce: a handler that needs
no person asks none. EV-34 to EV-38 are also commits of `tests/operations/test_crashes.py`.
"""

from typing import Any

import pytest

from operations.ground import (
    DAY_MS,
    HOUR_MS,
    World,
    begin,
    deployed,
    ids,
    kinds,
    pass_time,
    refused,
    state_of,
    wait_of,
)
from quiesce import Run
from quiesce.errors import RefusalCode
from quiesce.ids import SubmissionId
from quiesce.recovery import WaitKind
from quiesce.states import State
from quiesce.testing import Conversation


async def ask(run: Run, _value: Any) -> list[Any]:
    """Ask for a day's time, and return the decision whole."""
    decision = await run.approval("large", reason="17 euros", expires_in_s=86_400)
    return [decision.approved, decision.decided_by, decision.reason, decision.expired]


async def ask_for_ever(run: Run, _value: Any) -> bool:
    """Ask until somebody answers."""
    return (await run.approval("large")).approved


def decide(lane: Conversation, submission: SubmissionId, choice: str, **terms: Any) -> Any:
    return {"approved": lane.approve, "denied": lane.deny}[choice](submission, "large", **terms)


@pytest.mark.parametrize(("choice", "approved"), [("approved", True), ("denied", False)])
def test_a_decision_resumes_the_run_with_who_and_why(choice: str, approved: bool) -> None:  # noqa: FBT001
    """DA-1 to DA-3, S87: denial is a result that the handler receives."""
    with deployed(ask) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet(within_ms=HOUR_MS)
        assert state_of(lane, submission) is State.SUSPENDED
        answered = decide(lane, submission, choice, reason="looked at it", by="ada")
        assert not answered.is_replayed
        assert state_of(lane, submission) is State.INPUT_APPLIED
        deployment.run_until_quiet()
        settled = lane.settlement(submission)
        assert settled.result == [approved, "ada", "looked at it", False]
        assert settled.outcome == "completed"


def test_nobody_decides_and_the_expiry_is_a_decision_with_a_record() -> None:
    """S85: one alarm, at the expiry."""
    with deployed(ask) as (deployment, lane):
        receipt = lane.submit("work")
        deployment.run_until_quiet(within_ms=HOUR_MS)
        expires_ms = lane.alarm_at_ms
        assert expires_ms is not None
        assert wait_of(lane, receipt.submission).until_ms == expires_ms
        asked_at_ms = lane.records()[2].created_at_ms
        assert expires_ms == asked_at_ms + DAY_MS
        wakes = lane.wakes
        deployment.advance(DAY_MS)
        assert lane.wakes - wakes == 1
        assert lane.settlement(receipt.submission).result[0::3] == [False, True]
        assert ids(lane, receipt.submission)[2] == "large/decided"


def test_a_lane_that_waits_for_a_person_has_no_alarm_and_a_forced_one_does_nothing() -> None:
    """AL-1, AL-5, AL-8, S3: no SQL, no record, no alarm, for as long as it takes."""
    with deployed(ask_for_ever) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        log, wakes = lane.records(), lane.wakes
        assert lane.alarm_at_ms is None
        assert deployment.advance(30 * DAY_MS) == 0
        statements = lane.storage.counts().statements
        for _ in range(3):
            lane.alarm()
        assert lane.storage.counts().statements == statements
        assert (lane.records(), lane.alarm_at_ms) == (log, None)
        assert lane.wakes == wakes + 3
        lane.approve(submission, "large")
        assert lane.alarm_at_ms is not None
        deployment.run_until_quiet()
        assert lane.settlement(submission).result is True
        assert lane.alarm_at_ms is None


@pytest.mark.parametrize("choice", ["approved", "denied"])
def test_the_same_decision_again_is_the_same_answer_at_any_time(choice: str) -> None:
    """DA-4, LG-18: before the pass, after it, and after the settlement."""
    with deployed(ask) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet(within_ms=HOUR_MS)
        decide(lane, submission, choice, reason="first")
        log = lane.records()
        assert decide(lane, submission, choice, reason="second").is_replayed
        assert lane.records() == log
        deployment.run_until_quiet()
        log = lane.records()
        assert decide(lane, submission, choice).is_replayed
        assert lane.records() == log


@pytest.mark.parametrize(("first", "second"), [("approved", "denied"), ("denied", "approved")])
def test_another_decision_is_a_conflict_that_shows_the_recorded_one(
    first: str, second: str
) -> None:
    """DA-4, LG-18: also once it is settled, when it is still a conflict and nothing else."""
    with deployed(ask) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet(within_ms=HOUR_MS)
        decide(lane, submission, first, reason="first", by="ada")
        for _ in range(2):
            generation = lane.generation()
            with refused(RefusalCode.DECISION_CONFLICT) as facts:
                decide(lane, submission, second)
            assert facts["recorded"]["decision"] == first
            assert facts["recorded"]["author"] == "ada"
            assert lane.generation() == generation
            deployment.run_until_quiet()
        assert lane.settlement(submission).result[0] is (first == "approved")


def test_a_decision_a_millisecond_before_the_expiry_wins_however_late_the_alarm() -> None:
    with deployed(ask) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet(within_ms=HOUR_MS)
        assert lane.alarm_at_ms is not None
        pass_time(deployment, lane.alarm_at_ms - deployment.now_ms - 1)
        lane.approve(submission, "large", by="ada")
        pass_time(deployment, HOUR_MS)
        deployment.run_until_quiet()
        assert lane.settlement(submission).result[:2] == [True, "ada"]


@pytest.mark.parametrize("late_ms", [0, 1, HOUR_MS])
def test_a_decision_at_the_expiry_or_after_it_finds_it_recorded(late_ms: int) -> None:
    """Time decides in the transaction, and that transaction records what time has decided."""
    with deployed(ask) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet(within_ms=HOUR_MS)
        assert lane.alarm_at_ms is not None
        pass_time(deployment, lane.alarm_at_ms - deployment.now_ms + late_ms)
        with refused(RefusalCode.DECISION_CONFLICT) as facts:
            lane.approve(submission, "large")
        assert facts["recorded"]["decision"] == "expired"
        assert ids(lane, submission)[-1] == "large/decided"
        assert state_of(lane, submission) is State.INPUT_APPLIED
        with refused(RefusalCode.DECISION_CONFLICT):
            lane.deny(submission, "large")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result[3] is True


def test_a_decision_comes_while_the_attempt_that_asked_still_runs() -> None:
    """DA-10, LG-20, EV-36: it is not lost, and the Run resumes at once instead of being suspended."""
    with deployed(ask_for_ever) as (deployment, lane):
        submission = lane.submit("work").submission
        pause = lane.pause_at("release:before")
        delivery = begin(deployment, lane)
        assert pause.is_reached
        lane.approve(submission, "large")
        pause.release()
        deployment.run(delivery)
        deployment.run_until_quiet()
        assert lane.settlement(submission).result is True
        assert lane.status(submission).submission.attempts == 0


def test_a_decision_between_what_a_pass_saw_and_its_end_is_not_lost() -> None:
    """AL-2: the pass has seen a suspended head and is about to clear the alarm."""
    with deployed(ask_for_ever) as (deployment, lane):
        submission = lane.submit("work").submission
        pause = lane.pause_at("maintenance:finish:before")
        delivery = begin(deployment, lane)
        assert pause.is_reached
        lane.approve(submission, "large")
        assert lane.alarm_at_ms is not None
        pause.release()
        deployment.run(delivery)
        assert lane.alarm_at_ms is not None
        deployment.run_until_quiet()
        assert lane.settlement(submission).result is True
        assert kinds(lane, submission).count("settlement") == 1


@pytest.mark.parametrize("operation", ["other", "large~1", "charge"])
def test_what_is_no_undecided_approval_cannot_be_decided(operation: str) -> None:
    """AO-5: never a guess."""
    world = World(charge=[ConnectionError()])

    async def handle(run: Run, _value: Any) -> None:
        await run.approval("large")
        await run.tool("charge", world.act, "charge")

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        with refused(RefusalCode.NOT_WAITING) as facts:
            lane.approve(submission, operation)
        assert facts["state"] == "suspended"
        lane.approve(submission, "large")
        deployment.run_until_quiet()
        assert state_of(lane, submission) is State.UNKNOWN
        if operation == "charge":
            with refused(RefusalCode.NOT_WAITING):
                lane.approve(submission, operation)


def test_a_queued_submission_cannot_be_decided_before_it_asks() -> None:
    with deployed(ask_for_ever) as (deployment, lane):
        lane.submit("work")
        behind = lane.submit("work").submission
        deployment.run_until_quiet()
        with refused(RefusalCode.NOT_WAITING) as facts:
            lane.approve(behind, "large")
        assert facts["state"] == "ready"


def test_a_settled_submission_that_never_asked_cannot_be_decided() -> None:
    async def handle(_run: Run, _value: Any) -> None:
        return None

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        generation = lane.generation()
        with refused(RefusalCode.ALREADY_SETTLED):
            lane.approve(submission, "large")
        with refused(RefusalCode.NOT_FOUND):
            lane.approve(SubmissionId("sub_" + "0" * 32), "large")
        assert lane.generation() == generation


def test_completed_steps_never_run_again_after_a_decision() -> None:
    """S111."""
    world = World()

    async def handle(run: Run, _value: Any) -> list[Any]:
        first = await run.step("first", world.act, "first")
        second = await run.step("second", world.act, "second")
        await run.approval("go-on")
        return [first, second, await run.step("third", world.act, "third")]

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        lane.approve(submission, "go-on")
        deployment.run_until_quiet()
        assert world.calls == {"first": 1, "second": 1, "third": 1}
        assert lane.settlement(submission).result == ["first done", "second done", "third done"]


def test_two_approvals_one_after_the_other_are_asked_one_after_the_other() -> None:
    """DA-8."""

    async def handle(run: Run, _value: Any) -> list[bool]:
        return [(await run.approval("ask")).approved for _ in range(2)]

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        with refused(RefusalCode.NOT_WAITING):
            lane.approve(submission, "ask~1")
        lane.approve(submission, "ask")
        deployment.run_until_quiet()
        assert wait_of(lane, submission).operation == "ask~1"
        lane.deny(submission, "ask~1")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == [True, False]


def test_waiting_spends_no_attempt_and_no_interruption_however_often() -> None:
    """Twenty waits in a row, with a crash during each, and the counters are where they were."""

    async def handle(run: Run, _value: Any) -> int:
        for _ in range(20):
            await run.approval("ask")
        return run.attempt

    with deployed(handle, attempts_max=1, interruptions_max=1, interruption_window_ms=0) as (
        deployment,
        lane,
    ):
        submission = lane.submit("work").submission
        for number in range(20):
            deployment.run_until_quiet()
            lane.crash()
            lane.alarm()
            row = lane.status(submission).submission
            assert (row.attempts, row.interruptions) == (0, 0)
            lane.approve(submission, f"ask~{number}" if number else "ask")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == 1


def test_a_handler_cannot_swallow_its_suspension() -> None:
    """It catches everything and returns: nothing is completed before the decision."""

    async def handle(run: Run, _value: Any) -> str:
        try:
            decision = await run.approval("large")
        except BaseException:  # noqa: BLE001 - the handler that this is about
            return "swallowed"
        return "approved" if decision.approved else "denied"

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert state_of(lane, submission) is State.SUSPENDED
        assert wait_of(lane, submission).kind is WaitKind.APPROVAL
        lane.approve(submission, "large")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == "approved"


def test_another_approval_under_the_same_name_is_not_answered_with_the_first_decision() -> None:
    """The reason is one of its arguments: changed code that asks something else has diverged."""
    asked = ["may I", "may I more"]

    async def handle(run: Run, _value: Any) -> None:
        await run.approval("large", reason=asked.pop(0))

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        lane.approve(submission, "large")
        deployment.run_until_quiet()
        failure = lane.settlement(submission).failure
        assert failure is not None
        assert failure["error_type"] == "diverged"
