"""The limits of a lane, made small: each is refused with its numbers, and replays are exempt from all of them."""

from typing import Any

import pytest

from worker.helpers.client import Client
from worker.helpers.outside import Outside

pytestmark = pytest.mark.worker

VARIABLES = {
    "QUIESCE_QUEUE_DEPTH_MAX": "2",
    "QUIESCE_INPUT_BYTES_MAX": "1000",
    "QUIESCE_DATABASE_BYTES_MAX": "400000",
    "QUIESCE_BACKOFF_BASE_MS": "2000",
    "QUIESCE_WAIT_SECONDS_MAX": "3",
}


def fill(client: Client, conversation: str, outside: Outside) -> list[str]:
    """Occupy the lane: its head fails and waits for its retry, one row stands behind it."""
    outside.failures_left["0"] = 1
    work = {"count": 1, "url": outside.url}
    return [
        client.accepted(conversation, "steps", work, key="head"),
        client.accepted(conversation, "echo", 1, key="behind"),
    ]


def test_a_full_queue_refuses_new_work_and_still_replays(
    client: Client, conversation: str, outside_server: Outside
) -> None:
    filled = fill(client, conversation, outside_server)
    refused = client.submit(conversation, "echo", 2, "new")
    assert refused.status_code == 429
    problem = refused.json()
    assert problem["code"] == "queue-full"
    assert (problem["limit"], problem["actual"], problem["maximum"]) == ("QUEUE_DEPTH_MAX", 2, 2)
    assert int(refused.headers["retry-after"]) >= 1

    assert client.submit(conversation, "echo", 1, "behind").status_code == 200
    client.settled(conversation, filled[-1])
    assert client.submit(conversation, "echo", 2, "new").status_code == 202


def test_what_stands_behind_a_waiting_head_says_so(
    client: Client, conversation: str, outside_server: Outside
) -> None:
    head, behind = fill(client, conversation, outside_server)
    waiting = client.status(conversation, behind)["waiting_for"]
    assert waiting["kind"] == "head"
    assert waiting["behind"] == head
    assert set(waiting) <= {"kind", "operation", "name", "since", "until", "behind"}
    client.settled(conversation, behind)


def test_a_full_database_refuses_new_work_and_still_replays(
    client: Client, conversation: str
) -> None:
    accepted: list[str] = []
    while True:
        response = client.submit(conversation, "echo", "x" * 990, f"key-{len(accepted)}")
        if response.status_code == 507:
            break
        assert response.status_code == 202, response.text
        accepted.append(response.json()["submission"])
        client.settled(conversation, accepted[-1])
    problem = response.json()
    assert problem["code"] == "database-full"
    assert problem["limit"] == "DATABASE_BYTES_MAX"
    assert problem["actual"] > problem["maximum"] == 400_000
    assert accepted
    assert client.submit(conversation, "echo", "x" * 990, "key-0").status_code == 200
    assert client.lane(conversation)["counts"]["settled"] == len(accepted)


@pytest.mark.parametrize(("size", "status"), [(998, 202), (999, 413)])
def test_the_input_limit_holds_at_its_edge(
    client: Client, conversation: str, size: int, status: int
) -> None:
    response = client.submit(conversation, "echo", "x" * size)
    assert response.status_code == status
    if status == 413:
        problem: dict[str, Any] = response.json()
        assert (problem["actual"], problem["maximum"]) == (1_001, 1_000)


def test_the_wait_is_bounded_by_the_setting(
    client: Client, conversation: str, outside_server: Outside
) -> None:
    filled = fill(client, conversation, outside_server)
    response = client.http.get(
        f"/v1/conversations/{conversation}/submissions/{filled[0]}/settlement",
        headers={"prefer": "wait=60"},
    )
    assert response.headers["preference-applied"] == "wait=3"
    assert response.status_code in {200, 202}
    client.settled(conversation, filled[-1])
