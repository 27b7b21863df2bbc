"""A delegation with nothing in its way: what the parent is given, what is recorded, and what is refused.

SX-7, SX-8, SX-18; DSB-1, DSB-3, DSB-4, DSB-5, DSB-11; TP-9; RC-39, RC-45, RC-48 to RC-54; S30, S46, S48.
The parent's own crashes stand in test_family_crashes, lost and late messages in test_messages.

Parity: RT-1, RT-9, RC-60 to RC-62, NS-2, RJ-11, TP-1.
"""

import asyncio
from typing import Any

import pytest

from children.family import Family, admissions, child_of, delegate, family, lane_of
from children.laws import payloads
from operations.ground import HOUR_MS, World, agent, ids, kinds, state_of, wait_of
from quiesce import Retryable, Run
from quiesce.children import DEPTH_MAX
from quiesce.explain import explain_one
from quiesce.ids import CONVERSATION_ID, SubmissionId
from quiesce.states import State
from quiesce.testing import Conversation

pytestmark = pytest.mark.slow


def settled(deployment: Family, lane: Conversation, submission: SubmissionId) -> Any:
    """Let everything come to its end, and return the result."""
    deployment.run_until_quiet()
    recorded = lane.settlement(submission)
    assert recorded.outcome == "completed", recorded
    return recorded.result


def test_a_parent_is_given_what_its_child_has_returned() -> None:
    """SX-18, DSB-1: in four records of the parent, and without an attempt counted against it."""
    with family() as (deployment, lane):
        root = lane.submit("delegate", ["echo", {"a": [1, None]}]).submission
        found = settled(deployment, lane, root)
        assert found == {"outcome": "completed", "result": {"a": [1, None]}, "failure": None}
        assert ids(lane, root) == [
            "input",
            "child/requested",
            "child/started",
            "child/joined",
            "settlement",
        ]
        child = lane_of(deployment, root)
        assert child.settlement(child_of(root)[1]).result == {"a": [1, None]}
        assert deployment.kinds() == ["admit-child", "establish-child", "child-settled"]
        assert [each.alarm_at_ms for each in deployment] == [None, None]
        assert lane.status(root).submission.attempts == 0


def test_a_failed_child_is_a_value() -> None:
    """DSB-4."""
    with family() as (deployment, lane):
        root = lane.submit("delegate", ["fail", "bad luck"]).submission
        assert settled(deployment, lane, root) == {
            "outcome": "failed",
            "result": None,
            "failure": {"error_type": "no-luck", "message": "bad luck"},
        }


def test_an_aborted_child_is_a_value() -> None:
    with family() as (deployment, lane):
        root = lane.submit("delegate", ["ask", None]).submission
        deployment.run_until_quiet()
        lane_of(deployment, root).abort(child_of(root)[1])
        assert settled(deployment, lane, root)["outcome"] == "aborted"


@pytest.mark.parametrize(
    ("wanted", "code"),
    [(["nobody", 1], "unknown-agent"), (["typed", "no number"], "invalid-request")],
    ids=["unknown-agent", "invalid-input"],
)
def test_a_child_that_is_refused_for_good_has_failed_and_left_nothing(
    wanted: list[Any], code: str
) -> None:
    from quiesce import Agent  # noqa: PLC0415 - only this test needs a typed input

    typed = Agent("typed", input=int)

    @typed.handler
    async def _(_run: Run, value: int) -> int:
        return value

    with family(typed) as (deployment, lane):
        root = lane.submit("delegate", wanted).submission
        found = settled(deployment, lane, root)
        assert (found["outcome"], found["failure"]["error_type"]) == ("failed", code)
        assert lane_of(deployment, root).is_virgin
        assert admissions(deployment) == 1


def test_an_input_too_large_is_refused_and_left_nothing() -> None:
    """TP-8."""

    async def large(run: Run, _value: Any) -> Any:
        return (await run.delegate("echo", "x" * 2_000, name="child")).failure

    with family(large, input_bytes_max=1_000) as (deployment, lane):
        root = lane.submit("work").submission
        assert settled(deployment, lane, root)["error_type"] == "input-too-large"
        assert lane_of(deployment, root).is_virgin


def test_a_full_queue_is_asked_again_until_there_is_room() -> None:
    with family(queue_depth_max=1) as (deployment, lane):
        root = lane.submit("delegate", ["echo", 1], key="a").submission
        busy = lane_of(deployment, root)
        blocking = busy.submit("ask").submission
        deployment.advance(HOUR_MS)
        assert state_of(lane, root) is State.SUSPENDED
        assert admissions(deployment) > 5
        assert lane.alarm_at_ms is not None
        busy.approve(blocking, "ask")
        assert settled(deployment, lane, root)["result"] == 1


def test_a_queue_that_stays_full_for_a_day_is_a_failed_child() -> None:
    with family(queue_depth_max=1) as (deployment, lane):
        root = lane.submit("delegate", ["echo", 1], key="a").submission
        busy = lane_of(deployment, root)
        busy.submit("ask")
        found = settled(deployment, lane, root)
        assert found["failure"]["error_type"] == "queue-full"
        # Paced, and after so many tries hourly: a full queue costs no wake a minute for a day.
        assert lane.wakes < 120
        assert busy.state().counts[State.ADMITTED] == 0


def test_a_delegation_too_deep_is_a_failed_child() -> None:
    """TP-9: the level below the deepest is refused before any row of it, or of the child, is written."""
    wanted: Any = ["echo", "deep"]
    for _ in range(DEPTH_MAX):
        wanted = ["delegate", wanted]
    with family() as (deployment, lane):
        root = lane.submit("delegate", wanted).submission
        found = settled(deployment, lane, root)
        depth = 1
        while found["result"] is not None:
            found, depth = found["result"], depth + 1
        assert found["failure"]["error_type"] == "delegation-too-deep"
        assert depth == DEPTH_MAX + 1
        assert sum(not each.is_virgin for each in deployment) == DEPTH_MAX + 1


def test_the_deepest_lawful_delegation_works() -> None:
    wanted: Any = ["echo", "deep"]
    for _ in range(DEPTH_MAX - 1):
        wanted = ["delegate", wanted]
    with family() as (deployment, lane):
        found = settled(deployment, lane, lane.submit("delegate", wanted).submission)
        for _ in range(DEPTH_MAX - 1):
            found = found["result"]
        assert found["result"] == "deep"


def test_a_delegation_of_the_same_input_to_the_same_agent_is_a_cycle() -> None:
    """S46: it could never end, and is a failed child before anything is asked."""

    async def again(run: Run, value: Any) -> Any:
        return (await run.delegate("work", value, name="child")).failure

    with family(again) as (deployment, lane):
        root = lane.submit("work", {"b": 1, "a": 2}).submission
        assert settled(deployment, lane, root)["error_type"] == "delegation-cycle"
        assert deployment.seen == []


def test_a_cycle_through_another_agent_is_found() -> None:
    async def one(run: Run, value: Any) -> Any:
        child = await run.delegate("two", value, name="child")
        return child.result

    async def two(run: Run, value: Any) -> Any:
        return (await run.delegate("one", value, name="child")).failure

    with family(agent(one, "one"), agent(two, "two")) as (deployment, lane):
        root = lane.submit("one", 7).submission
        assert settled(deployment, lane, root)["error_type"] == "delegation-cycle"


def test_a_run_has_at_most_so_many_children() -> None:
    async def many(run: Run, count: int) -> None:
        await asyncio.gather(*(run.delegate("echo", n, name=f"c{n}") for n in range(count)))

    with family(many, children_max=3) as (deployment, lane):
        within = lane.submit("work", 3).submission
        over = lane.submit("work", 4).submission
        deployment.run_until_quiet()
        assert lane.settlement(within).outcome == "completed"
        settled = lane.settlement(over)
        assert (settled.failure or {})["error_type"] == "budget-exhausted"
        assert kinds(lane, over).count("child-requested") == 3


def test_three_children_in_parallel_are_asked_before_any_has_settled() -> None:
    with family() as (deployment, lane):
        wanted = {name: ["steps", 2] for name in ("a", "b", "c")}
        root = lane.submit("fan-out", wanted).submission
        assert settled(deployment, lane, root) == {"a": 2, "b": 2, "c": 2}
        asked = deployment.kinds()
        assert asked.index("child-settled") > 5, asked
        assert kinds(lane, root).count("input-applied") == 1


def test_a_child_that_settled_is_not_run_again_while_its_sibling_waits() -> None:
    """SX-9, DSB-5."""
    world = World()
    with family(world=world) as (deployment, lane):
        root = lane.submit("fan-out", {"a": ["steps", 2], "b": ["ask", None]}).submission
        deployment.run_until_quiet()
        assert wait_of(lane, root).name == "b"
        lane.crash()
        lane_of(deployment, root, "a").crash()
        lane_of(deployment, root, "b").approve(child_of(root, "b")[1], "ask")
        assert settled(deployment, lane, root) == {"a": 2, "b": "approved"}
        assert world.calls == {"step-0": 1, "step-1": 1}


def test_children_one_after_the_other() -> None:
    async def chain(run: Run, _value: Any) -> Any:
        first = await run.delegate("echo", 1)
        second = await run.delegate("echo", first.result + 1)
        third = await run.delegate("echo", 0, key="named")
        return [second.result, third.result]

    with family(chain) as (deployment, lane):
        root = lane.submit("work").submission
        assert settled(deployment, lane, root) == [2, 0]
        joined = [each for each in ids(lane, root) if each.endswith("/joined")]
        assert joined == ["echo/joined", "echo~1/joined", "echo@named/joined"]
        assert len(list(deployment)) == 4


def test_children_of_children() -> None:
    with family() as (deployment, lane):
        wanted = ["fan-out", {"a": ["delegate", ["echo", 1]], "b": ["echo", 2]}]
        found = settled(deployment, lane, lane.submit("delegate", wanted).submission)
        assert found["result"] == {
            "a": {"outcome": "completed", "result": 1, "failure": None},
            "b": 2,
        }


def test_a_replay_that_delegates_something_else_has_diverged() -> None:
    """DSB-10."""
    world = World()

    async def diverging(run: Run, _value: Any) -> None:
        world.calls["attempt"] += 1
        await run.delegate("echo", world.calls["attempt"], name="child")

    with family(diverging) as (deployment, lane):
        root = lane.submit("work").submission
        deployment.run_until_quiet()
        settled = lane.settlement(root)
        assert (settled.failure or {})["error_type"] == "diverged"
        assert admissions(deployment) == 1


def test_the_same_name_for_another_kind_of_operation_has_diverged() -> None:
    world = World()

    async def diverging(run: Run, _value: Any) -> None:
        world.calls["attempt"] += 1
        if world.calls["attempt"] == 1:
            await run.delegate("echo", 1, name="it")
        await run.step("it", lambda: None)

    with family(diverging) as (deployment, lane):
        root = lane.submit("work").submission
        deployment.run_until_quiet()
        assert (lane.settlement(root).failure or {})["error_type"] == "diverged"


def test_two_parents_have_a_child_each_and_never_wait_for_one_another() -> None:
    with family() as (deployment, lane):
        other = deployment.conversation("two")
        first = lane.submit("delegate", ["ask", None], key="k").submission
        second = other.submit("delegate", ["echo", 2], key="k").submission
        deployment.run_until_quiet()
        assert state_of(lane, first) is State.SUSPENDED
        assert other.settlement(second).result["result"] == 2
        assert child_of(first) != child_of(second)


@pytest.mark.parametrize("name", ["tenant-1", "t" * 128])
def test_every_descendant_is_named_after_the_conversation_of_its_root(name: str) -> None:
    """So a token that is kept to a prefix sees what its own work has delegated."""
    with family() as (deployment, _):
        root = deployment.conversation(name)
        root.submit("delegate", ["delegate", ["echo", 1]])
        deployment.run_until_quiet()
        names = [lane.name for lane in deployment if not lane.is_virgin]
        assert len(set(names)) == 3
        for each in names[1:]:
            assert each.startswith(f"{name[:88]}~child-")
            assert CONVERSATION_ID.fullmatch(each)
            assert len(each) == len(name[:88]) + len("~child-") + 32


def test_what_is_queued_behind_a_parent_waits_for_its_child() -> None:
    with family() as (deployment, lane):
        root = lane.submit("delegate", ["ask", None]).submission
        behind = lane.submit("echo", 1).submission
        deployment.run_until_quiet()
        assert wait_of(lane, behind).kind == "head"
        assert lane.alarm_at_ms is None
        lane_of(deployment, root).approve(child_of(root)[1], "ask")
        deployment.run_until_quiet()
        assert lane.settlement(behind).result == 1


def test_a_parent_waits_for_a_child_that_waits_for_a_person_at_no_cost() -> None:
    """RC-48, RC-51, S3: an hour costs no alarm, no write and no read, in either Object."""
    with family() as (deployment, lane):
        root = lane.submit("delegate", ["ask", None]).submission
        deployment.run_until_quiet()
        child = lane_of(deployment, root)
        before = [(each.storage.counts(), each.generation()) for each in (lane, child)]
        assert deployment.advance(HOUR_MS) == 0
        assert before == [(each.storage.counts(), each.generation()) for each in (lane, child)]
        child.approve(child_of(root)[1], "ask")
        assert settled(deployment, lane, root)["result"] == "approved"


def test_status_and_explain_say_which_child_is_waited_for_and_by_whom() -> None:
    with family() as (deployment, lane):
        root = lane.submit("delegate", ["ask", None]).submission
        deployment.fates = lambda _name, call: (
            "lost" if call.kind == "establish-child" else "arrives"
        )
        deployment.advance(1_000)
        wait = wait_of(lane, root)
        assert (wait.kind, wait.operation, wait.name) == ("child", "child", "child")
        child, submission = lane_of(deployment, root), child_of(root)[1]
        assert wait_of(child, submission).kind == "parent"
        assert child.alarm_at_ms is None
        explained = explain_one(lane.lane, lane.name, root)
        assert explained is not None
        assert explained.moved_by == "the settlement of the child"
        assert [each.detail["submission"] for each in explained.open_operations] == [submission]
        explained = explain_one(child.lane, child.name, submission)
        assert explained is not None
        assert explained.moved_by == "the parent, which has to establish it"
        deployment.fates = lambda _name, _call: "arrives"
        deployment.run_until_quiet()
        assert lane.state().blocked_on == wait_of(lane, root)


def test_a_child_whose_call_is_unknown_is_waited_for() -> None:
    """RC-52: the parent waits, and the child shows who can move it."""
    with family(world=World(charge=[ConnectionError()])) as (deployment, lane):
        root = lane.submit("delegate", ["charge", 5]).submission
        deployment.run_until_quiet()
        child, submission = lane_of(deployment, root), child_of(root)[1]
        assert state_of(child, submission) is State.UNKNOWN
        assert [each.alarm_at_ms for each in deployment] == [None, None]
        child.resolve(submission, "charge", "completed", "r-1")
        assert settled(deployment, lane, root)["result"] == "r-1"


def test_a_child_that_is_retried_settles_once() -> None:
    world = World(flaky=[Retryable("not yet"), Retryable("not yet"), "done"])

    async def flaky(_run: Run, _value: Any) -> Any:
        return await world.act("flaky")

    with family(agent(flaky, "flaky")) as (deployment, lane):
        root = lane.submit("delegate", ["flaky", None]).submission
        assert settled(deployment, lane, root)["result"] == "done"
        assert deployment.kinds().count("child-settled") == 1


def test_an_undelivered_child_of_a_parent_with_an_unknown_call_is_asked() -> None:
    """RC-59: a call that nobody can prove holds the parent, and not its child."""
    world = World(charge=[ConnectionError()])

    async def both(run: Run, _value: Any) -> Any:
        child, charged = await asyncio.gather(
            run.delegate("echo", 1, name="child"), run.tool("charge", world.act, "charge")
        )
        return [child.result, charged]

    with family(both) as (deployment, lane):
        root = lane.submit("work").submission
        deployment.run_until_quiet()
        assert state_of(lane, root) is State.UNKNOWN
        assert f"{root}/child/joined" in payloads(lane)
        lane.resolve(root, "charge", "completed", "r-1")
        assert settled(deployment, lane, root) == [1, "r-1"]


def test_the_reference_agents_delegate() -> None:
    from agents.parent import parent  # noqa: PLC0415 - only this test needs the deployment's own agents
    from agents.research import research  # noqa: PLC0415 - the same

    with family(parent, research) as (deployment, lane):
        root = lane.submit("parent", {"child": "research", "input": {"topic": "x"}}).submission
        found = settled(deployment, lane, root)
        assert found["outcome"] == "completed"
        assert set(found["result"]["findings"]) == {"archive", "catalogue", "register"}
        failed = lane.submit("parent", {"child": "nobody", "input": None}).submission
        assert settled(deployment, lane, failed) == {"outcome": "failed", "result": None}


def test_a_parent_of_another_handler_is_given_the_recorded_outcome_after_an_eviction() -> None:
    """SX-7, DSB-3, S48: however often the Objects are evicted, one receipt, one conversation, one join."""
    with family(agent(delegate, "again")) as (deployment, lane):
        root = lane.submit("again", ["ask", None]).submission
        for _ in range(5):
            deployment.run_until_quiet()
            lane.evict()
            lane_of(deployment, root).evict()
            lane.force_pass()
            lane_of(deployment, root).force_pass()
        lane_of(deployment, root).approve(child_of(root)[1], "ask")
        assert settled(deployment, lane, root)["result"] == "approved"
        assert deployment.kinds() == ["admit-child", "establish-child", "child-settled"]
