"""How what is told is written: a line as one JSON object, a pass and a settlement as one data point each.

1. Every line has `event`, `at` and `conversation`, and `trace_id` where it is about work that belongs to a trace.
2. A data point's index is the conversation; which of its blobs and doubles means what stands in POINTS.
3. A fault of this service is told by its type and its place. What it says may hold what somebody sent.
"""

import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from quiesce import routes, wire
from quiesce.settlement_shape import timestamp
from quiesce.telemetry import Facts, Line
from quiesce.trace_context import trace_id

INDEX_BYTES_MAX = 96
MESSAGE_MAX = 500
POINTS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "pass": (
        ("event", "alarm", "reason"),
        (
            "recovered",
            "settled",
            "purged",
            "nonterminal",
            "generation_lag",
            "rows_read",
            "rows_written",
            "duration_ms",
        ),
    ),
    "settled": (
        ("event", "submission", "agent", "outcome", "error_type", "trace_id"),
        ("elapsed_ms", "attempts", "wakes", "rows_read", "rows_written", "active_ms"),
    ),
}
"""The lines that are data points too: which facts are their blobs, and which their doubles, in this order."""
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

type Point = dict[str, list[str] | list[float]]


def text_of(line: Line) -> str:
    """Write a line."""
    return _ENCODER.encode(_document(line))


def _document(line: Line) -> dict[str, Any]:
    document: dict[str, Any] = {
        "event": line.event,
        "at": timestamp(line.at_ms),
        "conversation": line.conversation,
    }
    if line.trace_id is not None:
        document["trace_id"] = line.trace_id
    document.update(line.facts)
    return document


def point_of(line: Line) -> Point | None:
    """Make the data point of a line, if it has one; a fact that is not there is an empty blob."""
    columns = POINTS.get(line.event)
    if columns is None:
        return None
    document = _document(line)
    blobs, doubles = columns
    return {
        # A conversation's id is ASCII, a byte for each character.
        "indexes": [(line.conversation or "")[:INDEX_BYTES_MAX]],
        "blobs": [str(document.get(name) or "") for name in blobs],
        "doubles": [float(document[name]) for name in doubles],
    }


def refused(
    request: tuple[str, str], answer: tuple[int, str], trace: str | None, at_ms: int
) -> Line:
    """Say what was refused: `request` is its method and path, `answer` the status and the problem document."""
    method, path = request
    status, body = answer
    route = routes.found(method, path)
    facts = {
        "code": wire.code_of(body),
        "status": status,
        "method": method,
        "route": None if route is None else route.path,
    }
    conversation = None if route is None else routes.conversation_in(route, path)
    return Line("refused", at_ms, conversation, trace_id(trace), facts)


def bug(error: Exception) -> Facts:
    """Say which fault was met, and where."""
    trace = error.__traceback__
    place = "?"
    while trace is not None:
        code = trace.tb_frame.f_code
        place = f"{PurePath(code.co_filename).name}:{trace.tb_lineno} in {code.co_name}"
        trace = trace.tb_next
    return {"error": type(error).__name__, "where": place}


def unreachable(said: str, conversation: str, at_ms: int) -> Line:
    """Say that a conversation's Object did not answer, and what the platform said of it."""
    return Line("unreachable", at_ms, conversation, None, {"message": said[:MESSAGE_MAX]})
