"""sleep: waits for a time to pass, holding one alarm and nothing else."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from quiesce import Agent, Run


class Sleep(BaseModel):
    """How long to sleep."""

    model_config = ConfigDict(extra="forbid")

    ms: Annotated[int, Field(ge=0, le=366 * 86_400_000)]


class Slept(BaseModel):
    """How long it was."""

    slept_ms: int


sleep = Agent("sleep", input=Sleep, output=Slept)


@sleep.handler
async def handle(run: Run, wanted: Sleep) -> Slept:
    """Sleep once."""
    return Slept(slept_ms=await run.sleep("nap", delay_ms=wanted.ms))
