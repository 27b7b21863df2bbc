"""signal: waits for a named signal from outside, for ever or for a time."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from quiesce import Agent, Run


class Wanted(BaseModel):
    """Which signal, and for how long."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(pattern="^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}$")]
    timeout_ms: Annotated[int, Field(gt=0, le=366 * 86_400_000)] | None = None


class Came(BaseModel):
    """What came, or that nothing did."""

    payload: Any
    timed_out: bool


signal = Agent("signal", input=Wanted, output=Came)


@signal.handler
async def handle(run: Run, wanted: Wanted) -> Came:
    """Wait once."""
    received = await run.signal(wanted.name, timeout_ms=wanted.timeout_ms)
    return Came(payload=received.payload, timed_out=received.timed_out)
