"""An operator and the head of a queue, over HTTP: skip ends it, retry lets it go on at once. S96."""

import pytest

from worker.helpers.client import Client, assert_problem, until

pytestmark = pytest.mark.worker

VARIABLES = {"QUIESCE_BACKOFF_BASE_MS": "60000"}
"""Who waits for a next attempt waits longer than the test."""


def test_only_the_head_is_skipped_and_what_stands_behind_it_runs(
    client: Client, conversation: str
) -> None:
    head = client.accepted(conversation, "approval", {"question": "May it?"})
    behind = client.accepted(conversation, "echo", "behind")
    until(lambda: client.status(conversation, head)["state"], lambda state: state == "suspended")
    reason = {"reason": "nobody will answer"}
    assert_problem(client.act(conversation, behind, "skip", reason), 409, "not-waiting")
    skipped = client.act(conversation, head, "skip", reason)
    assert skipped.status_code == 202
    assert skipped.json()["settlement"]["outcome"] == "aborted"
    assert client.settled(conversation, behind)["result"] == "behind"
    again = client.act(conversation, head, "skip", reason)
    assert again.status_code == 200
    assert again.json() == skipped.json()["settlement"]
    assert_problem(client.act(conversation, behind, "skip", reason), 409, "already-settled")
    records = client.read(f"/v1/conversations/{conversation}/records")["items"]
    acted = [each["payload"] for each in records if each["kind"] == "operator-acted"]
    assert acted == [{"action": "head-skipped", "author": "dev", **reason}]


def test_what_waits_for_its_next_attempt_goes_on_at_once(client: Client, conversation: str) -> None:
    submission = client.accepted(conversation, "fail", {"kind": "retryable", "times": 1})
    waiting = until(
        lambda: client.status(conversation, submission), lambda found: found["next_attempt_at"]
    )
    assert waiting["waiting_for"]["kind"] == "retry"
    answer = client.act(conversation, submission, "retry", {"reason": "it is back"})
    assert answer.status_code == 202
    assert client.settled(conversation, submission)["outcome"] == "completed"
    assert_problem(
        client.act(conversation, submission, "retry", {"reason": "again"}), 409, "already-settled"
    )
