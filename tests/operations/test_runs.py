"""What holds for a Run as a whole: divergence, versions, deadlines, counting, quarantine.

S4, S14 for operations, S32, S34, S35, S40, S58, S62, S63, S65, S104, S115, S116, S118, RUN-030, AD-3, AO-5. The
counting of attempts without operations is tested in tests/stages.

Parity: DRT-4, DRT-10, RJ-5, NC-6.
"""

import asyncio
import gc
import tracemalloc
import weakref
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict

from operations.ground import (
    DAY_MS,
    HANG,
    HOUR_MS,
    Handler,
    World,
    agent,
    begin,
    deployed,
    kinds,
    pass_time,
    refused,
    state_of,
    wait_of,
)
from quiesce import Agent, Failed, Retryable, Run, Signal, Timer
from quiesce.errors import RefusalCode, StorageUnavailable
from quiesce.recovery import WaitKind
from quiesce.settlement import COMPLETED_SHOWN_MAX
from quiesce.states import State

# Divergence.


async def _step(run: Run) -> None:
    await run.step("same", lambda *_: 1, 1)


async def _step_otherwise(run: Run) -> None:
    await run.step("same", lambda *_: 1, 2)


async def _tool(run: Run) -> None:
    await run.tool("same", lambda *_: 1, 1)


async def _approval(run: Run) -> None:
    await run.approval("same")


async def _signal(run: Run) -> None:
    await run.signal("same", timeout_ms=1)


async def _timer(run: Run) -> None:
    await run.sleep("same", delay_ms=0)


async def _first(run: Run) -> None:
    await run.first("same", Timer("a", delay_ms=0))


async def _first_otherwise(run: Run) -> None:
    await run.first("same", Timer("a", delay_ms=0), Signal("b"))


CHANGES = [
    (_step, _step_otherwise, "step", "step"),
    (_step, _tool, "step", "tool"),
    (_tool, _approval, "tool", "approval"),
    (_timer, _signal, "timer", "signal"),
    (_first, _first_otherwise, "first", "first"),
    (_first, _step, "first", "step"),
]


@pytest.mark.parametrize(("was", "is_now", "kind", "asked"), CHANGES)
def test_a_replay_that_asks_for_something_else_under_a_recorded_name_has_diverged(
    was: Any, is_now: Any, kind: str, asked: str
) -> None:
    """Refused with both named, never answered with another call's value, and not retried."""
    calls: list[Any] = [was, is_now]

    async def handle(run: Run, _value: Any) -> None:
        await calls.pop(0)(run)
        await run.approval("go-on")

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        lane.approve(submission, "go-on")
        deployment.run_until_quiet()
        failure = lane.settlement(submission).failure
        assert failure is not None
        assert failure["error_type"] == "diverged"
        assert "'same'" in failure["message"]
        assert f"as a {kind}" in failure["message"]
        assert f"for a {asked}" in failure["message"]
        assert lane.status(submission).submission.attempts == 0


def test_another_order_of_the_same_names_is_no_divergence_and_one_name_counts_its_uses() -> None:
    """S116: names identify, not places; the second use of a name is another operation than the first."""
    orders = [["a", "b", "a"], ["b", "a", "a"]]
    world = World(a=[1, 2], b=[3])

    async def handle(run: Run, _value: Any) -> list[Any]:
        found = [[name, await run.step(name, world.act, name)] for name in orders.pop(0)]
        await run.approval("go-on")
        return found

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        lane.approve(submission, "go-on")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == [["b", 3], ["a", 1], ["a", 2]]
        assert world.calls == {"a": 2, "b": 1}


def test_a_handler_that_catches_its_divergence_is_never_answered_with_another_value() -> None:
    values = [1, 2]

    async def handle(run: Run, _value: Any) -> Any:
        value = values.pop(0)
        try:
            found = await run.step("same", lambda each: each, value)
        except Exception as error:  # noqa: BLE001 - the handler that this is about
            found = type(error).__name__
        await run.approval("go-on")
        return found

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        lane.approve(submission, "go-on")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == "Failed"


def test_operations_are_bounded() -> None:
    async def handle(run: Run, count: int) -> None:
        for _ in range(count):
            await run.step("again", lambda: None)

    with deployed(handle, operations_max=5) as (deployment, lane):
        fits, exceeds = (lane.submit("work", count).submission for count in (5, 6))
        deployment.run_until_quiet()
        assert lane.settlement(fits).outcome == "completed"
        failure = lane.settlement(exceeds).failure
        assert failure is not None
        assert failure["error_type"] == "budget-exhausted"


@pytest.mark.parametrize("end", ["retry", "crash"])
def test_what_a_run_that_loops_may_ask_for_is_bounded_over_all_of_its_attempts(end: str) -> None:
    """S63: each attempt gets a little further; what they ask for counts together, and nothing is done twice."""
    world = World()

    async def handle(run: Run, _value: Any) -> None:
        number = 0
        while True:
            done = world.calls["ask"]
            await run.step(f"ask-{number}", world.act, "ask")
            number += 1
            if world.calls["ask"] > done and world.calls["ask"] % 3 == 0:
                if end == "crash":
                    lane.crash_at("step:after")
                else:
                    raise Retryable("once more")

    with deployed(handle, operations_max=10, attempts_max=100) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        failure = lane.settlement(submission).failure
        assert failure is not None
        assert failure["error_type"] == "budget-exhausted"
        assert world.calls["ask"] == 10
        assert kinds(lane, submission).count("step-completed") == 10
        ended = lane.status(submission).submission.attempts if end == "retry" else len(lane.errors)
        assert ended >= 2


def test_a_script_that_approves_whatever_is_asked_does_not_keep_a_run_going_for_ever() -> None:
    """S65."""

    async def handle(run: Run, _value: Any) -> None:
        while (await run.approval("again")).approved:
            pass

    with deployed(handle, operations_max=5) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        approved = 0
        while state_of(lane, submission) is not State.SETTLED:
            operation = wait_of(lane, submission).operation
            assert operation is not None
            lane.approve(submission, operation)
            approved += 1
            deployment.run_until_quiet()
        assert approved == 5
        failure = lane.settlement(submission).failure
        assert failure is not None
        assert failure["error_type"] == "budget-exhausted"


@pytest.mark.parametrize("name", ["", "a b", "a/b", "é", "x" * 101, "~1", "a@b"])
def test_names_that_cannot_stand_in_an_id_are_refused(name: str) -> None:
    async def handle(run: Run, value: str) -> None:
        await run.step(value, lambda: None)

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work", name).submission
        deployment.run_until_quiet()
        failure = lane.settlement(submission).failure
        assert failure is not None
        assert failure["error_type"] == "ValueError"


ROW_BYTES_MAX = 2_000_000
"""What the platform stores in one row."""


@pytest.mark.parametrize("end", ["fails", "aborted"])
def test_a_settlement_names_so_many_completed_operations_that_its_row_can_hold_them(
    end: str,
) -> None:
    """With all of them, at their longest, it would be more than a row: the Run could not even be aborted."""
    keys = [f"{number:05d}.{'k' * 94}" for number in range(COMPLETED_SHOWN_MAX + 5)]

    async def handle(run: Run, _value: Any) -> None:
        for key in keys:
            await run.step("n" * 100, lambda: None, key=key)
        if end == "fails":
            raise Failed("no", error_type="no-luck")
        await run.approval("ask")

    with deployed(handle) as (deployment, lane):
        deployment.checks_every_event = False
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        if end == "aborted":
            lane.abort(submission)
        settled = lane.settlement(submission)
        assert settled.outcome == ("failed" if end == "fails" else "aborted")
        named = settled.completed_operations
        assert named == [f"{'n' * 100}@{key}" for key in keys[:COMPLETED_SHOWN_MAX]]
        assert len(settled.model_dump_json()) < ROW_BYTES_MAX
        assert kinds(lane, submission).count("step-completed") == len(keys), "the log has it all"


# Memory: an Object has 128 MB, and a Run may hold many values.


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Leave what is unreachable uncollected, as on an Object where few things are made, however large."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


VALUE_BYTES = 200_000
VALUES = 20


async def take_large_steps(run: Run, _value: Any) -> None:
    """Keep nothing of what the steps return, and wait for a person."""
    for number in range(VALUES):
        await run.step("take", lambda: "x" * VALUE_BYTES, key=f"{number}")
    await run.approval("ask")
    await run.approval("ask-again")


@pytest.mark.usefixtures("traced")
def test_naming_what_was_completed_reads_none_of_its_values() -> None:
    with deployed(take_large_steps) as (deployment, lane):
        deployment.checks_every_event = False
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        gc.collect()
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        lane.abort(submission)
        _, peak = tracemalloc.get_traced_memory()
        assert len(lane.settlement(submission).completed_operations) == VALUES
        assert peak - before < 5 * VALUE_BYTES


@pytest.mark.usefixtures("uncollected", "traced")
def test_a_run_keeps_nothing_of_a_step_that_has_returned() -> None:
    """What its handler has dropped is dropped."""
    grown: list[int] = []

    async def handle(run: Run, _value: Any) -> None:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(VALUES):
            await run.step("take", lambda: "x" * VALUE_BYTES, key=f"{number}")
        grown.append(tracemalloc.get_traced_memory()[0] - before)

    with deployed(handle) as (deployment, lane):
        lane.submit("work")
        deployment.run_until_quiet()
        assert len(grown) == 1
        assert grown[0] < 5 * VALUE_BYTES


@pytest.mark.usefixtures("uncollected")
def test_an_attempt_that_suspended_is_let_go_with_all_that_its_journal_has_read() -> None:
    """At once, and not when the collector of cycles comes: that counts objects and not their bytes."""
    runs: list[weakref.ref[Run]] = []

    async def handle(run: Run, value: Any) -> None:
        runs.append(weakref.ref(run))
        await take_large_steps(run, value)

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        lane.approve(submission, "ask")
        deployment.run_until_quiet()
        assert wait_of(lane, submission).operation == "ask-again"
        assert [each() for each in runs] == [None, None]


# Inputs.


class Colour(StrEnum):
    RED = "red"


class Strict(BaseModel):
    """What a strict model takes from JSON it does not take from Python's values."""

    model_config = ConfigDict(strict=True)

    at: datetime | None = None
    id: UUID | None = None
    colour: Colour | None = None
    pair: tuple[int, int] | None = None


@pytest.mark.parametrize(
    ("value", "taken"),
    [
        ({"at": "2026-01-01T00:00:00Z"}, datetime),
        ({"id": "6f1c2f9e-54b5-4f07-9a53-0c0a4a0c9c11"}, UUID),
        ({"colour": "red"}, Colour),
        ({"pair": [1, 2]}, tuple),
    ],
)
def test_an_input_that_a_strict_model_has_admitted_also_runs(
    value: dict[str, Any], taken: type
) -> None:
    """It is read as JSON both times, and the handler is given the model."""
    strict = Agent("work", input=Strict)

    @strict.handler
    async def handle(_run: Run, given: Strict) -> bool:
        [name] = value
        return isinstance(getattr(given, name), taken)

    with deployed(strict) as (deployment, lane):
        submission = lane.submit("work", value).submission
        deployment.run_until_quiet()
        settled = lane.settlement(submission)
        assert (settled.outcome, settled.result) == ("completed", True)


# Versions.


async def ask(run: Run, _value: Any) -> str:
    await run.approval("ask")
    return "old"


async def answer(_run: Run, _value: Any) -> str:
    return "new"


def test_work_of_a_version_that_is_missing_waits_visibly_and_ends_by_itself_after_a_deploy() -> (
    None
):
    """S4, S115: looked at once an hour, not in a loop; picked up at the first event after the deploy."""
    old, new = agent(ask, version="1"), agent(answer, version="2")
    with deployed(old) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        lane.approve(submission, "ask")
        deployment.deploy([new])
        wakes = deployment.advance(DAY_MS)
        assert wakes <= 30
        wait = wait_of(lane, submission)
        assert (wait.kind, wait.name) == (WaitKind.AGENT_VERSION, "work@1")
        assert lane.alarm_at_ms is not None
        assert lane.status(submission).submission.attempts == 0
        deployment.deploy([old, new])
        deployment.advance(HOUR_MS)
        assert lane.settlement(submission).result == "old"
        assert lane.alarm_at_ms is None


def test_a_request_after_the_deploy_is_event_enough() -> None:
    old, new = agent(answer, version="1"), agent(answer, version="2")
    with deployed(old) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.deploy([new])
        deployment.advance(2_000)
        assert wait_of(lane, submission).kind is WaitKind.AGENT_VERSION
        deployment.deploy([old, new])
        lane.visit()
        deployment.advance(2_000)
        assert lane.settlement(submission).result == "new"


def test_versions_stand_side_by_side_and_each_finishes_its_own() -> None:
    """S118: nothing to register, and all that was in flight settles once, with the version that accepted it."""
    old, new = agent(ask, version="1"), agent(answer, version="2")
    with deployed(old) as (deployment, lane):
        first = [lane.submit("work").submission for _ in range(5)]
        deployment.run_until_quiet()
        deployment.deploy([old, new])
        second = [lane.submit("work").submission for _ in range(5)]
        for each in first:
            deployment.run_until_quiet()
            lane.approve(each, "ask")
        deployment.run_until_quiet()
        assert [lane.settlement(each).result for each in first] == ["old"] * 5
        assert [lane.settlement(each).result for each in second] == ["new"] * 5
        assert [each.kind for each in lane.records()].count("settlement") == 10


def test_a_deploy_that_drops_a_version_leaves_its_waits_and_other_work_alone() -> None:
    """What waits for a person still does; the decision is taken, and the Run goes on when it can."""
    old, new = agent(ask, version="1"), agent(answer, version="2")
    with deployed(old) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        deployment.deploy([new])
        deployment.run_until_quiet(within_ms=1_000)
        assert wait_of(lane, submission).kind is WaitKind.APPROVAL
        assert lane.alarm_at_ms is None
        lane.approve(submission, "ask")
        deployment.advance(1_000)
        assert wait_of(lane, submission).kind is WaitKind.AGENT_VERSION


# Deadlines.


@pytest.mark.parametrize("kind", ["approval", "retry", "unknown"])
def test_the_deadline_of_a_submission_ends_whatever_it_waits_for(kind: str) -> None:
    """RUN-030: across attempts, with one alarm at the deadline, as `deadline-exceeded`."""
    world = World(charge=[ConnectionError()])

    async def handle(run: Run, _value: Any) -> None:
        if kind == "approval":
            await run.approval("ask")
        if kind == "retry":
            raise Retryable("later")
        await run.tool("charge", world.act, "charge")

    with deployed(handle, attempts_max=100) as (deployment, lane):
        submission = lane.submit("work", deadline_ms=60_000).submission
        behind = lane.submit("work").submission
        accepted_ms = deployment.now_ms
        deployment.run_until_quiet(within_ms=59_000)
        assert state_of(lane, submission) is not State.SETTLED
        if kind != "retry":
            assert lane.alarm_at_ms == accepted_ms + 60_000
        deployment.advance(accepted_ms + 60_200 - deployment.now_ms)
        settled = lane.settlement(submission)
        assert settled.failure is not None
        assert settled.failure["error_type"] == "deadline-exceeded"
        assert settled.effects_may_have_happened is (kind == "unknown")
        assert state_of(lane, behind) is not State.SETTLED
        assert lane.storage.execute("SELECT * FROM agenda") == []


def test_a_call_under_way_at_the_deadline_is_listed_as_unknown() -> None:
    """S14: a hung call does not hold the deadline up."""
    world = World(charge=[HANG])

    async def handle(run: Run, _value: Any) -> None:
        await run.tool("charge", world.act, "charge")

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work", deadline_ms=30_000).submission
        accepted_ms = deployment.now_ms
        deployment.run_until_quiet()
        settled = lane.settlement(submission)
        assert settled.failure is not None
        assert settled.failure["error_type"] == "deadline-exceeded"
        assert settled.unknown_operations == ["charge"]
        assert lane.status(submission).submission.settled_at_ms <= accepted_ms + 32_000


def test_an_uncertain_call_at_the_deadline_of_its_attempt_is_unknown() -> None:
    """`attempt_ms_max`: the attempt ends, and so the call has left no result."""
    world = World(charge=[HANG])

    async def handle(run: Run, _value: Any) -> None:
        await run.tool("charge", world.act, "charge")

    with deployed(agent(handle, attempt_ms_max=2_000)) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert state_of(lane, submission) is State.UNKNOWN
        assert world.calls["charge"] == 1


# Counting.


def test_a_failed_attempt_counts_and_a_wait_between_does_not() -> None:
    world = World(step=[Retryable("one"), "value", Retryable("two"), "value"])

    async def handle(run: Run, _value: Any) -> int:
        await run.step("before", world.act, "step")
        await run.approval("ask")
        await run.step("after", world.act, "step")
        return run.attempt

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert lane.status(submission).submission.attempts == 1
        lane.approve(submission, "ask")
        deployment.run_until_quiet()
        assert lane.status(submission).submission.attempts == 2
        assert lane.settlement(submission).result == 3


def test_an_attempt_that_advances_before_each_crash_is_never_exhausted() -> None:
    """S58: ten resets in a row, each after one more step."""

    async def handle(run: Run, _value: Any) -> str:
        for number in range(10):
            await run.step(f"step-{number}", lambda: None)
        return "done"

    with deployed(handle, interruptions_max=1, interruption_window_ms=0) as (deployment, lane):
        submission = lane.submit("work").submission
        for _ in range(9):
            lane.crash_at("step:after")
        deployment.run_until_quiet()
        assert len(lane.errors) == 9
        assert lane.settlement(submission).result == "done"


def test_exhaustion_keeps_and_lists_what_was_completed() -> None:
    """S62."""
    world = World(last=[ConnectionError("down")])

    async def handle(run: Run, _value: Any) -> None:
        await run.step("first", lambda: 1)
        await run.tool("second", lambda: 2)
        await run.tool("last", world.act, "last", effect="readonly")

    with deployed(handle, attempts_max=3) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        settled = lane.settlement(submission)
        assert settled.completed_operations == ["first", "second"]
        assert settled.failure is not None
        assert settled.failure["error_type"] == "attempts-exhausted"


def test_a_store_that_is_down_costs_no_attempt_and_no_call() -> None:
    """S40: an uncertain call is not made unless its prepared record is on disk."""
    world = World()

    async def handle(run: Run, _value: Any) -> Any:
        await run.step("before", lane_breaks)
        return await run.tool("charge", world.act, "charge")

    def lane_breaks() -> None:
        if not world.calls["broken"]:
            world.calls["broken"] += 1
            deployment.loop.call_later(5, lane.mend_storage)
            lane.break_storage(StorageUnavailable("Network connection lost."))

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == "charge done"
        assert world.calls["charge"] == 1
        assert lane.status(submission).submission.attempts == 0


# Quarantine.


def failing_beside_a_wait(world: World, **terms: Any) -> Handler:
    """A handler whose idempotent call fails while its approval is open."""

    async def handle(run: Run, _value: Any) -> list[Any]:
        decision, value = await asyncio.gather(
            run.approval("ask", **terms),
            run.tool("call", world.act, "call", effect="idempotent"),
        )
        return [value, decision.approved]

    return handle


def test_quarantine_with_an_open_wait_is_released_into_that_wait() -> None:
    """The wait is still there, keeps its answer, and is asked for once."""
    world = World(call=[ConnectionError("down")])
    work = agent(failing_beside_a_wait(world), on_exhausted="quarantine")
    with deployed(work, attempts_max=1) as (deployment, lane):
        submission = lane.submit("work").submission
        behind = lane.submit("work").submission
        deployment.run_until_quiet()
        assert state_of(lane, submission) is State.QUARANTINED
        assert wait_of(lane, submission).kind is WaitKind.OPERATOR
        assert wait_of(lane, behind).kind is WaitKind.HEAD
        assert lane.alarm_at_ms is None
        lane.approve(submission, "ask")
        deployment.run_until_quiet()
        assert state_of(lane, submission) is State.QUARANTINED
        world.script("call", "value")
        lane.retry(submission)
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == ["value", True]
        assert kinds(lane, submission).count("approval-requested") == 1


def test_quarantine_with_an_open_wait_that_is_undecided_is_suspended_after_the_release() -> None:
    """And its expiry, which came due meanwhile or not, ends it as ever."""
    world = World(call=[ConnectionError("down")])
    handle = failing_beside_a_wait(world, expires_in_s=86_400)
    with deployed(agent(handle, on_exhausted="quarantine"), attempts_max=1) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet(within_ms=HOUR_MS)
        assert state_of(lane, submission) is State.QUARANTINED
        world.script("call", "value")
        lane.retry(submission)
        deployment.run_until_quiet(within_ms=HOUR_MS)
        assert state_of(lane, submission) is State.SUSPENDED
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == ["value", False]


def test_a_wait_that_comes_due_in_quarantine_wakes_nobody_and_is_found_expired() -> None:
    """Whatever is due of a quarantined submission, only an operator can move it: no alarm, no spin."""
    world = World(call=[ConnectionError("down")])
    handle = failing_beside_a_wait(world, expires_in_s=3_600)
    with deployed(agent(handle, on_exhausted="quarantine"), attempts_max=1) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert deployment.advance(DAY_MS) == 0
        with refused(RefusalCode.DECISION_CONFLICT):
            lane.approve(submission, "ask")
        world.script("call", "value")
        lane.retry(submission)
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == ["value", False]


@pytest.mark.parametrize("keeps", [True, False])
def test_the_claim_is_on_disk_before_the_handler_runs(keeps: bool) -> None:  # noqa: FBT001
    """A handler that takes the process down is counted, whatever was not yet synced."""

    async def handle(_run: Run, _value: Any) -> None:
        lane.storage.die(keeps_unsynced=keeps)
        raise StorageUnavailable("gone")

    with deployed(handle, interruptions_max=3, interruption_window_ms=1_000) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        failure = lane.settlement(submission).failure
        assert failure is not None
        assert failure["error_type"] == "attempts-exhausted"
        assert "3 attempts in a row" in failure["message"]


def test_only_what_is_quarantined_can_be_retried() -> None:
    """AD-3, AO-5."""
    with deployed(ask) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        generation = lane.generation()
        with refused(RefusalCode.NOT_WAITING):
            lane.retry(submission)
        assert lane.generation() == generation
        lane.approve(submission, "ask")
        deployment.run_until_quiet()
        with refused(RefusalCode.ALREADY_SETTLED):
            lane.retry(submission)


@pytest.mark.parametrize("ends", ["returns", "retries"])
def test_a_task_that_the_handler_has_left_behind_begins_nothing(ends: str) -> None:
    """Its attempt has ended: what it did now would be done for nobody, and recorded nowhere."""
    world = World()
    left: list[asyncio.Task[Any]] = []

    async def later(run: Run) -> None:
        await asyncio.sleep(5)
        await run.step("late", world.act, "late")

    async def handle(run: Run, value: Any) -> Any:
        if not left:
            left.append(asyncio.create_task(later(run)))
            if ends == "retries":
                raise Retryable("once more")
        return value

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work", 1).submission
        deployment.run_until_quiet()
        pass_time(deployment, 10_000)
        assert world.calls["late"] == 0
        [task] = left
        assert task.done()
        assert task.exception() is not None
        assert lane.settlement(submission).result == 1


def test_an_old_attempt_that_lives_on_writes_nothing_any_more() -> None:
    """S32, S34, S35, DRT's fencing: its next write finds another epoch, and its late result is nobody's."""
    world = World()
    gate = asyncio.Event()
    attempts: list[int] = []

    async def handle(run: Run, _value: Any) -> Any:
        attempts.append(1)
        if len(attempts) == 1:
            await gate.wait()
            await run.step("late", world.act, "late")
            return await run.tool("charge", world.act, "charge")
        return await run.step("fresh", world.act, "fresh")

    handle_: Handler = handle
    with deployed(handle_) as (deployment, lane):
        submission = lane.submit("work").submission
        old = begin(deployment, lane)
        lane.forget()
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == "fresh done"
        log = lane.records()
        gate.set()
        deployment.run(old)
        assert lane.records() == log
        assert world.calls["charge"] == 0
