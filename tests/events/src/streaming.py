"""The Worker of the event tests: the deployment's own, with an agent that shows what it does."""

import asyncio
from typing import Any

from pydantic import BaseModel, ConfigDict

from agents import REGISTRY as DEPLOYED
from quiesce import Agent, Registry, Run, conversation_object, router


class Talk(BaseModel):
    """How much to show, how long to take for each, and whether to raise in the end."""

    model_config = ConfigDict(extra="forbid")

    count: int
    pause_ms: int = 0
    size: int = 0
    raises: bool = False


talker = Agent("talker", input=Talk, output=dict)


@talker.handler
async def talk(run: Run, wanted: Talk) -> dict[str, Any]:
    """Show a progress before each step."""

    async def take(number: int) -> dict[str, Any]:
        await asyncio.sleep(wanted.pause_ms / 1_000)
        return {"number": number, "filling": "x" * wanted.size}

    for number in range(wanted.count):
        run.progress({"about": number})
        await run.step(f"step-{number}", take, number)
    if wanted.raises:
        raise RuntimeError("a step was asked to raise")
    return {"talked": wanted.count}


REGISTRY = Registry([*DEPLOYED, talker])


class ConversationObject(conversation_object.ConversationObject):
    """A conversation that knows the talker."""

    agents = REGISTRY


class Default(router.Worker):
    """The fetch handler of the deployment."""

    agents = REGISTRY
