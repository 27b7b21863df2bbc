"""Time moved: what waiting costs, and that each clock wakes its lane at its time and not before."""

import pytest

from runtime.helpers.ondisk import until
from runtime.helpers.stage import REASON, Stage

pytestmark = pytest.mark.worker

MOVES_CLOCK = True
BACKOFF_BASE_MS, BACKOFF_CAP_MS = 2_000, 60_000
VARIABLES = {
    "QUIESCE_QUEUE_DEPTH_MAX": "300",
    "QUIESCE_BACKOFF_BASE_MS": str(BACKOFF_BASE_MS),
    "QUIESCE_BACKOFF_CAP_MS": str(BACKOFF_CAP_MS),
}
HOUR_S, DAY_S = 3_600, 86_400
BEHIND = 200
ATTEMPTS = 8
LATE_MS = 3_000
"""What an attempt may take before its failure is written down."""
MANY = 1_000
FAILURES = 20
FAILURES_MAX_S = 61
"""The longest that a lane whose passes fail waits for the next one, and a little."""


def claims(stage: Stage) -> int:
    return list(stage.life()["seen"]).count("claim:after")


@pytest.mark.parametrize("behind", [0, BEHIND])
def test_an_approval_that_waits_an_hour_or_a_day_costs_no_alarm_and_no_row(
    stage: Stage, behind: int
) -> None:
    """Parity's gap 1 too: a suspended head with rows queued behind it is quiet."""
    stage.submit("approval", {"question": "May it?"})
    for place in range(behind):
        stage.submit("echo", place, f"key-{place}")
    before = stage.until(lambda seen: seen.is_quiet and seen.states[:1] == ["suspended"])
    assert len(before.submissions) == behind + 1
    life = stage.life()
    for hours in (1, 23):
        stage.server.advance(hours * HOUR_S)
        assert stage.server.answers()
        assert stage.look() == before
        assert stage.life() == life
    assert before.alarm_at_ms is None
    stage.submissions = stage.submissions[:1]
    answer = stage.post("approvals/question", {"decision": "approved", "reason": REASON})
    assert answer.status_code == 200
    assert len(stage.until_settled(60).settlements) == behind + 1
    assert stage.life()["constructions"] > life["constructions"], "it had left memory"


def test_a_day_asleep_is_one_alarm_at_its_time(stage: Stage) -> None:
    stage.submit("sleep", {"ms": DAY_S * 1_000})
    before = stage.until_state("suspended")
    alarms = stage.deliveries
    stage.server.advance(DAY_S - 60)
    assert stage.server.answers()
    assert stage.look() == before
    assert stage.deliveries == alarms
    stage.server.advance(60)
    seen = stage.until_settled()
    assert stage.deliveries == alarms + 1
    assert before.alarm_at_ms is not None
    late_ms = stage.life()["deliveries"][-1]["at_ms"] - before.alarm_at_ms
    assert 0 <= late_ms < 60_000
    assert seen.settlements[0].result["slept_ms"] >= DAY_S * 1_000


def test_an_approval_expires_at_its_time_and_its_handler_is_told(stage: Stage) -> None:
    stage.submit("waiter", {"kind": "approval", "url": stage.url, "expires_in_s": HOUR_S})
    before = stage.until_state("suspended")
    stage.server.advance(HOUR_S - 60)
    assert stage.look() == before
    stage.server.advance(60)
    assert stage.until_settled().settlements[0].result == {"approved": False, "expired": True}
    late = stage.post("approvals/gate", {"decision": "approved", "reason": REASON})
    assert late.status_code == 409


def test_a_signal_that_does_not_come_times_out_at_its_time(stage: Stage) -> None:
    stage.submit("signal", {"name": "news", "timeout_ms": HOUR_S * 1_000})
    stage.until_state("suspended")
    stage.server.advance(HOUR_S)
    assert stage.until_settled().settlements[0].result == {"payload": None, "timed_out": True}


def test_retries_are_spaced_by_a_growing_backoff_and_end(stage: Stage) -> None:
    """Each waits between a half and the whole of its backoff, which doubles up to the cap."""
    stage.submit("fail", {"kind": "retryable"})
    gaps = []
    for attempt in range(1, ATTEMPTS):
        seen = stage.until(lambda seen: seen.is_quiet and claims(stage) == attempt)  # noqa: B023
        assert seen.alarm_at_ms is not None
        gaps.append(seen.alarm_at_ms - stage.life()["deliveries"][-1]["at_ms"])
        stage.server.advance(FAILURES_MAX_S)
    settled = stage.until_settled().settlements[0]
    assert settled.outcome == "failed"
    assert settled.failure is not None
    assert settled.failure["error_type"] == "attempts-exhausted"
    assert claims(stage) == ATTEMPTS
    wholes = [min(BACKOFF_CAP_MS, BACKOFF_BASE_MS << place) for place in range(ATTEMPTS - 1)]
    for gap, whole in zip(gaps, wholes, strict=True):
        assert whole / 2 <= gap <= whole + LATE_MS, (gaps, wholes)


@pytest.mark.parametrize(
    "point", ["maintenance:begin:before", "claim:before", "maintenance:finish:before"]
)
def test_twenty_passes_that_fail_and_then_health_converge_with_no_request(
    stage: Stage, point: str
) -> None:
    """M10: more failures than the platform delivers an alarm for; it would drop one after seven, in silence."""
    stage.control("fail_at", point=point, times=FAILURES)
    stage.submit("steps", {"count": 1, "url": stage.url})
    _let_time_pass(stage)
    assert stage.until_settled().settlements[0].outcome == "completed"
    assert stage.life()["seen"].count(point) == FAILURES + 1
    assert stage.calls == {"0": 1}


@pytest.mark.parametrize("part", ["transaction", "sql"])
def test_a_store_that_is_down_for_a_while_strands_no_lane(stage: Stage, part: str) -> None:
    """Begin itself fails, and the one bare alarm of the last resort carries the lane."""
    stage.arm("maintenance:begin:before", "pause")
    stage.submit("steps", {"count": 1, "url": stage.url})
    stage.until_paused("maintenance:begin:before")
    stage.control("rig", part=part, times=MANY)
    stage.control("release", point="maintenance:begin:before")
    for failed in range(1, 10):
        until(lambda: stage.life()["refused"].get(part, 0), lambda found: found >= failed)  # noqa: B023 - read at once
        until(lambda: stage.look().alarm_at_ms, lambda at_ms: at_ms is not None)
        stage.server.advance(FAILURES_MAX_S)
    stage.control("rig", part=part, times=0)
    _let_time_pass(stage)
    assert stage.until_settled().settlements[0].outcome == "completed"
    assert stage.calls == {"0": 1}


def _let_time_pass(stage: Stage) -> None:
    """Move on over and over, until all is settled; no request reaches the Object."""
    for _ in range(FAILURES * 3):
        if has_converged(stage):
            return
        before = stage.deliveries
        stage.server.advance(FAILURES_MAX_S)
        until(lambda: stage.deliveries > before or has_converged(stage), bool)  # noqa: B023 - read at once


def has_converged(stage: Stage) -> bool:
    seen = stage.look()
    return seen.is_settled and seen.is_quiet


def test_a_deadline_settles_what_waits_for_a_person(stage: Stage) -> None:
    stage.submit("approval", {"question": "May it?"}, deadline_ms=HOUR_S * 1_000)
    before = stage.until_state("suspended")
    assert before.alarm_at_ms is not None
    stage.server.advance(HOUR_S)
    failure = stage.until_settled().settlements[0].failure
    assert failure is not None
    assert failure["error_type"] == "deadline-exceeded"
