"""parent: delegates its input to another agent, and returns how that child has settled."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from quiesce import Agent, Run


class Delegation(BaseModel):
    """Which agent works on what."""

    model_config = ConfigDict(extra="forbid")

    child: Annotated[str, Field(min_length=1, max_length=100)]
    input: Any = None


class Settled(BaseModel):
    """How the child has settled."""

    outcome: str
    result: Any


parent = Agent("parent", input=Delegation, output=Settled)


@parent.handler
async def handle(run: Run, wanted: Delegation) -> Settled:
    """Wait for one child, at no cost."""
    child = await run.delegate(wanted.child, wanted.input, name="child")
    return Settled(outcome=child.outcome, result=child.result)
