"""What is measured: Quiesce as it is deployed, Quiesce with counters, and the two minimal Objects.

The counts come from one server, the times from another: the first has a clock that can be moved and an entry of
its own that keeps a journal, and neither may stand in the way of a time. All times of a run come from one server,
because only those can be compared.
"""

import hashlib
import json
from pathlib import Path

from workshop import serving

BENCH = Path(__file__).resolve().parents[1]
TOKEN = "bench"  # noqa: S105 - the token of a server that ends with this run
AUTHORIZATION = {"authorization": f"Bearer {TOKEN}"}
CLASS = "ConversationObject"


def _bindings() -> dict[str, str]:
    roles = ["submit", "observe", "decide", "operate"]
    tokens = {hashlib.sha256(TOKEN.encode()).hexdigest(): {"principal": "bench", "roles": roles}}
    return {"QUIESCE_TOKENS": json.dumps(tokens)}


def deployed() -> serving.Worker:
    """Quiesce exactly as wrangler.toml deploys it."""
    worker = serving.deployed_worker()
    worker["bindings"] = _bindings()
    return worker


def counted() -> serving.Worker:
    """Quiesce with the journal of counted_entry.py around it."""
    worker = deployed()
    worker["main"] = "counted_entry.py"
    worker["roots"] = [{"folder": str(BENCH / "counted")}, *worker["roots"]]
    return worker


def minimal_python() -> serving.Worker:
    """The minimal Python Object: the same SDK, and none of our packages."""
    worker = serving.deployed_worker()
    worker["name"] = "minimal-python"
    worker["main"] = "minimal_entry.py"
    worker["roots"] = [{"folder": str(BENCH / "minimal_python")}]
    worker["durableObjects"] = {"LANES": "MinimalObject"}
    worker["bindings"] = {}
    return worker


def minimal_javascript() -> serving.Worker:
    """The minimal JavaScript Object."""
    worker = serving.deployed_worker()
    return serving.Worker(
        name="minimal-javascript",
        main="index.js",
        roots=[{"folder": str(BENCH / "minimal_javascript")}],
        compatibilityDate=worker["compatibilityDate"],
        compatibilityFlags=["experimental"]
        if "experimental" in worker["compatibilityFlags"]
        else [],
        durableObjects={"LANES": "MinimalObject"},
    )
