"""Real workerd with traps in its Objects: one server for each module, a fresh conversation for each test."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtime.helpers import outside
from runtime.helpers.stage import Stage
from worker.conftest import worker_with
from worker.helpers.client import Client
from workshop import serving

HERE = Path(__file__).parent
CONTRACT = HERE.parent / "contract"
MAIN = "trapped_entry.py"
type NewStage = Callable[[], Stage]


@pytest.fixture(scope="session")
def contract_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The modules of the books' contract, and nothing else that would have to be shipped with them."""
    folder = tmp_path_factory.mktemp("contract")
    (folder / "contract").mkdir()
    for file in CONTRACT.glob("*.py"):
        if not file.name.startswith("test_"):
            shutil.copy(file, folder / "contract")
    return folder


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, contract_root: Path
) -> Iterator[serving.Server]:
    """The Worker under test; a module names its settings in VARIABLES, and MOVES_CLOCK if it moves time."""
    variables = getattr(request.module, "VARIABLES", {})
    moves_clock = getattr(request.module, "MOVES_CLOCK", False)
    folder = tmp_path_factory.mktemp("runtime")
    with serve(folder, variables, contract_root, moves_clock=moves_clock) as running:
        yield running


def serve(
    folder: Path, variables: dict[str, str], contract_root: Path, *, moves_clock: bool = False
) -> serving.Server:
    """Start a server whose state, clock and log lie in a folder."""
    worker = worker_with(variables)
    roots = worker["roots"]
    worker["roots"] = [{"folder": str(HERE / "src")}, *roots, {"folder": str(contract_root)}]
    worker["main"] = MAIN
    worker["durableObjects"] = {
        **worker.get("durableObjects", {}),
        "PROBES": "ProbeObject",
        "BOOKS": "BookObject",
    }
    return serving.Server.start(
        [worker],
        persist=folder / "state",
        clock=folder / "clock" if moves_clock else None,
        log=folder / "log",
        snapshot=True,
    )


@pytest.fixture(scope="session")
def outside_server() -> Iterator[outside.Outside]:
    with outside.serve() as running:
        yield running


@pytest.fixture(scope="module")
def client(server: serving.Server) -> Iterator[Client]:
    with Client(server.url) as caller:
        yield caller


@pytest.fixture(scope="module")
def new_stage(server: serving.Server, client: Client, outside_server: outside.Outside) -> NewStage:
    """Make conversations on the module's server."""
    return lambda: Stage(server, client, outside_server)


@pytest.fixture
def stage(new_stage: NewStage) -> Stage:
    return new_stage()
