"""The table of routes, and how a request becomes the one command that it asks for.

1. A row of ROUTES is all there is to a route: method, path, role, how to build its command, what it may be asked.
2. What is checked comes in this order: the path, the method, the caller, the role, the ids in the path, the
   query, the headers, the body. What is refused has reached no Object.
3. A path is split before it is decoded, so that an escaped slash is a character of an id and never a separator.

This module does no input or output, and knows neither JavaScript nor the Object.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

from quiesce import shapes, verbs, wire
from quiesce.access import Role, authenticate, require_conversation, require_role
from quiesce.agent import Registry
from quiesce.errors import Refusal, RefusalCode, limit_exceeded
from quiesce.headers import JSON_MEDIA_TYPE, idempotency_key, is_json, wait_seconds
from quiesce.ids import CONVERSATION_ID, OPERATION_ID, OPERATION_NAME, SUBMISSION_ID
from quiesce.settings import Settings, Token
from quiesce.states import State
from quiesce.verbs import Command
from quiesce.wire import Answer, Body, answer

SUBMISSION_CHARACTERS = re.compile(r"[A-Za-z0-9_.:@~-]{1,128}")
SEGMENTS: Mapping[str, re.Pattern[str]] = {
    "conversation": CONVERSATION_ID,
    "submission": SUBMISSION_CHARACTERS,
    "operation": OPERATION_ID,
    "signal": OPERATION_NAME,
}
"""What may stand in a path for each of the words in braces."""
CURSOR = re.compile(r"[0-9]{1,15}")
LIMIT = re.compile(r"[0-9]{1,4}")


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request before its body is read."""

    method: str
    path: str
    """As it was sent: not yet decoded."""
    query: str
    header: Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Call:
    """A request that its caller may make, with every part parsed, as the builders of the table see it."""

    route: "Route"
    request: Request
    settings: Settings
    agents: Registry
    token: Token | None
    ids: Mapping[str, str]
    query: Mapping[str, str]
    body: Any = None

    @property
    def principal(self) -> str:
        """Whom the caller's token speaks for."""
        assert self.token is not None
        return self.token.principal

    @property
    def conversation(self) -> str:
        """The conversation that the path names."""
        return self.ids["conversation"]

    @property
    def submission(self) -> str:
        """The submission that the path names."""
        return self.ids["submission"]

    @property
    def wait_s(self) -> int | None:
        """How long the caller would wait, within what is allowed; None where nobody asked or nothing waits."""
        if not self.route.may_wait:
            return None
        return wait_seconds(self.request.header("prefer"), self.settings.wait_seconds_max)


type Build = Callable[[Call], Command | Answer]


@dataclass(frozen=True, slots=True)
class Route:
    """One row of the table."""

    method: str
    path: str
    role: Role | None
    """What the caller's token must allow, or None where no token is needed."""
    build: Build
    body: type[Body] | None = None
    query: frozenset[str] = frozenset()
    may_wait: bool = False
    """Whether `Prefer: wait=N` delays the answer."""
    segments: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "segments", tuple(self.path.split("/")))


def _submit(call: Call) -> Command:
    return verbs.Submit(
        conversation=call.conversation,
        principal=call.principal,
        key=idempotency_key(call.request.header("idempotency-key")),
        body=call.body,
    )


def _list_submissions(call: Call) -> Command:
    state = call.query.get("state")
    if state is not None and state not in set(State):
        message = f"state must be one of {', '.join(State)}"
        raise Refusal(RefusalCode.INVALID_REQUEST, message)
    return verbs.ListSubmissions(
        conversation=call.conversation, after=_after(call), limit=_limit(call), state=state
    )


def _read_status(call: Call) -> Command:
    return verbs.ReadStatus(
        conversation=call.conversation,
        submission=call.submission,
        if_none_match=call.request.header("if-none-match"),
    )


def _read_settlement(call: Call) -> Command:
    return verbs.ReadSettlement(
        conversation=call.conversation,
        submission=call.submission,
        wait_ms=(call.wait_s or 0) * 1_000,
    )


def _read_records(call: Call) -> Command:
    return verbs.ReadRecords(conversation=call.conversation, after=_after(call), limit=_limit(call))


def _retry(call: Call) -> Command:
    return verbs.Retry(
        conversation=call.conversation,
        submission=call.submission,
        principal=call.principal,
        reason=call.body.reason,
    )


def _force_pass(call: Call) -> Command:
    return verbs.ForcePass(
        conversation=call.conversation, principal=call.principal, reason=call.body.reason
    )


def _abort(call: Call) -> Command:
    if call.body.detach:
        # What is let go may still have effects, so only an operator may do that.
        assert call.token is not None
        require_role(call.token, Role.OPERATE)
    return verbs.Abort(
        detaches=call.body.detach,
        conversation=call.conversation,
        submission=call.submission,
        principal=call.principal,
        reason=call.body.reason,
    )


def _decide(call: Call) -> Command:
    return verbs.Decide(
        conversation=call.conversation,
        submission=call.submission,
        operation=call.ids["operation"],
        principal=call.principal,
        choice=call.body.choice,
        reason=call.body.reason,
    )


def _resolve(call: Call) -> Command:
    return verbs.Resolve(
        conversation=call.conversation,
        submission=call.submission,
        operation=call.ids["operation"],
        principal=call.principal,
        body=call.body,
    )


def _signal(call: Call) -> Command:
    return verbs.DeliverSignal(
        conversation=call.conversation,
        submission=call.submission,
        signal=call.ids["signal"],
        principal=call.principal,
        key=idempotency_key(call.request.header("idempotency-key")),
        payload=call.body.payload,
    )


def _explain(call: Call) -> Command:
    return verbs.Explain(
        conversation=call.conversation,
        submission=call.ids.get("submission"),
        after=_after(call),
        limit=_limit(call),
    )


def _read(verb: type[verbs.ReadLane | verbs.ReadMaintenance]) -> Build:
    return lambda call: verb(conversation=call.conversation)


def _agents(call: Call) -> Answer:
    return answer(200, shapes.agents_body(call.agents))


def _health(_call: Call) -> Answer:
    # Whoever gets here has passed the parsing of the settings, which is what can be wrong.
    return answer(200, {"status": "ok"})


LANE = "/v1/conversations/{conversation}"
ONE = LANE + "/submissions/{submission}"
PAGING = frozenset({"after", "limit"})

ROUTES: tuple[Route, ...] = (
    Route("POST", f"{LANE}/submissions", Role.SUBMIT, _submit, wire.SubmitBody, may_wait=True),
    Route("GET", f"{LANE}/submissions", Role.OBSERVE, _list_submissions, query=PAGING | {"state"}),
    Route("GET", ONE, Role.OBSERVE, _read_status),
    Route("GET", f"{ONE}/settlement", Role.OBSERVE, _read_settlement, may_wait=True),
    Route("POST", f"{ONE}/retry", Role.OPERATE, _retry, wire.ReasonBody),
    Route("POST", f"{ONE}/abort", Role.SUBMIT, _abort, wire.AbortBody),
    Route("POST", f"{ONE}/approvals/{{operation}}", Role.DECIDE, _decide, wire.DecisionBody),
    Route("POST", f"{ONE}/resolutions/{{operation}}", Role.DECIDE, _resolve, wire.ResolutionBody),
    Route("POST", f"{ONE}/signals/{{signal}}", Role.SUBMIT, _signal, wire.SignalBody),
    Route("GET", f"{ONE}/explain", Role.OBSERVE, _explain),
    Route("GET", f"{LANE}/explain", Role.OBSERVE, _explain, query=PAGING),
    Route("GET", LANE, Role.OBSERVE, _read(verbs.ReadLane)),
    Route("GET", f"{LANE}/maintenance", Role.OBSERVE, _read(verbs.ReadMaintenance)),
    Route("POST", f"{LANE}/maintenance/pass", Role.OPERATE, _force_pass, wire.ReasonBody),
    Route("GET", f"{LANE}/records", Role.OBSERVE, _read_records, query=PAGING),
    Route("GET", "/v1/agents", Role.OBSERVE, _agents),
    Route("GET", "/healthz", None, _health),
)


def find(method: str, path: str) -> Route:
    """Find the row for a method and a path.

    Raises Refusal: `not-found` for the path, `method-not-allowed` naming the methods that it takes.
    """
    segments = path.split("/")
    rows = [route for route in ROUTES if _is_match(route, segments)]
    if not rows:
        raise Refusal(RefusalCode.NOT_FOUND, "there is no such route")
    wanted = "GET" if method == "HEAD" else method
    for route in rows:
        if route.method == wanted:
            return route
    allowed = sorted({route.method for route in rows})
    if "GET" in allowed:
        allowed.append("HEAD")
    message = f"this route takes {', '.join(allowed)}"
    raise Refusal(RefusalCode.METHOD_NOT_ALLOWED, message, {"allow": allowed})


def _is_match(route: Route, segments: list[str]) -> bool:
    return len(route.segments) == len(segments) and all(
        wanted == found or wanted.startswith("{")
        for wanted, found in zip(route.segments, segments, strict=True)
    )


def open_call(route: Route, request: Request, settings: Settings, agents: Registry) -> Call:
    """Check who asks, what they may do, and everything of the request but its body.

    Raises Refusal: `unauthenticated`, `forbidden`, `invalid-request`, `not-found`, `unsupported-media-type`,
    `input-too-large`.
    """
    token = None
    if route.role is not None:
        token = authenticate(settings.tokens, request.header("authorization"))
        require_role(token, route.role)
    ids = _ids(route, request.path)
    if token is not None and "conversation" in ids:
        require_conversation(token, ids["conversation"])
    query = _query(route, request.query)
    if "submission" in ids and not SUBMISSION_ID.fullmatch(ids["submission"]):
        # Such an id is derived for no submission: the Object need not be asked.
        message = f"conversation {ids['conversation']!r} has no submission {ids['submission']!r}"
        raise Refusal(RefusalCode.NOT_FOUND, message)
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


def _after(call: Call) -> int:
    text = call.query.get("after", "0")
    if not CURSOR.fullmatch(text):
        message = "after must be the `next` of an earlier page"
        raise Refusal(RefusalCode.INVALID_REQUEST, message)
    return int(text)


def _limit(call: Call) -> int:
    text = call.query.get("limit", str(wire.PAGE_DEFAULT))
    if not LIMIT.fullmatch(text) or not 1 <= int(text) <= wire.PAGE_MAX:
        message = f"limit must be a number from 1 to {wire.PAGE_MAX}"
        raise Refusal(RefusalCode.INVALID_REQUEST, message)
    return int(text)


def body_bytes_max(settings: Settings) -> int:
    """Return how many bytes a body may have."""
    return settings.input_bytes_max + wire.BODY_ENVELOPE_BYTES


def body_too_large(actual: int, settings: Settings) -> Refusal:
    """Build the refusal of a body: `actual` bytes were announced, or had come when reading stopped."""
    maximum = body_bytes_max(settings)
    return limit_exceeded(
        RefusalCode.INPUT_TOO_LARGE,
        f"INPUT_BYTES_MAX + {wire.BODY_ENVELOPE_BYTES}",
        actual,
        maximum,
    )


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
