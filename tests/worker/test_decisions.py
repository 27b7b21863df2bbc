"""Decisions, resolutions, signals, aborts and explain over HTTP: what each answers, first and again.

Not tested here: races and crashes (tests/operations and tests/runtime).
"""

from typing import Any

import pytest

from worker.helpers.client import Client, assert_problem, submissions, until

pytestmark = pytest.mark.worker

NOBODY_THERE = "http://127.0.0.1:1/charge"
JSON = {"content-type": "application/json"}


def asked(client: Client, conversation: str) -> str:
    submission = client.accepted(conversation, "approval", {"question": "may I?"})
    client.waits(conversation, submission, "approval")
    return submission


def unknown(client: Client, conversation: str) -> str:
    submission = client.accepted(conversation, "charge", {"url": NOBODY_THERE, "amount": 5})
    client.waits(conversation, submission, "resolution")
    return submission


def test_a_wait_carries_the_url_that_takes_its_decision(client: Client, conversation: str) -> None:
    submission = asked(client, conversation)
    wait = client.status(conversation, submission)["waiting_for"]
    assert wait.keys() == {"kind", "since", "operation", "name", "url"}
    answer = client.http.post(wait["url"], json={"decision": "approve", "reason": "why not"})
    assert answer.status_code == 200
    settled = client.settled(conversation, submission)
    assert settled["result"] == {"approved": True, "decided_by": "dev"}


def test_the_same_decision_again_is_the_same_answer_and_another_a_conflict(
    client: Client, conversation: str
) -> None:
    submission = asked(client, conversation)
    first = client.act(conversation, submission, "approvals/question", {"decision": "denied"})
    assert first.status_code == 200
    assert client.settled(conversation, submission)["result"]["approved"] is False
    again = client.act(conversation, submission, "approvals/question", {"decision": "deny"})
    assert again.status_code == 200
    other = client.act(conversation, submission, "approvals/question", {"decision": "approve"})
    recorded = assert_problem(other, 409, "decision-conflict")["recorded"]
    assert recorded["decision"] == "denied"
    assert recorded["author"] == "dev"
    assert recorded["decided_at"].endswith("Z")


@pytest.mark.parametrize(
    ("action", "body", "refused"),
    [
        ("approvals/other", {"decision": "approve"}, (409, "not-waiting")),
        ("approvals/question", {"decision": "perhaps"}, (422, "invalid-request")),
        ("approvals/question", {}, (422, "invalid-request")),
        ("approvals", {"decision": "approve"}, (404, "not-found")),
        ("resolutions/question", {"resolution": "completed"}, (409, "not-waiting")),
        ("resolutions/question", {"resolution": "guessed"}, (422, "invalid-request")),
        ("retry", {}, (409, "not-waiting")),
        ("signals/go", {"payload": 1}, (400, "invalid-request")),
    ],
)
def test_what_the_submission_does_not_wait_for_is_refused_and_changes_nothing(
    client: Client, conversation: str, action: str, body: dict[str, Any], refused: tuple[int, str]
) -> None:
    submission = asked(client, conversation)
    before = client.records(conversation)
    assert_problem(client.act(conversation, submission, action, body), *refused)
    assert client.records(conversation) == before
    until(lambda: client.maintenance(conversation), lambda found: found["alarm_at"] is None)


@pytest.mark.parametrize(
    ("body", "outcome", "result"),
    [
        (
            {"resolution": "completed", "result": {"reference": "r1"}},
            "completed",
            {"reference": "r1"},
        ),
        ({"resolution": "failed", "reason": "it bounced"}, "failed", None),
        ({"resolution": "abort", "reason": "let it be"}, "aborted", None),
    ],
    ids=["completed", "failed", "abort"],
)
def test_a_resolution_settles_an_unknown_call(
    client: Client, conversation: str, body: dict[str, Any], outcome: str, result: Any
) -> None:
    submission = unknown(client, conversation)
    assert client.act(conversation, submission, "resolutions/charge", body).status_code == 200
    settled = client.settled(conversation, submission)
    assert (settled["outcome"], settled["result"]) == (outcome, result)
    assert settled.get("effects_may_have_happened", False) is (outcome == "aborted")


def test_another_resolution_is_a_conflict_that_shows_the_recorded_one(
    client: Client, conversation: str
) -> None:
    submission = unknown(client, conversation)
    body = {"resolution": "completed", "result": {"reference": "r1"}}
    assert client.act(conversation, submission, "resolutions/charge", body).status_code == 200
    assert client.act(conversation, submission, "resolutions/charge", body).status_code == 200
    other = {"resolution": "never-happened"}
    answer = client.act(conversation, submission, "resolutions/charge", other)
    assert assert_problem(answer, 409, "decision-conflict")["recorded"]["resolution"] == "completed"


def test_a_signal_is_delivered_once_under_its_key(client: Client, conversation: str) -> None:
    submission = client.accepted(conversation, "signal", {"name": "go"})
    client.waits(conversation, submission, "signal")
    first = client.act(conversation, submission, "signals/go", {"payload": None}, key="k")
    assert first.status_code == 202
    assert client.settled(conversation, submission)["result"] == {
        "payload": None,
        "timed_out": False,
    }
    late = client.act(conversation, submission, "signals/go", {"payload": 1}, key="l")
    assert_problem(late, 409, "already-settled")


def test_a_signal_that_is_repeated_before_its_wait_is_a_replay(
    client: Client, conversation: str
) -> None:
    asked(client, conversation)
    submission = client.accepted(conversation, "signal", {"name": "go"})
    first = client.act(conversation, submission, "signals/go", {"payload": 7}, key="k")
    again = client.act(conversation, submission, "signals/go", {"payload": 7}, key="k")
    other = client.act(conversation, submission, "signals/go", {"payload": 8}, key="k")
    assert (first.status_code, again.status_code) == (202, 202)
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert_problem(other, 409, "idempotency-conflict")


def test_a_signal_whose_payload_is_beyond_every_double_is_refused_and_spends_no_key(
    client: Client, conversation: str
) -> None:
    """Its grammar is JSON's, but none could say again what was taken: it is refused, and no error of ours."""
    submission = client.accepted(conversation, "signal", {"name": "go"})
    client.waits(conversation, submission, "signal")
    before = client.records(conversation)
    path = f"{submissions(conversation)}/{submission}/signals/go"
    headers = JSON | {"idempotency-key": "k"}
    for body in (b'{"payload":1e400}', b'{"payload":[{"a":-1e400}]}'):
        answer = client.http.post(path, content=body, headers=headers)
        assert "payload" in assert_problem(answer, 400, "invalid-request")["detail"]
    assert client.records(conversation) == before
    assert client.status(conversation, submission)["waiting_for"]["kind"] == "signal"
    assert client.act(conversation, submission, "signals/go", {"payload": 7}, key="k").is_success
    assert client.settled(conversation, submission)["result"]["payload"] == 7


def test_a_resolution_whose_result_is_beyond_every_double_is_refused_and_decides_nothing(
    client: Client, conversation: str
) -> None:
    submission = unknown(client, conversation)
    before = client.records(conversation)
    path = f"{submissions(conversation)}/{submission}/resolutions/charge"
    body = b'{"resolution":"completed","result":{"reference":1e400}}'
    answer = client.http.post(path, content=body, headers=JSON)
    assert "result" in assert_problem(answer, 400, "invalid-request")["detail"]
    assert client.records(conversation) == before
    assert client.status(conversation, submission)["waiting_for"]["kind"] == "resolution"
    other = {"resolution": "completed", "result": {"reference": "r1"}}
    assert client.act(conversation, submission, "resolutions/charge", other).status_code == 200
    assert client.settled(conversation, submission)["result"] == {"reference": "r1"}


def test_an_abort_of_what_is_queued_or_waits_settles_at_once(
    client: Client, conversation: str
) -> None:
    head = asked(client, conversation)
    queued = client.accepted(conversation, "echo", 1)
    for submission in (queued, head):
        first = client.act(conversation, submission, "abort", {"reason": "not wanted"})
        assert first.status_code == 202
        again = client.act(conversation, submission, "abort", {"reason": "not wanted"})
        assert again.status_code == 200
        assert again.json()["outcome"] == "aborted"
    assert client.lane(conversation)["counts"]["settled"] == 2


def test_an_abort_after_the_settlement_is_a_conflict_that_shows_it(
    client: Client, conversation: str
) -> None:
    submission = client.accepted(conversation, "echo", {"a": 1})
    settled = client.settled(conversation, submission)
    answer = client.act(conversation, submission, "abort", {"reason": "too late"})
    assert assert_problem(answer, 409, "already-settled")["settlement"] == settled


def test_only_an_operator_may_let_children_go(
    client: Client, caller_with: Any, conversation: str
) -> None:
    submission = asked(client, conversation)
    body = {"reason": "now", "detach": True}
    answer = caller_with("only-submit").act(conversation, submission, "abort", body)
    assert_problem(answer, 403, "forbidden")
    assert client.act(conversation, submission, "abort", body).status_code == 202


def test_explain_says_what_every_open_submission_waits_for(
    client: Client, conversation: str
) -> None:
    head = asked(client, conversation)
    queued = client.accepted(conversation, "echo", 1)
    first, second = client.items(f"/v1/conversations/{conversation}/explain")
    assert (first["submission"], first["waiting_for"]["kind"]) == (head, "approval")
    assert (second["submission"], second["waiting_for"]["behind"]) == (queued, head)
    assert {first["freshness"], second["freshness"]} == {"ok"}
    one = client.read(f"/v1/conversations/{conversation}/submissions/{head}/explain")
    assert one["open_operations"][0]["operation"] == "question"
    until(lambda: client.maintenance(conversation), lambda found: found["alarm_at"] is None)


def test_a_delegation_settles_with_its_child(client: Client, conversation: str) -> None:
    submission = client.accepted(conversation, "parent", {"child": "echo", "input": {"a": 1}})
    settled = client.settled(conversation, submission)
    assert settled["result"] == {"outcome": "completed", "result": {"a": 1}}
    kinds = [record["kind"] for record in client.records(conversation)]
    assert kinds == [
        "conversation-created",
        "input-applied",
        "child-requested",
        "child-started",
        "child-joined",
        "settlement",
    ]
