"""What the Worker really answers is what its description says, document by document.

Here each shape is asked for on purpose; test_properties.py asks for anything.
"""

import httpx
import pytest
from pydantic import BaseModel

from events.helpers.reading import read_all
from quiesce import answers
from worker.helpers.client import Client, submissions, until

pytestmark = pytest.mark.worker

VARIABLES = {"QUIESCE_EVENTS_SECONDS_MAX": "1", "QUIESCE_WAIT_SECONDS_MAX": "1"}


def as_a[D: BaseModel](model: type[D], response: httpx.Response, status: int = 200) -> D:
    """Check an answer against its model, which takes nothing that it does not name."""
    assert response.status_code == status, response.text
    return model.model_validate_json(response.content)


def test_work_from_its_receipt_to_its_settlement(client: Client, conversation: str) -> None:
    fresh = as_a(answers.Receipt, client.submit(conversation, "echo", {"a": [1]}, "k"), 202)
    path = f"{submissions(conversation)}/{fresh.submission}"
    client.settled(conversation, fresh.submission)
    replayed = as_a(answers.Receipt, client.submit(conversation, "echo", {"a": [1]}, "k"))
    settlement = as_a(answers.Settlement, client.http.get(f"{path}/settlement"))
    assert replayed.settlement == settlement
    assert as_a(answers.Status, client.http.get(path)).settlement == settlement
    page = as_a(answers.StatusPage, client.http.get(submissions(conversation)))
    assert [each.submission for each in page.items] == [fresh.submission]
    lane = f"/v1/conversations/{conversation}"
    assert as_a(answers.Lane, client.http.get(lane)).counts["settled"] == 1
    assert as_a(answers.Maintenance, client.http.get(f"{lane}/maintenance")).last_pass
    forced = client.http.post(f"{lane}/maintenance/pass", json={"reason": "r"})
    as_a(answers.Maintenance, forced, 202)
    assert len(as_a(answers.RecordPage, client.http.get(f"{lane}/records")).items) == 4
    assert as_a(answers.Verification, client.http.get(f"{lane}/verify")).checked.records == 4
    assert client.http.get(f"{lane}/export").text.count('"type":"record"') == 4
    as_a(answers.Problem, client.http.get(f"{path}/explain"), 409)


def test_a_failure_and_an_abort(client: Client, conversation: str) -> None:
    failed = client.accepted(conversation, "fail", {"kind": "final"})
    aborted = client.accepted(conversation, "approval", {"question": "?"})
    client.settled(conversation, failed)
    path = submissions(conversation)
    until(lambda: client.status(conversation, aborted)["state"], lambda s: s == "suspended")
    as_a(answers.Status, client.http.post(f"{path}/{aborted}/abort"), 202)
    as_a(answers.Settlement, client.http.post(f"{path}/{aborted}/abort"))
    late = client.http.post(f"{path}/{failed}/abort")
    assert as_a(answers.Problem, late, 409).settlement
    assert as_a(answers.Settlement, client.http.get(f"{path}/{failed}/settlement")).failure


def test_waits_and_what_decides_them(client: Client, conversation: str) -> None:
    asked = client.accepted(conversation, "approval", {"question": "?"})
    behind = client.accepted(conversation, "signal", {"name": "news", "timeout_ms": 60_000})
    until(lambda: client.status(conversation, asked)["state"], lambda s: s == "suspended")
    path, lane = submissions(conversation), f"/v1/conversations/{conversation}"
    owed = client.http.get(f"{path}/{asked}/settlement", headers={"prefer": "wait=0"})
    waiting = as_a(answers.Status, owed, 202).waiting_for
    assert waiting
    assert waiting.url
    assert as_a(answers.Lane, client.http.get(lane)).blocked_on
    assert as_a(answers.Explanation, client.http.get(f"{path}/{asked}/explain")).open_operations
    page = as_a(answers.ExplanationPage, client.http.get(f"{lane}/explain"))
    assert [each.submission for each in page.items] == [asked, behind]
    decided = client.http.post(waiting.url, json={"decision": "approve"})
    as_a(answers.Status, decided)
    other = client.http.post(waiting.url, json={"decision": "deny"})
    assert as_a(answers.Problem, other, 409).recorded
    until(lambda: client.status(conversation, behind)["state"], lambda s: s == "suspended")
    as_a(answers.Status, client.http.get(f"{path}/{behind}"))
    sent = client.http.post(
        f"{path}/{behind}/signals/news", json={"payload": 1}, headers={"idempotency-key": "k"}
    )
    as_a(answers.Status, sent, 202)


def test_the_events_of_a_stream(client: Client, conversation: str) -> None:
    submission = client.accepted(conversation, "steps", {"count": 2})
    client.settled(conversation, submission)
    for event in read_all(client.http, conversation, submission=submission):
        if event.kind == "record":
            answers.Record.model_validate(event.data)
        elif event.kind == "settlement":
            answers.Settlement.model_validate(event.data)


def test_what_the_deployment_says_of_itself(client: Client) -> None:
    assert as_a(answers.Health, client.http.get("/healthz")).status == "ok"
    assert as_a(answers.AgentPage, client.http.get("/v1/agents")).items
    refused = client.submit("-", "echo", 1)
    as_a(answers.Problem, refused, 400)


def test_the_description_and_its_page_are_for_everybody(client: Client) -> None:
    with httpx.Client(base_url=client.http.base_url) as anybody:
        described = anybody.get("/openapi.json")
        assert described.status_code == 200
        assert described.json()["openapi"] == "3.1.0"
        page = anybody.get("/docs")
        assert page.status_code == 200
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert anybody.head("/docs").content == b""
