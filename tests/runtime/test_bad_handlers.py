"""Handlers that take the process down, or never return: counted, delayed, ended by the small limits set here.

And those that call JavaScript wrongly: their own failure, and no interruption.
"""

import pytest

from runtime.helpers.stage import Stage
from workshop.serving import Server

pytestmark = pytest.mark.worker

MOVES_CLOCK = True
VARIABLES = {
    "QUIESCE_ATTEMPT_MS_MAX": "400",
    "QUIESCE_INTERRUPTIONS_MAX": "3",
    "QUIESCE_INTERRUPTION_WINDOW_MS": "2000",
    "QUIESCE_ATTEMPTS_MAX": "3",
}


def test_a_handler_that_ends_the_process_is_counted_delayed_and_settled(
    server: Server, stage: Stage
) -> None:
    """Three processes die of it. The second claim comes at once, the third two seconds later; no fourth."""
    assert stage.file
    runtime = server.runtime_pid()
    assert runtime is not None
    stage.in_background(lambda: stage.submit("fail", {"kind": "crash"}))
    runtime = after_restart(server, runtime)
    runtime = after_restart(server, runtime)
    waiting = stage.until(lambda seen: seen.is_quiet)
    assert waiting.alarm_at_ms is not None
    assert waiting.generation is not None
    assert waiting.generation.last_pass is not None
    assert 0 < waiting.alarm_at_ms - waiting.generation.last_pass["at_ms"] <= 2_000
    server.advance(10)
    runtime = after_restart(server, runtime)
    settled = stage.until_settled().settlements[0]
    assert settled.failure is not None
    assert settled.failure["error_type"] == "attempts-exhausted"
    assert server.runtime_pid() == runtime


def after_restart(server: Server, runtime: int) -> int:
    """Wait until the process has ended and another one answers."""
    server.wait_for_restart(runtime)
    successor = server.runtime_pid()
    assert successor is not None
    return successor


def test_a_handler_that_ends_the_process_once_is_run_again_and_completes(
    server: Server, stage: Stage
) -> None:
    assert stage.file
    runtime = server.runtime_pid()
    assert runtime is not None
    stage.in_background(lambda: stage.submit("fail", {"kind": "crash", "times": 1}))
    server.wait_for_restart(runtime)
    assert stage.until_settled().settlements[0].result == {"attempt": 2}


def test_a_handler_that_hangs_costs_its_incarnation_and_is_run_again_by_the_next(
    stage: Stage,
) -> None:
    stage.submit("fail", {"kind": "hang", "times": 1})
    first = stage.state()["incarnation"]
    assert stage.until_settled().settlements[0].result == {"attempt": 2}
    assert stage.state()["incarnation"] != first
    assert stage.life()["constructions"] >= 2


def test_a_handler_that_always_hangs_runs_out_of_attempts(stage: Stage) -> None:
    stage.submit("fail", {"kind": "hang"})
    settled = stage.until_settled(60).settlements[0]
    assert settled.failure is not None
    assert settled.failure["error_type"] == "attempts-exhausted"
    assert "attempt-deadline" in settled.failure["message"]


@pytest.mark.parametrize(
    ("kind", "words"),
    [("parse", "SyntaxError: Expected property name"), ("fetch", "TypeError: Invalid URL")],
)
def test_what_javascript_says_of_a_wrong_call_fails_the_work_at_once(
    stage: Stage, kind: str, words: str
) -> None:
    """Tried again it would fail again: it is no fault of the platform, and its words are for who wrote it."""
    stage.submit("misuser", {"kind": kind})
    seen = stage.until_settled()
    (settled,) = seen.settlements
    assert settled.outcome == "failed"
    assert settled.failure is not None
    assert settled.failure["error_type"] == "JsException"
    assert words in settled.failure["message"]
    status = stage.client.status(stage.name, stage.submissions[-1])
    assert (status["attempts"], status["interruptions"]) == (0, 0)
