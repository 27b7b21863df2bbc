"""Everything that crosses the edge: bytes in, commands to the Object, answers out, refusals and their status.

1. Bytes become a value here and nowhere else: bounded, closed, and safe against depth. What a body means must not
   depend on who parses it, so a name that stands twice in one object is refused, and so is a number that no
   double holds.
2. One JSON string goes to the Object, one comes back; the router only carries them.
3. Every refusal is a problem document of RFC 9457 with the code of the closed set.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from quiesce.admission import field_errors
from quiesce.errors import Refusal, RefusalCode
from quiesce.ids import JSON_DEPTH_MAX, parse_json

STATUS: Mapping[RefusalCode, int] = {
    RefusalCode.INVALID_REQUEST: 400,
    RefusalCode.UNAUTHENTICATED: 401,
    RefusalCode.FORBIDDEN: 403,
    RefusalCode.NOT_FOUND: 404,
    RefusalCode.METHOD_NOT_ALLOWED: 405,
    RefusalCode.IDEMPOTENCY_CONFLICT: 409,
    RefusalCode.ALREADY_SETTLED: 409,
    RefusalCode.DECISION_CONFLICT: 409,
    RefusalCode.NOT_WAITING: 409,
    RefusalCode.JOINED_TO_HOST: 409,
    RefusalCode.GONE: 410,
    RefusalCode.INPUT_TOO_LARGE: 413,
    RefusalCode.UNSUPPORTED_MEDIA_TYPE: 415,
    RefusalCode.UNKNOWN_AGENT: 422,
    RefusalCode.QUEUE_FULL: 429,
    RefusalCode.RATE_LIMITED: 429,
    RefusalCode.CORRUPTION: 500,
    RefusalCode.UNAVAILABLE: 503,
    RefusalCode.DATABASE_FULL: 507,
}
FIELD_ERRORS_STATUS = 422
"""`invalid-request` when the request is well-formed and some fields of it are not."""
TITLES: Mapping[RefusalCode, str] = {
    RefusalCode.INVALID_REQUEST: "The request is not valid",
    RefusalCode.UNAUTHENTICATED: "A valid token is required",
    RefusalCode.FORBIDDEN: "This token may not do that",
    RefusalCode.NOT_FOUND: "There is nothing here",
    RefusalCode.METHOD_NOT_ALLOWED: "This route does not take that method",
    RefusalCode.IDEMPOTENCY_CONFLICT: "The key was used for other work",
    RefusalCode.ALREADY_SETTLED: "The submission is settled",
    RefusalCode.DECISION_CONFLICT: "Another decision is recorded",
    RefusalCode.NOT_WAITING: "The submission does not wait for that",
    RefusalCode.JOINED_TO_HOST: "The submission has joined another",
    RefusalCode.GONE: "The submission was purged",
    RefusalCode.INPUT_TOO_LARGE: "The input is too large",
    RefusalCode.UNSUPPORTED_MEDIA_TYPE: "The body must be JSON",
    RefusalCode.UNKNOWN_AGENT: "There is no such agent",
    RefusalCode.QUEUE_FULL: "The conversation's queue is full",
    RefusalCode.RATE_LIMITED: "Too many requests",
    RefusalCode.CORRUPTION: "Stored state breaks a law",
    RefusalCode.UNAVAILABLE: "The conversation cannot be served now",
    RefusalCode.DATABASE_FULL: "The conversation's database is full",
}
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
RETRY_AFTER_DEFAULT_S = 1
TRY_AGAIN = frozenset({429, 503})
"""The statuses that carry a Retry-After: the same request may succeed later."""
PAGE_MAX = 200
PAGE_DEFAULT = 50
BODY_DEPTH_MAX = JSON_DEPTH_MAX
"""How deep arrays and objects of a body may nest. An input is one level inside, so that a handler can pass all of
it to an operation, whose list of arguments is one level around."""
REFUSED_FROM = 400
"""A status from here on is a refusal's."""
PROBLEM_TYPE = "urn:quiesce:problem:"
UNSETTLED = '"settlement":null}'
"""How the text of a receipt ends while there is no settlement."""
BODY_ENVELOPE_BYTES = 65_536
"""What a body may hold beside an input of the greatest size."""
ESCAPED_MAX = 3
"""JSON that escapes all it can takes up to three times the bytes of the canonical form."""


class Body(BaseModel):
    """The body of a request. Infinity stays visible on its way to the Object, which refuses it."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", ser_json_inf_nan="constants"
    )


class SubmitBody(Body):
    """What a client POSTs to have work done."""

    agent: Annotated[str, Field(min_length=1, max_length=100)]
    input: Any
    mode: Literal["queue", "join"] = "queue"
    deadline_ms: Annotated[int, Field(gt=0, le=366 * 86_400_000)] | None = None
    callback_url: Annotated[str, Field(max_length=2_000)] | None = None


class ReasonBody(Body):
    """Why an operator acts."""

    reason: Annotated[str, Field(max_length=1_000)] = ""


class AbortBody(Body):
    """Why a submission has to end; an operator may let its children go instead of waiting for them."""

    reason: Annotated[str, Field(max_length=1_000)] = ""
    detach: bool = False


class DecisionBody(Body):
    """What a person decides about an approval; either form of the word is taken."""

    decision: Literal["approve", "approved", "deny", "denied"]
    reason: Annotated[str, Field(max_length=1_000)] = ""

    @property
    def choice(self) -> Literal["approved", "denied"]:
        """The decision as it is recorded."""
        return "approved" if self.decision in {"approve", "approved"} else "denied"


class ResolutionBody(Body):
    """What became of an unknown call; `result` is the call's result when it completed."""

    resolution: Literal["completed", "failed", "never-happened", "safe-to-retry", "abort"]
    result: Any = None
    call: Annotated[int, Field(ge=1)] | None = None
    """Which call is meant, as `explain` counts them: so that a repeat decides about no later one."""
    reason: Annotated[str, Field(max_length=1_000)] = ""


class SignalBody(Body):
    """What a signal carries: any JSON value, null included."""

    payload: Any


def parse_body[B: Body](model: type[B], raw: bytes) -> B:
    """Turn the bytes of a body into its model.

    Raises Refusal: `invalid-request`, with `errors` where the JSON is well-formed and its fields are not.
    """
    value = _parse_strictly(raw)
    if not isinstance(value, dict):
        raise _field_refusal([{"field": "", "problem": "The body should be a JSON object"}])
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _field_refusal(field_errors(error)) from None


def _field_refusal(errors: list[dict[str, str]]) -> Refusal:
    first = errors[0]
    message = f"{first['field'] or 'the body'}: {first['problem']}"
    return Refusal(RefusalCode.INVALID_REQUEST, message, {"errors": errors})


def _parse_strictly(raw: bytes) -> Any:
    try:
        value = parse_json(raw)
        depth = _depth(value)
        if depth > BODY_DEPTH_MAX:
            raise Refusal(
                RefusalCode.INVALID_REQUEST,
                f"the body nests {depth} levels deep, {BODY_DEPTH_MAX} are allowed",
                {"limit": "BODY_DEPTH_MAX", "actual": depth, "maximum": BODY_DEPTH_MAX},
            )
        # The standard parser recurses, which is safe only now that the depth is known; pydantic's parser
        # keeps the last of two equal names in silence.
        json.loads(raw, object_pairs_hook=_refuse_repeated_names)
    except ValueError as error:
        message = f"the body is not JSON that can be taken: {error}"
        raise Refusal(RefusalCode.INVALID_REQUEST, message[:500]) from None
    return value


def _depth(value: Any) -> int:
    """Count the levels of arrays and objects, without recursing."""
    depth, level = 0, [value]
    while level := [each for each in level if isinstance(each, dict | list)]:
        depth += 1
        level = [
            child for each in level for child in (each.values() if isinstance(each, dict) else each)
        ]
    return depth


def _refuse_repeated_names(pairs: list[tuple[str, Any]]) -> None:
    names = {name for name, _ in pairs}
    if len(names) != len(pairs):
        message = "an object has the same name twice"
        raise ValueError(message)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer to one command: an HTTP status, headers and a JSON body."""

    status: int
    body: Any
    headers: Mapping[str, str]

    def encode(self) -> str:
        """Return the answer as the one string that crosses the border: status, headers, a newline, the body."""
        return f"{self.status} {dump(dict(self.headers))}\n{dump(self.body)}"


def decode_answer(text: str) -> tuple[int, dict[str, str], str]:
    """Split what `encode` made, without parsing the body."""
    head, _, body = text.partition("\n")
    status, _, headers = head.partition(" ")
    return int(status), parse_json(headers), body


def dump(value: Any) -> str:
    """Write a value of ours as JSON."""
    return _ENCODER.encode(value)


def settled_receipt(receipt: str, settlement: str) -> str:
    """Put a settlement's text in its place in a receipt's text, which has none yet.

    Neither is parsed: a result may nest deeper than a parser would follow once it stands inside a receipt.
    """
    assert receipt.endswith(UNSETTLED), receipt
    return f"{receipt.removesuffix('null}')}{settlement}}}"


def code_of(problem: str) -> str | None:
    """Read the code from a problem's text, which begins with it; the rest, which may be long, is not parsed."""
    _, begins, rest = problem[:100].partition(f'{{"type":"{PROBLEM_TYPE}')
    return rest.partition('"')[0] if begins else None


def answer(status: int, body: Any, **headers: str) -> Answer:
    """Build an answer; underscores in header names stand for hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, body, {"content-type": "application/json", **named})


def spread(headers: dict[str, str], draw: float) -> None:
    """Make a Retry-After up to twice as long, by a draw from [0, 1): who was refused together comes back apart."""
    if "retry-after" in headers:
        seconds = int(headers["retry-after"])
        headers["retry-after"] = str(seconds + int(draw * (seconds + 1)))


def refuse(refusal: Refusal) -> Answer:
    """Turn a refusal into its problem document."""
    status = STATUS[refusal.code]
    if refusal.code is RefusalCode.INVALID_REQUEST and "errors" in refusal.facts:
        status = FIELD_ERRORS_STATUS
    facts = dict(refusal.facts)
    headers = {"content-type": "application/problem+json"}
    retry_after_s = facts.pop("retry_after_s", RETRY_AFTER_DEFAULT_S)
    if status in TRY_AGAIN:
        headers["retry-after"] = str(retry_after_s)
    if refusal.code is RefusalCode.UNAUTHENTICATED:
        headers["www-authenticate"] = 'Bearer realm="quiesce"'
    if "allow" in facts:
        headers["allow"] = ", ".join(facts["allow"])
    problem = {
        "type": f"{PROBLEM_TYPE}{refusal.code}",
        "title": TITLES[refusal.code],
        "status": status,
        "detail": refusal.detail,
        "code": refusal.code.value,
        **facts,
    }
    return Answer(status, problem, headers)
