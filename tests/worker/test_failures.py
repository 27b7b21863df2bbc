"""What goes wrong in a handler ends as the contract says: retried, failed, or run again by the next incarnation."""

from typing import Any

import pytest

from worker.helpers.client import Client
from worker.helpers.outside import Outside
from workshop.serving import Server

pytestmark = pytest.mark.worker

VARIABLES = {
    "QUIESCE_BACKOFF_BASE_MS": "20",
    "QUIESCE_BACKOFF_CAP_MS": "40",
    "QUIESCE_ATTEMPTS_MAX": "3",
    "QUIESCE_ATTEMPT_MS_MAX": "500",
}


def test_a_retryable_failure_is_retried_until_it_succeeds(
    client: Client, conversation: str
) -> None:
    submission = client.accepted(conversation, "fail", {"kind": "retryable", "times": 2})
    settlement = client.settled(conversation, submission)
    assert settlement["outcome"] == "completed"
    assert settlement["result"] == {"attempt": 3}
    assert client.status(conversation, submission)["attempts"] == 2


def test_attempts_run_out_and_the_lane_goes_on(client: Client, conversation: str) -> None:
    failing = client.accepted(conversation, "fail", {"kind": "retryable"})
    behind = client.accepted(conversation, "echo", 1)
    assert client.settled(conversation, behind)["outcome"] == "completed"
    settlement = client.settled(conversation, failing)
    assert settlement["outcome"] == "failed"
    assert settlement["result"] is None
    assert settlement["failure"]["error_type"] == "attempts-exhausted"
    assert set(settlement["failure"]) == {"error_type", "message"}


@pytest.mark.parametrize(
    ("kind", "error_type"), [("final", "asked-to-fail"), ("oversize", "result-too-large")]
)
def test_what_cannot_get_better_is_not_retried(
    client: Client, conversation: str, kind: str, error_type: str
) -> None:
    submission = client.accepted(conversation, "fail", {"kind": kind})
    settlement = client.settled(conversation, submission)
    assert settlement["outcome"] == "failed"
    assert settlement["failure"]["error_type"] == error_type
    assert client.status(conversation, submission)["attempts"] == 0


def test_an_outside_server_that_is_not_there_is_retried(
    client: Client, conversation: str, outside_server: Outside
) -> None:
    gone = outside_server.url.rpartition(":")[0] + ":9/"
    submission = client.accepted(conversation, "steps", {"count": 1, "url": gone})
    failure: dict[str, Any] = client.settled(conversation, submission)["failure"]
    assert failure["error_type"] == "attempts-exhausted"


def test_a_handler_that_ignores_its_cancellation_costs_the_incarnation_and_not_the_lane(
    client: Client, conversation: str
) -> None:
    hanging = client.accepted(conversation, "fail", {"kind": "hang", "times": 1})
    behind = client.accepted(conversation, "echo", 1)
    assert client.settled(conversation, hanging)["result"] == {"attempt": 2}
    assert client.settled(conversation, behind)["result"] == 1


def test_a_wait_outlives_the_incarnation_that_it_began_with(
    client: Client, conversation: str
) -> None:
    work = {"kind": "hang", "times": 1}
    response = client.submit(conversation, "fail", work, headers={"prefer": "wait=20"})
    assert response.status_code == 202
    assert response.json()["settlement"]["result"] == {"attempt": 2}
    assert response.headers["preference-applied"] == "wait=20"


def test_a_handler_that_ends_the_whole_process_is_run_again_with_no_request(
    server: Server, client: Client, conversation: str
) -> None:
    runtime = server.runtime_pid()
    assert runtime is not None
    submission = client.accepted(conversation, "fail", {"kind": "crash", "times": 1})
    server.wait_for_restart(runtime)
    settlement = client.settled(conversation, submission)
    assert settlement["outcome"] == "completed"
