"""How soon a handler goes on after the decision or the signal that it waits for, on an idle lane."""

import statistics
import time

import pytest

from runtime.conftest import NewStage
from runtime.helpers.ondisk import until
from runtime.helpers.stage import REASON

pytestmark = pytest.mark.worker

NAPS_MAX = 10_000
TIMES = 50
LIMIT_S = 1.0


def test_a_handler_goes_on_within_a_second_of_its_decision(new_stage: NewStage) -> None:
    """The 99th percentile of fifty: from the POST until the handler's next call reaches the server outside."""
    stages = [(new_stage(), kind) for _ in range(TIMES // 2) for kind in ("approval", "signal")]
    for stage, kind in stages:
        stage.submit("waiter", {"kind": kind, "url": stage.url})
    for stage, _ in stages:
        stage.until_state("suspended")
    took_s: list[float] = []
    for stage, kind in stages:
        started_s = time.monotonic()
        if kind == "approval":
            answer = stage.post("approvals/gate", {"decision": "approved", "reason": REASON})
        else:
            answer = stage.post("signals/news", {"payload": 1}, key="key")
        assert answer.status_code in {200, 202}, answer.text
        until(lambda: "tell" in stage.outside.arrived_at_s, bool)  # noqa: B023 - read at once
        took_s.append(stage.outside.arrived_at_s["tell"] - started_s)
    p99_s = statistics.quantiles(took_s, n=100)[98]
    assert p99_s < LIMIT_S, f"p50 {statistics.median(took_s):.3f} s, p99 {p99_s:.3f} s"


@pytest.mark.parametrize("nap_ms", [0.1, 1, 2, 3])
def test_short_sleeps_let_timers_and_input_in(new_stage: NewStage, nap_ms: float) -> None:
    """The loop of the runtime makes a call that is due within two milliseconds in the same turn of the isolate."""
    stage = new_stage()
    wanted = {"nap_ms": nap_ms, "timer_ms": 20, "naps_max": NAPS_MAX}
    submission = stage.submit("napper", wanted)
    settlement = stage.client.settled(stage.name, submission)
    assert settlement["outcome"] == "completed", settlement
    assert 1 <= settlement["result"] <= 20 / nap_ms
