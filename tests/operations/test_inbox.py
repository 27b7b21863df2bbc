"""Joining: submissions of mode join enter the inbox of the Run in front of them, once, and settle with it.

DJ-1 to DJ-12, LG-14, LG-15, LG-16, LG-21, LG-32, EV-49 to EV-55, RC-34 to RC-38. Ruled out by construction: a state
between claim and mark (`joining`), since the inbox's record, the inputs' records and the moves are one commit
(LG-15, EV-51 to EV-55, RC-34, RC-35, DJ-5, DJ-9 speak of what stands between them).

Parity: DRT-6, NC-22 to NC-25.
"""

from typing import Any

import pytest

from operations.ground import (
    World,
    agent,
    begin,
    deployed,
    ids,
    kinds,
    refused,
    state_of,
    wait_of,
)
from quiesce import Failed, Run
from quiesce.errors import RefusalCode
from quiesce.ids import SubmissionId
from quiesce.recovery import WaitKind
from quiesce.states import State
from quiesce.testing import Conversation, CrashPlan, commit_counter, crash_plans


async def collect(run: Run, value: Any) -> list[Any]:
    """Wait for a person, then answer with the own input and what has joined."""
    await run.approval("go-on")
    joined = await run.inbox()
    await run.approval("end")
    return [value, *(each.input for each in joined)]


def queue(lane: Conversation, *values: Any, **terms: Any) -> list[SubmissionId]:
    """Submit a host and, behind it, what wants to join it."""
    first = lane.submit("work", values[0]).submission
    terms.setdefault("mode", "join")
    return [first, *(lane.submit("work", value, **terms).submission for value in values[1:])]


def test_what_wants_to_join_is_delivered_once_in_order_and_settles_with_its_host() -> None:
    """DJ-1 to DJ-3, DJ-7, RC-36, RC-37."""
    with deployed(collect) as (deployment, lane):
        host, one, two = queue(lane, 0, 1, 2)
        deployment.run_until_quiet()
        assert state_of(lane, one) is State.READY
        lane.approve(host, "go-on")
        deployment.run_until_quiet()
        for each in (one, two):
            assert state_of(lane, each) is State.JOINED
            assert wait_of(lane, each).kind is WaitKind.HEAD
            assert wait_of(lane, each).behind == host
        assert lane.alarm_at_ms is None
        lane.crash()
        lane.approve(host, "end")
        deployment.run_until_quiet()
        for each in (host, one, two):
            assert lane.settlement(each).result == [0, 1, 2]
            assert lane.settlement(each).outcome == "completed"
        assert lane.settlement(one).host == host
        assert kinds(lane, one) == ["input-joined", "settlement"]


def test_a_join_row_that_becomes_the_head_runs_by_itself() -> None:
    async def handle(_run: Run, value: Any) -> Any:
        return value

    with deployed(handle) as (deployment, lane):
        host, one = queue(lane, 0, 1)
        deployment.run_until_quiet()
        assert (lane.settlement(host).result, lane.settlement(one).result) == (0, 1)
        assert lane.settlement(one).host is None


def test_a_joiner_alone_in_its_lane_runs_by_itself() -> None:
    with deployed(collect) as (deployment, lane):
        submission = lane.submit("work", 5, mode="join").submission
        deployment.run_until_quiet()
        for operation in ("go-on", "end"):
            lane.approve(submission, operation)
            deployment.run_until_quiet()
        assert lane.settlement(submission).result == [5]


@pytest.mark.parametrize(
    "gap",
    [{"mode": "queue"}, {"principal": "another"}, {"agent": "other"}],
    ids=["another-mode", "another-principal", "another-agent"],
)
def test_the_first_that_does_not_fit_ends_the_run_of_joins(gap: dict[str, str]) -> None:
    """LG-14, DJ-12: what stands behind the gap fits and stays where it is all the same."""
    with deployed(collect, agent(collect, "other")) as (deployment, lane):
        host, one = queue(lane, 0, 1)
        terms = {"mode": "join", "agent": "work"} | gap
        name = terms.pop("agent")
        between = lane.submit(name, 2, **terms).submission
        behind = lane.submit("work", 3, mode="join").submission
        deployment.run_until_quiet()
        lane.approve(host, "go-on")
        deployment.run_until_quiet()
        assert [state_of(lane, each) for each in (one, between, behind)] == [
            State.JOINED,
            State.READY,
            State.READY,
        ]
        lane.approve(host, "end")
        deployment.run_until_quiet()
        assert lane.settlement(host).result == [0, 1]
        assert state_of(lane, between) is State.SUSPENDED


def test_another_version_of_the_agent_does_not_join() -> None:
    old, new = agent(collect, version="1"), agent(collect, version="2")
    with deployed(old) as (deployment, lane):
        host = lane.submit("work", 0).submission
        deployment.run_until_quiet()
        deployment.deploy([old, new])
        behind = lane.submit("work", 1, mode="join").submission
        lane.approve(host, "go-on")
        deployment.run_until_quiet()
        assert state_of(lane, behind) is State.READY


def test_an_aborted_row_is_no_gap() -> None:
    """LG-32."""
    with deployed(collect) as (deployment, lane):
        host, one, two, three = queue(lane, 0, 1, 2, 3)
        deployment.run_until_quiet()
        lane.abort(two)
        lane.approve(host, "go-on")
        deployment.run_until_quiet()
        lane.approve(host, "end")
        deployment.run_until_quiet()
        assert lane.settlement(host).result == [0, 1, 3]
        assert lane.settlement(two).outcome == "aborted"
        assert lane.settlement(three).host == host
        assert lane.settlement(one).host == host


def test_a_later_inbox_takes_what_has_come_since() -> None:
    async def handle(run: Run, value: Any) -> list[Any]:
        found = [value]
        for number in range(3):
            await run.approval(f"go-on-{number}")
            found.append([each.input for each in await run.inbox()])
        return found

    with deployed(handle) as (deployment, lane):
        host = lane.submit("work", "host").submission
        deployment.run_until_quiet()
        for number in range(3):
            if number != 1:
                lane.submit("work", number, mode="join")
            lane.approve(host, f"go-on-{number}")
            deployment.run_until_quiet()
        assert lane.settlement(host).result == ["host", [0], [], [2]]
        assert lane.state().counts[State.SETTLED] == 3


def test_a_joined_submission_cannot_be_aborted_alone() -> None:
    """DJ-9, RT-2: the refusal names the host; the abort of the host ends both."""
    with deployed(collect) as (deployment, lane):
        host, one = queue(lane, 0, 1)
        deployment.run_until_quiet()
        lane.approve(host, "go-on")
        deployment.run_until_quiet()
        generation = lane.generation()
        with refused(RefusalCode.JOINED_TO_HOST) as facts:
            lane.abort(one)
        assert facts["host"] == host
        assert lane.generation() == generation
        assert lane.abort(host, "enough").settlement is None
        deployment.run_until_quiet()
        for each in (host, one):
            assert lane.settlement(each).outcome == "aborted"


def test_a_host_that_fails_takes_its_joiners_with_it() -> None:
    """DJ-7, RC-37: the same outcome and the same failure."""

    async def handle(run: Run, _value: Any) -> None:
        await run.inbox()
        raise Failed("no", error_type="refused")

    with deployed(handle) as (deployment, lane):
        host, one = queue(lane, 0, 1)
        deployment.run_until_quiet()
        for each in (host, one):
            assert lane.settlement(each).outcome == "failed"
        failure = lane.status(one).settlement
        assert failure is not None
        assert failure.recorded.failure == {"error_type": "refused", "message": "no"}


def test_the_deadline_of_a_joined_submission_is_its_hosts() -> None:
    """It has joined: what happens to it is decided by its host alone, and no alarm is spent on it."""
    with deployed(collect) as (deployment, lane):
        host = lane.submit("work", 0).submission
        one = lane.submit("work", 1, mode="join", deadline_ms=60_000).submission
        deployment.run_until_quiet(within_ms=1_000)
        lane.approve(host, "go-on")
        deployment.run_until_quiet(within_ms=1_000)
        assert state_of(lane, one) is State.JOINED
        assert deployment.advance(3_600_000) <= 2
        assert state_of(lane, one) is State.JOINED
        lane.approve(host, "end")
        deployment.run_until_quiet()
        assert lane.settlement(one).outcome == "completed"


def joined_by_two(*plans: CrashPlan) -> None:
    """Two join a host; the process dies as planned from the host's release on; each is joined once."""
    with deployed(collect) as (deployment, lane):
        host, one, two = queue(lane, 0, 1, 2)
        deployment.run_until_quiet()
        lane.approve(host, "go-on")
        lane.plan_crash(*plans)
        deployment.run_until_quiet()
        lane.plan_crash()
        assert [kinds(lane, each).count("input-joined") for each in (one, two)] == [1, 1]
        lane.approve(host, "end")
        deployment.run_until_quiet()
        assert lane.settlement(host).result == [0, 1, 2]
        assert kinds(lane, two) == ["input-joined", "settlement"]


@pytest.mark.slow
def test_a_crash_at_any_commit_around_the_inbox_joins_each_once() -> None:
    """EV-49 to EV-55: and a second crash at the commit that comes again."""
    counter = commit_counter()
    joined_by_two(counter)
    assert counter.seen > 3
    for plan in crash_plans(counter.seen):
        joined_by_two(plan)
        assert plan.fired
        joined_by_two(CrashPlan(plan.commit, plan.when, plan.keeps_unsynced), CrashPlan(2))


def test_a_joiner_that_comes_while_the_inbox_is_read_is_in_or_out_and_not_lost() -> None:
    with deployed(collect) as (deployment, lane):
        host = lane.submit("work", 0).submission
        deployment.run_until_quiet()
        lane.approve(host, "go-on")
        pause = lane.pause_at("claim:after")
        delivery = begin(deployment, lane)
        assert pause.is_reached
        late = lane.submit("work", 1, mode="join").submission
        pause.release()
        deployment.run(delivery)
        deployment.run_until_quiet()
        assert state_of(lane, late) is State.JOINED
        lane.submit("work", 2, mode="join")
        lane.approve(host, "end")
        deployment.run_until_quiet()
        assert lane.settlement(late).result == [0, 1]


def test_the_same_key_of_a_joined_submission_answers_with_its_receipt() -> None:
    with deployed(collect) as (deployment, lane):
        host = lane.submit("work", 0).submission
        first = lane.submit("work", 1, mode="join", key="same")
        deployment.run_until_quiet()
        lane.approve(host, "go-on")
        deployment.run_until_quiet()
        again = lane.submit("work", 1, mode="join", key="same")
        assert (again.submission, again.is_replayed) == (first.submission, True)
        lane.approve(host, "end")
        deployment.run_until_quiet()
        settled = lane.submit("work", 1, mode="join", key="same").settlement
        assert settled is not None
        assert settled.recorded.result == [0, 1]


def test_what_queues_behind_joined_rows_runs_next() -> None:
    with deployed(collect) as (deployment, lane):
        host, one = queue(lane, 0, 1)
        behind = lane.submit("work", 2).submission
        deployment.run_until_quiet()
        lane.approve(host, "go-on")
        deployment.run_until_quiet()
        assert wait_of(lane, behind).behind == host
        lane.approve(host, "end")
        deployment.run_until_quiet()
        assert state_of(lane, one) is State.SETTLED
        assert wait_of(lane, behind).kind is WaitKind.APPROVAL


def test_an_uncertain_call_of_the_host_holds_its_joiners_too() -> None:
    world = World(charge=[ConnectionError()])

    async def handle(run: Run, value: Any) -> list[Any]:
        joined = [each.input for each in await run.inbox()]
        return [value, *joined, await run.tool("charge", world.act, "charge")]

    with deployed(handle) as (deployment, lane):
        host, one = queue(lane, 0, 1)
        deployment.run_until_quiet()
        assert (state_of(lane, host), state_of(lane, one)) == (State.UNKNOWN, State.JOINED)
        lane.resolve(host, "charge", "completed", "receipt")
        deployment.run_until_quiet()
        assert lane.settlement(one).result == [0, 1, "receipt"]
        assert ids(lane, host).count("inbox/read") == 1
