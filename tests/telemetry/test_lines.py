"""What is told of admissions, decisions, settlements and passes, and by which trace; and what never is.

Not tested here: how a line is written (`test_reporting.py`), and that the Worker writes it (`test_in_workerd.py`).

Parity: SEC-4, SEC-7.
"""

import contextlib
from typing import Any

import pytest

from children.family import TERMS, call_of, delegate, echo, served
from operations.ground import DAY_MS, World, agent, deployed, refused
from quiesce import (
    Failed,
    Retryable,
    Run,
    ToolFailed,
    ledger,
    repair,
    reporting,
    trace_context,
)
from quiesce.errors import RefusalCode, StorageUnavailable
from quiesce.generation import Begun, SetAt
from quiesce.lane import Pass
from quiesce.ports import AdmitChild
from quiesce.recovery import FinishFromHistory
from quiesce.testing import Conversation
from telemetry.helpers.reporters import Recorder, heard

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
OTHER_TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
OTHER = f"00-{OTHER_TRACE}-b7ad6b7169203331-00"
SECRET = "nobody-may-read-this"


def test_an_echo_is_told_in_three_lines() -> None:
    with heard(agent(echo, "echo")) as (told, deployment, lane):
        submission = lane.submit("echo", 1, traceparent=TRACEPARENT).submission
        deployment.run_until_quiet()
        admitted, settled, passed = told.lines
        cost = lane.status(submission).submission.cost
    assert {each.conversation for each in told.lines} == {"one"}
    assert admitted.event == "admitted"
    assert admitted.facts == {
        "submission": submission,
        "agent": "echo",
        "sequence": 1,
        "is_replayed": False,
    }
    assert settled.event == "settled"
    assert settled.facts == {
        "submission": submission,
        "agent": "echo",
        "outcome": "completed",
        "error_type": None,
        "elapsed_ms": settled.at_ms - admitted.at_ms,
        "attempts": 0,
        **cost.fields(),
    }
    assert passed.event == "pass"
    assert passed.facts["phase"] == "actionable"
    assert passed.facts["settled"] == 1
    assert passed.facts == lane.reports[-1].facts()
    assert [each.trace_id for each in told.lines] == [TRACE, TRACE, None]


def test_a_caught_up_alarm_is_not_told() -> None:
    with heard(echo) as (told, deployment, lane):
        lane.submit("work", 1)
        deployment.run_until_quiet()
        before = len(told.lines)
        report = lane.alarm()
        assert report is not None
        assert report.phase == "caught-up"
        assert len(told.lines) == before


def test_a_pass_on_a_fresh_incarnation_names_its_conversation() -> None:
    with heard(echo) as (told, deployment, lane):
        lane.submit("work", 1)
        lane.evict()
        assert not lane.is_built
        deployment.run_until_quiet()
        assert [each.conversation for each in told.lines] == ["one"] * 3


def test_a_line_for_which_nothing_can_be_read_names_no_conversation_and_is_told() -> None:
    with heard(echo) as (told, deployment, lane):
        lane.submit("work", 1)
        deployment.run_until_quiet()
        lane.evict()
        _ = lane.lane
        lane.break_storage(StorageUnavailable("down"))
        lane.lane.tell("bug", None, {"error": "KeyError"})
        lane.mend_storage()
        assert told.lines[-1].event == "bug"
        assert told.lines[-1].conversation is None


def test_a_replay_is_told_by_the_trace_that_asked_first() -> None:
    """Which trace asks is no part of what is asked."""
    with heard(echo) as (told, deployment, lane):
        first = lane.submit("work", 1, key="k", traceparent=TRACEPARENT)
        for other in (OTHER, None):
            again = lane.submit("work", 1, key="k", traceparent=other)
            assert again.is_replayed
            assert again.submission == first.submission
        deployment.run_until_quiet()
        assert [each.facts["is_replayed"] for each in told.of("admitted")] == [False, True, True]
        traces = {each.trace_id for each in told.lines if "submission" in each.facts}
        assert traces == {TRACE}


def test_what_is_refused_is_told_by_no_commit() -> None:
    with heard(echo) as (told, deployment, lane):
        submission = lane.submit("work", 1, key="k").submission
        deployment.run_until_quiet()
        before = told.events()
        with refused(RefusalCode.IDEMPOTENCY_CONFLICT):
            lane.submit("work", 2, key="k")
        with refused(RefusalCode.UNKNOWN_AGENT):
            lane.submit("nobody", 2)
        with refused(RefusalCode.ALREADY_SETTLED):
            lane.abort(submission)
        assert told.events() == before


async def ask_twice(run: Run, _value: Any) -> Any:
    first = await run.approval("first", reason=SECRET)
    second = await run.approval("second", reason=SECRET)
    return [first.approved, second.approved]


def test_every_decision_is_told_and_a_repeated_one_says_so() -> None:
    with heard(ask_twice) as (told, deployment, lane):
        submission = lane.submit("work", traceparent=TRACEPARENT).submission
        deployment.run_until_quiet()
        lane.approve(submission, "first")
        lane.approve(submission, "first")
        deployment.run_until_quiet()
        lane.deny(submission, "second")
        deployment.run_until_quiet()
        lines = told.of("decided")
    about = {"submission": submission, "act": "approval"}
    said = [
        {"operation": "first", "decision": "approved", "is_replayed": False},
        {"operation": "first", "decision": "approved", "is_replayed": True},
        {"operation": "second", "decision": "denied", "is_replayed": False},
    ]
    assert [each.facts for each in lines] == [about | each for each in said]
    assert {each.trace_id for each in lines} == {TRACE}


def test_a_resolution_is_told() -> None:
    world = World(charge=[KeyError("lost")])

    async def charge(run: Run, _value: Any) -> Any:
        return await run.tool("charge", world.act, "charge")

    with heard(charge) as (told, deployment, lane):
        submission = lane.submit("work", traceparent=TRACEPARENT).submission
        deployment.run_until_quiet()
        lane.resolve(submission, "charge", "completed", SECRET)
        (line,) = told.of("decided")
        assert line.facts == {
            "act": "resolution",
            "submission": submission,
            "operation": "charge",
            "decision": "completed",
            "is_replayed": False,
        }
        assert line.trace_id == TRACE


async def listen(run: Run, _value: Any) -> Any:
    received = await run.signal("paid")
    return received.payload


def test_a_signal_is_told_by_its_name() -> None:
    with heard(listen) as (told, deployment, lane):
        submission = lane.submit("work", traceparent=TRACEPARENT).submission
        deployment.run_until_quiet()
        for _ in range(2):
            lane.signal(submission, "paid", SECRET, key="k")
        lines = told.of("decided")
    assert [(each.facts["act"], each.facts["signal"]) for each in lines] == [("signal", "paid")] * 2
    assert [each.facts["is_replayed"] for each in lines] == [False, True]
    assert {each.trace_id for each in lines} == {TRACE}


def test_an_abort_that_settles_at_once_is_told_twice_and_its_repeat_once() -> None:
    with heard(listen) as (told, deployment, lane):
        submission = lane.submit("work", traceparent=TRACEPARENT).submission
        deployment.run_until_quiet()
        told.lines.clear()
        lane.abort(submission, SECRET)
        lane.abort(submission, SECRET)
        assert told.events() == ["decided", "settled", "decided"]
        assert [each.facts["act"] for each in told.of("decided")] == ["abort", "abort"]
        (settled,) = told.of("settled")
        assert settled.facts["outcome"] == "aborted"
        assert settled.facts["error_type"] is None
        assert {each.trace_id for each in told.lines} == {TRACE}


def test_what_an_operator_does_is_told() -> None:
    async def never(_run: Run, _value: Any) -> None:
        raise Retryable("not yet")

    stubborn = agent(never, on_exhausted="quarantine")
    with heard(stubborn, attempts_max=1) as (told, deployment, lane):
        submission = lane.submit("work", traceparent=TRACEPARENT).submission
        deployment.run_until_quiet()
        lane.retry(submission)
        lane.force_pass()
        retried, forced = told.of("decided")
        assert (retried.facts["act"], retried.trace_id) == ("retry", TRACE)
        assert forced.facts == {"act": "forced-pass", "is_replayed": False}


def test_a_failure_is_told_by_its_type() -> None:
    async def fail(_run: Run, value: Any) -> None:
        raise Failed(value, error_type="no-luck")

    with heard(fail) as (told, deployment, lane):
        lane.submit("work", SECRET)
        deployment.run_until_quiet()
        (settled,) = told.of("settled")
        assert settled.facts["outcome"] == "failed"
        assert settled.facts["error_type"] == "no-luck"


def test_what_has_joined_a_host_is_told_by_itself() -> None:
    async def host(run: Run, _value: Any) -> int:
        return len(await run.inbox())

    with heard(host) as (told, deployment, lane):
        asked = [lane.submit("work", 0), *(lane.submit("work", 1, mode="join") for _ in range(2))]
        deployment.run_until_quiet()
        settled = told.of("settled")
        assert {each.facts["submission"] for each in settled} == {one.submission for one in asked}
        assert len(settled) == 3


def test_a_settlement_that_only_stood_in_the_log_is_told() -> None:
    """One commit writes both, so nothing but a repair by hand comes here; the log wins, and the row follows."""
    with heard(echo) as (told, deployment, lane):
        submission = lane.submit("work", 1).submission
        deployment.run_until_quiet()
        told.lines.clear()
        undone = "UPDATE submissions SET state = 'ready', outcome = NULL, settled_at_ms = NULL"
        lane.disk.connection.execute(undone)
        found = ledger.find(lane.storage, submission)
        assert found is not None
        begun = Begun(lane.generation(), SetAt(0), 1, 0, 0, 0)
        work = Pass(begun, 0, lane.storage.counts())
        deployment.run(repair.apply(lane.lane, work, found, FinishFromHistory()))
        (settled,) = told.lines
        assert settled.facts["submission"] == submission
        assert settled.facts["outcome"] == "completed"


def test_no_line_holds_what_somebody_sent_or_got() -> None:
    async def reveal(run: Run, value: Any) -> Any:
        await run.step("load", lambda: SECRET)
        decision = await run.approval("ask", reason=SECRET)
        with contextlib.suppress(ToolFailed):
            await run.tool("pay", _refuse)
        if decision.approved:
            return value
        raise Failed(SECRET)

    with heard(reveal) as (told, deployment, lane):
        for verb in (lane.approve, lane.deny):
            submission = lane.submit(
                "work", {"a": SECRET}, principal=SECRET, key=SECRET + verb.__name__
            )
            deployment.run_until_quiet()
            verb(submission.submission, "ask", SECRET, SECRET)
            deployment.run_until_quiet()
        left = lane.submit("work", SECRET).submission
        deployment.run_until_quiet()
        lane.abort(left, SECRET)
        lane.force_pass(SECRET)
        deployment.run_until_quiet()
        assert {"admitted", "decided", "settled", "pass"} == set(told.events())
        assert len(told.of("settled")) == 3
        for line in told.lines:
            assert SECRET not in reporting.text_of(line)
            assert SECRET not in str(reporting.point_of(line))


def _refuse() -> None:
    raise ToolFailed(SECRET)


def test_a_run_is_given_the_same_traceparent_on_every_attempt() -> None:
    seen: list[str | None] = []

    async def look(run: Run, _value: Any) -> Any:
        seen.append(run.traceparent)
        await run.sleep("a-while", delay_ms=DAY_MS)
        if len(seen) < 3:
            raise Retryable("once more")
        return await run.step("use", lambda given: given, run.traceparent)

    with deployed(look) as (deployment, lane):
        submission = lane.submit("work", 1, traceparent=TRACEPARENT).submission
        deployment.run_until_quiet()
        result = lane.settlement(submission).result
    assert len(seen) == 3
    assert set(seen) == {result}
    assert result != TRACEPARENT
    assert trace_context.trace_id(trace_context.read(result)) == TRACE


def test_a_run_without_a_trace_has_no_traceparent() -> None:
    async def look(run: Run, _value: Any) -> Any:
        return run.traceparent

    with deployed(look) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert lane.settlement(submission).result is None


def test_a_family_belongs_to_one_trace() -> None:
    with heard(*served()) as (told, deployment, lane):
        root = lane.submit("delegate", ["delegate", ["echo", 1]], traceparent=TRACEPARENT)
        deployment.run_until_quiet()
        assert lane.settlement(root.submission).outcome == "completed"
        admitted = told.of("admitted")
        assert len({each.conversation for each in admitted}) == 3
        assert len(told.of("settled")) == 3
        traced = [each for each in told.lines if each.event != "pass"]
        assert {each.trace_id for each in traced} == {TRACE}
        carried = _carried(deployment)
    assert len(carried) == 2
    assert len({TRACEPARENT, *carried}) == 3


def _carried(deployment: Any) -> list[str]:
    calls = [call_of(text) for _, text in deployment.network.calls]
    found = [each.traceparent for each in calls if isinstance(each, AdmitChild)]
    assert all(each is not None for each in found)
    return [each for each in found if each is not None]


def test_a_child_that_is_asked_for_again_is_asked_for_with_the_same_traceparent() -> None:
    with heard(delegate, agent(echo, "echo")) as (_told, deployment, lane):
        fates = ["answer-lost", "answer-lost"]
        deployment.network.rule = lambda _to, _text: fates.pop() if fates else "arrives"
        lane.submit("work", ["echo", 1], traceparent=TRACEPARENT)
        deployment.run_until_quiet()
        carried = _carried(deployment)
    assert len(carried) == 3
    assert len(set(carried)) == 1


@pytest.mark.parametrize("traceparent", [TRACEPARENT, None])
def test_a_callback_carries_its_trace_if_there_is_one(traceparent: str | None) -> None:
    with heard(echo, **TERMS) as (_told, deployment, lane):
        answers = [503, 200]
        deployment.network.answers = lambda _post: answers.pop(0)
        url = "https://example.com/hook"
        lane.submit("work", 1, callback_url=url, traceparent=traceparent)
        deployment.run_until_quiet()
        carried = [each.headers.get("traceparent") for each in deployment.network.posts]
    assert len(carried) == 2
    assert len(set(carried)) == 1
    assert trace_context.trace_id(carried[0]) == (TRACE if traceparent else None)
    assert carried[0] != TRACEPARENT or traceparent is None


def test_the_trace_outlives_a_crash() -> None:
    with heard(echo) as (told, deployment, lane):
        lane.submit("work", 1, traceparent=TRACEPARENT)
        lane.crash_at("claim:after")
        deployment.run_until_quiet()
        (settled,) = told.of("settled")
        assert settled.trace_id == TRACE
        assert lane.errors, "nothing crashed"


def test_nobody_is_told_unless_somebody_listens() -> None:
    told = Recorder()
    with deployed(echo) as (deployment, lane):
        lane.submit("work", 1)
        deployment.run_until_quiet()
        assert isinstance(lane, Conversation)
        assert lane.lane.reporter is None
        assert told.lines == []
