"""The Worker under workerd, one for each module of tests, and its callers.

A module that needs other settings than the defaults names them in a dictionary `VARIABLES`. Every test has a
conversation of its own, so tests of one module share a server and nothing else.
"""

import hashlib
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from worker.helpers import disk, outside
from worker.helpers.client import Client
from workshop import serving

ROLES = ["submit", "observe", "decide", "operate"]
TOKENS = {
    "dev": {"principal": "dev", "roles": ROLES},
    "other": {"principal": "other", "roles": ROLES},
    "kept": {"principal": "kept", "roles": ROLES, "prefix": "kept-"},
    **{f"only-{role}": {"principal": f"only-{role}", "roles": [role]} for role in ROLES},
}
"""Bearer tokens by their secret: two who may do everything, one kept to a prefix, one for each role."""


def tokens_variable() -> str:
    """Write TOKENS as the setting that a deployment has: by digest."""
    return json.dumps(
        {hashlib.sha256(secret.encode()).hexdigest(): token for secret, token in TOKENS.items()}
    )


def worker_with(variables: dict[str, str]) -> serving.Worker:
    """Return the deployed Worker with these variables and everybody's tokens."""
    worker = serving.deployed_worker()
    worker["bindings"] = {"QUIESCE_TOKENS": tokens_variable(), **variables}
    return worker


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[serving.Server]:
    folder = tmp_path_factory.mktemp("worker")
    variables: dict[str, str] = getattr(request.module, "VARIABLES", {})
    with serving.Server.start(
        [worker_with(variables)],
        persist=folder / "state",
        log=folder / "log",
        snapshot=True,
    ) as running:
        yield running


@pytest.fixture
def client(server: serving.Server) -> Iterator[Client]:
    with Client(server.url) as caller:
        yield caller


@pytest.fixture
def caller_with(server: serving.Server) -> Iterator[Any]:
    """Make callers with other tokens than the developer's, or with none."""
    callers: list[Client] = []

    def make(token: str | None) -> Client:
        callers.append(Client(server.url, token))
        return callers[-1]

    yield make
    for caller in callers:
        caller.http.close()


@pytest.fixture
def conversation() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def outside_server() -> Iterator[outside.Outside]:
    with outside.serve() as running:
        yield running


@pytest.fixture
def nothing_written(server: serving.Server, client: Client, conversation: str) -> Iterator[None]:
    """After the test, no Object has come to hold anything, and the conversation takes work."""
    before = disk.object_files(server)
    yield
    for file in disk.object_files(server) - before:
        assert disk.is_virgin(file), disk.rows_by_table(file)
    assert conversation not in server.alarms(disk.CLASS)
    submission = client.accepted(conversation, "echo", "still works")
    assert client.settled(conversation, submission)["result"] == "still works"
