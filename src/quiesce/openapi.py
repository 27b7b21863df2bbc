"""The API as an OpenAPI 3.1 document, made of the table of routes, the models of bodies and answers, and words.

1. What a route takes is read from its row: path, role, query, body. What it answers is in `answers.py`, what it
   is for and what else it refuses in `api.py`; the statuses are those of `wire.py`.
2. The document is made once, when it is first asked for.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from quiesce import answers, api, assertions, routes, wire
from quiesce.api import Described, Success
from quiesce.asks import Route
from quiesce.errors import RefusalCode
from quiesce.states import State

REFERENCE = "#/components/schemas/{model}"
JSON = "application/json"
PROBLEM = "application/problem+json"
BEHIND_A_TOKEN = frozenset({RefusalCode.UNAUTHENTICATED, RefusalCode.FORBIDDEN})
WITH_AN_OBJECT = frozenset(
    {RefusalCode.NOT_FOUND, RefusalCode.CORRUPTION, RefusalCode.RATE_LIMITED}
)
WITH_A_SUBMISSION = frozenset({RefusalCode.GONE})
WITH_A_BODY = frozenset({RefusalCode.INPUT_TOO_LARGE, RefusalCode.UNSUPPORTED_MEDIA_TYPE})
ALWAYS = frozenset({RefusalCode.UNAVAILABLE})
TEXT: Mapping[str, Any] = {"type": "string"}
KEY: Mapping[str, Any] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 255,
    "pattern": "^[!-~]([ -~]*[!-~])?$",
}
PLACE: Mapping[str, Any] = {"type": "string", "pattern": "^[0-9]{1,15}$"}
EVENT: Mapping[str, Any] = {
    "type": "object",
    "description": "One event. `data` is JSON: a Record, a Progress, a Settlement, or why the stream ended.",
    "properties": {
        "event": {"enum": ["record", "progress", "settlement", "end"]},
        "id": {**PLACE, "description": "The record's sequence; to be sent as `Last-Event-ID`."},
        "data": {"type": "string", "contentMediaType": JSON},
        "retry": {"type": "integer", "description": "After how many milliseconds to come back."},
    },
}
LINES: Mapping[str, Any] = {
    "type": "string",
    "description": "JSON documents, one a line.",
    "examples": [
        (
            '{"type":"header","format":"quiesce-bundle","version":1,"conversation":"chat-1",'
            '"exported_at":"2026-11-29T18:47:38.102Z","tail":{"sequence":1,"digest":"9f86d081…"}}\n'
            '{"type":"record","sequence":1,"record_id":"conversation/created",'
            '"kind":"conversation-created","submission":null,"epoch":0,"created_at_ms":1795978058102,'
            '"version":1,"payload":"{\\"conversation\\":\\"chat-1\\"}","digest":"5c4d…",'
            '"chain":"9f86d081…"}\n'
            '{"type":"end","records":1,"submissions":0,"tail":{"sequence":1,"digest":"9f86d081…"}}\n'
        )
    ],
}
STREAMED: Mapping[str, Mapping[str, Any]] = {
    "text/event-stream": EVENT,
    "application/x-ndjson": LINES,
    "text/html": TEXT,
}
WORDS: Mapping[str, tuple[str, str]] = {
    "conversation": ("The conversation: chosen by whoever submits to it first.", "chat-1"),
    "submission": ("The submission: what its receipt calls it.", api.EXAMPLE_SUBMISSION),
    "operation": ("The operation: what the wait of the submission calls it.", "large-refund"),
    "signal": ("The signal: what the Run calls it.", "payment"),
}
QUERY: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "after": ("Where to begin: the `next` of the page before.", PLACE),
    "limit": (
        "How many at most.",
        {
            "type": "integer",
            "minimum": 1,
            "maximum": wire.PAGE_MAX,
            "default": wire.PAGE_DEFAULT,
        },
    ),
    "state": (
        "Only those in this state.",
        {"type": "string", "enum": [each.value for each in State]},
    ),
    "submission": (
        "Only this submission's records, until its settlement.",
        {"type": "string", "pattern": "^sub_[0-9a-f]{32}$"},
    ),
}
ASKED: Mapping[str, tuple[str, Mapping[str, Any], bool]] = {
    "Idempotency-Key": (
        "New for new work; the same to repeat a request.",
        {**KEY, "examples": ["order-4711"]},
        True,
    ),
    "Prefer": (
        "`wait=N`: answer when it is settled, or after N seconds. What is too long is shortened.",
        {"type": "string", "pattern": "^wait=[0-9]{1,9}$", "examples": ["wait=10"]},
        False,
    ),
    "traceparent": (
        "The W3C trace context that the work belongs to. What is not lawful is ignored.",
        {**TEXT, "examples": ["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"]},
        False,
    ),
    "If-None-Match": ("The ETag of an earlier answer.", TEXT, False),
    "Last-Event-ID": ("The id of the last event that was read; outdoes `after`.", PLACE, False),
}
ANSWERED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "Location": ("The path of the submission.", TEXT),
    "Idempotent-Replayed": ("`true` where the request had been taken before.", {"const": "true"}),
    "Preference-Applied": ("The wait that was kept.", TEXT),
    "ETag": ("To be sent as `If-None-Match`.", TEXT),
    "Retry-After": (
        "After how many seconds to ask again.",
        {"type": "string", "pattern": "^[0-9]+$"},
    ),
    "Allow": ("The methods that the route takes.", TEXT),
    "WWW-Authenticate": ("How to say who asks.", TEXT),
}
SECURITY_SCHEMES: Mapping[str, Mapping[str, str]] = {
    "token": {"type": "http", "scheme": "bearer"},
    "access": {
        "type": "apiKey",
        "in": "header",
        "name": assertions.HEADER.title(),
        "description": "The assertion that Cloudflare Access adds to a request, where the deployment is set up for"
        " it. It counts where there is no Authorization header.",
    },
}
"""The ways to say who asks; any one of them is enough."""
ABOUT = """Durable conversation work: what is accepted settles exactly once.

Work is sent to a conversation and runs there in order. A receipt says that it is owed; its settlement is the one
outcome. What a submission waits for can be seen at any time. Every answer is JSON, every refusal a problem document
whose `code` is of a closed set. What a refusal refused was not done, and wrote nothing."""


@cache
def text() -> str:
    """Return the document as JSON."""
    return wire.dump(document())


def document() -> dict[str, Any]:
    """Make the document."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes.ROUTES:
        described = api.DESCRIPTIONS[route.method, route.path]
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, described)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Quiesce", "version": "1", "description": ABOUT},
        "tags": [{"name": each} for each in _groups()],
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "securitySchemes": SECURITY_SCHEMES,
        },
    }


def _groups() -> Iterable[str]:
    return dict.fromkeys(each.group for each in api.DESCRIPTIONS.values())


def _operation(route: Route, described: Described) -> dict[str, Any]:
    codes = _codes(route, described)
    role = "" if route.role is None else f"\n\nTakes a token with the role `{route.role.value}`."
    operation: dict[str, Any] = {
        "operationId": described.name,
        "summary": described.summary,
        "description": f"{described.more}{role}".strip(),
        "tags": [described.group],
        "security": [] if route.role is None else [{name: []} for name in SECURITY_SCHEMES],
        "parameters": _parameters(route, described),
        "responses": {
            **{str(status): _success(each) for status, each in described.successes.items()},
            **{str(status): _refusal(among) for status, among in _by_status(route, codes)},
        },
    }
    if route.body is not None:
        operation["requestBody"] = {
            "required": any(each.is_required() for each in route.body.model_fields.values()),
            "content": {JSON: {"schema": _reference(route.body), "example": described.body}},
        }
    return operation


def _codes(route: Route, described: Described) -> frozenset[RefusalCode]:
    codes = described.refuses | ALWAYS | {RefusalCode.INVALID_REQUEST}
    if route.role is not None:
        codes |= BEHIND_A_TOKEN
    if "{conversation}" in route.path:
        codes |= WITH_AN_OBJECT
    if "{submission}" in route.path or "submission" in route.query:
        codes |= WITH_A_SUBMISSION
    if route.body is not None:
        codes |= WITH_A_BODY
    return codes


def _by_status(
    route: Route, codes: Iterable[RefusalCode]
) -> Iterable[tuple[int, list[RefusalCode]]]:
    found: dict[int, list[RefusalCode]] = {}
    for code in sorted(codes):
        found.setdefault(wire.STATUS[code], []).append(code)
        if code is RefusalCode.INVALID_REQUEST and route.body is not None:
            found.setdefault(wire.FIELD_ERRORS_STATUS, []).append(code)
    return sorted(found.items())


def _success(success: Success) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": success.description}
    if success.headers:
        answer["headers"] = _headers(success.headers)
    if success.model is not None:
        answer["content"] = {success.media_type: {"schema": _reference(success.model)}}
    elif success.media_type != JSON:
        answer["content"] = {success.media_type: {"schema": STREAMED[success.media_type]}}
    elif not success.headers:
        answer["content"] = {JSON: {"schema": {"type": "object"}}}
    return answer


def _refusal(codes: list[RefusalCode]) -> dict[str, Any]:
    status = wire.STATUS[codes[0]]
    named = "; ".join(f"`{code}`: {wire.TITLES[code]}" for code in codes)
    answer: dict[str, Any] = {
        "description": f"{named}.",
        "content": {
            PROBLEM: {
                "schema": {
                    "allOf": [
                        _reference(answers.Problem),
                        {"properties": {"code": {"enum": [code.value for code in codes]}}},
                    ]
                }
            }
        },
    }
    if status in {wire.STATUS[RefusalCode.RATE_LIMITED], wire.STATUS[RefusalCode.UNAVAILABLE]}:
        answer["headers"] = _headers(("Retry-After",))
    if RefusalCode.UNAUTHENTICATED in codes:
        answer["headers"] = _headers(("WWW-Authenticate",))
    return answer


def _headers(names: Iterable[str]) -> dict[str, Any]:
    return {
        name: {"description": ANSWERED[name][0], "schema": dict(ANSWERED[name][1])}
        for name in names
    }


def _parameters(route: Route, described: Described) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = []
    for segment in route.segments:
        if segment.startswith("{"):
            word = segment[1:-1]
            description, example = WORDS[word]
            pattern = f"^{routes.SEGMENTS[word].pattern}$"
            schema = {"type": "string", "pattern": pattern}
            parameters.append(
                {"name": word, "in": "path", "required": True, "description": description}
                | {"schema": schema, "example": example}
            )
    for name in sorted(route.query):
        description, found = QUERY[name]
        parameters.append(
            {"name": name, "in": "query", "description": description, "schema": dict(found)}
        )
    for name in described.headers:
        description, found, is_required = ASKED[name]
        parameters.append(
            {"name": name, "in": "header", "required": is_required, "description": description}
            | {"schema": dict(found)}
        )
    return parameters


def _reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": REFERENCE.format(model=model.__name__)}


def _schemas() -> dict[str, Any]:
    bodies: set[type[BaseModel]] = {route.body for route in routes.ROUTES if route.body is not None}
    found = {
        each.model
        for described in api.DESCRIPTIONS.values()
        for each in described.successes.values()
        if each.model is not None
    }
    streamed: set[type[BaseModel]] = {answers.Record, answers.Progress, answers.Problem}
    ordered = sorted(bodies | found | streamed, key=lambda model: model.__name__)
    _, made = models_json_schema(
        [(model, "validation") for model in ordered], ref_template=REFERENCE
    )
    schemas: dict[str, Any] = made["$defs"]
    return schemas
