"""The table of routes, and how a request becomes the one command that it asks for.

1. A row of ROUTES is all there is to a route: method, path, role, how to build its command, what it may be asked.
2. What is checked comes in this order: the path, the method, the caller, the role, the ids in the path, the
   query, the headers, the body. What is refused has reached no Object.
3. A path is split before it is decoded, so that an escaped slash is a character of an id and never a separator.

This module does no input or output, and knows neither JavaScript nor the Object.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import parse_qsl, unquote_to_bytes

from quiesce import asks, verbs, wire
from quiesce.access import Role, authenticate, require_conversation, require_role
from quiesce.agent import Registry
from quiesce.asks import Call, Publication, Request, Route
from quiesce.errors import Refusal, RefusalCode, limit_exceeded
from quiesce.headers import JSON_MEDIA_TYPE, is_json
from quiesce.ids import CONVERSATION_ID, OPERATION_ID, OPERATION_NAME, SUBMISSION_ID
from quiesce.settings import STORED_VALUE_BYTES_MAX, Settings, Token
from quiesce.wire import Body

SUBMISSION_CHARACTERS = re.compile(r"[A-Za-z0-9_.:@~-]{1,128}")
SEGMENTS: Mapping[str, re.Pattern[str]] = {
    "conversation": CONVERSATION_ID,
    "submission": SUBMISSION_CHARACTERS,
    "operation": OPERATION_ID,
    "signal": OPERATION_NAME,
}
"""What may stand in a path for each of the words in braces."""


LANE = "/v1/conversations/{conversation}"
ONE = LANE + "/submissions/{submission}"
PAGING = frozenset({"after", "limit"})
EVENTS = frozenset({"after", "submission"})

ROUTES: tuple[Route, ...] = (
    Route("POST", f"{LANE}/submissions", Role.SUBMIT, asks.submit, wire.SubmitBody, may_wait=True),
    Route(
        "GET", f"{LANE}/submissions", Role.OBSERVE, asks.list_submissions, query=PAGING | {"state"}
    ),
    Route("GET", ONE, Role.OBSERVE, asks.read_status),
    Route("GET", f"{ONE}/settlement", Role.OBSERVE, asks.read_settlement, may_wait=True),
    Route("POST", f"{ONE}/retry", Role.OPERATE, asks.retry, wire.ReasonBody),
    Route("POST", f"{ONE}/skip", Role.OPERATE, asks.skip, wire.ReasonBody),
    Route("POST", f"{ONE}/abort", Role.SUBMIT, asks.abort, wire.AbortBody),
    Route("POST", f"{ONE}/approvals/{{operation}}", Role.DECIDE, asks.decide, wire.DecisionBody),
    Route(
        "POST", f"{ONE}/resolutions/{{operation}}", Role.DECIDE, asks.resolve, wire.ResolutionBody
    ),
    Route("POST", f"{ONE}/signals/{{signal}}", Role.SUBMIT, asks.signal, wire.SignalBody),
    Route("GET", f"{ONE}/explain", Role.OBSERVE, asks.explain),
    Route("GET", f"{LANE}/explain", Role.OBSERVE, asks.explain, query=PAGING),
    Route("GET", LANE, Role.OBSERVE, asks.read(verbs.ReadLane)),
    Route("GET", f"{LANE}/maintenance", Role.OBSERVE, asks.read(verbs.ReadMaintenance)),
    Route("POST", f"{LANE}/maintenance/pass", Role.OPERATE, asks.force_pass, wire.ReasonBody),
    Route("GET", f"{LANE}/records", Role.OBSERVE, asks.read_records, query=PAGING),
    Route("GET", f"{LANE}/events", Role.OBSERVE, asks.watch, query=EVENTS),
    Route("GET", f"{LANE}/verify", Role.OBSERVE, asks.read(verbs.Verify)),
    Route("GET", f"{LANE}/export", Role.OBSERVE, asks.read(verbs.Export)),
    Route("GET", "/v1/agents", Role.OBSERVE, asks.agents),
    Route("GET", "/healthz", None, asks.health),
    Route("GET", "/openapi.json", None, asks.publish(Publication.OPENAPI)),
    Route("GET", "/docs", None, asks.publish(Publication.DOCS)),
)


def find(method: str, path: str) -> Route:
    """Find the row for a method and a path.

    Raises Refusal: `not-found` for the path, `method-not-allowed` naming the methods that it takes.
    """
    segments = path.split("/")
    rows = [route for route in ROUTES if _is_match(route, segments)]
    if not rows:
        raise Refusal(RefusalCode.NOT_FOUND, "there is no such route; /docs lists those there are")
    wanted = "GET" if method == "HEAD" else method
    for route in rows:
        if route.method == wanted:
            return route
    allowed = sorted({route.method for route in rows})
    if "GET" in allowed:
        allowed.append("HEAD")
    message = f"this route takes {', '.join(allowed)}"
    raise Refusal(RefusalCode.METHOD_NOT_ALLOWED, message, {"allow": allowed})


def found(method: str, path: str) -> Route | None:
    """Find the row for a method and a path, or None."""
    try:
        return find(method, path)
    except Refusal:
        return None


def conversation_in(route: Route, path: str) -> str | None:
    """Read which conversation a path of this row names, if it names one lawfully."""
    try:
        return _ids(route, path).get("conversation")
    except Refusal:
        return None


def _is_match(route: Route, segments: list[str]) -> bool:
    # A path that ends with a slash lacks the last thing that it should name.
    return (
        len(route.segments) == len(segments)
        and segments[-1] != ""
        and all(
            wanted == found or wanted.startswith("{")
            for wanted, found in zip(route.segments, segments, strict=True)
        )
    )


def open_call(
    route: Route,
    request: Request,
    settings: Settings,
    agents: Registry,
    *,
    vouched: Token | None = None,
) -> Call:
    """Check who asks, what they may do, and everything of the request but its body.

    `vouched` is the token of one for whom Cloudflare Access has vouched; without it a bearer token is needed.
    Raises Refusal: `unauthenticated`, `forbidden`, `invalid-request`, `not-found`, `unsupported-media-type`,
    `input-too-large`.
    """
    token = None
    if route.role is not None:
        token = vouched or authenticate(settings.tokens, request.header("authorization"))
        require_role(token, route.role)
    ids = _ids(route, request.path)
    if token is not None and "conversation" in ids:
        require_conversation(token, ids["conversation"])
    # What anybody may read is also read by probes that add something to get around a cache.
    query = {} if route.role is None else _query(route, request.query)
    if "submission" in ids and not SUBMISSION_ID.fullmatch(ids["submission"]):
        raise asks.no_submission(ids["conversation"], ids["submission"])
    call = Call(route, request, settings, agents, token, ids, query)
    if route.body is not None:
        _check_body_headers(call, route.body)
    return call


def _ids(route: Route, path: str) -> dict[str, str]:
    ids: dict[str, str] = {}
    for wanted, found in zip(route.segments, path.split("/"), strict=True):
        if not wanted.startswith("{"):
            continue
        word = wanted[1:-1]
        try:
            text = unquote_to_bytes(found).decode()
        except UnicodeDecodeError:
            text = ""
        if not SEGMENTS[word].fullmatch(text):
            message = f"the {word} in the path must match {SEGMENTS[word].pattern}"
            raise Refusal(RefusalCode.INVALID_REQUEST, message)
        ids[word] = text
    return ids


def _query(route: Route, text: str) -> dict[str, str]:
    pairs = parse_qsl(text, keep_blank_values=True, errors="replace")
    query = dict(pairs)
    unknown = sorted(query.keys() - route.query)
    if unknown:
        named = ", ".join(repr(name[:100]) for name in unknown[:10])
        known = f"it takes {', '.join(sorted(route.query))}" if route.query else "it takes none"
        message = f"this route has no query parameter {named}; {known}"
        raise Refusal(RefusalCode.INVALID_REQUEST, message)
    if len(query) < len(pairs):
        raise Refusal(RefusalCode.INVALID_REQUEST, "a query parameter is given twice")
    return query


def body_bytes_max(settings: Settings) -> int:
    """Return how many bytes a body may have on the wire.

    INPUT_BYTES_MAX counts the canonical form, however that was escaped; and an input that was accepted under a
    greater one can be sent again, because no limit refuses a replay.
    """
    input_max = max(wire.ESCAPED_MAX * settings.input_bytes_max, STORED_VALUE_BYTES_MAX)
    return input_max + wire.BODY_ENVELOPE_BYTES


def body_too_large(actual: int, settings: Settings) -> Refusal:
    """Build the refusal of a body: `actual` bytes were announced, or had come when reading stopped."""
    maximum = body_bytes_max(settings)
    return limit_exceeded(RefusalCode.INPUT_TOO_LARGE, "BODY_BYTES_MAX", actual, maximum)


def _check_body_headers(call: Call, model: type[Body]) -> None:
    """Refuse, before a byte of it is read, a body that is too large or of another kind than JSON."""
    length = call.request.header("content-length") or ""
    if length.isdecimal() and int(length) > body_bytes_max(call.settings):
        raise body_too_large(int(length), call.settings)
    media_type = call.request.header("content-type")
    if media_type is None and _may_be_absent(model):
        return
    if not is_json(media_type):
        shown = "nothing" if media_type is None else repr(media_type[:100])
        message = f"send the body as 'Content-Type: {JSON_MEDIA_TYPE}', not as {shown}"
        raise Refusal(RefusalCode.UNSUPPORTED_MEDIA_TYPE, message)


def _may_be_absent(model: type[Body]) -> bool:
    return not any(each.is_required() for each in model.model_fields.values())


def with_body(call: Call, raw: bytes) -> Call:
    """Parse the body of a call; one of which nothing is required may be left out.

    Raises Refusal: `invalid-request`.
    """
    model = call.route.body
    assert model is not None
    if not raw and _may_be_absent(model):
        return replace(call, body=model())
    return replace(call, body=wire.parse_body(model, raw))
