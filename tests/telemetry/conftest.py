"""Real workerd with its trace store, with a dataset bound, and with telemetry that can be broken."""

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from worker.conftest import worker_with
from worker.helpers.client import Client
from workshop import serving

SRC = Path(__file__).parent / "src"


class Watched:
    """A running server, its caller, and what it has logged."""

    def __init__(self, server: serving.Server, client: Client, log: Path) -> None:
        self.server = server
        self.client = client
        self._log = log

    def lines(self, conversation: str | None = None) -> list[dict[str, Any]]:
        """Return the lines of the log, those of one conversation or all."""
        texts = self._log.read_text("utf-8", errors="replace").splitlines()
        found = [json.loads(text.partition(" ")[2]) for text in texts if text.startswith("log: {")]
        return [each for each in found if conversation in {None, each["conversation"]}]

    def break_(self, *parts: str) -> None:
        """Let these parts of the telemetry raise from now on, and no others."""
        assert self.client.http.post("/test", json=list(parts)).status_code == 200

    def shown(self) -> dict[str, Any]:
        """Return the points that were written, and what has raised."""
        return self.client.read("/test")


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Watched]]:
    """Start servers, and stop them behind the module's last test."""
    running: list[Watched] = []

    def begin(worker: serving.Worker, **options: Any) -> Watched:
        folder = tmp_path_factory.mktemp("telemetry")
        server = serving.Server.start(
            [worker], persist=folder / "state", log=folder / "log", snapshot=True, **options
        )
        running.append(Watched(server, Client(server.url), folder / "log"))
        return running[-1]

    yield begin
    for each in running:
        each.client.http.close()
        each.server.stop()


@pytest.fixture(scope="module")
def traced(start: Callable[..., Watched]) -> Watched:
    """The deployed Worker, traced, with a dataset of the platform's."""
    worker = worker_with({})
    worker["datasets"] = {"ANALYTICS": "quiesce"}
    return start(worker, observability=True)


@pytest.fixture(scope="module")
def watched(start: Callable[..., Watched]) -> Watched:
    """The Worker whose telemetry a test can read and break."""
    worker = worker_with({})
    worker["roots"] = [{"folder": str(SRC)}, *worker["roots"]]
    worker["main"] = "watched_entry.py"
    return start(worker)


@pytest.fixture
def conversation() -> str:
    return uuid.uuid4().hex
