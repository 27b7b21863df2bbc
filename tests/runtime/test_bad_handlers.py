"""Handlers that take the process down, or never return: counted, delayed, and ended by the small limits set here."""

import pytest

from runtime.helpers.ondisk import until
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
    """Three processes die of it; the second and third claim wait 2 s and 4 s, and then it has had its share."""
    assert stage.file
    runtime = server.runtime_pid()
    assert runtime is not None
    stage.in_background(lambda: stage.submit("fail", {"kind": "crash"}))
    for crash in range(1, 4):
        server.wait_for_restart(runtime)
        runtime = server.runtime_pid()
        assert runtime is not None
        if crash in {2, 3}:
            # The durable delay of the next claim; the alarm stands at it, and nothing is requested.
            until(lambda: stage.look(), lambda seen: seen.is_quiet)
            if stage.look().is_settled:
                break
            server.advance(10)
    seen = stage.until_settled()
    assert seen.settlements[0].failure is not None
    assert seen.settlements[0].failure["error_type"] == "attempts-exhausted"
    assert crash == 3


def test_a_handler_that_ends_the_process_once_is_run_again_and_completes(
    server: Server, stage: Stage
) -> None:
    assert stage.file
    runtime = server.runtime_pid()
    assert runtime is not None
    stage.in_background(lambda: stage.submit("fail", {"kind": "crash", "times": 1}))
    server.wait_for_restart(runtime)
    assert stage.until_settled().settlements[0].result == {"attempt": 2}


def test_a_handler_that_hangs_costs_its_incarnation_and_is_run_again_by_the_next(stage: Stage) -> None:
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
