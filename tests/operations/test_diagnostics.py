"""Diagnostics that cannot be written: whatever an exception says of itself, an attempt ends as it should.

BD-1: an exception whose text raises, is no text, or holds half of a character is a failure like any other.
"""

import asyncio
from typing import Any

import pytest

from operations.ground import World, agent, deployed, state_of
from quiesce import Failed, Retryable, Run, ToolFailed, UncertainCall
from quiesce.states import State


class Mute(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Liar(Exception):
    """Its text is no text."""

    def __str__(self) -> str:
        return 7  # type: ignore[return-value]  # noqa: PLE0307 - this is the case


class MuteFailure(ToolFailed):
    """A failure that its agent expects, without a text."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Own(BaseException):
    """A signal of the application's own, which `except Exception` does not catch."""


class Uncaused(Exception):
    """What it was raised from cannot be had."""

    @property
    def __cause__(self) -> None:  # type: ignore[override]
        raise RuntimeError("no cause")


class Untold(ExceptionGroup[Exception]):
    """What it holds cannot be had."""

    @property
    def exceptions(self) -> tuple[Exception, ...]:
        raise RuntimeError("nothing")


class Empty(ExceptionGroup[Exception]):
    """It says that it holds nothing."""

    @property
    def exceptions(self) -> tuple[Exception, ...]:
        return ()


class Endless(ExceptionGroup[Exception]):
    """It says that it holds itself."""

    @property
    def exceptions(self) -> tuple[Exception, ...]:
        return (self,)


class Words(str):
    """A text of the application's own, which cannot be cut."""

    __slots__ = ()

    def __getitem__(self, _part: Any) -> Any:
        return 7


class Uncut(Exception):
    """Its text and its type are texts of the application's own."""

    error_type = Words("own")

    def __str__(self) -> str:
        return Words("own")


HOSTILE = {
    "an-untold-group": lambda: Untold("group", [ValueError("one")]),
    "an-empty-group": lambda: Empty("group", [ValueError("one")]),
    "an-endless-group": lambda: Endless("group", [ValueError("one")]),
    "a-text-of-its-own": lambda: Uncut("own"),
    "of-its-own-kind": Own,
    "without-a-cause": Uncaused,
    "mute": Mute,
    "liar": Liar,
    "half-a-character": lambda: ValueError("\ud800"),
    "final-half": lambda: Failed("\ud800"),
    "a-group": lambda: ExceptionGroup("both", [ValueError("one"), Mute()]),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_failure_that_cannot_be_written_settles_failed_after_one_run(kind: str) -> None:
    runs: list[int] = []

    async def handle(_run: Run, _value: Any) -> None:
        runs.append(1)
        error = HOSTILE[kind]()
        raise error

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        behind = lane.submit("work").submission
        deployment.run_until_quiet()
        for each in (submission, behind):
            settled = lane.settlement(each)
            assert settled.outcome == "failed"
            assert settled.failure is not None
            assert settled.failure["error_type"] != "attempts-exhausted"
        assert len(runs) == 2
        assert lane.errors == []


@pytest.mark.parametrize("kind", HOSTILE)
def test_an_uncertain_call_that_fails_so_is_unknown(kind: str) -> None:
    async def handle(run: Run, _value: Any) -> None:
        async def call() -> None:
            error = HOSTILE[kind]()
            raise error

        await run.tool("charge", call)

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert state_of(lane, submission) is State.UNKNOWN
        assert lane.errors == []


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_reconciler_that_fails_so_proves_nothing(kind: str) -> None:
    world = World(charge=[ConnectionError()])

    async def handle(run: Run, _value: Any) -> None:
        await run.tool("charge", world.act, "charge")

    made = agent(handle)

    @made.reconciler("charge")
    async def _(_call: UncertainCall) -> Any:
        error = HOSTILE[kind]()
        raise error

    with deployed(made) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert state_of(lane, submission) is State.UNKNOWN
        assert lane.errors == []
        lane.resolve(submission, "charge", "failed")
        deployment.run_until_quiet()
        assert lane.settlement(submission).outcome == "failed"


def test_a_failure_that_is_a_result_is_recorded_without_its_text() -> None:
    async def handle(run: Run, _value: Any) -> str:
        async def call() -> None:
            raise MuteFailure("x")

        try:
            await run.tool("charge", call)
        except ToolFailed:
            return "told"
        return "not told"

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == "told"


@pytest.mark.parametrize("is_retryable", [False, True])
def test_a_branch_of_a_group_that_fails_is_a_failure_and_no_interruption(
    is_retryable: bool,  # noqa: FBT001 - a case of the table
) -> None:
    """S64, S105: what `asyncio.TaskGroup` raises is what its branch raised."""
    runs: list[int] = []

    async def handle(_run: Run, _value: Any) -> str:
        async def branch() -> None:
            runs.append(1)
            if not is_retryable:
                raise ValueError("a plain mistake")
            if len(runs) == 1:
                raise Retryable("later")

        async with asyncio.TaskGroup() as group:
            group.create_task(branch())
        return "done"

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        settled = lane.settlement(submission)
        if is_retryable:
            assert settled.result == "done"
            assert lane.status(submission).submission.attempts == 1
        else:
            assert settled.outcome == "failed"
            assert len(runs) == 1
            assert "a plain mistake" in str(settled.failure)


def test_a_branch_that_fails_is_not_hidden_by_one_that_waits() -> None:
    async def handle(run: Run, _value: Any) -> None:
        async def fail() -> None:
            raise ValueError("a plain mistake")

        async with asyncio.TaskGroup() as group:
            group.create_task(run.approval("ask"))
            group.create_task(fail())

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert lane.settlement(submission).failure == {
            "error_type": "ValueError",
            "message": "a plain mistake",
        }


def test_a_final_failure_of_a_group_counts_for_more_than_one_that_may_be_retried() -> None:
    async def handle(_run: Run, _value: Any) -> None:
        raise ExceptionGroup("both", [Retryable("later"), ExceptionGroup("in", [Failed("never")])])

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert lane.settlement(submission).failure == {"error_type": "failed", "message": "never"}


def test_a_tool_failure_that_nobody_caught_keeps_its_own_type() -> None:
    async def handle(run: Run, _value: Any) -> None:
        async def call() -> None:
            raise ToolFailed("no funds", error_type="declined")

        await run.tool("charge", call)

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert lane.settlement(submission).failure == {
            "error_type": "declined",
            "message": "no funds",
        }
