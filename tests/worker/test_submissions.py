"""What is accepted settles, and every answer has exactly the shape of the contract.

Not tested here: refusals (test_refusals), limits (test_limits), failures (test_failures), crashes.

Parity: DRT-3, DRT-5, RH-1, TP-1.
"""

import re
from datetime import datetime
from typing import Any

import pytest

from worker.helpers.client import Client, until
from worker.helpers.outside import Outside

pytestmark = pytest.mark.worker

RECEIPT = {"conversation", "submission", "sequence", "accepted_at", "settlement"}
STATUS = {
    "conversation",
    "submission",
    "sequence",
    "agent",
    "state",
    "attempts",
    "interruptions",
    "waiting_for",
    "next_attempt_at",
    "settlement",
    "cost",
}
SETTLEMENT = {"conversation", "submission", "outcome", "result", "failure", "settled_at", "cost"}
COST = {"wakes", "rows_read", "rows_written", "active_ms", "usd"}
LANE = {
    "conversation",
    "counts",
    "head",
    "blocked_on",
    "generation",
    "alarm_at",
    "due_at",
    "parked",
    "last_pass",
    "cost",
}
MAINTENANCE = {
    "generation",
    "nonterminal",
    "due_at",
    "alarm_at",
    "failures",
    "idle_wakes",
    "parked",
    "alarm_repaired",
    "last_pass",
}
RECORD = {"sequence", "record_id", "kind", "epoch", "created_at", "payload", "digest"}
STATES = {
    "admitted",
    "ready",
    "running",
    "input-applied",
    "suspended",
    "unknown",
    "joining",
    "joined",
    "terminalizing",
    "quarantined",
    "settled",
}
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")

ANY_JSON: list[Any] = [
    None,
    True,
    0,
    -1.5,
    9_007_199_254_740_993,
    10**40,
    "",
    "text with \u0000, \U0001f600 and \u2028",
    [],
    {},
    {"b": 1, "a": [1, 2.0, {"deep": None}], "": "empty name"},
]


def test_accepted_work_settles_from_the_alarm_alone(client: Client, conversation: str) -> None:
    response = client.submit(conversation, "echo", {"x": 1})
    assert response.status_code == 202
    receipt = response.json()
    assert set(receipt) == RECEIPT
    assert receipt["conversation"] == conversation
    assert re.fullmatch(r"sub_[0-9a-f]{32}", receipt["submission"])
    assert receipt["sequence"] == 1
    assert INSTANT.fullmatch(receipt["accepted_at"])
    assert receipt["settlement"] is None
    path = f"/v1/conversations/{conversation}/submissions/{receipt['submission']}"
    assert response.headers["location"] == path

    settlement = client.settled(conversation, receipt["submission"])
    assert set(settlement) == SETTLEMENT
    assert set(settlement["cost"]) == COST
    assert settlement["outcome"] == "completed"
    assert settlement["result"] == {"x": 1}
    assert settlement["failure"] is None
    assert INSTANT.fullmatch(settlement["settled_at"])


@pytest.mark.parametrize("value", ANY_JSON, ids=lambda value: repr(value)[:20])
def test_any_json_comes_back_as_it_went(client: Client, conversation: str, value: Any) -> None:
    submission = client.accepted(conversation, "echo", value)
    result = client.settled(conversation, submission)["result"]
    assert result == value
    assert type(result) is type(value)


def test_a_body_at_the_depth_limit_is_taken_and_comes_back(
    client: Client, conversation: str
) -> None:
    value: Any = 1
    for level in range(39):
        value = [value] if level % 2 else {"in": value}
    submission = client.accepted(conversation, "echo", value)
    assert client.settled(conversation, submission)["result"] == value
    assert client.status(conversation, submission)["settlement"]["result"] == value
    assert client.records(conversation)[1]["payload"]["input"] == value


def test_reads_have_the_shapes_of_the_contract(client: Client, conversation: str) -> None:
    submission = client.accepted(conversation, "echo", 1)
    settlement = client.settled(conversation, submission)
    status = client.status(conversation, submission)
    assert set(status) == STATUS
    assert status["state"] == "settled"
    assert status["settlement"] == settlement
    assert status["cost"] == settlement["cost"]

    quiet = until(lambda: client.maintenance(conversation), lambda found: not found["alarm_at"])
    assert set(quiet) == MAINTENANCE
    assert quiet["generation"] == {"dirty": "1", "processed": "1"}
    assert quiet["nonterminal"] == 0
    assert quiet["last_pass"]["settled"] == 1

    lane = client.lane(conversation)
    assert set(lane) == LANE
    assert lane["counts"] == dict.fromkeys(STATES, 0) | {"settled": 1}
    assert lane["head"] is None
    assert lane["blocked_on"] is None
    assert set(lane["cost"]) == COST


def test_the_log_holds_the_whole_story_in_order(client: Client, conversation: str) -> None:
    submission = client.accepted(conversation, "steps", {"count": 2})
    client.settled(conversation, submission)
    records = client.records(conversation)
    assert [record["sequence"] for record in records] == [1, 2, 3, 4, 5]
    kinds = [record["kind"] for record in records]
    assert kinds == [
        "conversation-created",
        "input-applied",
        "step-completed",
        "step-completed",
        "settlement",
    ]
    assert set(records[0]) == RECORD
    for record in records[1:]:
        assert set(record) == RECORD | {"submission"}
        assert record["submission"] == submission
        assert re.fullmatch(r"[0-9a-f]{64}", record["digest"])
    assert len({record["record_id"] for record in records}) == 5


def test_pages_of_the_log_are_bounded_and_lose_nothing(client: Client, conversation: str) -> None:
    submission = client.accepted(conversation, "steps", {"count": 5})
    client.settled(conversation, submission)
    path = f"/v1/conversations/{conversation}/records"
    first = client.read(path, limit=3)
    assert set(first) == {"items", "next"}
    assert len(first["items"]) == 3
    assert client.items(path, limit=3) == client.items(path)
    assert client.read(path, after=8)["items"] == []
    assert client.read(path, after=8)["next"] is None


def test_pages_of_submissions_are_bounded_by_the_bytes_of_their_results(
    client: Client, conversation: str
) -> None:
    """What crosses between two Objects is bounded by the platform, and a page of large results is shorter."""
    made = [client.accepted(conversation, "echo", "x" * 400_000) for _ in range(5)]
    client.settled(conversation, made[-1])
    path = f"/v1/conversations/{conversation}/submissions"
    first = client.read(path)
    assert [each["submission"] for each in first["items"]] == made[:2]
    assert first["next"] is not None
    assert [each["submission"] for each in client.items(path)] == made
    assert [each["submission"] for each in client.items(path, limit=1)] == made


def test_the_same_request_finds_the_same_submission(client: Client, conversation: str) -> None:
    first = client.submit(conversation, "echo", {"a": 1, "b": 2}, "key")
    again = client.submit(conversation, "echo", {"b": 2, "a": 1}, "key")
    assert "idempotent-replayed" not in first.headers
    assert again.status_code == 200
    assert again.headers["idempotent-replayed"] == "true"
    for name in ("conversation", "submission", "sequence", "accepted_at"):
        assert again.json()[name] == first.json()[name]
    settlement = client.settled(conversation, first.json()["submission"])
    assert client.submit(conversation, "echo", {"a": 1, "b": 2}, "key").json() == {
        **first.json(),
        "settlement": settlement,
    }


@pytest.mark.parametrize(
    ("value", "terms", "differing"),
    [
        (2, {}, ["input"]),
        (1, {"mode": "join"}, ["mode"]),
        (1, {"deadline_ms": 60_000}, ["deadline_ms"]),
        (2, {"mode": "join"}, ["mode", "input"]),
    ],
)
def test_a_key_with_other_content_is_a_conflict_that_names_it(
    client: Client, conversation: str, value: int, terms: dict[str, Any], differing: list[str]
) -> None:
    submission = client.accepted(conversation, "echo", 1, key="key")
    response = client.submit(conversation, "echo", value, "key", **terms)
    assert response.status_code == 409
    problem = response.json()
    assert problem["code"] == "idempotency-conflict"
    assert problem["differing"] == differing
    assert problem["submission"] == submission
    client.settled(conversation, submission)
    assert client.lane(conversation)["counts"]["settled"] == 1


def test_principals_and_conversations_do_not_share_keys(
    client: Client, caller_with: Any, conversation: str
) -> None:
    found = {
        client.accepted(conversation, "echo", 1, key="key"),
        caller_with("other").accepted(conversation, "echo", 1, key="key"),
        client.accepted(f"{conversation}-2", "echo", 1, key="key"),
    }
    assert len(found) == 3


def test_a_lane_is_first_in_first_out(client: Client, conversation: str) -> None:
    submitted = [client.accepted(conversation, "echo", number) for number in range(8)]
    client.settled(conversation, submitted[-1])
    settled = [
        record["submission"]
        for record in client.records(conversation)
        if record["kind"] == "settlement"
    ]
    assert settled == submitted


def test_submissions_are_listed_page_by_page_and_by_state(
    client: Client, conversation: str
) -> None:
    submitted = [client.accepted(conversation, "echo", number) for number in range(5)]
    client.settled(conversation, submitted[-1])
    path = f"/v1/conversations/{conversation}/submissions"
    page = client.read(path, limit=2)
    assert [item["submission"] for item in page["items"]] == submitted[:2]
    assert set(page["items"][0]) == STATUS
    assert [item["submission"] for item in client.items(path, limit=2)] == submitted
    assert len(client.items(path, state="settled", limit=2)) == 5
    assert client.items(path, state="ready") == []


def test_prefer_wait_puts_the_settlement_into_the_receipt(
    client: Client, conversation: str
) -> None:
    response = client.submit(conversation, "echo", 7, headers={"prefer": "respond-async, wait=10"})
    assert response.status_code == 202
    assert response.headers["preference-applied"] == "wait=10"
    assert set(response.json()) == RECEIPT
    assert response.json()["settlement"]["result"] == 7


def test_prefer_wait_is_clipped_and_what_is_malformed_is_ignored(
    client: Client, conversation: str
) -> None:
    clipped = client.submit(conversation, "echo", 1, headers={"prefer": "wait=9999"})
    assert clipped.headers["preference-applied"] == "wait=25"
    ignored = client.submit(conversation, "echo", 1, headers={"prefer": "wait=soon"})
    assert "preference-applied" not in ignored.headers


def test_a_settlement_still_owed_is_answered_with_what_is_known(
    client: Client, conversation: str, outside_server: Outside
) -> None:
    outside_server.failures_left["0"] = 3
    work = {"count": 1, "url": outside_server.url}
    submission = client.accepted(conversation, "steps", work)
    response = client.http.get(
        f"/v1/conversations/{conversation}/submissions/{submission}/settlement"
    )
    assert response.status_code == 202
    assert set(response.json()) == STATUS
    assert int(response.headers["retry-after"]) >= 1
    assert client.settled(conversation, submission)["outcome"] == "completed"


def test_an_unchanged_status_is_not_sent_again(client: Client, conversation: str) -> None:
    submission = client.accepted(conversation, "echo", 1)
    client.settled(conversation, submission)
    path = f"/v1/conversations/{conversation}/submissions/{submission}"
    etag = client.http.get(path).headers["etag"]
    unchanged = client.http.get(path, headers={"if-none-match": f'"other", {etag}'})
    assert unchanged.status_code == 304
    assert unchanged.content == b""
    assert unchanged.headers["etag"] == etag
    assert client.http.get(path, headers={"if-none-match": '"other"'}).status_code == 200


def test_each_step_is_taken_once(
    client: Client, conversation: str, outside_server: Outside
) -> None:
    work = {"count": 4, "url": outside_server.url}
    submission = client.accepted(conversation, "steps", work)
    assert client.settled(conversation, submission)["result"] == {"done": 4}
    assert outside_server.calls == {"0": 1, "1": 1, "2": 1, "3": 1}


def test_a_step_that_failed_is_tried_again_and_no_other_is(
    client: Client, conversation: str, outside_server: Outside
) -> None:
    outside_server.failures_left["2"] = 2
    work = {"count": 4, "url": outside_server.url}
    submission = client.accepted(conversation, "steps", work)
    assert client.settled(conversation, submission)["result"] == {"done": 4}
    assert outside_server.calls == {"0": 1, "1": 1, "2": 3, "3": 1}
    assert client.status(conversation, submission)["attempts"] == 2


def test_an_operator_can_always_force_a_pass(client: Client, conversation: str) -> None:
    client.settled(conversation, client.accepted(conversation, "echo", 1))
    path = f"/v1/conversations/{conversation}/maintenance/pass"
    response = client.http.post(path, json={"reason": "to see it"})
    assert response.status_code == 202
    assert set(response.json()) == MAINTENANCE
    assert client.http.post(path).status_code == 202
    caught_up = {"dirty": "3", "processed": "3"}
    quiet = until(
        lambda: client.maintenance(conversation), lambda found: found["generation"] == caught_up
    )
    assert quiet["alarm_at"] is None
    acted = [each["payload"] for each in client.records(conversation)][-2:]
    assert [each["reason"] for each in acted] == ["to see it", ""]
    assert {each["author"] for each in acted} == {"dev"}


def test_the_deployment_says_what_it_serves(client: Client) -> None:
    page = client.read("/v1/agents")
    agents = {agent["name"]: agent for agent in page["items"]}
    assert {"echo", "fail", "steps"} <= set(agents)
    assert agents["steps"]["version"] == "1"
    assert "count" in agents["steps"]["input_schema"]["properties"]
    assert "done" in agents["steps"]["output_schema"]["properties"]


def test_every_answer_is_json_that_no_cache_keeps(client: Client, conversation: str) -> None:
    client.accepted(conversation, "echo", 1)
    for path in ("/healthz", "/v1/agents", f"/v1/conversations/{conversation}", "/nowhere"):
        headers = client.http.get(path).headers
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-type"] in {"application/json", "application/problem+json"}


def test_head_is_get_without_the_body(client: Client, conversation: str) -> None:
    client.accepted(conversation, "echo", 1)
    response = client.http.head(f"/v1/conversations/{conversation}")
    assert response.status_code == 200
    assert response.content == b""


def test_instants_are_in_order(client: Client, conversation: str) -> None:
    receipt = client.submit(conversation, "echo", 1).json()
    settlement = client.settled(conversation, receipt["submission"])
    accepted, settled = (
        datetime.fromisoformat(text) for text in (receipt["accepted_at"], settlement["settled_at"])
    )
    assert accepted <= settled
