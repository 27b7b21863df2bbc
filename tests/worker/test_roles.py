"""Every role on every route: made from the table of routes, so that a route that is added later is asked for too.

Each request is one that its route takes, so that what is refused is refused for who asks and for nothing else.
Not tested here: callers who come through Cloudflare Access, which is in tests/worker/test_access.py.

Parity: AO-7, SEC-5.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from quiesce import api
from quiesce.access import Role
from quiesce.asks import Route
from quiesce.routes import ROUTES
from worker.helpers import disk
from worker.helpers.client import Client, assert_problem
from workshop.serving import Server

pytestmark = pytest.mark.worker

VARIABLES = {"QUIESCE_EVENTS_SECONDS_MAX": "1"}
SECRET = "only-for-its-own-tenant"
KEPT = [route for route in ROUTES if route.role is not None]
NAMING = [route for route in ROUTES if "{conversation}" in route.path]


def named(route: Route) -> str:
    return f"{route.method} {route.path}"


by_kept_route = pytest.mark.parametrize("route", KEPT, ids=named)
by_naming_route = pytest.mark.parametrize("route", NAMING, ids=named)


@dataclass(frozen=True)
class Foreign:
    """A conversation with a submission that waits for an approval, and all that can be seen of it."""

    client: Client
    conversation: str
    submission: str

    def look(self) -> tuple[Any, ...]:
        return (
            self.client.records(self.conversation),
            self.client.maintenance(self.conversation)["generation"],
            self.client.status(self.conversation, self.submission),
        )


@pytest.fixture(scope="module")
def foreign(server: Server) -> Iterator[Foreign]:
    with Client(server.url) as client:
        submission = client.accepted("foreign", "approval", {"question": SECRET}, key="foreign")
        client.waits("foreign", submission, "approval")
        yield Foreign(client, "foreign", submission)


def ask(caller: Client, route: Route, target: Foreign, method: str | None = None) -> httpx.Response:
    """Make the request of the route's own example about a conversation, and read what there is to read."""
    words = {
        "conversation": target.conversation,
        "submission": target.submission,
        "operation": "question",
        "signal": "paid",
    }
    path = route.path.format(**words)
    headers = {"idempotency-key": "foreign", "content-type": "application/json"}
    body = api.DESCRIPTIONS[route.method, route.path].body
    with caller.http.stream(
        method or route.method,
        path,
        headers=headers if route.body is not None else {},
        content=None if route.body is None else json.dumps(body),
    ) as response:
        response.read()
    return response


def methods_of(route: Route) -> list[str]:
    return ["GET", "HEAD"] if route.method == "GET" else [route.method]


def assert_refused(response: httpx.Response, method: str, status: int, code: str) -> dict[str, Any]:
    """Check a refusal; to a HEAD it has no body."""
    if method != "HEAD":
        return assert_problem(response, status, code)
    assert response.status_code == status
    assert response.content == b""
    return {}


def test_the_table_is_asked_for_as_a_whole() -> None:
    assert len(KEPT) >= 19
    assert len(NAMING) >= 18
    assert {route.role for route in KEPT} == set(Role)


@by_kept_route
@pytest.mark.parametrize("role", Role)
def test_a_role_opens_its_own_routes_and_no_other(
    client: Client, caller_with: Any, conversation: str, route: Route, role: Role
) -> None:
    caller = caller_with(f"only-{role}")
    own = settled_conversation(client, conversation)
    for method in methods_of(route):
        response = ask(caller, route, own, method)
        if role is route.role:
            assert response.status_code not in {401, 403}, response.text
            assert response.status_code < 500, response.text
        else:
            problem = assert_refused(response, method, 403, "forbidden")
            assert method == "HEAD" or problem["role"] == route.role


def settled_conversation(client: Client, conversation: str) -> Foreign:
    """Make a conversation that nothing can wait for any more."""
    submission = client.accepted(conversation, "echo", 1)
    client.settled(conversation, submission)
    return Foreign(client, conversation, submission)


@by_kept_route
@pytest.mark.parametrize("token", [None, "wrong"])
def test_without_a_token_every_route_is_closed_and_nothing_is_written(
    caller_with: Any, foreign: Foreign, route: Route, token: str | None
) -> None:
    before = foreign.look()
    for method in methods_of(route):
        response = ask(caller_with(token), route, foreign, method)
        assert_refused(response, method, 401, "unauthenticated")
        assert SECRET not in response.text
    assert foreign.look() == before


@pytest.mark.parametrize("route", [each for each in ROUTES if each.role is None], ids=named)
def test_a_route_for_everybody_asks_for_no_token(caller_with: Any, route: Route) -> None:
    for method in methods_of(route):
        response = caller_with(None).http.request(method, route.path)
        assert response.status_code == 200


@by_naming_route
def test_a_token_of_another_tenant_learns_nothing_and_writes_nothing(
    server: Server, caller_with: Any, foreign: Foreign, route: Route
) -> None:
    """It cannot even tell a conversation that exists from one that does not."""
    caller = caller_with("kept")
    before, files = foreign.look(), disk.object_files(server)
    virgin = Foreign(caller, "virgin", foreign.submission)
    for method in methods_of(route):
        response = ask(caller, route, foreign, method)
        problem = assert_refused(response, method, 403, "forbidden")
        for secret in (SECRET, foreign.submission, "question", "approval", '"dev"'):
            assert secret not in response.text
        assert set(problem) <= {"type", "title", "status", "detail", "code"}
        of_virgin = ask(caller, route, virgin, method)
        assert of_virgin.status_code == 403
        assert of_virgin.content == response.content
        assert headers_of(of_virgin) == headers_of(response)
    assert foreign.look() == before
    assert disk.object_files(server) == files


def headers_of(response: httpx.Response) -> dict[str, str]:
    """Return what we say in the headers; whether a connection goes on is the runtime's to say."""
    return {name: text for name, text in response.headers.items() if name != "connection"}


@pytest.mark.parametrize("name", ["kept", "Kept-x", "xkept-", "%6bept", "kept%2Dx/../foreign"])
def test_a_prefix_is_where_a_name_begins(caller_with: Any, name: str) -> None:
    caller = caller_with("kept")
    assert caller.http.get(f"/v1/conversations/{name}").status_code in {403, 404}
    assert_problem(caller.http.get("/v1/conversations/kept-x"), 404, "not-found")
    assert_problem(caller.http.get("/v1/conversations/%6bept-x"), 404, "not-found")


def test_only_who_operates_lets_children_go(
    caller_with: Any, foreign: Foreign, client: Client, conversation: str
) -> None:
    before = foreign.look()
    body = {"reason": "gone", "detach": True}
    for role, lacking in (("submit", "operate"), ("operate", "submit")):
        caller = caller_with(f"only-{role}")
        refused = caller.act(foreign.conversation, foreign.submission, "abort", body)
        assert assert_problem(refused, 403, "forbidden")["role"] == lacking
    assert foreign.look() == before
    submission = client.accepted(conversation, "approval", {"question": "?"})
    client.waits(conversation, submission, "approval")
    assert client.act(conversation, submission, "abort", body).status_code == 202
    assert client.settled(conversation, submission)["outcome"] == "aborted"
