"""fail: every way in which a handler can go wrong, for tests and for the curious."""

import asyncio
import os
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from quiesce import Agent, Failed, Retryable, Run

OVERSIZE_BYTES = 2_000_000
EXIT_CODE = 70


class Fail(BaseModel):
    """How to fail, and how often before succeeding; without `times`, always."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["retryable", "final", "crash", "hang", "oversize"]
    times: Annotated[int, Field(ge=0, le=100)] | None = None


class Survived(BaseModel):
    """The attempt that succeeded, counting from 1."""

    attempt: int


fail = Agent("fail", input=Fail, output=Survived | str)


@fail.handler
async def handle(run: Run, wanted: Fail) -> Survived | str:
    """Fail as asked, until it has been asked for often enough."""
    if wanted.times is not None and run.attempt > wanted.times:
        return Survived(attempt=run.attempt)
    match wanted.kind:
        case "retryable":
            message = "this attempt was asked to fail"
            raise Retryable(message, error_type="asked-to-fail")
        case "final":
            message = "this submission was asked to fail"
            raise Failed(message, error_type="asked-to-fail")
        case "crash":
            os._exit(EXIT_CODE)
        case "hang":
            await _hang()
        case "oversize":
            return "x" * OVERSIZE_BYTES
    raise AssertionError(wanted.kind)


async def _hang() -> None:
    """Never return, and ignore being cancelled."""
    while True:
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            continue
