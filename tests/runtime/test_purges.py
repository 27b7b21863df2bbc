"""A purge under workerd, and the process killed before and after its commits: no request brings it to its end."""

import time

import pytest

from runtime.helpers.ondisk import Seen
from runtime.helpers.stage import Stage

pytestmark = pytest.mark.worker

RETENTION_S = 4
VARIABLES = {"QUIESCE_RETENTION_MS": str(RETENTION_S * 1_000)}
MANY = 5
SECRET = "the words of a customer"


def is_purged(seen: Seen) -> bool:
    return bool(seen.submissions) and all(each.is_purged for each in seen.submissions)


def settled(stage: Stage) -> None:
    for place in range(MANY):
        stage.submit("echo", SECRET, f"key-{place}")
    seen = stage.until(lambda seen: seen.is_settled and seen.is_quiet)
    assert not any(each.is_purged for each in seen.submissions)


@pytest.mark.parametrize(
    "point", ["maintenance:begin:before", "maintenance:begin:after", "maintenance:finish:before"]
)
def test_a_process_that_ends_within_a_sweep_purges_all_when_it_is_back(
    stage: Stage, point: str
) -> None:
    """Before the pass, before its first purge, and behind its last: what is not on disk is done again."""
    settled(stage)
    runtime = stage.server.runtime_pid()
    assert runtime is not None
    stage.arm(point, "exit")
    stage.server.wait_for_restart(runtime)
    seen = stage.until(lambda seen: is_purged(seen) and seen.is_quiet)
    assert seen.alarm_at_ms is None
    assert seen.broken_laws == []
    assert [each.outcome for each in seen.submissions] == ["completed"] * MANY
    assert SECRET not in repr(seen)


def test_what_is_purged_answers_its_key_and_the_lane_goes_on(stage: Stage) -> None:
    settled(stage)
    time.sleep(1.1 * RETENTION_S + 1)
    assert is_purged(stage.look())
    again = stage.client.submit(stage.name, "echo", SECRET, "key-0")
    assert again.status_code == 410
    more = stage.submit("echo", "more", "another")
    assert stage.client.settled(stage.name, more)["result"] == "more"
