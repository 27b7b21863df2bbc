"""A client for deployments of Quiesce, blocking and for asyncio, over one core that does no input or output.

    with Client() as quiesce:
        receipt = quiesce.submit("chat-1", "echo", {"hello": "world"})
        settlement = quiesce.wait("chat-1", receipt.submission)

It needs httpx: the extra `client`. No Worker imports it.
"""

from quiesce.client.awaiting import AsyncClient
from quiesce.client.blocking import Client
from quiesce.client.errors import (
    BadArgument,
    QuiesceError,
    Refused,
    StillOpen,
    Unreachable,
    Unreadable,
)
from quiesce.client.exchange import Terms
from quiesce.client.results import (
    AgentDescription,
    BrokenLaw,
    Cost,
    Explanation,
    Failure,
    Generation,
    Health,
    Lane,
    Maintenance,
    OpenOperation,
    Page,
    Progress,
    Receipt,
    Record,
    Settlement,
    Status,
    Tombstone,
    Verification,
    Wait,
)
from quiesce.client.streams import Event

__all__ = [
    "AgentDescription",
    "AsyncClient",
    "BadArgument",
    "BrokenLaw",
    "Client",
    "Cost",
    "Event",
    "Explanation",
    "Failure",
    "Generation",
    "Health",
    "Lane",
    "Maintenance",
    "OpenOperation",
    "Page",
    "Progress",
    "QuiesceError",
    "Receipt",
    "Record",
    "Refused",
    "Settlement",
    "Status",
    "StillOpen",
    "Terms",
    "Tombstone",
    "Unreachable",
    "Unreadable",
    "Verification",
    "Wait",
]
