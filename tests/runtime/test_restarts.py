"""The whole server gone, and another one started on what it had stored: overdue alarms fire with no request."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.conftest import serve
from runtime.helpers.crashing import Crash, bring_to, check_the_end
from runtime.helpers.outside import Outside
from runtime.helpers.stage import Stage
from worker.helpers.client import Client

pytestmark = pytest.mark.worker

SLEEP_MS = 1_500
CRASHES = (
    Crash("echo", "admit:after"),
    Crash("echo", "claim:after"),
    Crash("steps", "step:after", 1),
    Crash("charge", "prepare:after"),
    Crash("approval", "maintenance:dirty:after", 1),
    Crash("echo", "settle:before"),
    Crash("mutation", "maintenance:mutation:finished"),
)


@pytest.fixture(scope="module")
def restarted(
    tmp_path_factory: pytest.TempPathFactory, contract_root: Path, outside_server: Outside
) -> Iterator[dict[Crash | str, Stage]]:
    """Conversations that stood at failpoints, or slept, while their server was killed and another one started."""
    folder = tmp_path_factory.mktemp("restart")
    first = serve(folder, {}, contract_root)
    stages: dict[Crash | str, Stage] = {}
    with Client(first.url) as client:
        for crash in CRASHES:
            stages[crash] = Stage(first, client, outside_server)
            bring_to(stages[crash], crash, "pause")
        stages["asleep"] = Stage(first, client, outside_server)
        stages["asleep"].submit("sleep", {"ms": SLEEP_MS})
        assert stages["asleep"].until_state("suspended").alarm_at_ms is not None
        first.kill()
    with serve(folder, {}, contract_root) as second, Client(second.url) as client:
        for stage in stages.values():
            stage.server, stage.client = second, client
        yield stages


def test_rs_1_an_overdue_alarm_fires_at_the_next_start_with_no_request(
    restarted: dict[Crash | str, Stage],
) -> None:
    seen = restarted["asleep"].until_settled()
    assert seen.settlements[0].result["slept_ms"] >= SLEEP_MS


@pytest.mark.parametrize("crash", CRASHES, ids=str)
def test_rs_2_work_in_progress_converges_after_a_whole_restart_with_no_request(
    restarted: dict[Crash | str, Stage], crash: Crash
) -> None:
    check_the_end(restarted[crash], crash, at_once=False)
