"""approval: asks a person a question, and returns the answer."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from quiesce import Agent, Run


class Question(BaseModel):
    """What to ask."""

    model_config = ConfigDict(extra="forbid")

    question: Annotated[str, Field(min_length=1, max_length=1_000)]


class Answer(BaseModel):
    """What was decided, and by whom."""

    approved: bool
    decided_by: str | None


approval = Agent("approval", input=Question, output=Answer)


@approval.handler
async def handle(run: Run, asked: Question) -> Answer:
    """Wait for a person, at no cost, for as long as that takes."""
    decision = await run.approval("question", reason=asked.question)
    return Answer(approved=decision.approved, decided_by=decision.decided_by)
