"""Whom Cloudflare Access vouches for: what its assertion must say, and the token that it is worth here.

Access adds the assertion, a signed JWT, to every request that it lets through, in a header. A browser also sends it
in a cookie; that is not read, because Cloudflare does not promise it and any site can make a browser send it.

1. An assertion is bounded before any of it is parsed, and is worth nothing until its signature holds.
2. It is signed with RS256 or it is refused: the algorithm is never its bearer's choice.
3. Whatever is wrong with it, the refusal has the words of a missing token. Only one whom Access does know, and whom
   this deployment does not list, is told so.
4. An e-mail address is looked up as it is, then by its domain, in lower case; a service token by its common name,
   which is never taken for an e-mail address.
5. Where there is an Authorization header, it alone counts.
6. A browser sends what Access knows it by with every request, even one that another site made it send. So what
   changes something is taken from no other site.

This module does no input or output: `keyring.py` decides about keys, `signatures.py` gets them and checks by them.
"""

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from quiesce.access import unauthenticated
from quiesce.errors import Refusal, RefusalCode
from quiesce.ids import parse_json
from quiesce.settings import DOMAIN_MARK, AccessCaller, Settings, Token

HEADER = "cf-access-jwt-assertion"
ALGORITHM = "RS256"
ASSERTION_BYTES_MAX = 16_384
LEEWAY_S = 60
"""How far the clocks of Access and of this deployment may be apart."""
NAME_MAX = 255
_COMPACT = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")
_READS = frozenset({"GET", "HEAD"})
_OWN_SITES = frozenset({None, "same-origin", "none"})
"""What `Sec-Fetch-Site` says where the caller is no browser, a page of this origin, or the person themself."""

Instant = Annotated[float, Field(allow_inf_nan=False)]
"""Seconds since the epoch."""


class _Parsed(BaseModel):
    """Of what a team may add to its tokens, nothing else is read."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class _Head(_Parsed):
    alg: str
    kid: Annotated[str, Field(min_length=1, max_length=NAME_MAX)]
    crit: Any = None
    """Names what its reader has to understand; there is nothing of that kind that we do."""


class Claims(_Parsed):
    """What an assertion says of whom it was made for."""

    iss: str
    aud: str | list[str]
    exp: Instant
    iat: Instant
    nbf: Instant | None = None
    email: Annotated[str, Field(max_length=NAME_MAX)] | None = None
    common_name: Annotated[str, Field(max_length=NAME_MAX)] | None = None


@dataclass(frozen=True, slots=True)
class Assertion:
    """An assertion whose claims hold now, if its signature does."""

    key_id: str
    signed: bytes
    signature: bytes
    claims: Claims


def presented(header: Callable[[str], str | None], settings: Settings) -> str | None:
    """Return the assertion that counts, or None where a bearer token does, or nothing was sent."""
    if not settings.takes_access or header("authorization") is not None:
        return None
    return header(HEADER)


def read(text: str, settings: Settings, now_ms: int) -> Assertion:
    """Parse an assertion, and check all of it but its signature.

    Raises Refusal: `unauthenticated`.
    """
    parts = _COMPACT.fullmatch(text) if len(text) <= ASSERTION_BYTES_MAX else None
    if parts is None:
        raise unauthenticated()
    try:
        head = _Head.model_validate(parse_json(_decoded(parts[1])))
        claims = Claims.model_validate(parse_json(_decoded(parts[2])))
        signature = _decoded(parts[3])
    except ValueError:
        raise unauthenticated() from None
    is_ours = head.alg == ALGORITHM and head.crit is None and _is_for_us(claims, settings)
    if not is_ours or not _is_now(claims, now_ms / 1_000):
        raise unauthenticated()
    return Assertion(head.kid, f"{parts[1]}.{parts[2]}".encode(), signature, claims)


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _is_for_us(claims: Claims, settings: Settings) -> bool:
    audiences = [claims.aud] if isinstance(claims.aud, str) else claims.aud
    is_known = any(each in settings.access_audiences for each in audiences)
    return is_known and claims.iss == settings.access_issuer


def _is_now(claims: Claims, now_s: float) -> bool:
    begins_s = max(claims.iat, claims.iat if claims.nbf is None else claims.nbf)
    return begins_s - LEEWAY_S <= now_s < claims.exp + LEEWAY_S


def token_of(claims: Claims, settings: Settings) -> Token:
    """Find what one whom Access vouches for may do here.

    Raises Refusal: `forbidden` for one whom the deployment does not list, `unauthenticated` for nobody at all.
    """
    name = (claims.email or "").lower() or claims.common_name
    if not name:
        raise unauthenticated()
    caller = _listed(name, settings, is_person=bool(claims.email))
    if caller is None:
        message = "Cloudflare Access knows you, and this deployment does not list you"
        raise Refusal(RefusalCode.FORBIDDEN, message)
    return Token(principal=caller.principal or name, roles=caller.roles, prefix=caller.prefix)


def _listed(name: str, settings: Settings, *, is_person: bool) -> AccessCaller | None:
    listed = settings.access_callers
    if is_person:
        local, _, domain = name.rpartition("@")
        is_address = local and "@" not in local
        return (listed.get(name) or listed.get(DOMAIN_MARK + domain)) if is_address else None
    return None if "@" in name else listed.get(name)


def require_own_site(method: str, fetched_from: str | None) -> None:
    """Refuse a request that another site made a browser send, unless it only reads.

    `fetched_from` is the header `Sec-Fetch-Site`, which a browser sends and a page cannot change.
    """
    if method not in _READS and fetched_from not in _OWN_SITES:
        message = "a page of another site may not do this by way of a person's browser"
        raise Refusal(RefusalCode.FORBIDDEN, message)
