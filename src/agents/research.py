"""research: three children in parallel, joined into one answer."""

import asyncio
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from quiesce import Agent, Run

SOURCES = ("archive", "catalogue", "register")


class Topic(BaseModel):
    """What to look into."""

    model_config = ConfigDict(extra="forbid")

    topic: Annotated[str, Field(min_length=1, max_length=1_000)]


class Findings(BaseModel):
    """What each source has said; a source that failed has said nothing."""

    findings: dict[str, Any]


research = Agent("research", input=Topic, output=Findings)


@research.handler
async def handle(run: Run, asked: Topic) -> Findings:
    """Ask every source at once, each in a conversation of its own."""
    answers = await asyncio.gather(
        *(
            run.delegate("echo", {"source": source, "topic": asked.topic}, name=source)
            for source in SOURCES
        )
    )
    return Findings(
        findings={source: answer.result for source, answer in zip(SOURCES, answers, strict=True)}
    )
