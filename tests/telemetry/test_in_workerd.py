"""The Worker's own telemetry: its log, the platform's spans and data points, and all of it broken.

Not tested: what the platform does with a data point, which no local one keeps.

Parity: OB-3, OB-4.
"""

import time
from collections.abc import Callable
from typing import Any

import pytest

from telemetry.conftest import Watched
from telemetry.helpers import spans
from worker.helpers import disk
from worker.helpers.client import submissions, until

pytestmark = pytest.mark.worker

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


def lines_until(
    watched: Watched, conversation: str, holds: Callable[[list[dict[str, Any]]], bool]
) -> list[dict[str, Any]]:
    """Read the lines of a conversation until they hold: the log is written behind the answers."""
    deadline = time.monotonic() + 20
    while not holds(lines := watched.lines(conversation)):
        assert time.monotonic() < deadline, lines
        time.sleep(0.05)
    return lines


def has_passed(lines: list[dict[str, Any]]) -> bool:
    return any(each["event"] == "pass" for each in lines)


def test_the_log_has_a_line_for_each_thing_that_happened(
    traced: Watched, conversation: str
) -> None:
    response = traced.client.submit(
        conversation, "echo", "hidden", headers={"traceparent": TRACEPARENT}
    )
    submission = response.json()["submission"]
    traced.client.settled(conversation, submission)
    admitted, settled, passed = lines_until(traced, conversation, has_passed)
    assert [each["event"] for each in (admitted, settled, passed)] == [
        "admitted",
        "settled",
        "pass",
    ]
    assert admitted["trace_id"] == settled["trace_id"] == TRACE
    assert settled["submission"] == admitted["submission"] == submission
    assert settled["outcome"] == "completed"
    assert settled["elapsed_ms"] >= 0
    assert passed["settled"] == 1
    assert passed["duration_ms"] >= 0
    for each in (admitted, settled, passed):
        assert each["at"].endswith("Z")
        assert "hidden" not in str(each)


def test_an_unlawful_traceparent_is_ignored(traced: Watched, conversation: str) -> None:
    for key, header in {"a": "00-0-0-01", "b": "x" * 5_000, "c": TRACEPARENT.upper()}.items():
        response = traced.client.submit(
            conversation, "echo", 1, key=key, headers={"traceparent": header}
        )
        assert response.status_code == 202
    again = traced.client.submit(
        conversation, "echo", 1, key="a", headers={"traceparent": TRACEPARENT}
    )
    assert again.status_code == 200
    lines = lines_until(traced, conversation, lambda lines: len(lines) >= 7)
    assert not [each for each in lines if "trace_id" in each]


def test_a_refusal_of_the_router_and_one_of_the_object_are_told(
    traced: Watched, conversation: str
) -> None:
    path = submissions(conversation)
    headers = {"traceparent": TRACEPARENT}
    assert traced.client.http.get(path, headers=headers).status_code == 404
    assert traced.client.http.get(f"{path}?limit=0", headers=headers).status_code == 400
    found = lines_until(traced, conversation, lambda lines: len(lines) == 2)
    route = "/v1/conversations/{conversation}/submissions"
    for line, (status, code) in zip(
        found, [(404, "not-found"), (400, "invalid-request")], strict=True
    ):
        assert line.pop("at").endswith("Z")
        assert line == {
            "event": "refused",
            "conversation": conversation,
            "trace_id": TRACE,
            "code": code,
            "status": status,
            "method": "GET",
            "route": route,
        }


def test_a_pass_on_a_fresh_incarnation_names_its_conversation(
    traced: Watched, conversation: str
) -> None:
    submission = traced.client.accepted(conversation, "sleep", {"ms": 1_500})
    lines_until(traced, conversation, has_passed)
    traced.server.evict(disk.CLASS, conversation)
    traced.client.settled(conversation, submission)
    lines = lines_until(
        traced, conversation, lambda lines: sum(each["event"] == "pass" for each in lines) >= 2
    )
    assert lines[-1]["event"] == "pass"
    assert lines[-1]["settled"] == 1


def test_an_echo_pass_has_two_spans_and_a_pass_of_twenty_has_five(
    traced: Watched, conversation: str
) -> None:
    submission = traced.client.accepted(conversation, "echo", 1)
    traced.client.settled(conversation, submission)
    one = _spans_of(traced, {submission})
    whole, attempt = one
    assert (whole.name, attempt.name) == ("quiesce.pass", "quiesce.attempt")
    assert attempt.parent == whole.id
    for name in (b"settled", b"rows_written", b"duration_ms", b"actionable"):
        assert name in whole.attributes
    assert b"Finished" in attempt.attributes

    busy = f"{conversation}-busy"
    held = traced.client.accepted(busy, "approval", {"question": "Are all queued?"})
    traced.client.waits(busy, held, "approval")
    queued = [traced.client.accepted(busy, "echo", number) for number in range(19)]
    traced.client.act(busy, held, "approvals/question", {"decision": "approve"})
    for each in (held, *queued):
        traced.client.settled(busy, each)
    found = _spans_of(traced, {held, *queued})
    sizes = [sum(each.parent == one.id for each in found) for one in found]
    assert max(sizes) == 4
    assert len(found) <= 3 * 5
    lines = lines_until(traced, busy, lambda lines: sum(map(_settled_in, lines)) == 20)
    assert max(map(_settled_in, lines)) > 4


def _settled_in(line: dict[str, Any]) -> int:
    return int(line["settled"]) if line["event"] == "pass" else 0


def _spans_of(watched: Watched, about: set[str]) -> list[spans.Stored]:
    """Return the ended passes with a traced attempt of one of these submissions, and all their attempts."""

    def ours(found: list[spans.Stored]) -> list[spans.Stored]:
        attempts = [
            each for each in found if any(name.encode() in each.attributes for name in about)
        ]
        parents = {each.parent for each in attempts}
        wholes = [each for each in found if each.id in parents]
        return [*wholes, *(each for each in found if each.parent in parents)]

    def holds(found: list[spans.Stored]) -> bool:
        mine = ours(found)
        wholes = [each for each in mine if each.name == "quiesce.pass"]
        return bool(wholes) and all(each.has_ended for each in mine)

    return ours(spans.until(holds, watched.server))


def test_a_pass_and_a_settlement_are_a_data_point_each(watched: Watched, conversation: str) -> None:
    watched.break_()
    response = watched.client.submit(conversation, "echo", 1, headers={"traceparent": TRACEPARENT})
    submission = response.json()["submission"]
    watched.client.settled(conversation, submission)
    lines_until(watched, conversation, has_passed)
    points = [each for each in watched.shown()["points"] if each["indexes"] == [conversation]]
    settled, passed = points
    assert settled["blobs"] == ["settled", submission, "echo", "completed", "", TRACE]
    assert len(settled["doubles"]) == 6
    assert passed["blobs"] == ["pass", "cleared", "nothing is open"]
    assert passed["doubles"][1] == 1


@pytest.mark.parametrize(
    "parts", [("log",), ("dataset",), ("tracing",), ("spans",), ("log", "dataset", "tracing")]
)
def test_broken_telemetry_changes_no_answer_no_row_and_no_alarm(
    watched: Watched, conversation: str, parts: tuple[str, ...]
) -> None:
    watched.break_()
    whole = _lived(watched, f"{conversation}-whole")
    before = len(watched.shown()["failures"])
    watched.break_(*parts)
    broken = _lived(watched, f"{conversation}-broken")
    failed = watched.shown()["failures"][before:]
    watched.break_()
    assert broken == whole
    assert set(failed) == set(parts)


def _lived(watched: Watched, name: str) -> list[Any]:
    """Play a short life of a conversation, and return what is the same in every such life."""
    client = watched.client
    done = client.accepted(name, "echo", {"a": 1}, key="echo")
    results = [client.settled(name, done)["result"]]
    asked = client.accepted(name, "approval", {"question": "may I?"}, key="ask")
    client.waits(name, asked, "approval")
    refused = client.http.get(f"{submissions(name)}?limit=0")
    decided = client.act(name, asked, "approvals/question", {"decision": "approve"})
    results.append(client.settled(name, asked)["result"])
    until(lambda: client.maintenance(name)["alarm_at"], lambda at: at is None)
    records = client.records(name)
    return [
        results,
        refused.status_code,
        decided.status_code,
        [(each["kind"], each["epoch"]) for each in records],
        [set(each) for each in records],
        watched.server.alarms(disk.CLASS).get(name),
        client.maintenance(name)["generation"],
    ]
