"""Who may ask for what: ids, routes, methods, queries, tokens and roles; every refusal writes nothing."""

from typing import Any

import pytest

from worker.helpers import disk
from worker.helpers.client import Client, assert_problem, submissions
from workshop.serving import Server

pytestmark = pytest.mark.worker

IDS = ["a%2Fb", "a%00b", "a%0Ab", "%20", "a%20b", "%C3%A9", "%FF", "-a", "x" * 129, "a%5Cb", ""]


@pytest.mark.usefixtures("nothing_written")
@pytest.mark.parametrize("name", IDS, ids=lambda name: name[:10] or "empty")
def test_an_unlawful_conversation_id_is_refused_and_reaches_no_object(
    server: Server, client: Client, name: str
) -> None:
    before = disk.object_files(server)
    for response in (
        client.http.get(f"/v1/conversations/{name}/submissions"),
        client.submit(name, "echo", 1),
        client.http.get(f"/v1/conversations/{name}/records"),
    ):
        assert_problem(response, 400, "invalid-request")
    assert disk.object_files(server) == before


def test_lawful_characters_make_lawful_conversations(client: Client, conversation: str) -> None:
    for name in (f"{conversation}:a@b~c.d-e_f", conversation.ljust(128, "x")):
        submission = client.accepted(name, "echo", 1)
        assert client.settled(name, submission)["conversation"] == name
    escaped = client.http.get(f"/v1/conversations/{conversation}%3Aa%40b~c.d-e_f")
    assert escaped.status_code == 200


@pytest.mark.parametrize("name", ["sub_%2F", "sub_%00", "x" * 129, "%20"])
def test_an_unlawful_submission_id_is_refused(client: Client, conversation: str, name: str) -> None:
    """RT-6."""
    client.accepted(conversation, "echo", 1)
    response = client.http.get(f"{submissions(conversation)}/{name}")
    assert_problem(response, 400, "invalid-request")


@pytest.mark.parametrize("name", ["nope", "sub_nope", "sub_" + "0" * 32])
def test_a_submission_that_does_not_exist_is_not_found(
    client: Client, conversation: str, name: str
) -> None:
    client.accepted(conversation, "echo", 1)
    path = f"{submissions(conversation)}/{name}"
    assert_problem(client.http.get(path), 404, "not-found")
    assert_problem(client.http.get(f"{path}/settlement"), 404, "not-found")
    assert_problem(client.http.post(f"{path}/retry"), 404, "not-found")


@pytest.mark.usefixtures("nothing_written")
def test_reads_of_a_conversation_that_does_not_exist_leave_it_virgin(
    client: Client, conversation: str
) -> None:
    lane = f"/v1/conversations/{conversation}"
    submission = f"{lane}/submissions/sub_{'0' * 32}"
    paths = [lane, f"{lane}/submissions", f"{lane}/records", f"{lane}/maintenance"]
    for path in [*paths, submission, f"{submission}/settlement"]:
        assert_problem(client.http.get(path, headers={"prefer": "wait=1"}), 404, "not-found")
    assert_problem(client.http.post(f"{submission}/retry"), 404, "not-found")
    assert_problem(client.http.post(f"{lane}/maintenance/pass"), 404, "not-found")


@pytest.mark.usefixtures("nothing_written")
@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/agents/", "/v2/agents", "/v1/conversations", "/favicon.ico"]
)
def test_an_unknown_route_is_not_found(client: Client, path: str) -> None:
    assert_problem(client.http.get(path), 404, "not-found")


@pytest.mark.usefixtures("nothing_written")
@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "PURGE"])
def test_a_wrong_method_is_refused_and_the_right_ones_named(
    client: Client, conversation: str, method: str
) -> None:
    response = client.http.request(method, submissions(conversation))
    assert_problem(response, 405, "method-not-allowed")
    assert response.headers["allow"] == "GET, POST, HEAD"
    assert_problem(client.http.post("/healthz"), 405, "method-not-allowed")


@pytest.mark.usefixtures("nothing_written")
def test_a_path_without_its_id_is_no_route(client: Client, conversation: str) -> None:
    path = f"{submissions(conversation)}/{'sub_' + '0' * 32}"
    for missing in ("approvals/", "resolutions/", "signals/"):
        assert_problem(client.http.post(f"{path}/{missing}", json={}), 404, "not-found")
    for missing in (f"{submissions(conversation)}/", "/v1/conversations/"):
        assert_problem(client.http.get(missing), 404, "not-found")


def test_a_probe_may_add_what_it_likes(client: Client) -> None:
    assert client.http.get("/healthz?probe=1&probe=2").status_code == 200


@pytest.mark.usefixtures("nothing_written")
@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=201",
        "limit=ten",
        "limit=-1",
        "limit=",
        "limit=1&limit=2",
        "after=x",
        "after=-1",
        "after=99999999999999999",
        "state=lost",
        "state=",
        "colour=red",
    ],
)
def test_a_wrong_query_is_refused(client: Client, conversation: str, query: str) -> None:
    problem = assert_problem(
        client.http.get(f"{submissions(conversation)}?{query}"), 400, "invalid-request"
    )
    assert query.partition("=")[0] in problem["detail"] or "twice" in problem["detail"]


@pytest.mark.usefixtures("nothing_written")
@pytest.mark.parametrize("token", [None, "wrong"])
def test_a_missing_or_wrong_token_is_refused(
    caller_with: Any, conversation: str, token: str | None
) -> None:
    caller = caller_with(token)
    for response in (caller.submit(conversation, "echo", 1), caller.http.get("/v1/agents")):
        assert_problem(response, 401, "unauthenticated")
        assert response.headers["www-authenticate"].startswith("Bearer")
    assert caller.http.get("/healthz").status_code == 200


@pytest.mark.usefixtures("nothing_written")
def test_another_scheme_is_no_token(caller_with: Any, conversation: str) -> None:
    caller = caller_with(None)
    for value in ("Basic ZGV2", "dev", "Bearer", "Bearer dev dev"):
        response = caller.submit(conversation, "echo", 1, headers={"authorization": value})
        assert_problem(response, 401, "unauthenticated")


@pytest.mark.usefixtures("nothing_written")
@pytest.mark.parametrize("role", ["submit", "observe", "decide", "operate"])
def test_each_role_opens_its_routes_and_no_other(
    caller_with: Any, conversation: str, role: str
) -> None:
    caller = caller_with(f"only-{role}")
    lane = f"/v1/conversations/{conversation}"
    needed = {
        "submit": caller.http.post(f"{lane}/submissions"),
        "observe": caller.http.get(lane),
        "operate": caller.http.post(f"{lane}/maintenance/pass"),
    }
    for need, response in needed.items():
        if need == role:
            # Allowed in, and refused further on, because there is nothing there or nothing was sent.
            assert response.status_code in {400, 404, 415}, response.text
        else:
            problem = assert_problem(response, 403, "forbidden")
            assert problem["role"] == need


def test_a_token_kept_to_a_prefix_sees_no_other_conversation(
    client: Client, caller_with: Any, conversation: str
) -> None:
    client.accepted(conversation, "echo", 1)
    caller = caller_with("kept")
    assert_problem(caller.http.get(f"/v1/conversations/{conversation}"), 403, "forbidden")
    assert_problem(caller.submit(conversation, "echo", 1), 403, "forbidden")
    submission = caller.accepted(f"kept-{conversation}", "echo", 1)
    assert caller.settled(f"kept-{conversation}", submission)["result"] == 1


def test_only_a_quarantined_submission_is_retried(client: Client, conversation: str) -> None:
    submission = client.accepted(conversation, "echo", 1)
    path = f"{submissions(conversation)}/{submission}/retry"
    settled = client.settled(conversation, submission)
    refused = client.http.post(path, json={"reason": "why not"})
    assert assert_problem(refused, 409, "already-settled")["settlement"] == settled
    wrong = assert_problem(client.http.post(path, json={"reason": 1}), 422, "invalid-request")
    assert wrong["errors"][0]["field"] == "reason"
