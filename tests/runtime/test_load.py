"""The load that one Object holds: hundreds of waiters, a queue full of the largest inputs, dozens of large values.

Parity: PW-3.
"""

from concurrent.futures import ThreadPoolExecutor

import httpx
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
LARGE_BYTES = 900_000
GROWTH_BYTES_MAX = 16 * 1024 * 1024
"""How much the heap may grow while a few large values are in memory in several forms, and garbage is not yet
collected."""


@pytest.fixture
def fresh_stage(new_stage: NewStage) -> Stage:
    """A conversation in a new process: the heap of an isolate never shrinks, and would hide what is added."""
    stage = new_stage()
    stage.server.kill_runtime()
    return stage


def every_caller(stage: Stage) -> httpx.Client:
    """Make one client for any number of callers at once: one for each would take longer than they may wait."""
    return httpx.Client(
        base_url=stage.server.url,
        headers=stage.client.http.headers,
        limits=httpx.Limits(max_connections=None),
        timeout=120,
    )


def heap_bytes(stage: Stage) -> int:
    """Return the most that the heap of the isolate has ever had."""
    return int(stage.state()["heap_bytes"])


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


def test_a_page_of_large_results_is_cut_short_and_the_heap_holds_one_page(
    fresh_stage: Stage,
) -> None:
    """A page that held them all would be too large for the platform, and would be read into memory first."""
    stage = fresh_stage
    value = "x" * LARGE_BYTES
    made = [stage.submit("echo", value, f"key-{place}") for place in range(40)]
    stage.until_settled(timeout_s=180)
    before = heap_bytes(stage)
    path = f"/v1/conversations/{stage.name}/submissions"
    first = stage.client.read(path)
    assert first["next"] is not None
    assert [each["submission"] for each in first["items"]] == made[:1]
    listed = stage.client.items(path)
    assert [each["submission"] for each in listed] == made
    assert all(each["settlement"]["result"] == value for each in listed)
    assert heap_bytes(stage) - before < GROWTH_BYTES_MAX


def test_all_who_wait_for_one_large_result_are_answered_and_the_heap_holds_few_answers(
    fresh_stage: Stage,
) -> None:
    """Each answer holds the whole result: all at once, they would be more than an isolate has."""
    stage = fresh_stage
    waiters = 150
    head = stage.submit("approval", {"question": "May it?"})
    value = "x" * 950_000
    wanted = stage.submit("echo", value, "large")
    before = heap_bytes(stage)

    def wait(_place: int) -> bool:
        path, prefer = stage.path("settlement", wanted), {"prefer": "wait=25"}
        while (answer := callers.get(path, headers=prefer)).status_code == 202:
            # On a slow machine some have waited in vain before the last ones have come.
            pass
        return answer.status_code == 200 and answer.json()["result"] == value

    with ThreadPoolExecutor(waiters) as threads, every_caller(stage) as callers:
        waiting = [threads.submit(wait, place) for place in range(waiters)]
        stage.control("until_watched", times=waiters)
        approve(stage, head)
        assert [each.result(timeout=120) for each in waiting] == [True] * waiters
    assert heap_bytes(stage) - before < 2 * GROWTH_BYTES_MAX
    stage.until_settled()


def test_a_run_of_large_steps_and_its_abort_hold_few_of_their_values(fresh_stage: Stage) -> None:
    """What the handler drops, nothing else keeps; and an abort names what was completed without reading it."""
    stage = fresh_stage
    count = 60
    stage.submit("echo", "x" * LARGE_BYTES, "first")
    stage.until_settled()
    before = heap_bytes(stage)
    stage.submit("hoarder", {"count": count, "size": 1_000_000}, "hoard")
    stage.until_state("settled", "suspended", timeout_s=120)
    assert heap_bytes(stage) - before < GROWTH_BYTES_MAX
    assert stage.post("abort", {"reason": REASON}).status_code == 202
    seen = stage.until_settled(timeout_s=60)
    assert seen.settlements[-1].outcome == "aborted"
    assert len(seen.settlements[-1].completed_operations) == count
    assert heap_bytes(stage) - before < GROWTH_BYTES_MAX
