"""Who asks too much is refused with the limit and when to come back, nothing is written, and replays pass."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from worker.helpers.client import Client

pytestmark = pytest.mark.worker

RATE, BURST, WAITERS = 2, 12, 3
VARIABLES = {
    "QUIESCE_RATE_PER_SECOND": str(RATE),
    "QUIESCE_RATE_BURST": str(BURST),
    "QUIESCE_WAITERS_MAX": str(WAITERS),
}


def use_up(client: Client, conversation: str) -> httpx.Response:
    """Ask until it is refused."""
    for _ in range(2 * BURST):
        response = client.http.get(f"/v1/conversations/{conversation}")
        if response.status_code != 200:
            return response
    pytest.fail("nothing was refused")


def standing(client: Client, conversation: str) -> Any:
    """Read what a write would have changed."""
    maintenance = client.http.get(f"/v1/conversations/{conversation}/maintenance")
    assert maintenance.status_code == 200, maintenance.text
    return maintenance.json()["generation"], maintenance.json()["nonterminal"]


def test_a_principal_that_asks_too_fast_is_refused_and_nothing_is_written(
    client: Client, caller_with: Any, conversation: str
) -> None:
    client.accepted(conversation, "approval", {"question": "May it?"}, key="first")
    other = caller_with("other")
    time.sleep(1)
    before = standing(other, conversation)
    refused = use_up(client, conversation)
    posted = client.submit(conversation, "echo", 1, "new")
    for response in (refused, posted):
        assert response.status_code == 429
        problem = response.json()
        assert problem["code"] == "rate-limited"
        numbers = (problem["limit"], problem["actual"], problem["maximum"])
        assert numbers == ("RATE_BURST", BURST + 1, BURST)
        assert 1 <= int(response.headers["retry-after"]) <= 2
    assert standing(other, conversation) == before, "another principal is not held up"


def test_a_known_key_is_answered_however_fast_it_is_sent(client: Client, conversation: str) -> None:
    first = client.submit(conversation, "echo", 1, "first")
    use_up(client, conversation)
    for _ in range(BURST):
        again = client.submit(conversation, "echo", 1, "first")
        assert again.status_code == 200
        assert again.json()["submission"] == first.json()["submission"]


def test_who_waits_as_long_as_it_was_told_is_answered(client: Client, conversation: str) -> None:
    client.accepted(conversation, "echo", 1)
    refused = use_up(client, conversation)
    time.sleep(int(refused.headers["retry-after"]))
    assert client.http.get(f"/v1/conversations/{conversation}").status_code == 200


def test_another_conversation_has_a_rate_of_its_own(client: Client, conversation: str) -> None:
    client.accepted(conversation, "echo", 1)
    use_up(client, conversation)
    assert client.submit(f"{conversation}-2", "echo", 1).status_code == 202


def test_a_refusal_is_spread_so_that_callers_do_not_come_back_together(
    client: Client, conversation: str
) -> None:
    client.accepted(conversation, "echo", 1)
    use_up(client, conversation)
    told = {
        client.http.get(f"/v1/conversations/{conversation}").headers.get("retry-after")
        for _ in range(40)
    }
    assert {"1", "2"} <= told


def test_an_event_stream_counts_once_however_long_it_goes_on(
    client: Client, conversation: str
) -> None:
    submission = client.accepted(conversation, "steps", {"count": 30})
    path = f"/v1/conversations/{conversation}/events?submission={submission}"
    with client.http.stream("GET", path) as stream:
        assert "event: settlement" in stream.read().decode()
    assert client.http.get(f"/v1/conversations/{conversation}").status_code == 200


def test_more_waiters_than_may_wait_are_refused_and_an_admission_is_not(
    client: Client, caller_with: Any, conversation: str
) -> None:
    submission = client.accepted(conversation, "approval", {"question": "May it?"})
    path = f"/v1/conversations/{conversation}/submissions/{submission}/settlement"
    wait = {"prefer": "wait=8"}
    callers = [caller_with("other") for _ in range(WAITERS)]
    with ThreadPoolExecutor(WAITERS) as threads:
        waiting = [threads.submit(each.http.get, path, headers=wait) for each in callers]
        time.sleep(2)
        refused = client.http.get(path, headers={"prefer": "wait=1"})
        assert refused.status_code == 429, refused.text
        problem = refused.json()
        assert (problem["limit"], problem["actual"], problem["maximum"]) == (
            "WAITERS_MAX",
            WAITERS,
            WAITERS,
        )
        assert int(refused.headers["retry-after"]) >= 1
        admitted = client.submit(conversation, "echo", 1, headers=wait)
        assert admitted.status_code == 202
        assert admitted.json()["settlement"] is None
        assert "preference-applied" not in admitted.headers
        answer = client.act(
            conversation, submission, "approvals/question", {"decision": "approve", "reason": "yes"}
        )
        assert answer.status_code == 200
        for each in waiting:
            assert each.result().status_code == 200
            assert each.result().json()["result"]["approved"] is True
