"""How lines are written, which of them are data points, and what is said of a refusal and of a fault."""

import json
import re
from pathlib import Path

import pytest

from quiesce import reporting, wire
from quiesce.errors import Refusal, RefusalCode
from quiesce.telemetry import Line

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
AT_MS = 1_767_225_600_123
SETTLED = {
    "submission": "sub_1",
    "agent": "echo",
    "outcome": "failed",
    "error_type": None,
    "elapsed_ms": 9,
    "attempts": 1,
    "wakes": 2,
    "rows_read": 3,
    "rows_written": 4,
    "active_ms": 5,
}
PASS = {
    "phase": "actionable",
    "recovered": 1,
    "settled": 2,
    "purged": 3,
    "nonterminal": 4,
    "alarm": "cleared",
    "reason": "nothing is open",
    "generation_lag": 5,
    "next_due_ms": None,
    "rows_read": 6,
    "rows_written": 7,
    "duration_ms": 8,
}


def test_a_line_is_one_json_object_of_one_line() -> None:
    line = Line("settled", AT_MS, "one", TRACE, {**SETTLED, "agent": "zwei\nZeilen"})
    text = reporting.text_of(line)
    assert "\n" not in text
    assert list(json.loads(text))[:4] == ["event", "at", "conversation", "trace_id"]
    assert json.loads(text) == {
        "event": "settled",
        "at": "2026-01-01T00:00:00.123Z",
        "conversation": "one",
        "trace_id": TRACE,
        **SETTLED,
        "agent": "zwei\nZeilen",
    }


def test_a_line_of_no_trace_names_none() -> None:
    assert "trace_id" not in json.loads(reporting.text_of(Line("pass", AT_MS, None, None, PASS)))


def test_a_settlement_is_a_data_point() -> None:
    assert reporting.point_of(Line("settled", AT_MS, "one", TRACE, SETTLED)) == {
        "indexes": ["one"],
        "blobs": ["settled", "sub_1", "echo", "failed", "", TRACE],
        "doubles": [9.0, 1.0, 2.0, 3.0, 4.0, 5.0],
    }


def test_a_pass_is_a_data_point() -> None:
    assert reporting.point_of(Line("pass", AT_MS, "one", None, PASS)) == {
        "indexes": ["one"],
        "blobs": ["pass", "cleared", "nothing is open"],
        "doubles": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
    }


def test_no_other_line_is_one() -> None:
    for event in ("admitted", "decided", "refused", "bug", "unreachable"):
        assert reporting.point_of(Line(event, AT_MS, "one", TRACE, SETTLED)) is None


@pytest.mark.parametrize(("name", "index"), [("x" * 128, "x" * 96), (None, "")])
def test_an_index_has_96_bytes_at_most(name: str | None, index: str) -> None:
    point = reporting.point_of(Line("pass", AT_MS, name, None, PASS))
    assert point is not None
    assert point["indexes"] == [index]


def refused(method: str, path: str, refusal: Refusal) -> Line:
    answer = wire.refuse(refusal)
    answered = (answer.status, wire.dump(answer.body))
    return reporting.refused((method, path), answered, TRACEPARENT, AT_MS)


def test_a_refusal_is_told_by_code_and_route() -> None:
    path = "/v1/conversations/one/submissions"
    facts = {"differing": ["input"]}
    line = refused("POST", path, Refusal(RefusalCode.IDEMPOTENCY_CONFLICT, "no", facts))
    assert (line.event, line.conversation, line.trace_id) == ("refused", "one", TRACE)
    assert line.facts == {
        "code": "idempotency-conflict",
        "status": 409,
        "method": "POST",
        "route": "/v1/conversations/{conversation}/submissions",
    }


@pytest.mark.parametrize("code", list(RefusalCode))
def test_the_code_of_every_refusal_is_found_without_parsing_it(code: RefusalCode) -> None:
    assert refused("GET", "/v1/agents", Refusal(code, "why")).facts["code"] == code.value


@pytest.mark.parametrize("path", ["/nowhere", "/v1/conversations/a%2Fb", "/v1/conversations/%FF"])
def test_what_is_not_lawful_in_a_path_is_not_told(path: str) -> None:
    line = refused("GET", path, Refusal(RefusalCode.NOT_FOUND, "why"))
    assert line.conversation is None
    assert "%" not in reporting.text_of(line)


def test_what_is_no_problem_document_has_no_code() -> None:
    assert wire.code_of('{"outcome":"failed"}') is None


def test_a_fault_is_told_by_its_type_and_place_and_not_by_what_it_says() -> None:
    try:
        json.loads("secret")
    except ValueError as error:
        facts = reporting.bug(error)
    assert facts["error"] == "JSONDecodeError"
    assert str(facts["where"]).startswith("decoder.py:")
    assert "secret" not in str(facts)


def test_the_page_about_operating_says_which_column_is_what() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operating.md").read_text("utf-8")
    rows = re.findall(r"^\| `(blob|double)(\d+)` \|(.*)\|(.*)\|$", page, re.MULTILINE)
    for place, event in enumerate(reporting.POINTS):
        blobs, doubles = reporting.POINTS[event]
        said = [(kind, int(number), cells[place].strip(" `")) for kind, number, *cells in rows]
        wanted = [("blob", number, name) for number, name in enumerate((event, *blobs[1:]), 1)]
        wanted += [("double", number, name) for number, name in enumerate(doubles, 1)]
        assert [each for each in said if each[2]] == wanted
