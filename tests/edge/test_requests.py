"""How a request becomes a command, without a runtime: bodies, headers, paths, tokens.

What the same things answer over HTTP is tested in tests/worker.

Parity: SN-14, SN-17, SN-28 to SN-30.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import pytest

from quiesce import asks, headers, routes, verbs, wire
from quiesce.access import Role, authenticate
from quiesce.agent import Registry
from quiesce.errors import Refusal, RefusalCode
from quiesce.settings import Settings, Token

TOKENS = {
    hashlib.sha256(b"all").hexdigest(): Token(principal="all", roles=tuple(Role)),
    hashlib.sha256(b"kept").hexdigest(): Token(principal="kept", roles=tuple(Role), prefix="k-"),
    **{
        hashlib.sha256(role.encode()).hexdigest(): Token(principal=role, roles=(role,))
        for role in Role
    },
}
SETTINGS = Settings(tokens=TOKENS)
SUBMISSION = "sub_" + "0" * 32
SENT = {"content-type": "application/json", "idempotency-key": "k"}


def command(
    method: str,
    path: str,
    sent_headers: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> Any:
    """Take a request through everything that the router takes it through, and return its command."""
    path, _, query = path.partition("?")
    sent = {"authorization": "Bearer all", **(sent_headers or {})}
    route = routes.find(method, path)
    request = asks.Request(method, path, query, sent.get)
    call = routes.open_call(route, request, SETTINGS, Registry([]))
    if route.body is not None:
        call = routes.with_body(call, body)
    return route.build(call)


def refusal_of(*arguments: Any, **named: Any) -> Refusal:
    with pytest.raises(Refusal) as raised:
        command(*arguments, **named)
    return raised.value


def nested(levels: int) -> bytes:
    return b'{"agent":"echo","input":' + b"[" * levels + b"]" * levels + b"}"


def test_every_command_survives_the_border() -> None:
    lane = "/v1/conversations/c"
    for method, path, body in (
        ("POST", f"{lane}/submissions", nested(39)),
        ("GET", f"{lane}/submissions?limit=5&after=7&state=ready", b""),
        ("GET", f"{lane}/submissions/{SUBMISSION}", b""),
        ("GET", f"{lane}/submissions/{SUBMISSION}/settlement", b""),
        ("POST", f"{lane}/submissions/{SUBMISSION}/retry", b'{"reason":"r"}'),
        ("GET", lane, b""),
        ("HEAD", f"{lane}/maintenance", b""),
        ("POST", f"{lane}/maintenance/pass", b""),
        ("GET", f"{lane}/records", b""),
    ):
        made = command(method, path, SENT, body)
        assert verbs.COMMANDS.validate_json(made.model_dump_json()) == made


def test_infinity_reaches_the_object_as_infinity_and_never_as_null() -> None:
    body = b'{"agent":"echo","input":[1e999]}'
    made = command("POST", "/v1/conversations/c/submissions", SENT, body)
    assert verbs.COMMANDS.validate_json(made.model_dump_json()).body.input == [float("inf")]


@pytest.mark.parametrize(("levels", "is_taken"), [(39, True), (40, False), (150, False)])
def test_the_depth_of_a_body_is_limited_at_its_edge(levels: int, *, is_taken: bool) -> None:
    if is_taken:
        assert wire.parse_body(wire.SubmitBody, nested(levels)).agent == "echo"
        return
    with pytest.raises(Refusal) as raised:
        wire.parse_body(wire.SubmitBody, nested(levels))
    assert raised.value.facts == {
        "limit": "BODY_DEPTH_MAX",
        "actual": levels + 1,
        "maximum": wire.BODY_DEPTH_MAX,
    }


@pytest.mark.parametrize(
    ("prefer", "seconds"),
    [
        (None, None),
        ("", None),
        ("wait=5", 5),
        ("WAIT = 5", 5),
        ('wait="5"', 5),
        ("respond-async, wait=5; x=y, wait=9", 5),
        ("wait=0", 0),
        ("wait=1000", 25),
        ("wait", None),
        ("wait=-1", None),
        ("wait=5.5", None),
        ("waiting=5", None),
        ("handling=lenient", None),
    ],
)
def test_prefer_is_read_as_rfc_7240_has_it(prefer: str | None, seconds: int | None) -> None:
    assert headers.wait_seconds(prefer, 25) == seconds


@pytest.mark.parametrize(
    ("media_type", "is_json"),
    [
        ("application/json", True),
        ("Application/JSON ; Charset=UTF-8", True),
        ('application/json; charset="utf-8"; profile=x', True),
        ("application/json; charset=utf-16", False),
        ("application/problem+json", False),
        ("text/json", False),
        ("", False),
        (None, False),
    ],
)
def test_only_json_in_utf_8_is_json(media_type: str | None, *, is_json: bool) -> None:
    assert headers.is_json(media_type) is is_json


@pytest.mark.parametrize(
    ("header", "principal"),
    [
        ("Bearer all", "all"),
        ("bearer  all ", "all"),
        ("Bearer kept", "kept"),
        ("Bearer ALL", None),
        ("Basic all", None),
        ("all", None),
        ("", None),
        (None, None),
        ("Bearer t\u00f6ken", None),
    ],
)
def test_a_token_is_found_by_its_digest_alone(header: str | None, principal: str | None) -> None:
    if principal is not None:
        assert authenticate(TOKENS, header).principal == principal
        return
    with pytest.raises(Refusal) as raised:
        authenticate(TOKENS, header)
    assert raised.value.code is RefusalCode.UNAUTHENTICATED


def test_an_escaped_slash_is_no_separator() -> None:
    refusal = refusal_of("GET", "/v1/conversations/a%2Fsubmissions")
    assert refusal.code is RefusalCode.INVALID_REQUEST


def test_who_asks_is_checked_before_what_is_asked() -> None:
    wrong = {"authorization": "Bearer wrong"}
    refusal = refusal_of("GET", "/v1/conversations/%00?colour=red", wrong)
    assert refusal.code is RefusalCode.UNAUTHENTICATED


def test_a_token_is_kept_to_its_prefix() -> None:
    kept = {"authorization": "Bearer kept"}
    assert command("GET", "/v1/conversations/k-1", kept).conversation == "k-1"
    assert refusal_of("GET", "/v1/conversations/1", kept).code is RefusalCode.FORBIDDEN


@pytest.mark.parametrize("route", routes.ROUTES, ids=lambda route: f"{route.method} {route.path}")
@pytest.mark.parametrize("role", Role)
def test_a_role_opens_the_rows_that_name_it_and_those_that_name_none(
    route: asks.Route, role: Role
) -> None:
    path = route.path.format(conversation="c", submission=SUBMISSION, operation="o", signal="s")
    sent = {**SENT, "authorization": f"Bearer {role}"}
    request = asks.Request(route.method, path, "", sent.get)
    if route.role in {None, role}:
        token = routes.open_call(route, request, SETTINGS, Registry([])).token
        assert token is None or token.principal == role
        return
    with pytest.raises(Refusal) as refused:
        routes.open_call(route, request, SETTINGS, Registry([]))
    assert refused.value.code is RefusalCode.FORBIDDEN
    assert refused.value.facts == {"role": route.role}


def test_only_who_operates_lets_children_go() -> None:
    path = f"/v1/conversations/c/submissions/{SUBMISSION}/abort"
    submitter = {**SENT, "authorization": "Bearer submit"}
    assert not command("POST", path, submitter, b'{"detach":false}').detaches
    refused = refusal_of("POST", path, submitter, b'{"detach":true}')
    assert (refused.code, refused.facts) == (RefusalCode.FORBIDDEN, {"role": "operate"})
    assert command("POST", path, SENT, b'{"detach":true}').detaches


def test_one_for_whom_access_vouches_needs_no_bearer_token_and_is_kept_like_its_holder() -> None:
    route = routes.find("GET", "/v1/conversations/k-1")
    request = asks.Request("GET", "/v1/conversations/k-1", "", {}.get)
    vouched = Token(principal="ann@example.com", roles=("observe",), prefix="k-")
    call = routes.open_call(route, request, SETTINGS, Registry([]), vouched=vouched)
    assert call.principal == "ann@example.com"
    for less in (
        Token(principal="ann@example.com", roles=("submit",)),
        Token(principal="ann@example.com", roles=("observe",), prefix="l-"),
    ):
        with pytest.raises(Refusal) as refused:
            routes.open_call(route, request, SETTINGS, Registry([]), vouched=less)
        assert refused.value.code is RefusalCode.FORBIDDEN


def test_every_row_of_the_table_is_found_by_its_own_path() -> None:
    for route in routes.ROUTES:
        path = route.path.replace("{", "").replace("}", "")
        assert routes.find(route.method, path) is route


def test_every_word_of_a_path_has_a_pattern() -> None:
    words = {
        segment[1:-1]
        for route in routes.ROUTES
        for segment in route.segments
        if segment.startswith("{")
    }
    assert words <= routes.SEGMENTS.keys()


def test_every_refusal_has_a_status_and_a_title() -> None:
    assert set(wire.STATUS) == set(wire.TITLES) == set(RefusalCode)


def test_a_settlement_is_put_into_a_receipt_without_parsing_either() -> None:
    receipt = wire.dump({"submission": "s", "settlement": None})
    assert wire.settled_receipt(receipt, '{"result":1}') == (
        '{"submission":"s","settlement":{"result":1}}'
    )
