"""How a settlement is written for those who are told of it: in answers, in events and in callbacks alike."""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from quiesce.generation_record import Cost
from quiesce.settlement import Settlement

# The published prices of the platform in dollars: per wake-up, per row read, per row written, and per
# millisecond of an Object's 128 MB. https://developers.cloudflare.com/durable-objects/platform/pricing/
USD_PER_WAKE = 0.15e-6
USD_PER_ROW_READ = 0.001e-6
USD_PER_ROW_WRITTEN = 1.0e-6
USD_PER_ACTIVE_MS = 12.50e-6 * 0.125 / 1_000


def timestamp(at_ms: int | None) -> str | None:
    """Write an instant as RFC 3339 in UTC with milliseconds."""
    if at_ms is None:
        return None
    seconds, milliseconds = divmod(at_ms, 1_000)
    return f"{_to_the_second(seconds)}.{milliseconds:03}Z"


@lru_cache(maxsize=16)
def _to_the_second(seconds: int) -> str:
    """Write an instant without its fraction; what happens in one second asks for it over and over."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def cost_body(cost: Cost) -> dict[str, Any]:
    """Write a cost with the dollars that it comes to at the published prices."""
    usd = (
        cost.wakes * USD_PER_WAKE
        + cost.rows_read * USD_PER_ROW_READ
        + cost.rows_written * USD_PER_ROW_WRITTEN
        + cost.active_ms * USD_PER_ACTIVE_MS
    )
    return {**cost.model_dump(), "usd": round(usd, 12)}


def settlement_body(conversation: str, settled: Settlement) -> dict[str, Any]:
    """Write a settlement."""
    recorded = settled.recorded
    body: dict[str, Any] = {
        "conversation": conversation,
        "submission": settled.submission.id,
        "outcome": recorded.outcome.value,
        "result": recorded.result,
        "failure": recorded.failure,
        "settled_at": timestamp(settled.settled_at_ms),
        "cost": cost_body(Cost(**recorded.cost)),
    }
    if recorded.effects_may_have_happened:
        body["effects_may_have_happened"] = True
    if recorded.completed_operations:
        body["completed_operations"] = recorded.completed_operations
    return body
