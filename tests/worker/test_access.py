"""Callers who come through Cloudflare Access: who is let in, with which roles, and by whose keys.

What an assertion must say is told case by case in tests/edge/test_assertions.py, and when keys are asked for in
tests/edge/test_keyring.py; here a real runtime checks real signatures. Not tested: Access itself.
"""

import base64
import hashlib
import hmac
import json
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives import serialization

from worker.conftest import ROLES, worker_with
from worker.helpers import access, disk
from worker.helpers.access import KeyServer, assertion, claims, encoded_json
from worker.helpers.client import Client, assert_problem, submissions
from workshop import serving

pytestmark = pytest.mark.worker

HEADER = "cf-access-jwt-assertion"
CALLERS = {
    "ann@example.com": {"roles": ROLES},
    "*@example.com": {"roles": ["observe"]},
    "kept@example.com": {"roles": ROLES, "prefix": "kept-"},
    "ci.access": {"principal": "ci", "roles": ["submit"]},
    "dev.access": {"principal": "dev", "roles": ROLES},
}
DAYS_S = 86_400
LASTING = {"exp": int(time.time()) + 30 * DAYS_S}


def agents(
    server: serving.Server, text: str | None, method: str = "GET", **headers: str
) -> httpx.Response:
    """Ask for what takes the role to observe and no conversation."""
    sent = {**headers, **({} if text is None else {HEADER: text})}
    return httpx.request(method, f"{server.url}/v1/agents", headers=sent, timeout=30)


def assert_refused(response: httpx.Response) -> None:
    """Check that the answer is that of a caller who has sent nothing, to the letter."""
    problem = assert_problem(response, 401, "unauthenticated")
    assert problem == {
        "type": "urn:quiesce:problem:unauthenticated",
        "title": "A valid token is required",
        "status": 401,
        "code": "unauthenticated",
        "detail": "send a token of this deployment as 'Authorization: Bearer <token>', or come through Cloudflare"
        " Access where the deployment is set up for it",
    }
    assert response.headers["www-authenticate"] == 'Bearer realm="quiesce"'


@pytest.fixture(scope="module")
def publisher() -> Iterator[KeyServer]:
    with access.serve_keys() as running:
        yield running


@pytest.fixture(scope="module")
def server(
    publisher: KeyServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[serving.Server]:
    folder = tmp_path_factory.mktemp("access")
    worker = worker_with(access.variables(publisher.url, CALLERS))
    with serving.Server.start(
        [worker], persist=folder / "state", log=folder / "log", snapshot=True
    ) as running:
        yield running


@pytest.fixture
def keys() -> Iterator[KeyServer]:
    with access.serve_keys() as running:
        yield running


@pytest.fixture
def cold(keys: KeyServer, tmp_path: Path) -> Iterator[serving.Server]:
    """A Worker that has asked for no key yet, on a clock of its own."""
    clock = tmp_path / "clock"
    clock.write_bytes(bytes(8))
    worker = worker_with(access.variables(keys.url, CALLERS))
    with serving.Server.start(
        [worker],
        persist=tmp_path / "state",
        log=tmp_path / "log",
        snapshot=True,
        clock=clock,
    ) as running:
        yield running


def test_one_whom_access_knows_works_as_themself(server: serving.Server, conversation: str) -> None:
    with Client(server.url, None) as ann:
        ann.http.headers[HEADER] = assertion(said=claims(email="Ann@example.com"))
        submission = ann.accepted(conversation, "approval", {"question": "?"})
        waiting = ann.waits(conversation, submission, "approval")["waiting_for"]
        action = f"approvals/{waiting['operation']}"
        decided = ann.act(conversation, submission, action, {"decision": "approve"})
        assert decided.status_code == 200
        result = ann.settled(conversation, submission)["result"]
        assert result == {"approved": True, "decided_by": "ann@example.com"}


def test_a_person_of_a_listed_domain_has_what_the_domain_has(
    server: serving.Server, conversation: str
) -> None:
    bob = assertion(said=claims(email="Bob@Example.com"))
    assert agents(server, bob).status_code == 200
    assert agents(server, bob, "HEAD").status_code == 200
    with Client(server.url, None) as caller:
        caller.http.headers[HEADER] = bob
        refused = assert_problem(caller.submit(conversation, "echo", 1), 403, "forbidden")
        assert refused["role"] == "submit"


def test_a_service_is_known_by_its_common_name(server: serving.Server, conversation: str) -> None:
    service = claims(email=None, nbf=None, sub="", common_name="ci.access", aud=access.AUDIENCE)
    with Client(server.url, None) as caller:
        caller.http.headers[HEADER] = assertion(said=service)
        assert caller.submit(conversation, "echo", 1).status_code == 202
        assert_problem(caller.http.get("/v1/agents"), 403, "forbidden")


def test_a_prefix_holds(server: serving.Server, conversation: str) -> None:
    with Client(server.url, None) as kept:
        kept.http.headers[HEADER] = assertion(said=claims(email="kept@example.com"))
        assert_problem(kept.submit(conversation, "echo", 1), 403, "forbidden")
        submission = kept.accepted(f"kept-{conversation}", "echo", 1)
        assert kept.settled(f"kept-{conversation}", submission)["result"] == 1


def test_one_who_is_not_listed_is_told_so(server: serving.Server) -> None:
    for who in ({"email": "eve@other.example"}, {"email": None, "common_name": "other.access"}):
        response = agents(server, assertion(said=claims(**who)))
        assert "does not list you" in assert_problem(response, 403, "forbidden")["detail"]


def wrong_assertions() -> dict[str, Any]:
    now = int(time.time())
    head, said, signature = assertion().split(".")
    public = access.private_key("first").public_key()
    pem = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    confused = f"{encoded_json({'alg': 'HS256', 'kid': 'first'})}.{said}"
    mac = hmac.new(pem, confused.encode(), hashlib.sha256).digest()
    bare = encoded_json({"alg": "none", "kid": "first"})
    forged = encoded_json(claims(email="ann@example.com", sub="forged"))
    flipped = ("B" if signature[0] == "A" else "A") + signature[1:]
    return {
        "other-audience": assertion(said=claims(aud=[access.OTHER_AUDIENCE])),
        "other-issuer": assertion(said=claims(iss="https://other.cloudflareaccess.com")),
        "expired": assertion(said=claims(exp=now - 120)),
        "not-yet": assertion(said=claims(nbf=now + 600)),
        "from-the-future": assertion(said=claims(iat=now + 600)),
        "nobody": assertion(said=claims(email=None)),
        "signed-by-another": assertion(signer="another"),
        "key-of-another": assertion("another"),
        "none": f"{bare}.{said}.",
        "none-with-signature": f"{bare}.{said}.{signature}",
        "hs256-by-the-public-key": f"{confused}.{access.encoded(mac)}",
        "rs256-by-a-mac": f"{head}.{said}.{access.encoded(mac)}",
        "other-claims": f"{head}.{forged}.{signature}",
        "other-signature": f"{head}.{said}.{flipped}",
        "short-signature": f"{head}.{said}.{signature[:100]}",
        "no-signature": f"{head}.{said}.",
        "no-parts": "nonsense",
        "deep": f"{head}.{base64.urlsafe_b64encode(b'[' * 9_000).decode()}.{signature}",
        "17-kilobytes": f"{head}.{'A' * 17_000}.{signature}",
    }


@pytest.mark.parametrize("what", wrong_assertions())
def test_whatever_is_wrong_the_refusal_is_that_of_a_missing_token(
    server: serving.Server, what: str
) -> None:
    assert agents(server, assertion()).status_code == 200
    assert_refused(agents(server, None))
    assert_refused(agents(server, wrong_assertions()[what]))


def test_an_enormous_assertion_lets_nobody_in_and_stops_nothing(server: serving.Server) -> None:
    pid = server.runtime_pid()
    for size in (60_000, 1_000_000):
        try:
            response = agents(server, "A" * size)
        except httpx.TransportError:
            continue
        assert response.status_code in {400, 401, 431}
    assert agents(server, assertion()).status_code == 200
    assert server.runtime_pid() == pid


def test_a_cookie_is_no_assertion(server: serving.Server) -> None:
    assert_refused(agents(server, None, cookie=f"CF_Authorization={assertion()}"))


def test_an_authorization_header_counts_alone(server: serving.Server) -> None:
    assert agents(server, "nonsense", authorization="Bearer dev").status_code == 200
    assert_refused(agents(server, assertion(), authorization="Bearer wrong"))
    assert_refused(agents(server, assertion(), authorization="Basic ZGV2"))
    kept_out = agents(server, assertion(), authorization="Bearer only-decide")
    assert_problem(kept_out, 403, "forbidden")


def test_a_route_for_everybody_looks_at_no_assertion(
    server: serving.Server, publisher: KeyServer
) -> None:
    before = publisher.calls
    for path in ("/healthz", "/openapi.json", "/docs"):
        response = httpx.get(server.url + path, headers={HEADER: assertion("unheard-of")})
        assert response.status_code == 200
    assert publisher.calls == before


def test_another_site_cannot_use_a_persons_browser(
    server: serving.Server, client: Client, conversation: str
) -> None:
    submission = client.accepted(conversation, "approval", {"question": "?"})
    client.waits(conversation, submission, "approval")
    path = f"{submissions(conversation)}/{submission}/abort"
    with Client(server.url, None) as browser:
        browser.http.headers[HEADER] = assertion()
        for site in ("cross-site", "same-site"):
            browser.http.headers["sec-fetch-site"] = site
            assert_problem(browser.http.post(path), 403, "forbidden")
            assert browser.http.get("/v1/agents").status_code == 200
        assert client.status(conversation, submission)["state"] == "suspended"
        browser.http.headers["sec-fetch-site"] = "same-origin"
        assert browser.http.post(path).status_code == 202
    assert client.settled(conversation, submission)["outcome"] == "aborted"


def test_one_principal_is_one_by_whichever_way_it_comes(
    server: serving.Server, client: Client, conversation: str
) -> None:
    key = uuid.uuid4().hex
    submission = client.accepted(conversation, "echo", 1, key=key)
    with Client(server.url, None) as service:
        said = claims(email=None, common_name="dev.access")
        service.http.headers[HEADER] = assertion(said=said)
        again = service.submit(conversation, "echo", 1, key=key)
    assert again.status_code == 200
    assert again.headers["idempotent-replayed"] == "true"
    assert again.json()["submission"] == submission


def test_a_refused_caller_writes_nothing(server: serving.Server, conversation: str) -> None:
    before = disk.object_files(server)
    with Client(server.url, None) as caller:
        for text in (assertion(signer="another"), assertion(said=claims(email="a@b.example"))):
            caller.http.headers[HEADER] = text
            assert caller.submit(conversation, "echo", 1).status_code in {401, 403}
    assert disk.object_files(server) == before


def test_the_keys_are_fetched_once_for_all_who_come_at_once(
    cold: serving.Server, keys: KeyServer
) -> None:
    keys.delay_s = 0.5
    text = assertion()
    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(lambda _: agents(cold, text).status_code, range(8)))
    assert statuses == [200] * 8
    assert keys.calls == 1


def test_one_who_goes_away_while_the_keys_are_fetched_stops_nobody_else(
    cold: serving.Server, keys: KeyServer
) -> None:
    keys.delay_s = 4
    with pytest.raises(httpx.ReadTimeout):
        httpx.get(f"{cold.url}/v1/agents", headers={HEADER: assertion()}, timeout=2)
    assert keys.calls == 1
    keys.delay_s = 0
    assert agents(cold, assertion()).status_code == 200
    assert keys.calls <= 2


def test_invented_key_ids_make_one_fetch_a_minute(cold: serving.Server, keys: KeyServer) -> None:
    assert agents(cold, assertion()).status_code == 200
    for expected in (1, 2):
        for _ in range(10):
            assert_refused(agents(cold, assertion(f"invented-{uuid.uuid4().hex}", signer="first")))
        assert keys.calls == expected
        cold.advance(61)
    # One that is wrong in itself is worth no question.
    other = claims(aud=[access.OTHER_AUDIENCE])
    assert_refused(agents(cold, assertion("invented", signer="first", said=other)))
    assert keys.calls == 2
    assert agents(cold, assertion()).status_code == 200


def test_a_new_key_is_found_and_one_that_was_taken_back_is_refused(
    cold: serving.Server, keys: KeyServer
) -> None:
    said = claims(**LASTING)
    old, new = assertion(said=said), assertion("second", said=said)
    assert agents(cold, old).status_code == 200
    keys.keys = [access.published("second"), access.published("first")]
    assert_refused(agents(cold, new))
    cold.advance(61)
    assert agents(cold, new).status_code == 200
    assert agents(cold, old).status_code == 200
    assert keys.calls == 2
    keys.keys = [access.published("second")]
    assert agents(cold, old).status_code == 200
    cold.advance(3_601)
    assert agents(cold, new).status_code == 200
    assert_refused(agents(cold, old))
    assert keys.calls == 3


def test_keys_that_are_held_serve_for_a_day_without_their_publisher(
    cold: serving.Server, keys: KeyServer
) -> None:
    said = claims(**LASTING)
    assert agents(cold, assertion(said=said)).status_code == 200
    keys.status = 500
    for hours in (2, 10, 11):
        cold.advance(hours * 3_600)
        assert agents(cold, assertion(said=said)).status_code == 200
        unknown = agents(cold, assertion("second", said=said))
        assert_problem(unknown, 503, "unavailable")
    assert keys.calls == 4
    cold.advance(2 * 3_600)
    assert_problem(agents(cold, assertion(said=said)), 503, "unavailable")
    keys.status = 200
    cold.advance(6)
    assert agents(cold, assertion(said=said)).status_code == 200


def unlike_keys() -> Mapping[str, Mapping[str, Any]]:
    weak = {**access.published("first"), "n": "A" * 300}
    return {
        "error": {"status": 500},
        "empty": {"status": 204, "text": b""},
        "no-json": {"text": b"<html>"},
        "deep": {"text": b'{"keys":' + b"[" * 50_000},
        "no-keys": {"keys": []},
        "weak-key": {"keys": [weak]},
        "too-large": {"text": b" " * 300_000 + json.dumps({"keys": []}).encode()},
        "not-there": {"status": 404},
    }


def test_without_keys_nobody_is_let_in_and_the_publisher_is_spared(
    cold: serving.Server, keys: KeyServer
) -> None:
    as_it_was = (keys.status, keys.text, keys.keys)
    for expected, (what, told) in enumerate(unlike_keys().items(), start=1):
        keys.status, keys.text, keys.keys = as_it_was
        for name, value in told.items():
            setattr(keys, name, value)
        for _ in range(3):
            response = agents(cold, assertion())
            assert_problem(response, 503, "unavailable")
            assert int(response.headers["retry-after"]) >= 5
        assert keys.calls == expected, what
        assert agents(cold, None, authorization="Bearer dev").status_code == 200
        cold.advance(6)
    keys.status, keys.text, keys.keys = as_it_was
    assert agents(cold, assertion()).status_code == 200


def test_no_other_address_says_which_keys_are_ours(cold: serving.Server, keys: KeyServer) -> None:
    with access.serve_keys() as other:
        keys.status, keys.location = 302, other.url
        assert_problem(agents(cold, assertion()), 503, "unavailable")
        assert other.calls == 0


def test_a_publisher_that_does_not_answer_is_waited_for_five_seconds(
    cold: serving.Server, keys: KeyServer
) -> None:
    keys.delay_s = 60
    began = time.monotonic()
    assert_problem(agents(cold, assertion()), 503, "unavailable")
    assert 4 < time.monotonic() - began < 15
    assert_problem(agents(cold, assertion()), 503, "unavailable")
    assert keys.calls == 1


def test_a_publisher_that_is_not_there_lets_nobody_in(tmp_path: Path) -> None:
    with access.serve_keys() as gone:
        url = gone.url
    worker = worker_with(access.variables(url, CALLERS))
    with serving.Server.start(
        [worker], persist=tmp_path / "state", log=tmp_path / "log", snapshot=True
    ) as server:
        assert_problem(agents(server, assertion()), 503, "unavailable")
    assert "keys-unavailable" in (tmp_path / "log").read_text("utf-8")
