"""Real workerd for families: the runtime tests' Worker, in which deliveries can be stopped as well."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from children.pairs import NewPair, Pair
from runtime.conftest import HERE as RUNTIME
from runtime.conftest import client, contract_root, outside_server
from runtime.helpers import outside
from worker.conftest import worker_with
from worker.helpers.client import Client
from workshop import serving

__all__ = ["client", "contract_root", "outside_server"]
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    contract_root: Path,
    outside_server: outside.Outside,
) -> Iterator[serving.Server]:
    """The Worker under test; callbacks may go to the server outside."""
    folder = tmp_path_factory.mktemp("children")
    variables = {
        "QUIESCE_CALLBACK_ORIGINS": f'["{outside_server.url}"]',
        "QUIESCE_CALLBACK_SECRET": "0123456789abcdef",
        "QUIESCE_CALLBACK_PRIVATE": "true",
        **getattr(request.module, "VARIABLES", {}),
    }
    worker = worker_with(variables)
    roots = [str(HERE / "src"), str(RUNTIME / "src")]
    worker["roots"] = [
        *({"folder": each} for each in roots),
        *worker["roots"],
        {"folder": str(contract_root)},
    ]
    worker["main"] = "family_entry.py"
    worker["durableObjects"] = {
        **worker.get("durableObjects", {}),
        "PROBES": "ProbeObject",
        "BOOKS": "BookObject",
    }
    with serving.Server.start(
        [worker], persist=folder / "state", log=folder / "log", snapshot=True
    ) as running:
        yield running


@pytest.fixture(scope="module")
def new_pair(server: serving.Server, client: Client, outside_server: outside.Outside) -> NewPair:
    """Make a parent's conversation, and know where its child will live."""
    return lambda: Pair.make(server, client, outside_server)


@pytest.fixture
def pair(new_pair: NewPair) -> Pair:
    return new_pair()
