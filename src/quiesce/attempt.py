"""One attempt: the handler under a hard deadline, and its outcome as a value.

1. Whatever the handler does, an attempt ends with one value: finished, failed, timed out or interrupted.
2. Only what an application declares retryable is retried. An exception of the platform is an interruption: it
   says nothing about the work, and costs no attempt.
3. One cancel, one second of grace. A handler that goes on regardless is reported as stuck, and the Object ends.
4. A cancellation that nobody asked for is an interruption.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

from quiesce.agent import Agent, Failed, Retryable
from quiesce.errors import FailureType
from quiesce.ids import canonical_json, parse_json
from quiesce.lane import Lane
from quiesce.run import Run, Unwind

GRACE_S = 1.0
MESSAGE_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Finished:
    """The handler returned a value that can be stored."""

    result: Any


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """The handler failed; `is_retryable` only if the application or the deadline says so."""

    error_type: str
    message: str
    is_retryable: bool
    is_stuck: bool = False
    """The handler ignored its cancellation and still runs."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The attempt ended for a reason that is not the application's."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fenced:
    """The submission belongs to another attempt; nothing of this one may be written."""


type AttemptOutcome = Finished | FailedAttempt | Interrupted | Fenced


async def attempt(lane: Lane, agent: Agent, run: Run, submitted: Any) -> AttemptOutcome:
    """Run the agent's handler once, and say how it ended."""
    limit_ms = min(lane.settings.attempt_ms_max, agent.attempt_ms_max or HANDLER_UNLIMITED_MS)
    task = asyncio.create_task(_handle(lane, agent, run, submitted))
    done, _ = await asyncio.wait({task}, timeout=limit_ms / 1_000)
    if done:
        return task.result()
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=GRACE_S)
    return FailedAttempt(
        FailureType.ATTEMPT_DEADLINE,
        f"the attempt did not end within {limit_ms} ms",
        is_retryable=True,
        is_stuck=not done,
    )


HANDLER_UNLIMITED_MS = 900_000


async def _handle(lane: Lane, agent: Agent, run: Run, submitted: Any) -> AttemptOutcome:
    try:
        value = agent.input_adapter.validate_python(submitted)
        result = await agent.run_handler(run, value)
        outcome = _finished(lane, agent, result)
    except Unwind:
        outcome = Interrupted("the attempt was unwound")
    except asyncio.CancelledError:
        outcome = Interrupted("the attempt was cancelled")
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        outcome = Interrupted(f"the handler raised {type(error).__name__}")
    except Exception as error:  # noqa: BLE001 - the one place where an application's error becomes a value
        outcome = _failed(lane, error)
    if run.unwound is None:
        return outcome
    if run.unwound.reason == "fenced":
        return Fenced()
    return Interrupted(run.unwound.detail)


def _finished(lane: Lane, agent: Agent, result: Any) -> AttemptOutcome:
    adapter = agent.output_adapter
    text = canonical_json(adapter.dump_python(adapter.validate_python(result), mode="json"))
    size, maximum = len(text.encode()), lane.settings.value_bytes_max
    if size > maximum:
        message = f"the result has {size} bytes, VALUE_BYTES_MAX allows {maximum}"
        return FailedAttempt(FailureType.RESULT_TOO_LARGE, message, is_retryable=False)
    return Finished(parse_json(text))


def _failed(lane: Lane, error: Exception) -> AttemptOutcome:
    message = str(error)[:MESSAGE_MAX]
    match error:
        case Retryable():
            return FailedAttempt(error.error_type, message, is_retryable=True)
        case Failed():
            return FailedAttempt(error.error_type, message, is_retryable=False)
    if lane.is_platform_error(error):
        return Interrupted(message)
    return FailedAttempt(type(error).__name__, message, is_retryable=False)
