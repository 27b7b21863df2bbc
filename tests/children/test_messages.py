"""Messages between Objects that are lost, doubled, late, refused or forged: there is one child, one join, one end.

A call that comes twice, late or out of order changes something at most once; no answer is never a refusal.
SX-13, SX-17; DSB-7, DSB-8, DSB-11; RC-42 to RC-44, RC-58, RC-63, RC-66; RT-1, RT-4, RT-5, RT-8, CF-3; S48; gap 9.
"""

import asyncio
import hmac
from typing import Any, get_args

import pytest

from children.family import Family, admissions, child_of, family, lane_of
from children.laws import payloads
from operations.ground import DAY_MS, HOUR_MS, World, agent, ids, kinds, pass_time, state_of
from quiesce import Run
from quiesce.errors import RefusalCode
from quiesce.ids import ConversationId, SubmissionId, canonical_json
from quiesce.lane import Lane
from quiesce.ports import (
    AbortChild,
    AdmitChild,
    Call,
    ChildSettled,
    EstablishChild,
    Reply,
    receive,
    seal,
    unsealed,
)
from quiesce.settings import Settings
from quiesce.states import OutcomeKind, State
from quiesce.testing import Conversation, Crashed, network
from quiesce.testing.network import Fate

pytestmark = pytest.mark.slow

CALLS = [str(each.model_fields["kind"].default) for each in get_args(Call.__value__)]
FATES: list[Fate] = ["lost", "answer-lost", "twice", "late"]


def ask_directly(deployment: Family, lane: Conversation, call: Call) -> Reply:
    """Make one call to an Object, as another Object of the deployment would."""
    text = seal(deployment.settings, call)
    return unsealed(lane.event(lambda: receive(lane.lane, text)))


def meets(deployment: Family, kind: str, fate: Fate, times: int) -> None:
    """Let the first calls of a kind meet a fate."""
    left = [times]

    def rule(_conversation: str, call: Call) -> Fate:
        if call.kind == kind and left[0] > 0:
            left[0] -= 1
            return fate
        return "arrives"

    deployment.fates = rule


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("kind", ["admit-child", "establish-child", "child-settled"])
def test_whatever_becomes_of_a_message_there_is_one_child_and_one_join(
    kind: str, fate: Fate, times: int
) -> None:
    world = World()
    with family(world=world) as (deployment, lane):
        meets(deployment, kind, fate, times)
        root = lane.submit("delegate", ["steps", 2]).submission
        deployment.run_until_quiet()
        assert lane.settlement(root).result["result"] == 2
        assert world.calls == {"step-0": 1, "step-1": 1}
        assert kinds(lane, root).count("child-joined") == 1
        before = [each.records() for each in deployment]
        while deployment.network.late:
            deployment.arrive_late()
        deployment.run_until_quiet()
        assert [each.records() for each in deployment] == before


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("kind", ["abort-child", "child-settled"])
def test_whatever_becomes_of_an_abort_its_child_settles_first(kind: str, fate: Fate) -> None:
    with family() as (deployment, lane):
        root = lane.submit("delegate", ["ask", None]).submission
        deployment.run_until_quiet()
        meets(deployment, kind, fate, 2)
        assert lane.abort(root).settlement is None
        deployment.run_until_quiet()
        assert lane.settlement(root).outcome == "aborted"
        assert lane_of(deployment, root).settlement(child_of(root)[1]).outcome == "aborted"
        while deployment.network.late:
            deployment.arrive_late()
        deployment.run_until_quiet()
        assert [each.alarm_at_ms for each in deployment] == [None, None]


def test_messages_that_come_in_the_wrong_order_change_nothing() -> None:
    """Establish before admit is refused; abort before admit too; each is asked again after it."""
    with family() as (deployment, lane):
        root = lane.submit("delegate", ["ask", None], key="a").submission
        name, submission = child_of(root)
        child = lane_of(deployment, root)
        address = {"conversation": name, "submission": submission}
        for call in (EstablishChild(**address), AbortChild(**address, reason="early")):
            assert ask_directly(deployment, child, call).refused is RefusalCode.NOT_FOUND
        assert child.is_virgin
        deployment.run_until_quiet()
        admitted = next(each for each in deployment.seen if isinstance(each, AdmitChild))
        assert ask_directly(deployment, child, admitted).refused is None
        assert ask_directly(deployment, child, EstablishChild(**address)).refused is None
        assert sum(child.state().counts.values()) == 1
        assert state_of(child, submission) is State.SUSPENDED


def test_an_establishment_that_arrives_after_the_abort_does_not_run_the_child() -> None:
    """RC-76, S90."""
    with family() as (deployment, lane):
        meets(deployment, "establish-child", "late", 1_000)
        root = lane.submit("delegate", ["echo", 1]).submission
        deployment.advance(1_000)
        lane.abort(root)
        deployment.run_until_quiet()
        child = lane_of(deployment, root)
        while deployment.network.late:
            deployment.arrive_late()
        deployment.run_until_quiet()
        assert kinds(child, child_of(root)[1]) == ["abort-requested", "settlement"]
        assert lane.settlement(root).outcome == "aborted"


@pytest.mark.parametrize(
    ("kind", "fate"),
    [("admit-child", "lost"), ("admit-child", "answer-lost"), ("establish-child", "late")],
)
def test_a_child_that_is_unreachable_for_more_than_a_day_is_never_given_up(
    kind: str, fate: Fate
) -> None:
    """SX-17: no answer is not a refusal; the tries are paced, and hourly in the end."""
    with family() as (deployment, lane):
        deployment.fates = lambda _name, call: fate if call.kind == kind else "arrives"
        root = lane.submit("delegate", ["echo", 1]).submission
        deployment.advance(3 * DAY_MS)
        assert state_of(lane, root) is State.SUSPENDED
        assert lane.alarm_at_ms is not None
        assert lane.wakes < 64 + 10 + 3 * 24
        deployment.fates = lambda _name, _call: "arrives"
        deployment.advance(HOUR_MS)
        assert lane.settlement(root).result["result"] == 1
        assert sum(not each.is_virgin for each in deployment) == 2


def test_a_parent_that_is_unreachable_for_more_than_a_day_is_told_in_the_end() -> None:
    with family() as (deployment, lane):
        deployment.fates = lambda _name, call: "lost" if call.kind == "child-settled" else "arrives"
        root = lane.submit("delegate", ["echo", 1]).submission
        deployment.advance(2 * DAY_MS)
        child = lane_of(deployment, root)
        assert child.settlement(child_of(root)[1]).outcome == "completed"
        assert lane.alarm_at_ms is None
        assert child.alarm_at_ms is not None
        assert child.wakes < 64 + 10 + 2 * 24
        deployment.fates = lambda _name, _call: "arrives"
        deployment.advance(HOUR_MS)
        assert lane.settlement(root).result["result"] == 1
        assert child.alarm_at_ms is None


def test_a_lost_answer_followed_by_a_full_queue_is_no_refusal() -> None:
    """Indeterminate is never not admitted: the replay finds the child, however full its lane has become."""
    with family(queue_depth_max=2) as (deployment, lane):
        meets(deployment, "admit-child", "answer-lost", 1)
        root = lane.submit("delegate", ["echo", 1]).submission
        deployment.advance(5)
        child = lane_of(deployment, root)
        child.submit("ask")
        deployment.advance(HOUR_MS)
        assert admissions(deployment) == 2
        assert lane.settlement(root).result["result"] == 1


def test_a_refusal_that_proves_nothing_does_not_make_the_child_a_failed_one() -> None:
    """A deploy that has reached only one of two Objects: their keys differ, for longer than a day."""
    with family() as (deployment, lane):
        meets(deployment, "admit-child", "answer-lost", 1)
        root = lane.submit("delegate", ["echo", 1]).submission
        deployment.advance(5)
        child, ours = lane_of(deployment, root), deployment.settings
        deployment.settings = Settings(callback_secret="another")
        child.evict()
        _ = child.lane
        deployment.settings = ours
        deployment.advance(2 * DAY_MS)
        assert state_of(lane, root) is State.SUSPENDED
        child.evict()
        deployment.advance(HOUR_MS)
        assert lane.settlement(root).result["result"] == 1


def test_a_child_that_settles_while_its_establishment_has_no_answer_is_joined_once() -> None:
    """The join comes in while the parent still waits for the answer; nothing of that pass fails."""
    with family() as (deployment, lane):
        meets(deployment, "establish-child", "answer-lost", 1)
        root = lane.submit("delegate", ["echo", 1]).submission
        deployment.advance(2)
        child = lane_of(deployment, root)
        task = child.start_delivery()
        deployment.run_until_idle()
        assert task.done()
        deployment.run_until_quiet()
        assert lane.settlement(root).result["result"] == 1
        assert lane.errors == []


@pytest.mark.parametrize("when", ["admit-child", "establish-child"])
@pytest.mark.parametrize("act", ["abort", "detach", "child-aborted"])
def test_what_happens_while_a_call_is_under_way_is_not_written_over(when: str, act: str) -> None:
    """The parent is aborted, lets go, or is told of an end, between a call and its answer."""
    with family() as (deployment, lane):
        root = lane.submit("delegate", ["ask", None]).submission
        name, submission = child_of(root)
        tasks: list[Any] = []

        async def meanwhile() -> None:
            from quiesce import commands  # noqa: PLC0415 - only this test acts from within

            author = commands.Author("tester", "asked to")
            if act == "child-aborted":
                child = lane_of(deployment, root)
                address = commands.Address(name, submission)
                await child.within(lambda: commands.abort(child.lane, address, author))
                return
            address = commands.Address(lane.name, root)
            await lane.within(
                lambda: commands.abort(lane.lane, address, author, detaches=act == "detach")
            )

        is_done = [False]

        class Slow:
            """Lets something happen between a call's arrival and its answer."""

            def __init__(self, outside: Any) -> None:
                self.outside = outside

            async def ask(self, conversation: str, text: str) -> str:
                answer: str = await self.outside.ask(conversation, text)
                if deployment.seen[-1].kind == when and not is_done[0]:
                    is_done[0] = True
                    tasks.append(asyncio.ensure_future(meanwhile()))
                    await asyncio.wait(tasks)
                return answer

        lane.lane.outside = Slow(lane.lane.outside)  # type: ignore[assignment]
        deployment.run_until_quiet()
        assert is_done == [True]
        assert [task.exception() for task in tasks] == [None]
        assert lane.errors == []
        expected = "completed" if act == "child-aborted" else "aborted"
        assert lane.settlement(root).outcome == expected
        child = lane_of(deployment, root)
        assert child.status(submission).submission.state is not State.ADMITTED


FORGED = ["missing", "wrong", "of-another-call", "no-json", "another-field"]


def forged(settings: Settings, call: Call, how: str) -> str:
    """Write a call as somebody would who does not know the deployment's key."""
    import json  # noqa: PLC0415 - only forgers write JSON by hand

    text = call.model_dump_json()
    sealed = {"call": text, "capability": "0" * 64}
    if how == "missing":
        del sealed["capability"]
    if how == "of-another-call":
        other = seal(settings, EstablishChild(conversation="x", submission="y"))
        sealed["capability"] = json.loads(other)["capability"]
    if how == "another-field":
        sealed["extra"] = "1"
    return "[" * 5_000 if how == "no-json" else json.dumps(sealed)


def calls_about(lane: Conversation, root: SubmissionId, name: ConversationId) -> list[Call]:
    child = child_of(root)[1]
    address = {"conversation": name, "submission": child}
    return [
        AdmitChild(
            **address,
            principal="tester",
            key="forged",
            agent="echo",
            input=1,
            deadline_ms=None,
            parent_conversation=lane.name,
            parent_submission=root,
            operation="child",
            ancestors=[],
        ),
        EstablishChild(**address),
        AbortChild(**address, reason="forged"),
        ChildSettled(
            conversation=lane.name,
            submission=root,
            operation="child",
            child=child,
            outcome=OutcomeKind.COMPLETED,
            result="forged",
            failure=None,
        ),
    ]


@pytest.mark.parametrize("how", FORGED)
@pytest.mark.parametrize("kind", range(len(CALLS)), ids=CALLS)
def test_a_call_without_the_capability_is_refused_and_writes_nothing(kind: int, how: str) -> None:
    """SEC-1."""
    with family() as (deployment, lane):
        meets(deployment, "establish-child", "lost", 1_000)
        root = lane.submit("delegate", ["echo", 1]).submission
        deployment.advance(100)
        call = calls_about(lane, root, child_of(root)[0])[kind]
        target = deployment.conversation(call.conversation)
        before = (target.records(), target.generation(), target.alarm_at_ms, target.disk.image())
        text = forged(deployment.settings, call, how)
        reply = unsealed(target.event(lambda: receive(target.lane, text)))
        expected = RefusalCode.FORBIDDEN
        if how in {"missing", "no-json", "another-field"}:
            expected = RefusalCode.INVALID_REQUEST
        assert reply.refused is expected
        assert before == (
            target.records(),
            target.generation(),
            target.alarm_at_ms,
            target.disk.image(),
        )


@pytest.mark.parametrize("kind", range(len(CALLS)), ids=CALLS)
def test_a_forged_call_to_an_object_that_holds_nothing_leaves_it_so(kind: int) -> None:
    with family() as (deployment, lane):
        call = calls_about(lane, child_of(SubmissionId("sub_x"))[1], ConversationId("new"))[kind]
        target = deployment.conversation("new")
        text = forged(deployment.settings, call, "wrong")
        unsealed(target.event(lambda: receive(target.lane, text)))
        assert target.is_virgin
        assert target.alarm_at_ms is None


def test_a_settlement_that_is_told_again_changes_nothing() -> None:
    """SX-13: while the parent still runs, after it has settled, and however often."""
    with family() as (deployment, lane):
        root = lane.submit("fan-out", {"child": ["echo", 1], "b": ["ask", None]}).submission
        deployment.run_until_quiet()
        told = next(each for each in deployment.seen if isinstance(each, ChildSettled))
        for _ in range(2):
            before = (lane.records(), lane.generation(), lane.alarm_at_ms)
            for _ in range(3):
                assert ask_directly(deployment, lane, told).refused is None
            assert before == (lane.records(), lane.generation(), lane.alarm_at_ms)
            lane_of(deployment, root, "b").approve(child_of(root, "b")[1], "ask")
            deployment.run_until_quiet()
        assert lane.settlement(root).result == {"child": 1, "b": "approved"}


def test_a_settlement_for_a_parent_that_is_not_there_is_refused() -> None:
    with family() as (deployment, lane):
        lane.submit("echo", 1)
        deployment.run_until_quiet()
        told = calls_about(lane, SubmissionId("sub_" + "0" * 32), ConversationId("x"))[3]
        before = lane.records()
        assert ask_directly(deployment, lane, told).refused is RefusalCode.NOT_FOUND
        assert lane.records() == before


def test_a_child_that_dies_at_every_call_settles_once() -> None:
    """TP-7: it dies at each call it receives, and its parent at each that it makes, some times in a row."""
    with family() as (deployment, lane):
        root = lane.submit("delegate", ["steps", 1]).submission
        child, deaths = lane_of(deployment, root), [0]

        def rule(conversation: str, _call: Call) -> Fate:
            if deaths[0] < 6:
                deaths[0] += 1
                if conversation == child.name:
                    child.crash_at(
                        "maintenance:dirty:before" if deaths[0] % 2 else "maintenance:dirty:after"
                    )
            return "arrives"

        deployment.fates = rule
        deployment.run_until_quiet()
        assert deaths == [6]
        assert lane.settlement(root).result["result"] == 1


def test_the_parents_pass_lives_when_its_childs_incarnation_dies_under_a_call() -> None:
    with family() as (deployment, lane):
        root = lane.submit("delegate", ["echo", 1]).submission
        child = lane_of(deployment, root)
        pause = child.pause_at("maintenance:dirty:before")
        pass_time(deployment, 1)
        task = lane.start_delivery()
        assert pause.is_reached
        child.crash()
        deployment.run_until_idle()
        assert task.done()
        assert lane.errors == []
        deployment.run_until_quiet()
        assert lane.settlement(root).result["result"] == 1
        assert not any(isinstance(each, Crashed) for each in lane.errors)


def test_two_objects_that_call_each_other_at_once_do_not_wait_for_each_other() -> None:
    """M7: each delegates into the other's conversation's child, both passes under way together."""

    async def both(run: Run, value: Any) -> Any:
        return (await run.delegate("echo", value, name="child")).result

    with family(agent(both, "both")) as (deployment, lane):
        other = deployment.conversation("two")
        roots = [each.submit("both", each.name).submission for each in (lane, other)]
        pass_time(deployment, 1)
        tasks = [each.start_delivery() for each in (lane, other)]
        deployment.run_until_idle()
        assert all(task.done() for task in tasks)
        deployment.run_until_quiet()
        assert lane.settlement(roots[0]).result == "one"
        assert other.settlement(roots[1]).result == "two"


def test_a_late_child_of_a_parent_that_let_go_is_recorded_once_and_changes_nothing() -> None:
    """S98: acknowledged, recorded as late, and the parent's settlement stays as it was."""
    with family() as (deployment, lane):
        root = lane.submit("delegate", ["ask", None]).submission
        deployment.run_until_quiet()
        accepted = lane.abort(root, detaches=True)
        assert accepted.settlement is not None
        settled = lane.settlement(root)
        assert (settled.outcome, settled.effects_may_have_happened) == ("aborted", True)
        assert settled.unknown_operations == ["child"]
        child = lane_of(deployment, root)
        child.approve(child_of(root)[1], "ask")
        meets(deployment, "child-settled", "twice", 3)
        deployment.run_until_quiet()
        assert lane.settlement(root) == settled
        late = [each for each in payloads(lane).values() if each.kind == "child-late"]
        assert len(late) == 1
        assert ids(lane, root)[-1] == "settlement"
        assert [each.alarm_at_ms for each in deployment] == [None, None]


@pytest.mark.parametrize("text", ['{"kind":"read-log"}', '{"kind":"admit-child"}', "{}", "null"])
def test_a_call_that_is_none_of_the_four_is_refused_and_writes_nothing(text: str) -> None:
    """RT-4, RT-5: one Object asks four things of another, and reads nobody's log, whatever key it holds.

    A call that this version cannot read may be another version's: that is no answer, and proves nothing about it.
    """
    with family() as (deployment, lane):
        lane.submit("echo", 1)
        deployment.run_until_quiet()
        before = (lane.records(), lane.generation(), lane.disk.image())
        capability = hmac.new(deployment.settings.port_key, text.encode(), "sha256").hexdigest()
        sealed = canonical_json({"capability": capability, "call": text})
        reply = unsealed(lane.event(lambda: receive(lane.lane, sealed)))
        assert reply.refused is RefusalCode.UNAVAILABLE
        assert (lane.records(), lane.generation(), lane.disk.image()) == before


@pytest.mark.parametrize(
    "said", ['{"refused":"no-such-code"}', '{"refused":null,"more":1}', "[", "", "null"]
)
def test_an_answer_that_says_nothing_known_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    """CF-3, RT-8: the child was admitted all the same; it is asked for again, and there is one."""
    left = [3]

    async def answer(lane: Lane, text: str) -> str:
        truth = await receive(lane, text)
        if left[0] == 0:
            return truth
        left[0] -= 1
        return said

    monkeypatch.setattr(network, "receive", answer)
    with family() as (deployment, lane):
        root = lane.submit("delegate", ["echo", 1]).submission
        deployment.run_until_quiet()
        assert left == [0]
        assert lane.settlement(root).result["result"] == 1
        assert kinds(lane, root).count("child-joined") == 1
        assert admissions(deployment) > 1
