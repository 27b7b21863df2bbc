"""charge: one call that must not happen twice, to an outside server."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from agents.outside import post
from quiesce import Agent, Run, ToolFailed


class Charge(BaseModel):
    """How much to charge, and where."""

    model_config = ConfigDict(extra="forbid")

    url: Annotated[str, Field(pattern="^https?://")]
    amount: Annotated[int, Field(ge=0)]


class Charged(BaseModel):
    """The reference that the server gave."""

    reference: Any


charge = Agent("charge", input=Charge, output=Charged)


async def make_charge(url: str, amount: int) -> Any:
    """POST the amount; a 4xx answer is a result, and anything else that is no success proves nothing."""
    status, answer = await post(url, {"amount": amount})
    if 400 <= status < 500:  # noqa: PLR2004 - the client errors of RFC 9110: the server did not do it
        raise ToolFailed(f"the server refused the charge with {status}")
    if not 200 <= status < 300:  # noqa: PLR2004 - the successes of RFC 9110
        raise RuntimeError(f"the server answered the charge with {status}")
    return answer


@charge.handler
async def handle(run: Run, wanted: Charge) -> Charged:
    """Charge once. If the call leaves no result, a person has to say what became of it."""
    answer = await run.tool("charge", make_charge, wanted.url, wanted.amount)
    reference = answer.get("reference", answer) if isinstance(answer, dict) else answer
    return Charged(reference=reference)
