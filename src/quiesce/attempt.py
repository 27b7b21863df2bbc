"""One attempt: the handler under a hard deadline, and its outcome as a value.

1. Whatever the handler does, an attempt ends with one value: finished, failed, suspended, with a call left open,
   aborted or interrupted.
2. Only what an application declares retryable is retried. An exception of the platform is an interruption: it
   says nothing about the work, and costs no attempt.
3. One cancel, one second of grace. A handler that goes on regardless is stuck, and its Object has to end.
4. A cancellation that nobody asked for is an interruption.
5. What a group has raised is what its branches have raised: a failure that is final counts for more than one that
   may be retried, and either for more than a branch that only waited or was cancelled.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

from quiesce.agent import Agent, Failed, Retryable
from quiesce.diagnostics import causes_of, members_of, type_of, words_of
from quiesce.errors import FailureType, IncarnationEnded
from quiesce.fence import Fence, Unwind, UnwindReason
from quiesce.ids import canonical_json, parse_json
from quiesce.lane import Lane
from quiesce.run import Run

GRACE_S = 1.0
ENDS = (SystemExit, KeyboardInterrupt, GeneratorExit)
"""What ends a process or a coroutine, whoever raises it: no failure of the work."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The handler returned a value that can be stored."""

    result: Any


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """The handler failed; `is_retryable` only if the application, its tool or the deadline says so."""

    error_type: str
    message: str
    is_retryable: bool


@dataclass(frozen=True, slots=True)
class Suspended:
    """It waits for something that is undecided; `may_go_on` if another branch has got further meanwhile."""

    may_go_on: bool = False


@dataclass(frozen=True, slots=True)
class LeftOpen:
    """A call that could have its effect twice left no result: recovery asks about it, and no attempt is spent."""

    message: str


@dataclass(frozen=True, slots=True)
class AbortedAttempt:
    """Somebody asked for its abort while it ran."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The attempt ended for a reason that is not the application's."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fenced:
    """The submission belongs to another attempt; nothing of this one may be written."""


type AttemptOutcome = (
    Finished | FailedAttempt | Suspended | LeftOpen | AbortedAttempt | Interrupted | Fenced
)


@dataclass(frozen=True, slots=True)
class Ended:
    """How an attempt ended, and whether its handler ignored its cancellation and still runs."""

    outcome: AttemptOutcome
    is_stuck: bool = False


async def attempt(
    lane: Lane, agent: Agent, fence: Fence, run: Run, submitted: Any, *, limit_ms: int
) -> Ended:
    """Run the agent's handler once, for at most `limit_ms`, and say how it ended."""
    try:
        return await _timed(lane, agent, fence, run, submitted, limit_ms=limit_ms)
    finally:
        # A task that the handler has left behind finds nothing that it may begin.
        fence.unwind(UnwindReason.FENCED, "the attempt has ended")


async def _timed(
    lane: Lane, agent: Agent, fence: Fence, run: Run, submitted: Any, *, limit_ms: int
) -> Ended:
    loop = asyncio.get_running_loop()
    told: asyncio.Future[None] = asyncio.Future(loop=loop)

    def tell() -> None:
        fence.unwind(UnwindReason.ABORTED, "somebody asked for the abort")
        if not told.done():
            told.set_result(None)

    lane.running[fence.submission] = tell
    # Started at once: a handler that never waits has ended when this returns, without a turn of the event loop.
    task = asyncio.Task(_handle(lane, agent, fence, run, submitted), loop=loop, eager_start=True)
    try:
        if not task.done():
            ends: set[asyncio.Future[Any]] = {task, told}
            await asyncio.wait(ends, timeout=limit_ms / 1_000, return_when="FIRST_COMPLETED")
    finally:
        lane.running.pop(fence.submission, None)
    if task.done():
        if task.cancelled():
            return Ended(_unwound(fence, Interrupted("the attempt cancelled itself")))
        return Ended(task.result())
    is_late = not told.done()
    task.cancel()
    run.cancel_calls()
    left = {task, *run.calls_under_way()}
    _, stuck = await asyncio.wait(left, timeout=GRACE_S)
    if is_late and fence.unwound is None:
        message = f"the attempt did not end within {limit_ms} ms"
        outcome = FailedAttempt(FailureType.ATTEMPT_DEADLINE, message, is_retryable=True)
        return Ended(outcome, is_stuck=bool(stuck))
    return Ended(_unwound(fence, Interrupted("cancelled")), is_stuck=bool(stuck))


async def _handle(
    lane: Lane, agent: Agent, fence: Fence, run: Run, submitted: Any
) -> AttemptOutcome:
    outcome: AttemptOutcome
    try:
        value = agent.input_adapter.validate_json(canonical_json(submitted))
        result = await agent.run_handler(run, value)
        outcome = _finished(lane, agent, result)
    except IncarnationEnded:
        raise
    except BaseException as error:  # noqa: BLE001 - the one place where an application's error becomes a value
        outcome = _raised(lane, error)
    is_final = isinstance(outcome, FailedAttempt) and not outcome.is_retryable
    if fence.unwound is None and (is_final or isinstance(outcome, Finished)):
        # It has come to its end: what it does not wait for any more, as after a timeout of its own, is given up.
        run.give_up_calls()
    unseen = [error for error in await run.finish_calls() if isinstance(error, Retryable)]
    if unseen and fence.unwound is not None:
        # The branch that made the call was gone when it failed; what it asks for, another attempt, holds.
        outcome = _failed(lane, unseen[0])
    return _unwound(fence, outcome)


def _unwound(fence: Fence, outcome: AttemptOutcome) -> AttemptOutcome:
    """Let what ended the attempt from inside count for more than what the handler made of it."""
    if fence.unwound is None:
        return outcome
    detail = fence.unwound.detail
    # Its traceback holds the handler's frames, which hold the Run and all that its journal has read: until the
    # collector of cycles comes, which counts objects and not their bytes.
    fence.unwound.__traceback__ = None
    match fence.unwound.reason:
        case UnwindReason.SUSPENDED:
            # A failure of another branch is not hidden by a branch that waits.
            if isinstance(outcome, FailedAttempt):
                return outcome
            return Suspended(may_go_on=fence.has_recorded_late)
        case UnwindReason.RETRY:
            return FailedAttempt("tool-raised", detail, is_retryable=True)
        case UnwindReason.UNCERTAIN:
            # Another branch may have failed retryably beside it, and that does spend an attempt.
            if isinstance(outcome, FailedAttempt) and outcome.is_retryable:
                return outcome
            return LeftOpen(detail)
        case UnwindReason.ABORTED:
            return AbortedAttempt()
        case UnwindReason.INTERRUPTED:
            return Interrupted(detail)
        case UnwindReason.FENCED:
            return Fenced()


def _finished(lane: Lane, agent: Agent, result: Any) -> AttemptOutcome:
    adapter = agent.output_adapter
    text = canonical_json(adapter.dump_python(adapter.validate_python(result), mode="json"))
    size, maximum = len(text.encode()), lane.settings.value_bytes_max
    if size > maximum:
        message = f"the result has {size} bytes, VALUE_BYTES_MAX allows {maximum}"
        return FailedAttempt(FailureType.RESULT_TOO_LARGE, message, is_retryable=False)
    return Finished(parse_json(text))


def _raised(lane: Lane, error: BaseException) -> AttemptOutcome:
    """Say what an attempt came to whose handler raised: of a group, what the first of its gravest has said."""
    members = members_of(error)
    if any(isinstance(each, ENDS) for each in members):
        return Interrupted(f"the handler raised {type_of(error)}")
    failures = [each for each in members if not isinstance(each, Unwind | asyncio.CancelledError)]
    if not failures:
        return Interrupted("the attempt was cancelled, and nobody had asked for that")
    final = [each for each in failures if not isinstance(each, Retryable)]
    declared = [each for each in final if isinstance(each, Failed)]
    return _failed(lane, (declared or final or failures)[0])


def _failed(lane: Lane, error: BaseException) -> AttemptOutcome:
    message = words_of(error)
    if isinstance(error, Retryable | Failed):
        is_retryable = isinstance(error, Retryable)
        return FailedAttempt(type_of(error), message, is_retryable=is_retryable)
    if any(map(lane.is_platform_error, causes_of(error))):
        return Interrupted(message)
    return FailedAttempt(type_of(error), message, is_retryable=False)
