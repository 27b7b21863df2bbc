"""Branches of one handler: waits together, calls that are not cut off, and the Run goes on once all are decided.

S88, S112, DT-3, DT-5, SX-9's intent for tools. `asyncio.gather` and `TaskGroup` are both tried.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from operations.ground import HOUR_MS, World, deployed, ids, kinds, state_of, wait_of
from quiesce import Failed, Retryable, Run
from quiesce.recovery import WaitKind
from quiesce.states import State

type Together = Callable[..., Coroutine[Any, Any, list[Any]]]


async def gathered(*branches: Coroutine[Any, Any, Any]) -> list[Any]:
    return list(await asyncio.gather(*branches))


async def grouped(*branches: Coroutine[Any, Any, Any]) -> list[Any]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in branches]
    return [each.result() for each in tasks]


BOTH = pytest.mark.parametrize("together", [gathered, grouped])


@BOTH
def test_three_approvals_are_asked_together_and_the_run_goes_on_once(together: Together) -> None:
    """S88, S112: answer the first and the third, wait an hour, answer the second."""
    attempts: list[int] = []

    async def handle(run: Run, _value: Any) -> list[bool]:
        attempts.append(1)
        decisions = await together(*(run.approval(f"ask-{number}") for number in range(3)))
        return [each.approved for each in decisions]

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert kinds(lane, submission).count("approval-requested") == 3
        for operation in ("ask-0", "ask-2"):
            lane.approve(submission, operation)
            assert state_of(lane, submission) is State.SUSPENDED
            deployment.run_until_quiet()
            assert state_of(lane, submission) is State.SUSPENDED
        assert deployment.advance(HOUR_MS) == 0
        assert len(attempts) == 1
        lane.deny(submission, "ask-1")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == [True, False, True]
        assert len(attempts) == 2


@BOTH
def test_a_slow_step_beside_a_wait_is_not_cut_off(together: Together) -> None:
    world = World()

    async def slow(name: str) -> str:
        await asyncio.sleep(20)
        return await world.act(name)

    async def handle(run: Run, _value: Any) -> list[Any]:
        decision, value = await together(run.approval("ask"), run.step("slow", slow, "slow"))
        return [decision.approved, value]

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert state_of(lane, submission) is State.SUSPENDED
        assert "slow/completed" in ids(lane, submission)
        lane.approve(submission, "ask")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == [True, "slow done"]
        assert world.calls["slow"] == 1


@BOTH
def test_an_uncertain_call_beside_a_wait_ends_in_order(together: Together) -> None:
    world = World()

    async def slow(name: str) -> str:
        await asyncio.sleep(20)
        return await world.act(name)

    async def handle(run: Run, _value: Any) -> list[Any]:
        decision, value = await together(run.approval("ask"), run.tool("charge", slow, "charge"))
        return [decision.approved, value]

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert wait_of(lane, submission).kind is WaitKind.APPROVAL
        lane.approve(submission, "ask")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == [True, "charge done"]
        assert world.calls["charge"] == 1


@BOTH
def test_a_decision_while_a_call_is_under_way_is_found_when_it_ends(together: Together) -> None:
    """The call's attempt lasts an hour; the person answers in between, and nothing is lost."""

    async def slow() -> str:
        await asyncio.sleep(200)
        return "slow"

    async def handle(run: Run, _value: Any) -> list[Any]:
        decision, value = await together(run.approval("ask"), run.step("slow", slow))
        return [decision.approved, value]

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run(asyncio.sleep(0.01))
        delivery = lane.start_delivery()
        lane.approve(submission, "ask")
        deployment.run(delivery)
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == [True, "slow"]


@BOTH
def test_an_uncertain_call_that_fails_beside_a_wait_is_unknown_first(together: Together) -> None:
    """Unknown beats suspension; the wait stays open, can be decided meanwhile, and is not lost."""
    world = World(charge=[ConnectionError("reset")])

    async def handle(run: Run, _value: Any) -> list[Any]:
        decision, value = await together(
            run.approval("ask"), run.tool("charge", world.act, "charge")
        )
        return [decision.approved, value]

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert wait_of(lane, submission).kind is WaitKind.RESOLUTION
        lane.approve(submission, "ask")
        deployment.run_until_quiet()
        assert wait_of(lane, submission).kind is WaitKind.RESOLUTION
        lane.resolve(submission, "charge", "completed", "receipt")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == [True, "receipt"]
        assert world.calls["charge"] == 1


@BOTH
def test_a_resolution_first_and_then_the_wait(together: Together) -> None:
    world = World(charge=[ConnectionError("reset")])

    async def handle(run: Run, _value: Any) -> list[Any]:
        decision, value = await together(
            run.approval("ask"), run.tool("charge", world.act, "charge")
        )
        return [decision.approved, value]

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        lane.resolve(submission, "charge", "completed", "receipt")
        deployment.run_until_quiet()
        assert wait_of(lane, submission).kind is WaitKind.APPROVAL
        assert lane.alarm_at_ms is None
        lane.deny(submission, "ask")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == [False, "receipt"]


@BOTH
def test_two_uncertain_calls_that_both_fail_are_both_visible(together: Together) -> None:
    """DT-3: partial coverage is no coverage."""
    world = World(first=[ConnectionError()], second=[ConnectionError()])

    async def handle(run: Run, _value: Any) -> list[Any]:
        return await together(
            run.tool("one", world.act, "first"), run.tool("two", world.act, "second")
        )

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert world.calls == {"first": 1, "second": 1}
        assert kinds(lane, submission).count("tool-unknown") == 2
        lane.resolve(submission, "two", "completed", 2)
        deployment.run_until_quiet()
        assert state_of(lane, submission) is State.UNKNOWN
        assert wait_of(lane, submission).operation == "one"
        assert world.calls == {"first": 1, "second": 1}
        lane.resolve(submission, "one", "completed", 1)
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == [1, 2]


def test_a_call_under_way_when_its_sibling_leaves_no_result_is_recorded() -> None:
    """What has returned is kept: only the call without a result is uncertain."""
    world = World(first=[ConnectionError()])

    async def slow() -> str:
        await asyncio.sleep(20)
        return await world.act("second")

    async def handle(run: Run, _value: Any) -> list[Any]:
        return await gathered(run.tool("one", world.act, "first"), run.tool("two", slow))

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert kinds(lane, submission).count("tool-unknown") == 1
        lane.resolve(submission, "one", "completed", 1)
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == [1, "second done"]
        assert world.calls == {"first": 1, "second": 1}


@BOTH
def test_a_branch_that_can_go_on_is_not_held_up_by_one_that_waits(together: Together) -> None:
    """The step of one branch ends after the other has begun to wait: its next step does not wait for a person."""
    world = World()

    async def slow(name: str) -> str:
        await asyncio.sleep(20)
        return await world.act(name)

    async def ship(run: Run) -> list[Any]:
        packed = await run.step("pack", slow, "pack")
        return [packed, await run.step("ship", slow, "ship")]

    async def handle(run: Run, _value: Any) -> list[Any]:
        return await together(run.approval("ask"), ship(run))

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert world.calls == {"pack": 1, "ship": 1}
        assert state_of(lane, submission) is State.SUSPENDED
        assert lane.alarm_at_ms is None


@BOTH
def test_a_wait_behind_a_slow_step_is_opened_although_another_branch_waits(
    together: Together,
) -> None:
    """S88 for waits that open late: nobody is asked the second question only after answering the first."""

    async def slow() -> None:
        await asyncio.sleep(20)

    async def second(run: Run) -> bool:
        await run.step("slow", slow)
        return (await run.approval("second")).approved

    async def handle(run: Run, _value: Any) -> list[Any]:
        await together(run.approval("first"), second(run))
        return []

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert kinds(lane, submission).count("approval-requested") == 2


@BOTH
def test_a_retryable_failure_beside_a_wait_is_tried_again_without_the_wait(
    together: Together,
) -> None:
    """The mail that tells the person has failed once: were it not sent again, nobody would ever decide."""
    world = World(mail=[Retryable("the mail server is down"), "sent"])

    async def handle(run: Run, _value: Any) -> list[Any]:
        decision, sent = await together(run.approval("ask"), run.step("mail", world.act, "mail"))
        return [decision.approved, sent]

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert world.calls["mail"] == 2
        assert state_of(lane, submission) is State.SUSPENDED
        lane.approve(submission, "ask")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == [True, "sent"]


def test_an_idempotent_call_that_fails_beside_a_wait_is_tried_again_without_the_wait() -> None:
    world = World(mail=[ConnectionError("down"), "sent"])

    async def handle(run: Run, _value: Any) -> list[Any]:
        decision, sent = await gathered(
            run.approval("ask"), run.tool("mail", world.act, "mail", effect="idempotent")
        )
        return [decision.approved, sent]

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert world.calls["mail"] == 2
        assert state_of(lane, submission) is State.SUSPENDED


def test_a_final_failure_beside_a_wait_settles_failed_and_closes_the_wait() -> None:
    async def handle(run: Run, _value: Any) -> None:
        async def bug() -> None:
            raise KeyError("bug")

        await gathered(bug(), run.approval("ask"))

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert lane.settlement(submission).outcome == "failed"
        assert lane.storage.execute("SELECT * FROM operations") == []


def test_a_wait_beside_a_timer_wakes_for_the_timer_and_stays_suspended() -> None:
    """Wait-all over a clock and a person: the timer's end is recorded, and the Run goes on only after both."""

    async def handle(run: Run, _value: Any) -> list[Any]:
        slept_ms, decision = await gathered(run.sleep("nap", delay_ms=HOUR_MS), run.approval("ask"))
        return [slept_ms, decision.approved]

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert "nap/fired" in ids(lane, submission)
        assert state_of(lane, submission) is State.SUSPENDED
        assert lane.alarm_at_ms is None
        lane.approve(submission, "ask")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == [HOUR_MS, True]


HARMLESS: list[Callable[[Run, Callable[[], Any]], Coroutine[Any, Any, Any]]] = [
    lambda run, function: run.step("call", function),
    lambda run, function: run.tool("call", function, effect="readonly"),
]


@pytest.mark.parametrize("call", HARMLESS, ids=["step", "readonly"])
def test_a_timeout_of_the_handlers_own_gives_up_a_call_without_an_effect(call: Any) -> None:
    """Nobody waits for it any more: the fallback settles at once, and not when the call has come back."""
    ended: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.sleep(300)
        except asyncio.CancelledError:
            ended.append("cut off")
            raise
        ended.append("came back")

    async def handle(run: Run, _value: Any) -> Any:
        try:
            async with asyncio.timeout(1):
                return await call(run, slow)
        except TimeoutError:
            return "fallback"

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        submitted_ms = deployment.now_ms
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == "fallback"
        settled_ms = lane.status(submission).submission.settled_at_ms
        assert 1_000 <= settled_ms - submitted_ms < 2_000
        assert ended == ["cut off"]
        assert kinds(lane, submission) == ["input-applied", "settlement"]


def test_a_branch_that_fails_retryably_beside_an_unknown_call_spends_an_attempt() -> None:
    """The call alone spends none, and does not hide that the other branch has failed."""
    world = World(charge=[ConnectionError("reset")])

    async def refuse() -> None:
        await asyncio.sleep(1)
        raise Retryable("not yet")

    async def handle(run: Run, _value: Any) -> Any:
        return await asyncio.gather(
            run.tool("charge", world.act, "charge"), run.step("other", refuse)
        )

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run_until_quiet()
        assert state_of(lane, submission) is State.UNKNOWN
        assert lane.status(submission).submission.attempts == 1


@pytest.mark.parametrize("raised", [None, Failed("too slow")], ids=["let-out", "failed"])
def test_a_timeout_that_ends_the_work_gives_up_the_step_too(raised: Exception | None) -> None:
    async def handle(run: Run, _value: Any) -> Any:
        try:
            async with asyncio.timeout(1):
                return await run.step("slow", asyncio.sleep, 300)
        except TimeoutError:
            if raised is None:
                raise
            raise raised from None

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        submitted_ms = deployment.now_ms
        deployment.run_until_quiet()
        assert lane.settlement(submission).outcome == "failed"
        assert lane.status(submission).submission.settled_at_ms - submitted_ms < 2_000


@pytest.mark.parametrize("effect", ["uncertain", "idempotent"])
def test_a_timeout_of_the_handlers_own_still_waits_for_a_call_with_an_effect(effect: Any) -> None:
    """Cut off, nobody would know whether it has happened: its result is recorded before the Run settles."""
    world = World()

    async def slow() -> Any:
        await asyncio.sleep(20)
        return await world.act("charge")

    async def handle(run: Run, _value: Any) -> Any:
        try:
            async with asyncio.timeout(1):
                return await run.tool("charge", slow, effect=effect)
        except TimeoutError:
            return "fallback"

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        submitted_ms = deployment.now_ms
        deployment.run_until_quiet()
        settled = lane.settlement(submission)
        assert (settled.result, settled.effects_may_have_happened) == ("fallback", False)
        assert lane.status(submission).submission.settled_at_ms - submitted_ms >= 20_000
        assert world.calls["charge"] == 1
        assert "charge/settled" in ids(lane, submission)


def test_a_crash_while_a_call_runs_beside_an_open_wait_keeps_both() -> None:
    world = World()

    async def slow() -> str:
        await asyncio.sleep(20)
        return await world.act("charge")

    async def handle(run: Run, _value: Any) -> list[Any]:
        decision, value = await gathered(run.approval("ask"), run.tool("charge", slow))
        return [decision.approved, value]

    with deployed(handle) as (deployment, lane):
        submission = lane.submit("work").submission
        deployment.run(asyncio.sleep(0.01))
        lane.start_delivery()
        deployment.run(asyncio.sleep(10))
        lane.crash()
        deployment.run_until_quiet()
        assert wait_of(lane, submission).kind is WaitKind.RESOLUTION
        lane.approve(submission, "ask")
        lane.resolve(submission, "charge", "never-happened")
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == [True, "charge done"]
        assert world.calls["charge"] == 1
