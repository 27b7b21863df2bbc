"""What an assertion of Cloudflare Access must say, and what it is worth, without a runtime or a key.

What is answered over HTTP, and that the signature must hold, is tested in tests/worker/test_access.py.
"""

import base64
import json
from typing import Any

import pytest

from quiesce import assertions
from quiesce.access import Role, authenticate
from quiesce.assertions import Claims
from quiesce.errors import Refusal, RefusalCode
from quiesce.settings import AccessCaller, Settings, Token, parse_settings

NOW_S = 1_800_000_000
CALLERS = {
    "ann@example.com": {"roles": ["submit", "observe"], "prefix": "ann-"},
    "*@example.com": {"roles": ["observe"]},
    "*@partner.example": {"principal": "partner", "prefix": "partner-"},
    "ci.access": {"roles": ["submit"]},
    "bot.access": {"principal": "bot", "roles": ["operate"]},
}
SETTINGS = parse_settings(
    {
        "QUIESCE_ACCESS_KEYS_URL": "https://team.cloudflareaccess.com/cdn-cgi/access/certs",
        "QUIESCE_ACCESS_ISSUER": "https://team.cloudflareaccess.com",
        "QUIESCE_ACCESS_AUDIENCES": '["tag-1","tag-2"]',
        "QUIESCE_ACCESS_CALLERS": json.dumps(CALLERS),
    }
)
HEAD = {"alg": "RS256", "kid": "first", "typ": "JWT"}
CLAIMS = {
    "iss": "https://team.cloudflareaccess.com",
    "aud": ["tag-1"],
    "exp": NOW_S + 3_600,
    "iat": NOW_S,
    "nbf": NOW_S,
    "email": "ann@example.com",
}


def part(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def text_of(head: Any = HEAD, said: Any = CLAIMS, signature: bytes = b"signed") -> str:
    return f"{part(head)}.{part(said)}.{part(signature)}"


def read(text: str) -> assertions.Assertion:
    return assertions.read(text, SETTINGS, NOW_S * 1_000)


def is_read(**changed: Any) -> bool:
    said = {name: value for name, value in {**CLAIMS, **changed}.items() if value != "absent"}
    try:
        read(text_of(said=said))
    except Refusal as refusal:
        return refusal.code is not RefusalCode.UNAUTHENTICATED
    return True


def test_an_assertion_is_read_with_the_bytes_that_were_signed() -> None:
    text = text_of()
    found = read(text)
    assert found.key_id == "first"
    assert found.signed.decode() == text.rpartition(".")[0]
    assert found.signature == b"signed"
    assert found.claims.email == "ann@example.com"


@pytest.mark.parametrize(
    ("changed", "holds"),
    [
        pytest.param({}, True, id="as-it-is"),
        pytest.param({"aud": "tag-2"}, True, id="audience-as-text"),
        pytest.param({"aud": ["other", "tag-2"]}, True, id="one-of-several-audiences"),
        pytest.param({"aud": ["other"]}, False, id="other-audience"),
        pytest.param({"aud": "tag"}, False, id="part-of-an-audience"),
        pytest.param({"aud": []}, False, id="no-audience"),
        pytest.param({"aud": "absent"}, False, id="audience-absent"),
        pytest.param({"aud": [["tag-1"]]}, False, id="audience-of-another-kind"),
        pytest.param({"iss": "https://other.cloudflareaccess.com"}, False, id="other-issuer"),
        pytest.param({"iss": CLAIMS["iss"] + "/"}, False, id="issuer-with-slash"),
        pytest.param({"iss": "absent"}, False, id="issuer-absent"),
        pytest.param({"exp": NOW_S - 59}, True, id="expired-within-the-leeway"),
        pytest.param({"exp": NOW_S - 60}, False, id="expired"),
        pytest.param({"exp": "absent"}, False, id="expiry-absent"),
        pytest.param({"exp": str(NOW_S + 5)}, False, id="expiry-as-text"),
        pytest.param({"exp": True}, False, id="expiry-true"),
        pytest.param({"exp": None}, False, id="expiry-null"),
        pytest.param({"nbf": NOW_S + 60}, True, id="soon-within-the-leeway"),
        pytest.param({"nbf": NOW_S + 61}, False, id="not-yet"),
        pytest.param({"nbf": "absent"}, True, id="beginning-absent"),
        pytest.param({"iat": NOW_S + 60}, True, id="made-soon-within-the-leeway"),
        pytest.param({"iat": NOW_S + 61}, False, id="made-in-the-future"),
        pytest.param({"iat": "absent"}, False, id="making-absent"),
        pytest.param({"iat": NOW_S - 0.5}, True, id="fraction-of-a-second"),
        pytest.param({"email": ["ann@example.com"]}, False, id="email-of-another-kind"),
        pytest.param({"email": "a" * 256}, False, id="email-too-long"),
        pytest.param({"custom": {"groups": ["a"]}}, True, id="more-than-we-read"),
    ],
)
def test_an_assertion_is_for_this_deployment_and_for_now(
    changed: dict[str, Any], *, holds: bool
) -> None:
    assert is_read(**changed) is holds


def test_an_expiry_beyond_every_number_is_none() -> None:
    said = json.dumps(CLAIMS).replace(str(CLAIMS["exp"]), "1e999").encode()
    with pytest.raises(Refusal):
        read(text_of(said=said))


@pytest.mark.parametrize(
    "head",
    [
        {**HEAD, "alg": "none"},
        {**HEAD, "alg": "None"},
        {**HEAD, "alg": "HS256"},
        {**HEAD, "alg": "rs256"},
        {**HEAD, "alg": "RS512"},
        {**HEAD, "alg": ["RS256"]},
        {"kid": "first"},
        {"alg": "RS256"},
        {**HEAD, "kid": ""},
        {**HEAD, "kid": 7},
        {**HEAD, "kid": "k" * 256},
        {**HEAD, "crit": ["b64"], "b64": False},
        [],
        "RS256",
    ],
    ids=str,
)
def test_an_assertion_names_a_key_and_the_one_algorithm(head: Any) -> None:
    with pytest.raises(Refusal) as refused:
        read(text_of(head))
    assert refused.value.code is RefusalCode.UNAUTHENTICATED


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("a.b", id="two-parts"),
        pytest.param(text_of() + ".x", id="four-parts"),
        pytest.param(text_of() + ", " + text_of(), id="sent-twice"),
        pytest.param(text_of() + "=", id="padded"),
        pytest.param(text_of() + "\n", id="line-end"),
        pytest.param(text_of().rpartition(".")[0] + ".", id="no-signature"),
        pytest.param("a.a.a", id="no-base64"),
        pytest.param(text_of(b"\xff\xfe"), id="no-text"),
        pytest.param(text_of(b"[" * 8_000), id="deep"),
        pytest.param(text_of(said=b'{"a":' * 1_500), id="deep-claims"),
        pytest.param("a" * 1_000_000, id="large"),
        pytest.param(".".join("a" * 1_000_000 for _ in range(3)), id="large-parts"),
        pytest.param("é.é.é", id="no-ascii"),
    ],
)
def test_what_is_no_assertion_is_refused(text: str) -> None:
    with pytest.raises(Refusal) as refused:
        read(text)
    assert refused.value.code is RefusalCode.UNAUTHENTICATED


def test_an_assertion_has_a_greatest_length() -> None:
    def of_length(length: int) -> str:
        short = text_of(signature=b"")
        return short + "A" * (length - len(short))

    longest = of_length(assertions.ASSERTION_BYTES_MAX)
    assert read(longest).key_id == "first"
    with pytest.raises(Refusal):
        read(longest + "AAAA")


def test_every_refusal_of_an_assertion_has_the_words_of_a_missing_token() -> None:
    with pytest.raises(Refusal) as missing:
        authenticate({}, None)
    for text in ("", text_of({**HEAD, "alg": "none"}), text_of(said={**CLAIMS, "aud": "x"})):
        with pytest.raises(Refusal) as refused:
            read(text)
        assert refused.value.detail == missing.value.detail
        assert refused.value.facts == missing.value.facts


@pytest.mark.parametrize(
    ("who", "expected"),
    [
        pytest.param(
            {"email": "ann@example.com"},
            Token(principal="ann@example.com", roles=("submit", "observe"), prefix="ann-"),
            id="by-address-before-domain",
        ),
        pytest.param(
            {"email": "Ann@Example.COM"},
            Token(principal="ann@example.com", roles=("submit", "observe"), prefix="ann-"),
            id="in-lower-case",
        ),
        pytest.param(
            {"email": "bob@example.com"},
            Token(principal="bob@example.com", roles=("observe",)),
            id="by-domain",
        ),
        pytest.param(
            {"email": "eve@partner.example"},
            Token(principal="partner", prefix="partner-"),
            id="principal-of-the-list",
        ),
        pytest.param(
            {"common_name": "ci.access"},
            Token(principal="ci.access", roles=("submit",)),
            id="service",
        ),
        pytest.param(
            {"common_name": "bot.access", "email": ""},
            Token(principal="bot", roles=("operate",)),
            id="service-with-an-empty-address",
        ),
    ],
)
def test_one_who_is_listed_has_the_token_of_the_list(who: dict[str, str], expected: Token) -> None:
    assert assertions.token_of(claims_of(who), SETTINGS) == expected


@pytest.mark.parametrize(
    ("who", "code"),
    [
        ({"email": "eve@other.example"}, RefusalCode.FORBIDDEN),
        ({"email": "eve@sub.example.com"}, RefusalCode.FORBIDDEN),
        ({"email": "eve@evil-example.com"}, RefusalCode.FORBIDDEN),
        ({"email": "eve@example.com@other.example"}, RefusalCode.FORBIDDEN),
        ({"email": "eve@other.example@example.com"}, RefusalCode.FORBIDDEN),
        ({"email": "@example.com"}, RefusalCode.FORBIDDEN),
        ({"email": "*@example.com"}, None),
        ({"email": "ci.access"}, RefusalCode.FORBIDDEN),
        ({"email": "eve@other.example", "common_name": "ci.access"}, RefusalCode.FORBIDDEN),
        ({"common_name": "other.access"}, RefusalCode.FORBIDDEN),
        ({"common_name": "CI.access"}, RefusalCode.FORBIDDEN),
        ({"common_name": "ann@example.com"}, RefusalCode.FORBIDDEN),
        ({"common_name": "*@example.com"}, RefusalCode.FORBIDDEN),
        ({}, RefusalCode.UNAUTHENTICATED),
        ({"email": "", "common_name": ""}, RefusalCode.UNAUTHENTICATED),
    ],
    ids=str,
)
def test_one_who_is_not_listed_is_told_so_and_nobody_is_nobody(
    who: dict[str, str], code: RefusalCode | None
) -> None:
    if code is None:
        # Somebody of the domain with an odd name has what everyone of the domain has.
        assert assertions.token_of(claims_of(who), SETTINGS).roles == ("observe",)
        return
    with pytest.raises(Refusal) as refused:
        assertions.token_of(claims_of(who), SETTINGS)
    assert refused.value.code is code


def claims_of(who: dict[str, str]) -> Claims:
    return Claims.model_validate({**CLAIMS, "email": None, **who})


def test_an_authorization_header_counts_alone() -> None:
    sent = {assertions.HEADER: "a.b.c"}
    assert assertions.presented(sent.get, SETTINGS) == "a.b.c"
    assert assertions.presented({}.get, SETTINGS) is None
    for authorization in ("Bearer x", "Basic x", ""):
        both = {**sent, "authorization": authorization}
        assert assertions.presented(both.get, SETTINGS) is None


def test_a_deployment_without_access_reads_no_assertion() -> None:
    assert assertions.presented({assertions.HEADER: "a.b.c"}.get, Settings()) is None


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize("site", [None, "same-origin", "none", "same-site", "cross-site", "", "x"])
def test_what_changes_something_is_taken_from_no_other_site(method: str, site: str | None) -> None:
    if method != "POST" or site in {None, "same-origin", "none"}:
        assertions.require_own_site(method, site)
        return
    with pytest.raises(Refusal) as refused:
        assertions.require_own_site(method, site)
    assert refused.value.code is RefusalCode.FORBIDDEN


def test_the_roles_of_a_caller_are_the_roles_there_are() -> None:
    roles = tuple(role.value for role in Role)
    assert AccessCaller.model_validate({"roles": roles}).roles == roles
    with pytest.raises(ValueError, match="roles"):
        AccessCaller.model_validate({"roles": ["admin"]})
