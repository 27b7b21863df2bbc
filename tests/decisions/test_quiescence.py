"""From the decisions of a lane to one answer: quiet, due at an instant, or able to move by itself.

Not tested here: which parts a lane has; the stages' tests say so.
"""

from itertools import permutations

import pytest

from quiesce.generation import Autonomous, DueAt, Quiescence, Quiet
from quiesce.quiescence import combine, of_decision
from quiesce.recovery import Await, AwaitUntil, Claim, FinishFromHistory, Wait, WaitKind

NOW_MS = 1_000
QUIET = Quiet("a person must decide")
SOON = DueAt(1_500, "a timer")
LATER = DueAt(9_000, "a deadline")
RUNNABLE = Autonomous("it can run", is_runnable=True)
STUCK = Autonomous("a repair was deferred")
WAIT = Wait(WaitKind.APPROVAL, "it waits for the approval", since_ms=0)


@pytest.mark.parametrize(
    ("parts", "expected", "due_at_ms"),
    [
        pytest.param((), Quiet("nothing is open"), None, id="1-nothing-is-open"),
        pytest.param((QUIET,), QUIET, None, id="1-only-stable-waits"),
        pytest.param((SOON,), SOON, 1_500, id="1-a-timed-wait"),
        pytest.param((QUIET, SOON), SOON, 1_500, id="1-a-timed-wait-beside-a-stable-one"),
        pytest.param((LATER, SOON, QUIET), SOON, 1_500, id="1-the-earliest-of-several"),
        pytest.param((RUNNABLE,), RUNNABLE, None, id="1-it-can-move"),
        pytest.param((QUIET, RUNNABLE), RUNNABLE, None, id="1-autonomous-beats-quiet"),
        pytest.param((SOON, STUCK), STUCK, 1_500, id="1-autonomous-beats-due-and-keeps-its-time"),
        pytest.param((STUCK, RUNNABLE), RUNNABLE, None, id="1-runnable-beats-deferred"),
        pytest.param((DueAt(1_001, "x"),), DueAt(1_001, "x"), 1_001, id="2-just-ahead-is-due"),
    ],
)
def test_the_answer_of_a_lane(
    parts: tuple[Quiescence, ...], expected: Quiescence, due_at_ms: int | None
) -> None:
    for order in permutations(parts):
        assert combine(order, NOW_MS) == (expected, due_at_ms)


@pytest.mark.parametrize("at_ms", [1_000, 999, 0])
def test_2_an_instant_that_was_seen_and_not_consumed_is_autonomous(at_ms: int) -> None:
    """Paced and counted as idle, so that nothing can spin on a time that has passed."""
    answer, due_at_ms = combine([DueAt(at_ms, "a timer")], NOW_MS)
    assert isinstance(answer, Autonomous)
    assert not answer.is_runnable
    assert "a timer" in answer.reason
    assert due_at_ms is None


def test_2_a_passed_instant_does_not_hide_one_that_lies_ahead() -> None:
    answer, due_at_ms = combine([DueAt(900, "a timer"), SOON], NOW_MS)
    assert isinstance(answer, Autonomous)
    assert due_at_ms == 1_500


def test_an_await_is_quiet_with_its_reason() -> None:
    assert of_decision(Await(WAIT)) == Quiet("it waits for the approval")


def test_an_await_with_a_time_is_due_at_that_time() -> None:
    assert of_decision(AwaitUntil(WAIT, 5_000)) == DueAt(5_000, "it waits for the approval")


@pytest.mark.parametrize("decision", [Claim(0), FinishFromHistory()])
def test_whatever_can_be_done_now_is_autonomous_and_runnable(
    decision: Claim | FinishFromHistory,
) -> None:
    assert of_decision(decision) == Autonomous(decision.reason, is_runnable=True)
