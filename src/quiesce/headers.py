"""The request headers that mean something here, and what each may say.

1. What a header must say to be of use is refused with what to send; what is only a preference is ignored.
2. HTTP joins a header that is sent twice with a comma, so a repeated Idempotency-Key is one key, the joined one:
   the same request still finds the same submission.
"""

import re

from quiesce.errors import Refusal, RefusalCode
from quiesce.ids import IDEMPOTENCY_KEY

JSON_MEDIA_TYPE = "application/json"
WAIT = re.compile(r'wait\s*=\s*"?([0-9]{1,9})"?', re.IGNORECASE)


def is_json(media_type: str | None) -> bool:
    """Say whether a Content-Type is JSON in UTF-8, which is the only JSON there is."""
    kind, *parameters = (media_type or "").lower().split(";")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip().strip('"') not in {"utf-8", "utf8"}:
            return False
    return kind.strip() == JSON_MEDIA_TYPE


def idempotency_key(text: str | None) -> str:
    """Check the Idempotency-Key: the header's whole value, taken as it stands."""
    if text is None or not IDEMPOTENCY_KEY.fullmatch(text):
        found = "there is none" if text is None else f"this one has {len(text)} characters"
        message = (
            "send a header Idempotency-Key of 1 to 255 printable ASCII characters, a new one for new work and"
            f" the same one to repeat a request; {found}"
        )
        raise Refusal(RefusalCode.INVALID_REQUEST, message)
    return text


def wait_seconds(prefer: str | None, maximum: int) -> int | None:
    """Read `wait=N` from a Prefer header (RFC 7240), clipped to `maximum`; None if it does not say so.

    The first one counts; what is malformed or another preference is ignored.
    """
    for preference in (prefer or "").split(","):
        name = preference.partition(";")[0].strip()
        if name.lower().partition("=")[0].strip() == "wait":
            found = WAIT.fullmatch(name)
            return None if found is None else min(int(found[1]), maximum)
    return None
