"""Who asks, and whether they may: bearer tokens, roles, and the conversations a token is kept to.

1. A deployment without tokens is closed, but for whom Cloudflare Access lets in: `assertions.py`.
2. The deployment knows digests only, and compares a caller's with every one of them in constant time.
3. No role implies another: what a token may do is what its setting lists.
4. A token with a prefix sees no conversation outside it; it is refused before anything is read.
"""

import hashlib
import hmac
from collections.abc import Mapping
from enum import StrEnum

from quiesce.errors import Refusal, RefusalCode
from quiesce.settings import Token


class Role(StrEnum):
    """What a token may be allowed to do."""

    SUBMIT = "submit"
    OBSERVE = "observe"
    DECIDE = "decide"
    OPERATE = "operate"


def authenticate(tokens: Mapping[str, Token], authorization: str | None) -> Token:
    """Find the token that an Authorization header carries.

    Raises Refusal: `unauthenticated`, with the same words for a token that is missing and one that is wrong.
    """
    scheme, _, secret = (authorization or "").strip().partition(" ")
    presented = hashlib.sha256(secret.strip().encode()).hexdigest().encode()
    found: Token | None = None
    for digest, token in tokens.items():
        if hmac.compare_digest(digest.lower().encode(), presented):
            found = token
    if found is None or scheme.lower() != "bearer":
        raise unauthenticated()
    return found


def unauthenticated() -> Refusal:
    """Build the refusal of whoever has not said who asks, whatever is wrong: it helps nobody to guess."""
    message = (
        "send a token of this deployment as 'Authorization: Bearer <token>', or come through Cloudflare Access"
        " where the deployment is set up for it"
    )
    return Refusal(RefusalCode.UNAUTHENTICATED, message)


def require_role(token: Token, role: Role) -> None:
    """Refuse a token that lacks a role."""
    if role.value not in token.roles:
        message = f"this needs a token with the role {role.value!r}"
        raise Refusal(RefusalCode.FORBIDDEN, message, {"role": role.value})


def require_conversation(token: Token, conversation: str) -> None:
    """Refuse a token that is kept to other conversations."""
    if not conversation.startswith(token.prefix):
        message = "this token is kept to other conversations"
        raise Refusal(RefusalCode.FORBIDDEN, message)
