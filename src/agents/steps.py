"""steps: a number of named steps, each of which calls an outside server if it is given one."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from agents.outside import get
from quiesce import Agent, Run


class Steps(BaseModel):
    """How many steps to take, and whom to tell."""

    model_config = ConfigDict(extra="forbid")

    count: Annotated[int, Field(ge=0, le=5_000)]
    url: Annotated[str, Field(pattern="^https?://")] | None = None


class Done(BaseModel):
    """How many steps were taken."""

    done: int


steps = Agent("steps", input=Steps, output=Done)


@steps.handler
async def handle(run: Run, wanted: Steps) -> Done:
    """Take every step once: a step that is recorded is not taken again."""

    async def take(number: int) -> int:
        if wanted.url is not None:
            separator = "&" if "?" in wanted.url else "?"
            await get(f"{wanted.url}{separator}step={number}")
        return number

    for number in range(wanted.count):
        await run.step(f"step-{number}", take, number)
    return Done(done=wanted.count)
