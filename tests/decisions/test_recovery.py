"""classify: a row for each numbered rule, the order of the rules, and that every evidence has one decision.

The number before a case's id is that of the rule in `src/quiesce/recovery.py`; an RC number is that of the case
in the parity list, where it can occur here.

Not tested here: what is done about a decision; the stages' tests say so. What a delegation owes to its child
(rule 9) is delivery's.
"""

from dataclasses import fields, replace
from functools import cache
from random import Random
from typing import Any, get_args

import pytest

from quiesce import recovery
from quiesce.errors import FailureType
from quiesce.evidence import Evidence, Limits, OpenCall, OpenWait
from quiesce.recovery import (
    Await,
    AwaitUntil,
    Claim,
    CloseDue,
    Decision,
    FinishFromHistory,
    Nothing,
    Postpone,
    Quarantine,
    Reconcile,
    Resume,
    SettleAborted,
    SettleFailed,
    SettleReserved,
    Suspend,
    WaitKind,
    classify,
)
from quiesce.states import OPEN, OWNED, State, is_lawful

NOW = 1_000_000
SINCE = NOW - 500
LIMITS = Limits(
    attempts_max=8,
    interruptions_max=8,
    interruption_window_ms=600_000,
    version_check_ms=3_600_000,
)
READY_HEAD = Evidence(
    now_ms=NOW,
    state=State.READY,
    state_since_ms=SINCE,
    is_head=True,
    is_owned=False,
    attempts=0,
    interruptions=0,
    interrupted_since_ms=None,
    not_before_ms=None,
    deadline_at_ms=None,
    has_settlement_record=False,
    is_abort_wanted=False,
    calls=(),
    waits=(),
    agent="refunds",
    agent_version="2",
    is_agent_served=True,
    on_exhausted="fail",
    limits=LIMITS,
)
CALL = OpenCall("charge", "charge", is_uncertain=True, is_unknown=False, since_ms=SINCE)
AGAIN = replace(CALL, operation="notify", name="notify", is_uncertain=False)
UNKNOWN = replace(CALL, operation="refund", name="refund", is_unknown=True)
APPROVAL = OpenWait("large", "large", "approval", SINCE, due_at_ms=None)
EXPIRING = replace(APPROVAL, operation="small", name="small", due_at_ms=NOW + 900)
SIGNAL = OpenWait("paid", "paid", "signal", SINCE, due_at_ms=NOW + 700)
TIMER = OpenWait("nap", "nap", "timer", SINCE, due_at_ms=NOW + 300)
DUE = replace(TIMER, operation="slept", name="slept", due_at_ms=NOW)

CHILD = OpenWait("ship", "ship", "child", SINCE, due_at_ms=None)

SETTLED = {"state": State.SETTLED}
RESERVED = {"state": State.TERMINALIZING}
RECORDED = {"has_settlement_record": True}
JOINED = {"state": State.JOINED, "is_head": False}
ABORT = {"is_abort_wanted": True}
DEADLINE = {"deadline_at_ms": NOW}
QUEUED = {"is_head": False}
OWNED_INPUT = {"state": State.INPUT_APPLIED, "is_owned": True, "interruptions": 1}
OWNED_INPUT |= {"interrupted_since_ms": SINCE}
APPLIED = {"state": State.INPUT_APPLIED}
SUSPENDED = {"state": State.SUSPENDED}
HELD = {"state": State.QUARANTINED}
EXHAUSTED = {"attempts": 8}
BROKEN = {"interruptions": 8, "interrupted_since_ms": NOW - 600_000}
RETRY = {"not_before_ms": NOW + 250}
NOT_SERVED = {"is_agent_served": False}


def evidence(*changes: dict[str, Any]) -> Evidence:
    return replace(READY_HEAD, **{name: value for each in changes for name, value in each.items()})


def row(number: str, changes: list[dict[str, Any]], decision: type[Decision], **says: Any) -> Any:
    return pytest.param(changes, decision, says, id=number)


def calls(*open_calls: OpenCall) -> dict[str, Any]:
    return {"calls": open_calls}


def waits(*open_waits: OpenWait) -> dict[str, Any]:
    return {"waits": open_waits}


def waiting(kind: WaitKind, **says: Any) -> dict[str, Any]:
    return {"wait": {"kind": kind, **says}}


RULES = [
    # 1. Settled.
    row("1-settled-RC-15", [SETTLED], Nothing),
    row("1-settled-with-abort-RC-15", [SETTLED, ABORT], Nothing),
    row("1-settled-with-open-calls-RC-22", [SETTLED, calls(CALL)], Nothing),
    # 2. A settlement stands in the log.
    row("2-recorded-RC-9", [OWNED_INPUT, RECORDED], FinishFromHistory),
    row("2-recorded-in-the-queue-RC-10", [QUEUED, RECORDED], FinishFromHistory),
    row("2-recorded-beats-abort-RC-14", [APPLIED, RECORDED, ABORT], FinishFromHistory),
    row("2-recorded-beats-open-calls-RC-20", [APPLIED, RECORDED, calls(CALL)], FinishFromHistory),
    row("2-recorded-of-a-joined-row-RC-38", [JOINED, RECORDED], FinishFromHistory),
    row("2-reserved-RC-8", [RESERVED], SettleReserved),
    row("2-reserved-beats-abort-RC-14", [RESERVED, ABORT], SettleReserved),
    row("2-reserved-beats-open-calls-RC-21", [RESERVED, calls(CALL)], SettleReserved),
    row("2-reserved-in-the-queue-RC-78", [RESERVED, QUEUED], SettleReserved),
    row("2-reserved-with-a-running-child-RC-57", [RESERVED, ABORT, waits(CHILD)], Await),
    row("2-recorded-beats-reserved-RC-11", [RESERVED, RECORDED], FinishFromHistory),
    row("2-recorded-beats-a-child-RC-56", [SUSPENDED, RECORDED, waits(CHILD)], FinishFromHistory),
    # 3. Joined.
    row("3-joined-RC-36", [JOINED], Await, **waiting(WaitKind.HEAD, since_ms=SINCE)),
    row("3-joined-beats-deadline", [JOINED, DEADLINE], Await, **waiting(WaitKind.HEAD)),
    # 4. Ended from outside.
    row("4-abort-of-ready-RC-12", [ABORT], SettleAborted),
    row("4-abort-of-queued-RC-77", [QUEUED, ABORT], SettleAborted),
    row("4-abort-after-input-RC-13", [OWNED_INPUT, ABORT], SettleAborted),
    row("4-abort-beats-open-calls-RC-23", [OWNED_INPUT, ABORT, calls(CALL)], SettleAborted),
    row("4-abort-beats-unknown", [ABORT, {"state": State.UNKNOWN}, calls(UNKNOWN)], SettleAborted),
    row("4-abort-beats-approval-RC-33", [SUSPENDED, ABORT, waits(APPROVAL)], SettleAborted),
    row("4-abort-of-a-held-row", [HELD, ABORT], SettleAborted),
    row("4-abort-of-an-admitted-row", [{"state": State.ADMITTED}, ABORT], SettleAborted),
    row("4-deadline-now", [DEADLINE], SettleFailed, error_type=FailureType.DEADLINE_EXCEEDED),
    row("4-deadline-past", [{"deadline_at_ms": 1}], SettleFailed),
    row("4-deadline-ahead", [{"deadline_at_ms": NOW + 1}], Claim),
    row("4-deadline-in-the-queue", [QUEUED, DEADLINE], SettleFailed),
    row("4-deadline-of-a-held-row", [HELD, DEADLINE], SettleFailed),
    row("4-deadline-of-a-wait", [SUSPENDED, DEADLINE, waits(APPROVAL)], SettleFailed),
    row("4-abort-beats-deadline", [ABORT, DEADLINE], SettleAborted),
    # Behind the head.
    row("4-queued", [QUEUED], Await, **waiting(WaitKind.HEAD, since_ms=SINCE, until_ms=None)),
    row("4-queued-beats-exhausted", [QUEUED, EXHAUSTED], Await, **waiting(WaitKind.HEAD)),
    row("4-queued-beats-retry-time", [QUEUED, RETRY], Await, **waiting(WaitKind.HEAD)),
    row("4-queued-beats-version", [QUEUED, NOT_SERVED], Await, **waiting(WaitKind.HEAD)),
    row("4-queued-and-admitted", [QUEUED, {"state": State.ADMITTED}], Await),
    # 5. A call that left no result.
    row("5-unproven-RC-17", [OWNED_INPUT, calls(CALL)], Reconcile, operations=("charge",)),
    row("5-unproven-released-RC-18", [APPLIED, calls(CALL)], Reconcile),
    row("5-unproven-beside-a-wait-RC-19", [SUSPENDED, calls(CALL), waits(APPROVAL)], Reconcile),
    row(
        "5-only-what-is-uncertain",
        [APPLIED, calls(AGAIN, UNKNOWN, CALL)],
        Reconcile,
        operations=("charge",),
    ),
    row("5-an-idempotent-call-runs-again", [APPLIED, calls(AGAIN)], Claim),
    row("5-unproven-beats-exhausted", [APPLIED, calls(CALL), EXHAUSTED], Reconcile),
    row("5-unproven-beats-retry-time", [APPLIED, calls(CALL), RETRY], Reconcile),
    # 6. Unknown.
    row(
        "6-unknown-RC-24",
        [{"state": State.UNKNOWN}, calls(UNKNOWN)],
        Await,
        **waiting(WaitKind.RESOLUTION, operation="refund", name="refund", since_ms=SINCE),
    ),
    row("6-unknown-is-never-marked-again-RC-25", [APPLIED, calls(UNKNOWN)], Await),
    row("6-every-call-is-resolved-RC-27", [{"state": State.UNKNOWN}], Resume),
    row("6-what-remains-may-run-again-RC-26", [{"state": State.UNKNOWN}, calls(AGAIN)], Resume),
    row("6-unknown-beats-exhausted", [APPLIED, calls(UNKNOWN), EXHAUSTED], Await),
    row("6-unknown-beats-suspension", [SUSPENDED, calls(UNKNOWN), waits(DUE)], Await),
    # 7. Exhausted.
    row("7-attempts", [EXHAUSTED], SettleFailed, error_type=FailureType.ATTEMPTS_EXHAUSTED),
    row("7-attempts-one-left", [{"attempts": 7}], Claim),
    row("7-attempts-held", [EXHAUSTED, {"on_exhausted": "quarantine"}], Quarantine),
    row("7-interruptions", [BROKEN], SettleFailed, error_type=FailureType.ATTEMPTS_EXHAUSTED),
    row("7-interruptions-held", [BROKEN, {"on_exhausted": "quarantine"}], Quarantine),
    row("7-interruptions-one-left", [BROKEN, {"interruptions": 7}], Claim),
    row(
        "7-interruptions-in-too-short-a-time",
        [BROKEN, {"interrupted_since_ms": NOW - 599_999}],
        Claim,
        interruptions=8,
    ),
    row("7-exhausted-beats-retry-time", [EXHAUSTED, RETRY], SettleFailed),
    row("7-a-held-row-is-not-held-again", [HELD, EXHAUSTED], Await),
    # 8. Waits.
    row(
        "8-undecided-RC-29",
        [SUSPENDED, waits(APPROVAL)],
        Await,
        **waiting(WaitKind.APPROVAL, operation="large", name="large", until_ms=None),
    ),
    row("8-decided-RC-30", [SUSPENDED], Resume),
    row("8-asked-and-its-attempt-died-RC-28", [OWNED_INPUT, waits(APPROVAL)], Claim),
    row("8-asked-and-released", [APPLIED, waits(APPROVAL)], Suspend),
    row("8-decided-before-it-was-suspended-RC-31", [OWNED_INPUT], Claim),
    row(
        "8-a-timer",
        [SUSPENDED, waits(TIMER)],
        AwaitUntil,
        at_ms=NOW + 300,
        **waiting(WaitKind.TIMER, until_ms=NOW + 300),
    ),
    row("8-a-signal", [SUSPENDED, waits(SIGNAL)], AwaitUntil, **waiting(WaitKind.SIGNAL)),
    row(
        "8-the-earliest-of-several",
        [SUSPENDED, waits(EXPIRING, TIMER)],
        AwaitUntil,
        at_ms=NOW + 300,
    ),
    row("8-a-time-among-stable-waits", [SUSPENDED, waits(APPROVAL, TIMER)], AwaitUntil),
    row("8-due-now", [SUSPENDED, waits(DUE, TIMER)], CloseDue, operations=("slept",)),
    row("8-one-ahead-is-not-due", [SUSPENDED, waits(replace(DUE, due_at_ms=NOW + 1))], AwaitUntil),
    row("8-due-before-it-was-suspended", [OWNED_INPUT, waits(DUE)], CloseDue),
    row("8-it-runs-again-beside-its-waits", [APPLIED, waits(APPROVAL), RETRY], AwaitUntil),
    row("8-its-retry-time-has-come", [APPLIED, waits(APPROVAL), {"not_before_ms": NOW}], Claim),
    row("8-released-from-quarantine", [waits(APPROVAL)], Claim),
    row("8-a-child-RC-48", [SUSPENDED, waits(CHILD)], Await, **waiting(WaitKind.CHILD)),
    row("8-every-child-has-settled-RC-62", [SUSPENDED, waits()], Resume),
    row("8-a-wait-beats-the-version", [SUSPENDED, waits(APPROVAL), NOT_SERVED], Await),
    row("8-an-exhausted-row-waits-no-more", [APPLIED, waits(APPROVAL), EXHAUSTED], SettleFailed),
    # 10. Held, or not established.
    row("10-admitted-RC-72", [{"state": State.ADMITTED}], Await, **waiting(WaitKind.PARENT)),
    row("10-quarantined", [HELD], Await, **waiting(WaitKind.OPERATOR, since_ms=SINCE)),
    row("10-quarantined-beats-version", [HELD, NOT_SERVED], Await),
    row(
        "10-quarantined-with-a-wait-still-open",
        [HELD, EXHAUSTED, waits(APPROVAL)],
        Await,
        **waiting(WaitKind.OPERATOR),
    ),
    # 12. Retry time.
    row(
        "12-retry-ahead",
        [APPLIED, RETRY],
        AwaitUntil,
        at_ms=NOW + 250,
        **waiting(WaitKind.RETRY, until_ms=NOW + 250, since_ms=SINCE),
    ),
    row("12-retry-now", [APPLIED, {"not_before_ms": NOW}], Claim),
    row("12-retry-past", [APPLIED, {"not_before_ms": NOW - 1}], Claim),
    row("12-the-first-interruption-costs-nothing", [OWNED_INPUT], Claim, interruptions=1),
    row(
        "12-the-second-interruption",
        [OWNED_INPUT, {"interruptions": 2}],
        Postpone,
        not_before_ms=NOW + 2_000,
        interruptions=2,
    ),
    row(
        "12-the-eighth-within-the-window",
        [OWNED_INPUT, BROKEN, {"interrupted_since_ms": NOW - 1}],
        Postpone,
        not_before_ms=NOW + 128_000,
    ),
    row("12-an-owner-that-made-progress", [OWNED_INPUT, {"interruptions": 0}], Claim),
    row("12-released-after-interruptions", [APPLIED, {"interruptions": 3}], Claim, interruptions=3),
    row("12-retry-beats-version", [RETRY, NOT_SERVED], AwaitUntil, **waiting(WaitKind.RETRY)),
    # 13. The agent's version.
    row(
        "13-not-served",
        [NOT_SERVED],
        AwaitUntil,
        at_ms=NOW + 3_600_000,
        **waiting(WaitKind.AGENT_VERSION, name="refunds@2", until_ms=NOW + 3_600_000),
    ),
    row("13-not-served-and-owned", [OWNED_INPUT, NOT_SERVED], AwaitUntil),
    # 14. Run.
    row("14-ready-RC-3", [], Claim, interruptions=0),
    row("14-claimed-and-died-before-its-input-RC-4", [{"state": State.RUNNING}], Claim),
    row("14-input-applied-RC-6", [APPLIED], Claim, interruptions=0),
    row("14-the-work-is-done-and-no-settlement-RC-7", [OWNED_INPUT], Claim),
]


@pytest.mark.parametrize(("changes", "decision", "says"), RULES)
def test_the_first_rule_that_applies_decides(
    changes: list[dict[str, Any]], decision: type[Decision], says: dict[str, Any]
) -> None:
    found = classify(evidence(*changes))
    assert type(found) is decision
    for name, expected in says.items():
        if name == "wait":
            wait = getattr(found, "wait")  # noqa: B009 - a union of decisions, of which two have it
            assert {each: getattr(wait, each) for each in expected} == expected
        else:
            assert getattr(found, name) == expected


PRECEDENCE = [
    # Each applies to the head by itself, and to all that stand after it.
    ("1-settled", SETTLED, Nothing),
    ("2-recorded", RECORDED, FinishFromHistory),
    ("4-abort", ABORT, SettleAborted),
    ("4-deadline", DEADLINE, SettleFailed),
    ("4-queued", QUEUED, Await),
    ("5-unproven", calls(CALL, UNKNOWN), Reconcile),
    ("6-unknown", calls(UNKNOWN), Await),
    ("7-exhausted", {**EXHAUSTED, "on_exhausted": "quarantine"}, Quarantine),
    ("8-due", waits(DUE, APPROVAL), CloseDue),
    ("12-retry", RETRY, AwaitUntil),
    ("8-undecided", waits(APPROVAL), Suspend),
    ("13-version", NOT_SERVED, AwaitUntil),
    ("14-run", {}, Claim),
]


@pytest.mark.parametrize("place", range(len(PRECEDENCE)), ids=[name for name, *_ in PRECEDENCE])
def test_each_rule_beats_every_rule_after_it(place: int) -> None:
    """Settled beats history beats abort beats deadline, and so on down to running."""
    _, own, decision = PRECEDENCE[place]
    assert type(classify(evidence(APPLIED, own))) is decision
    for name, other, _ in PRECEDENCE[place + 1 :]:
        assert type(classify(evidence(APPLIED, other, own))) is decision, name
    below = [changes for _, changes, _ in reversed(PRECEDENCE[place + 1 :])]
    assert type(classify(evidence(APPLIED, *below, own))) is decision


# Laws over all evidence.

TIMES = (None, NOW - 600_000, NOW, NOW + 1)
SPACE: dict[str, tuple[Any, ...]] = {
    "state": tuple(State),
    "is_head": (True, True, True, False),
    "attempts": (0, 7, 7, 8),
    "interruptions": (0, 1, 2, 8),
    "interrupted_since_ms": TIMES,
    "not_before_ms": TIMES,
    "deadline_at_ms": (None, None, None, *TIMES),
    "has_settlement_record": (False, False, False, True),
    "is_abort_wanted": (False, False, False, True),
    "calls": (
        (),
        (),
        (),
        (CALL,),
        (AGAIN,),
        (UNKNOWN,),
        (AGAIN, CALL),
        (UNKNOWN, CALL),
        (AGAIN, UNKNOWN),
    ),
    "waits": (
        (),
        (),
        (),
        (CHILD,),
        (APPROVAL,),
        (TIMER,),
        (DUE,),
        (APPROVAL, EXPIRING),
        (APPROVAL, DUE),
    ),
    "on_exhausted": ("fail", "quarantine"),
}
"""Values on both sides of every edge; a field that is not here is drawn if it is a boolean."""
EVIDENCES = 20_000
DECISIONS: tuple[type, ...] = get_args(recovery.Decision.__value__)


@cache
def corpus() -> tuple[Evidence, ...]:
    """Draw evidences from the whole space, the same ones in every run."""
    chance = Random(0)
    space = {
        each.name: SPACE.get(each.name)
        or ((False, True) if each.type is bool else (getattr(READY_HEAD, each.name),))
        for each in fields(Evidence)
    }
    return tuple(
        Evidence(**{name: chance.choice(values) for name, values in space.items()})
        for _ in range(EVIDENCES)
    )


@cache
def lawful_corpus() -> tuple[Evidence, ...]:
    """Keep only what the tables' constraints and the stages allow to stand together."""
    keep_calls = {State.INPUT_APPLIED, State.SUSPENDED, State.UNKNOWN}
    keep_waits = keep_calls | {State.QUARANTINED, State.READY}
    keep_children = keep_waits | {State.TERMINALIZING}
    return tuple(
        seen
        for seen in corpus()
        if (seen.state in keep_calls or not seen.calls)
        and (seen.state in keep_waits or seen.waits in {(), (CHILD,)})
        and (seen.state in keep_children or not seen.waits)
        and (seen.state in OWNED or not seen.is_owned)
        and (seen.interruptions == 0) == (seen.interrupted_since_ms is None)
        and (seen.state is not State.ADMITTED or seen.attempts == seen.interruptions == 0)
        and seen.state is not State.JOINING  # Nothing brings a submission there yet.
    )


def test_every_evidence_has_exactly_one_decision() -> None:
    """It is total: it raises for nothing, and says the same twice."""
    for seen in corpus():
        decision = classify(seen)
        assert type(decision) in DECISIONS
        assert classify(seen) == decision
        assert decision.reason


def test_every_decision_is_found_in_the_corpus() -> None:
    """Were the space too small, the laws below would hold for nothing."""
    assert {type(classify(seen)) for seen in lawful_corpus()} == set(DECISIONS)


def test_a_decision_is_a_move_that_is_lawful_from_where_the_submission_stands() -> None:
    """What recovery decides must be possible: a pass that tries an unlawful move fails, for ever."""
    for seen in lawful_corpus():
        state = State(seen.state)
        match classify(seen):
            case Suspend():
                enters = State.SUSPENDED
            case Resume() | Claim():
                enters = State.INPUT_APPLIED
            case Quarantine():
                enters = State.QUARANTINED
            case SettleFailed() | SettleAborted() | SettleReserved() | FinishFromHistory():
                enters = State.SETTLED
            case Reconcile():
                enters = State.UNKNOWN
            case _:
                enters = state
        assert enters is state or is_lawful(state, enters), seen


def test_a_time_that_is_awaited_lies_ahead() -> None:
    """An instant that is due is acted on, never awaited; so that no lane can spin on it."""
    for seen in lawful_corpus():
        match classify(seen):
            case AwaitUntil(at_ms=at_ms) | Postpone(not_before_ms=at_ms):
                assert at_ms > seen.now_ms, seen


def test_an_open_uncertain_call_is_never_run_over() -> None:
    """Nothing is guessed: whatever else holds, a call that may have happened is not claimed again."""
    for seen in lawful_corpus():
        if any(call.is_uncertain for call in seen.calls):
            assert not isinstance(classify(seen), Claim | Resume | Suspend | Quarantine), seen


@pytest.mark.parametrize("state", sorted(OPEN - {State.TERMINALIZING}))
def test_a_submission_behind_the_head_never_makes_its_lane_autonomous(state: State) -> None:
    """A lane with any number of rows behind a head that waits is quiet."""
    assert isinstance(classify(evidence(QUEUED, {"state": state}, EXHAUSTED, RETRY)), Await)
