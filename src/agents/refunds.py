"""refunds: the worked example. A step that loads, a person who decides, a call that must not happen twice."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from quiesce import Agent, Run

APPROVAL_FROM_CENTS = 10_000
DAY_S = 86_400


class Refund(BaseModel):
    """Which order to refund, and how much."""

    model_config = ConfigDict(extra="forbid")

    order: Annotated[str, Field(min_length=1, max_length=100)]
    cents: Annotated[int, Field(gt=0)]


class Outcome(BaseModel):
    """Whether it was refunded, and under which reference."""

    refunded: bool
    reference: str | None = None


refunds = Agent("refunds", input=Refund, output=Outcome)


async def load_order(order: str) -> dict[str, str]:
    """Stand for a read of the shop's database."""
    return {"order": order, "payment": f"pay_{order}"}


async def charge_back(payment: str, cents: int) -> str:
    """Stand for the payment provider's API."""
    return f"refund_{payment}_{cents}"


@refunds.handler
async def handle(run: Run, refund: Refund) -> Outcome:
    """Refund an order; a large refund waits for a person, for at most a day."""
    order = await run.step("load-order", load_order, refund.order)
    if refund.cents > APPROVAL_FROM_CENTS:
        decision = await run.approval(
            "large-refund", reason=f"{refund.cents} cents", expires_in_s=DAY_S
        )
        if not decision.approved:
            return Outcome(refunded=False)
    reference = await run.tool("charge-back", charge_back, order["payment"], refund.cents)
    return Outcome(refunded=True, reference=reference)
