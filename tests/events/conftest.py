"""The Worker of the event tests, one for each module, and its callers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from worker import conftest
from workshop import serving

SOURCES = Path(__file__).parent / "src"
client = conftest.client
conversation = conftest.conversation


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[serving.Server]:
    folder = tmp_path_factory.mktemp("events")
    worker = conftest.worker_with(getattr(request.module, "VARIABLES", {}))
    worker["roots"].insert(0, {"folder": str(SOURCES)})
    worker["main"] = "streaming.py"
    with serving.Server.start(
        [worker], persist=folder / "state", log=folder / "log", snapshot=True
    ) as running:
        yield running
