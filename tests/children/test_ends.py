"""How a parent ends that has open children: aborted, detached, out of time, failed, or done without waiting.

The settlement is reserved first and cannot change any more; the children are aborted; and when the last has
settled, it is settled exactly so. SX-15, SX-16; DSB-6; RC-57, RC-58, RC-64 to RC-71, RC-76; S96, S98.
"""

import asyncio
from typing import Any

import pytest

from children.family import Family, child_of, family, lane_of
from operations.ground import DAY_MS, HOUR_MS, World, agent, begin, ids, kinds, state_of, wait_of
from quiesce import Failed, Retryable, Run
from quiesce.commands import Accepted
from quiesce.ids import SubmissionId
from quiesce.ports import Call
from quiesce.recovery import WaitKind
from quiesce.states import State
from quiesce.testing import Conversation
from quiesce.testing.network import Fate

pytestmark = pytest.mark.slow


def unreachable(kind: str) -> Any:
    def rule(_name: str, call: Call) -> Fate:
        return "lost" if call.kind == kind else "arrives"

    return rule


def reachable(_name: str, _call: Call) -> Fate:
    return "arrives"


def waiting(deployment: Family, lane: Conversation, *names: str) -> SubmissionId:
    """Bring a parent to where it waits for children that wait for a person."""
    root = lane.submit("fan-out", {name: ["ask", name] for name in names}).submission
    deployment.run_until_quiet()
    return root


def test_an_abort_ends_every_child_before_the_parent_settles() -> None:
    """SX-15: one durable abort for each child; both logs show that the children were first."""
    with family() as (deployment, lane):
        root = waiting(deployment, lane, "a", "b", "c")
        accepted = lane.abort(root, "enough")
        assert accepted.settlement is None
        deployment.run_until_quiet()
        settled = lane.settlement(root)
        assert (settled.outcome, settled.reason) == ("aborted", "enough")
        assert settled.effects_may_have_happened is False
        for name in ("a", "b", "c"):
            child = lane_of(deployment, root, name)
            ended = child.settlement(child_of(root, name)[1])
            assert (ended.outcome, ended.reason) == ("aborted", "its parent has ended")
        assert deployment.kinds().count("abort-child") == 3
        assert ids(lane, root)[-6:] == [
            "abort",
            "reserved",
            *sorted(each for each in ids(lane, root) if each.endswith("joined")),
            "settlement",
        ]


def test_an_abort_that_is_repeated_is_a_replay_while_the_children_end() -> None:
    """SX-16."""
    with family() as (deployment, lane):
        root = waiting(deployment, lane, "a")
        deployment.fates = unreachable("abort-child")
        assert lane.abort(root) == Accepted()
        deployment.advance(1_000)
        assert state_of(lane, root) is State.TERMINALIZING
        before = lane.records()
        assert lane.abort(root).is_replayed
        assert lane.records() == before
        assert wait_of(lane, root).kind is WaitKind.CHILD
        deployment.fates = reachable
        deployment.run_until_quiet()
        assert lane.abort(root).settlement is not None


def test_an_abort_waits_for_an_unreachable_child_for_days_and_nothing_spins() -> None:
    """RC-65: an admission that nobody can prove keeps the parent from settling."""
    with family() as (deployment, lane):
        deployment.fates = unreachable("admit-child")
        root = lane.submit("delegate", ["ask", None]).submission
        deployment.advance(HOUR_MS)
        lane.abort(root)
        deployment.advance(2 * DAY_MS)
        assert state_of(lane, root) is State.TERMINALIZING
        assert lane.wakes < 2 * 74 + 60
        deployment.fates = reachable
        deployment.run_until_quiet()
        assert lane.settlement(root).outcome == "aborted"
        child = lane_of(deployment, root)
        assert kinds(child, child_of(root)[1]) == ["abort-requested", "settlement"]


def test_an_abort_does_not_wait_for_room_in_a_full_queue() -> None:
    """RC-66: the refusal proves that there is no child."""
    with family(queue_depth_max=1) as (deployment, lane):
        root = lane.submit("delegate", ["echo", 1], key="a").submission
        lane_of(deployment, root).submit("ask")
        deployment.advance(HOUR_MS)
        lane.abort(root)
        deployment.advance(1_000)
        assert lane.settlement(root).outcome == "aborted"


def test_a_child_that_completes_before_its_abort_arrives_is_joined_and_the_parent_still_aborts() -> (
    None
):
    """RC-68, RC-69."""
    with family() as (deployment, lane):
        root = waiting(deployment, lane, "a")
        deployment.fates = unreachable("abort-child")
        lane.abort(root)
        deployment.advance(10)
        lane_of(deployment, root, "a").approve(child_of(root, "a")[1], "ask")
        deployment.run_until_quiet()
        assert lane.settlement(root).outcome == "aborted"
        assert "a/joined" in ids(lane, root)
        assert (
            lane_of(deployment, root, "a").settlement(child_of(root, "a")[1]).outcome == "completed"
        )


def test_an_abort_reaches_the_children_of_children() -> None:
    with family() as (deployment, lane):
        root = lane.submit("delegate", ["delegate", ["ask", None]]).submission
        deployment.run_until_quiet()
        lane.abort(root)
        deployment.run_until_quiet()
        for each in deployment:
            assert each.state().counts[State.SETTLED] == 1
            assert each.records()[-1].kind == "settlement"
            assert each.alarm_at_ms is None


def test_an_abort_while_the_child_runs_ends_its_attempt() -> None:
    async def slow(_run: Run, _value: Any) -> None:
        await asyncio.sleep(DAY_MS)

    with family(agent(slow, "slow")) as (deployment, lane):
        root = lane.submit("delegate", ["slow", None]).submission
        deployment.advance(1)
        child = lane_of(deployment, root)
        task = begin(deployment, child)
        assert not task.done()
        lane.abort(root)
        deployment.run_until_quiet()
        assert task.done()
        assert lane.settlement(root).outcome == "aborted"
        assert child.settlement(child_of(root)[1]).outcome == "aborted"


def test_a_detaching_abort_settles_at_once_and_lists_what_may_still_happen() -> None:
    with family() as (deployment, lane):
        root = waiting(deployment, lane, "a", "b")
        accepted = lane.abort(root, detaches=True)
        assert accepted.settlement is not None
        settled = lane.settlement(root)
        assert settled.unknown_operations == ["a", "b"]
        deployment.run_until_quiet()
        assert "abort-child" not in deployment.kinds()
        for name in ("a", "b"):
            assert (
                state_of(lane_of(deployment, root, name), child_of(root, name)[1])
                is State.SUSPENDED
            )


def test_a_detaching_abort_frees_what_an_unreachable_child_has_held() -> None:
    """S96: and the submission behind it goes on."""
    with family() as (deployment, lane):
        root = waiting(deployment, lane, "a")
        behind = lane.submit("echo", 1).submission
        deployment.fates = unreachable("abort-child")
        lane.abort(root)
        deployment.advance(HOUR_MS)
        assert state_of(lane, root) is State.TERMINALIZING
        assert lane.abort(root, detaches=True).settlement is not None
        settled = lane.settlement(root)
        assert (settled.outcome, settled.effects_may_have_happened) == ("aborted", True)
        deployment.advance(1_000)
        assert lane.settlement(behind).outcome == "completed"


@pytest.mark.parametrize("kind", ["admit-child", "establish-child"])
@pytest.mark.parametrize("fate", ["lost", "answer-lost"])
def test_a_child_let_go_before_it_was_established_is_ended(kind: str, fate: Fate) -> None:
    """Otherwise it would stay admitted for ever, waiting for a parent that has settled."""
    with family() as (deployment, lane):

        def rule(_name: str, call: Call) -> Fate:
            return fate if call.kind in {kind, "abort-child"} else "arrives"

        deployment.fates = rule
        root = lane.submit("delegate", ["ask", None]).submission
        deployment.advance(1_000)
        assert lane.abort(root, detaches=True).settlement is not None
        deployment.advance(HOUR_MS)
        deployment.fates = reachable
        deployment.run_until_quiet()
        child = lane_of(deployment, root)
        if not child.is_virgin:
            assert child.settlement(child_of(root)[1]).outcome == "aborted"
        assert [each.alarm_at_ms for each in deployment if not each.is_virgin] == [
            None for each in deployment if not each.is_virgin
        ]


def test_a_deadline_ends_the_children_and_then_the_parent() -> None:
    with family() as (deployment, lane):
        root = lane.submit("fan-out", {"a": ["ask", 1]}, deadline_ms=60_000).submission
        deployment.advance(59_000)
        assert state_of(lane, root) is State.SUSPENDED
        deployment.run_until_quiet()
        settled = lane.settlement(root)
        assert (settled.failure or {})["error_type"] == "deadline-exceeded"
        child = lane_of(deployment, root, "a")
        ended = child.settlement(child_of(root, "a")[1])
        # Whichever clock came first: the child inherits what was left of its parent's time.
        assert ended.outcome in {"aborted", "failed"}
        assert [each.alarm_at_ms for each in deployment] == [None, None]


def test_a_child_has_the_deadline_of_its_parent() -> None:
    with family() as (deployment, lane):
        root = lane.submit("delegate", ["ask", None], deadline_ms=60_000).submission
        deployment.advance(1_000)
        parent = lane.status(root).submission
        child = lane_of(deployment, root).status(child_of(root)[1]).submission
        assert parent.deadline_at_ms is not None
        assert child.deadline_at_ms is not None
        assert 0 <= child.deadline_at_ms - parent.deadline_at_ms < 100


def test_a_deadline_passes_while_the_child_is_unreachable() -> None:
    with family() as (deployment, lane):
        deployment.fates = unreachable("admit-child")
        root = lane.submit("delegate", ["ask", None], deadline_ms=60_000).submission
        deployment.advance(HOUR_MS)
        assert state_of(lane, root) is State.TERMINALIZING
        deployment.fates = reachable
        deployment.run_until_quiet()
        assert (lane.settlement(root).failure or {})["error_type"] == "deadline-exceeded"


def test_an_admitted_child_settles_at_its_deadline_though_its_parent_is_unreachable() -> None:
    """By its own alarm: it waits for its parent to establish it, and the clock does not."""
    with family() as (deployment, lane):
        deployment.fates = lambda _name, call: (
            "lost" if call.kind in {"establish-child", "abort-child"} else "arrives"
        )
        root = lane.submit("delegate", ["echo", 1], deadline_ms=60_000).submission
        deployment.advance(50_000)
        child, submission = lane_of(deployment, root), child_of(root)[1]
        deadline_ms = child.status(submission).submission.deadline_at_ms
        assert deadline_ms is not None
        assert child.alarm_at_ms == deadline_ms
        deployment.advance(deadline_ms + 100 - deployment.now_ms)
        ended = child.settlement(submission)
        assert (ended.failure or {})["error_type"] == "deadline-exceeded"
        assert child.status(submission).submission.settled_at_ms - deadline_ms <= 100
        assert kinds(child, submission) == ["settlement"]
        deployment.fates = reachable
        deployment.run_until_quiet()
        assert (lane.settlement(root).failure or {})["error_type"] == "deadline-exceeded"
        assert [each.alarm_at_ms for each in deployment] == [None, None]


async def leaves_early(run: Run, how: str) -> str:
    """End while a child is open: by a failure beside it, or, on the second attempt, by not asking for it again."""
    if run.attempt == 1:
        branch = asyncio.ensure_future(run.delegate("ask", None, name="child"))
        await asyncio.wait({branch})
        assert branch.exception() is not None
        if how == "failed":
            raise Failed("the other branch", error_type="no-luck")
        raise Retryable("again")
    return "left"


@pytest.mark.parametrize("how", ["failed", "completed"])
def test_a_parent_that_ends_beside_an_open_child_settles_as_reserved(how: str) -> None:
    """RC-63, RC-71: an abort that comes later does not change it, nor does what the child has become."""
    with family(agent(leaves_early, "leaves")) as (deployment, lane):
        deployment.fates = unreachable("abort-child")
        root = lane.submit("leaves", how).submission
        deployment.advance(10_000)
        assert state_of(lane, root) is State.TERMINALIZING
        reserved = next(each for each in lane.records() if each.kind == "settlement-reserved")
        lane.abort(root, "too late")
        if how == "completed":
            lane_of(deployment, root).approve(child_of(root)[1], "ask")
        lane.crash()
        deployment.fates = reachable
        deployment.run_until_quiet()
        settled, planned = lane.settlement(root), reserved.parsed()
        assert settled.outcome == how
        assert (settled.result, settled.failure) == (planned.result, planned.failure)  # type: ignore[union-attr]
        assert settled.effects_may_have_happened is False
        assert [each.alarm_at_ms for each in deployment] == [None, None]


def test_a_reserved_parent_keeps_its_queue_waiting_and_says_so() -> None:
    with family() as (deployment, lane):
        root = waiting(deployment, lane, "a")
        behind = lane.submit("echo", 1).submission
        deployment.fates = unreachable("child-settled")
        lane.abort(root)
        deployment.advance(HOUR_MS)
        assert state_of(lane, root) is State.TERMINALIZING
        assert wait_of(lane, behind).behind == root
        assert lane.alarm_at_ms is None
        deployment.fates = reachable
        deployment.run_until_quiet()
        assert lane.settlement(behind).outcome == "completed"


def test_an_open_call_beside_a_child_is_listed_as_unproven_by_the_reserved_settlement() -> None:
    """RC-71: open uncertain calls are recorded as unknown, never as undone."""
    world = World(charge=[ConnectionError()])

    async def both(run: Run, _value: Any) -> None:
        await asyncio.gather(
            run.delegate("ask", None, name="child"), run.tool("charge", world.act, "charge")
        )

    with family(both) as (deployment, lane):
        root = lane.submit("work").submission
        deployment.run_until_quiet()
        assert state_of(lane, root) is State.UNKNOWN
        lane.abort(root)
        deployment.run_until_quiet()
        settled = lane.settlement(root)
        assert (settled.outcome, settled.effects_may_have_happened) == ("aborted", True)
        assert settled.unknown_operations == ["charge"]


def test_an_abort_of_the_child_by_an_operator_before_it_was_established_is_its_parents_answer() -> (
    None
):
    with family() as (deployment, lane):
        deployment.fates = unreachable("establish-child")
        root = lane.submit("delegate", ["ask", None]).submission
        deployment.advance(1_000)
        assert lane_of(deployment, root).abort(child_of(root)[1]).settlement is not None
        deployment.fates = reachable
        deployment.run_until_quiet()
        assert lane.settlement(root).result["outcome"] == "aborted"
