"""The spans of a pass: five at most, every one ended, none where nobody traces."""

from typing import Any

import pytest

from operations.ground import deployed
from quiesce import Run
from quiesce.telemetry import ATTEMPT_SPAN, PASS_SPAN
from telemetry.helpers.reporters import Recorder, heard


async def echo(_run: Run, value: Any) -> Any:
    return value


def test_an_echo_pass_has_its_own_span_and_that_of_its_attempt() -> None:
    with heard(echo) as (told, deployment, lane):
        submission = lane.submit("work", 1).submission
        deployment.run_until_quiet()
        whole, attempt = told.spans
        assert (whole.name, attempt.name) == (PASS_SPAN, ATTEMPT_SPAN)
        assert attempt.parent is whole
        assert whole.facts == lane.reports[-1].facts()
        assert attempt.facts == {
            "submission": submission,
            "agent": "work",
            "trace_id": None,
            "outcome": "Finished",
        }
        assert [each.ends for each in told.spans] == [1, 1]


@pytest.mark.parametrize(("submissions", "spans"), [(3, 4), (4, 5), (5, 5), (20, 5)])
def test_a_pass_has_five_spans_at_most(submissions: int, spans: int) -> None:
    with heard(echo) as (told, deployment, lane):
        for number in range(submissions):
            lane.submit("work", number)
        deployment.run_until_quiet()
        assert [each.settled for each in lane.reports] == [submissions]
        assert len(told.spans) == spans
        assert [each.ends for each in told.spans] == [1] * spans


def test_every_pass_has_its_own_five() -> None:
    with heard(echo, pass_submissions_max=5) as (told, deployment, lane):
        for number in range(10):
            lane.submit("work", number)
        deployment.run_until_quiet()
        passes = [each for each in told.spans if each.name == PASS_SPAN]
        for whole in passes:
            assert sum(each.parent is whole for each in told.spans) <= 4
        assert [each.facts["settled"] for each in passes][:2] == [5, 5]
        assert len(told.spans) - len(passes) == 8


def test_an_alarm_that_finds_nothing_owed_has_no_span() -> None:
    with heard(echo) as (told, deployment, lane):
        lane.submit("work", 1)
        deployment.run_until_quiet()
        told.spans.clear()
        lane.alarm()
        assert told.spans == []


def test_the_spans_of_a_pass_that_fails_are_ended_and_say_so() -> None:
    with heard(echo) as (told, deployment, lane):
        lane.submit("work", 1)
        lane.fail_at("settle:before", KeyError("broken"))
        deployment.run_until_quiet()
        failed = told.spans[0]
        assert failed.facts == {"error": "KeyError"}
        assert [each.ends for each in told.spans] == [1] * len(told.spans)
        assert [each.event for each in told.of("settled")] == ["settled"]
        assert lane.errors


def test_where_nobody_traces_there_is_no_span_and_every_line() -> None:
    with deployed(echo) as (deployment, lane):
        told = Recorder(is_tracing=False)
        deployment.reporter = told
        lane.submit("work", 1)
        deployment.run_until_quiet()
        assert told.spans == []
        assert told.events() == ["admitted", "settled", "pass"]
