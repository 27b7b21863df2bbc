"""The load that one Object holds: waiters by the hundred, and a queue full to its brim with the largest inputs.

Parity: PW-3.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from runtime.conftest import NewStage
from runtime.helpers.stage import REASON, Stage
from worker.helpers.client import Client

pytestmark = pytest.mark.worker

DEPTH = 256
VARIABLES = {"QUIESCE_QUEUE_DEPTH_MAX": str(DEPTH)}
WAITERS = 200
INPUT_BYTES = 1_000_000
ISOLATE_BYTES_MAX = 128 * 1024 * 1024
"""What the platform gives one isolate."""


def approve(stage: Stage, submission: str) -> None:
    body = {"decision": "approved", "reason": REASON}
    path = stage.path("approvals/question", submission)
    answer = stage.client.http.post(path, json=body)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("are_apart", [False, True], ids=["for-one", "for-each-its-own"])
def test_two_hundred_waiters_on_one_lane_are_all_answered(stage: Stage, *, are_apart: bool) -> None:
    """S131's kind: whoever waits is told, and nobody's wait is lost among the others."""
    head = stage.submit("approval", {"question": "May it?"})
    wanted = [
        stage.submit("echo", place, f"key-{place}") if are_apart else head
        for place in range(WAITERS)
    ]
    incarnation = stage.state()["incarnation"]

    def wait(submission: str) -> int:
        with Client(stage.server.url) as caller:
            path = stage.path("settlement", submission)
            return caller.http.get(path, headers={"prefer": "wait=25"}).status_code

    with ThreadPoolExecutor(WAITERS) as threads:
        waiting = [threads.submit(wait, each) for each in wanted]
        stage.control("until_watched", times=WAITERS)
        approve(stage, head)
        assert [each.result() for each in waiting] == [200] * WAITERS
    assert stage.state()["incarnation"] == incarnation
    stage.until_settled()


def test_a_queue_full_of_the_largest_inputs_is_worked_off_and_the_isolate_lives(
    new_stage: NewStage,
) -> None:
    stage = new_stage()
    runtime = stage.server.runtime_pid()
    head = stage.submit("approval", {"question": "May it?"})
    value = "x" * (INPUT_BYTES - 2)
    for place in range(DEPTH - 1):
        stage.submit("echo", value, f"key-{place}")
    full = stage.client.submit(stage.name, "echo", value)
    assert full.status_code == 429
    assert full.json()["code"] == "queue-full"
    assert stage.client.submit(stage.name, "echo", f"{value}x").status_code == 413
    assert stage.state()["heap_bytes"] < ISOLATE_BYTES_MAX
    approve(stage, head)
    seen = stage.until_settled(timeout_s=300)
    assert [each.outcome for each in seen.settlements] == ["completed"] * DEPTH
    assert all(each.result == value for each in seen.settlements[1:])
    assert stage.state()["heap_bytes"] < ISOLATE_BYTES_MAX
    assert stage.server.runtime_pid() == runtime
