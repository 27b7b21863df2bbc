"""What was settled is purged by the alarm that was set for it, and its key is answered by its tombstone."""

import time

import pytest

from worker.helpers.client import Client

pytestmark = pytest.mark.worker

RETENTION_S = 2
VARIABLES = {"QUIESCE_RETENTION_MS": str(RETENTION_S * 1_000)}
SECRET = "what the customer said"
TOMBSTONE = {
    "conversation",
    "submission",
    "sequence",
    "accepted_at",
    "outcome",
    "settled_at",
    "purged_at",
}


def purged(client: Client, conversation: str) -> str:
    """Have work done and purged; no request reaches the conversation meanwhile."""
    submission = client.accepted(conversation, "echo", SECRET, key="key")
    client.settled(conversation, submission)
    time.sleep(1.1 * RETENTION_S + 1)
    return submission


def test_a_purged_submission_is_gone_and_leaves_its_tombstone(
    client: Client, conversation: str
) -> None:
    submission = purged(client, conversation)
    one = f"/v1/conversations/{conversation}/submissions/{submission}"
    answers = [
        client.http.get(one),
        client.http.get(f"{one}/settlement"),
        client.http.get(f"{one}/explain"),
        client.submit(conversation, "echo", SECRET, "key"),
        client.act(conversation, submission, "abort", {"reason": "too late"}),
        client.http.get(f"/v1/conversations/{conversation}/events?submission={submission}"),
    ]
    for answer in answers:
        assert answer.status_code == 410, answer.text
        problem = answer.json()
        assert problem["code"] == "gone"
        assert problem["tombstone"].keys() == TOMBSTONE
        assert problem["tombstone"]["submission"] == submission
        assert problem["tombstone"]["outcome"] == "completed"
        assert SECRET not in answer.text
    conflict = client.submit(conversation, "echo", "other words", "key")
    assert conflict.status_code == 409
    assert conflict.json()["code"] == "idempotency-conflict"


def test_the_log_goes_on_and_the_list_shows_what_is_gone(client: Client, conversation: str) -> None:
    submission = purged(client, conversation)
    lane = client.lane(conversation)
    assert lane["alarm_at"] is None
    assert lane["last_pass"]["purged"] == 1
    assert lane["counts"]["settled"] == 1
    records = client.http.get(f"/v1/conversations/{conversation}/records").json()["items"]
    said = [each["payload"] for each in records if each.get("submission") == submission]
    assert said == [None] * len(said)
    assert len(said) == 2
    listed = client.http.get(f"/v1/conversations/{conversation}/submissions").json()["items"]
    assert [each["settlement"] for each in listed] == [None]
    assert listed[0]["state"] == "settled"
    assert listed[0]["tombstone"]["submission"] == submission
    later = client.settled(conversation, client.accepted(conversation, "echo", "more"))
    assert later["result"] == "more"
    verified = client.http.get(f"/v1/conversations/{conversation}/verify").json()
    assert verified["ok"], verified
