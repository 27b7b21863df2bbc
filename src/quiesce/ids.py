"""Identifiers, how each is derived, canonical JSON, and the digest.

1. An identifier that can be derived is derived, never drawn: the same request names the same submission
   on every incarnation, so a retry can only ever find what it made before.
2. One value has one canonical JSON text; digests are taken over that text and nothing else.
3. JSON from outside is parsed by pydantic's parser, which refuses deep nesting with an error.
   The standard library's parser recurses in C and takes the whole process down at a few thousand levels.
"""

import hashlib
import json
import re
from typing import Any, NewType

from pydantic_core import from_json, to_json

JSON_DEPTH_MAX = 40
"""Values nest no deeper. pydantic's serializer gives up at 49 levels in the Worker's runtime, at 255 on a host."""
_LEAVES = frozenset({str, int, float, bool, type(None)})
_ENCODER = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
)
"""Built once: `json.dumps` would build one for each call."""

ConversationId = NewType("ConversationId", str)
SubmissionId = NewType("SubmissionId", str)
OperationId = NewType("OperationId", str)
RecordId = NewType("RecordId", str)

CONVERSATION_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@~-]{0,127}")
SUBMISSION_ID = re.compile(r"sub_[0-9a-f]{32}")
OPERATION_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}")
OPERATION_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@~-]{0,219}")
IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?")


def canonical_json(value: Any) -> str:
    """Return the one JSON text of `value`: sorted keys, no spaces, no NaN.

    Raises ValueError for what JSON cannot say: NaN, infinities, lone surrogates, integers beyond the
    interpreter's digit limit, nesting beyond JSON_DEPTH_MAX, sets, or types without a JSON form.
    """
    if not _is_plain(value):
        value = parse_json(to_json(value, inf_nan_mode="constants"))
    text = plain_json(value)
    if not text.isascii():
        text.encode()
    return text


def plain_json(value: Any) -> str:
    """Return the one JSON text of what is plain JSON already, and no deeper than we store."""
    return _ENCODER.encode(value)


def _is_plain(value: Any) -> bool:
    """Say whether a value is made of JSON's own types, looking without recursing.

    Refuses sets, whose order and so whose text differ from one process to the next, and what nests too deep.
    """
    is_plain = True
    waiting = [(value, 1)]
    while waiting:
        each, depth = waiting.pop()
        kind = type(each)
        if kind in _LEAVES:
            continue
        if isinstance(each, set | frozenset):
            raise ValueError("a set has no order, and so no one JSON text: sort it into a list")  # noqa: TRY004
        if not isinstance(each, dict | list | tuple):
            is_plain = False
            continue
        if depth > JSON_DEPTH_MAX:
            raise ValueError(f"it nests deeper than {JSON_DEPTH_MAX} levels")
        if isinstance(each, dict):
            is_plain = is_plain and kind is dict and all(type(key) is str for key in each)
            waiting.extend((one, depth + 1) for one in each.values())
        else:
            is_plain = is_plain and kind is list
            waiting.extend((one, depth + 1) for one in each)
    return is_plain


def parse_json(text: str | bytes) -> Any:
    """Parse JSON from outside without ever recursing in C.

    Raises ValueError with the parser's sentence: malformed, too deep, NaN or Infinity, a lone surrogate. A number
    beyond a double, such as 1e400, comes back as an infinity, which canonical_json refuses.
    """
    return from_json(text, allow_inf_nan=False, cache_strings="none")


def digest(text: str) -> str:
    """Return the SHA-256 of the text's UTF-8 bytes, as 64 lower-case hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def submission_id(conversation: ConversationId, principal: str, key: str) -> SubmissionId:
    """Derive a submission's id from who asked for it, where, and under which idempotency key."""
    return SubmissionId("sub_" + digest(plain_json([conversation, principal, key]))[:32])


def operation_id(name: str, ordinal: int, key: str | None = None) -> OperationId:
    """Derive an operation's id from its name, its key and how often this Run has used that name before.

    The first use reads `name`, the second `name~1`; with a key, `name@key` and `name@key~1`.
    """
    keyed = name if key is None else f"{name}@{key}"
    return OperationId(keyed if ordinal == 0 else f"{keyed}~{ordinal}")


def record_id(owner: str, *parts: str) -> RecordId:
    """Derive a record's id from what it belongs to and what it says, such as `sub_…/input`."""
    return RecordId("/".join((owner, *parts)))
