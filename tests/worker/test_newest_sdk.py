"""The main job on the newest `workers-runtime-sdk` that there is, whatever the lock has pinned.

A deployment takes the SDK that is locked. This says beforehand what a newer one would break: a fault found here is
a reason to keep the pin, or to mend `workerd.py`. Where the index of packages cannot be reached it is skipped.

Scenario S119.
"""

import shutil
import subprocess
from collections.abc import Iterator
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

import pytest

from events.helpers.reading import kinds, read_all
from worker.conftest import worker_with
from worker.helpers.client import Client
from workshop import places, serving

pytestmark = [pytest.mark.worker, pytest.mark.slow]

SDK = "workers-runtime-sdk"
PIP = ("-m", "pip", "install", "--quiet", "--no-compile", "--no-deps", "--only-binary=:all:")
UNREACHABLE = ("NameResolutionError", "NewConnectionError", "ConnectTimeoutError", "ProxyError")


def installed(folder: Path) -> Distribution:
    """Find the SDK in a folder of packages."""
    (info,) = folder.glob("workers_runtime_sdk-*.dist-info")
    return PathDistribution(info)


@pytest.fixture(scope="module")
def vendored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The vendored packages, with the newest SDK in the place of the locked one."""
    newest = tmp_path_factory.mktemp("newest")
    command = [places.PYTHON, *PIP, "--python-version", "3.14", "--target", newest, SDK]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=300, check=False
    )
    if any(each in done.stderr for each in UNREACHABLE):
        pytest.skip("the index of packages cannot be reached")
    assert done.returncode == 0, done.stderr
    packages = tmp_path_factory.mktemp("vendored") / "python_modules"
    shutil.copytree(places.PYTHON_MODULES, packages)
    for file in installed(packages).files or ():
        (packages / file).unlink(missing_ok=True)
    shutil.copytree(newest, packages, dirs_exist_ok=True)
    return packages


@pytest.fixture(scope="module")
def server(vendored: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[serving.Server]:
    folder = tmp_path_factory.mktemp("worker")
    worker = worker_with({})
    worker["vendored"]["folder"] = str(vendored)
    with serving.Server.start([worker], persist=folder / "state", log=folder / "log") as running:
        yield running


def test_it_is_the_newest_that_is_served(vendored: Path) -> None:
    locked = tuple(map(int, installed(places.PYTHON_MODULES).version.split(".")[:3]))
    assert tuple(map(int, installed(vendored).version.split(".")[:3])) >= locked


@pytest.mark.parametrize(
    ("agent", "value", "result"),
    [
        ("echo", {"a": [1, "ü", None]}, {"a": [1, "ü", None]}),
        ("parent", {"child": "echo", "input": 1}, {"outcome": "completed", "result": 1}),
        ("fail", {"kind": "retryable", "times": 1}, {"attempt": 2}),
    ],
)
def test_work_is_accepted_settled_and_followed(
    client: Client, conversation: str, agent: str, value: object, result: object
) -> None:
    """Admission, alarms, retries and calls between Objects; then the log and its stream."""
    submission = client.accepted(conversation, agent, value)
    settlement = client.settled(conversation, submission)
    assert (settlement["outcome"], settlement["result"]) == ("completed", result)
    events = read_all(client.http, conversation, submission=submission)
    assert (kinds(events)[-1], events[-1].data) == ("settlement", settlement)
    problems = client.http.get(f"/v1/conversations/{conversation}/verify").json()["problems"]
    assert problems == []


def test_a_decision_wakes_what_waits_after_the_process_has_died(
    server: serving.Server, client: Client, conversation: str
) -> None:
    submission = client.accepted(conversation, "approval", {"question": "?"})
    client.waits(conversation, submission, "approval")
    server.kill_runtime()
    decided = client.act(conversation, submission, "approvals/question", {"decision": "approve"})
    assert decided.status_code == 200, decided.text
    assert client.settled(conversation, submission)["outcome"] == "completed"
