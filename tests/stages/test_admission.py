"""Admission: idempotent, bounded, and a refusal writes nothing, not even a table.

Covers S68 to S72, S74, S121, S122, LI-1, LI-2, LI-3, EV-1, EV-2, EV-3, LG-1, LG-2, LG-3.

S68 and S69 are the edge's (a missing key is refused there; the docs say "same operation, same key"); here only
that a key decides and nothing else. S73: nothing deletes a conversation. S74: a request and an alarm are given the
same Lane.

Parity: DRT-2, DRT-11.
"""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from quiesce import Agent, Run, admission
from quiesce.errors import Refusal, RefusalCode
from quiesce.ids import canonical_json
from quiesce.settings import Settings
from quiesce.states import State
from quiesce.testing import Conversation, Crashed, Deployment


class Order(BaseModel):
    order: str
    cents: int


def deployed(**settings: Any) -> Deployment:
    """A deployment of an agent that takes anything, one that takes an order, and one that waits for a person."""
    echo, orders, ask = (
        Agent("echo", input=Any),
        Agent("orders", input=Order),
        Agent("ask", input=Any),
    )

    @echo.handler
    async def _(_run: Run, value: Any) -> Any:
        return value

    @orders.handler
    async def _(_run: Run, order: Order) -> int:
        return order.cents

    @ask.handler
    async def _(run: Run, _value: Any) -> Any:
        return (await run.approval("question")).approved

    return Deployment([echo, orders, ask], Settings(**settings))


def refused(lane: Conversation, *arguments: Any, **options: Any) -> Refusal:
    """Submit what is refused, and check that the refusal wrote nothing."""
    image = lane.disk.image()
    with pytest.raises(Refusal) as caught:
        lane.submit(*arguments, **options)
    assert lane.disk.image() == image, "a refusal wrote something"
    return caught.value


# Replays


def test_same_request_finds_what_it_made() -> None:
    """LG-1, S70: exactly one row ever exists, before and after it is settled."""
    with deployed() as deployment:
        lane = deployment.conversation("one")
        first = lane.submit("echo", {"b": 1, "a": 2}, key="k")
        again = lane.submit("echo", {"a": 2, "b": 1}, key="k")
        deployment.run_until_quiet()
        settled = lane.submit("echo", {"a": 2, "b": 1}, key="k")
        assert first.submission == again.submission == settled.submission
        assert first.sequence == again.sequence == settled.sequence
        assert first.accepted_at_ms == settled.accepted_at_ms
        assert [first.is_replayed, again.is_replayed, settled.is_replayed] == [False, True, True]
        assert again.settlement is None
        assert settled.settlement is not None
        assert settled.settlement.recorded.result == {"a": 2, "b": 1}
        assert sum(lane.state().counts.values()) == 1


def test_replay_writes_nothing() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 1, key="k")
        image = lane.disk.image()
        lane.submit("echo", 1, key="k")
        assert lane.disk.image() == image


def test_s70_two_requests_at_once_make_one_submission() -> None:
    """LG-3."""
    with deployed() as deployment:
        lane = deployment.conversation("one")
        request = admission.Request(lane.name, "tester", "k", "echo", 1)
        tasks = [lane.start(lambda: admission.admit(lane.lane, request)) for _ in range(8)]
        receipts = [deployment.run(asyncio.wait_for(task, 1)) for task in tasks]
        assert len({receipt.submission for receipt in receipts}) == 1
        assert sorted(receipt.is_replayed for receipt in receipts) == [False, *[True] * 7]
        deployment.run_until_quiet()


def test_keys_belong_to_their_principal_and_their_conversation() -> None:
    """LG-2."""
    with deployed() as deployment:
        one, two = deployment.conversation("one"), deployment.conversation("two")
        found = {
            one.submit("echo", 1, key="k", principal="anna").submission,
            one.submit("echo", 2, key="k", principal="bert").submission,
            two.submit("echo", 3, key="k", principal="anna").submission,
        }
        assert len(found) == 3
        deployment.run_until_quiet()


@pytest.mark.parametrize(
    ("changed", "differing"),
    [
        ({"value": {"cents": 2, "order": "a"}}, ["input"]),
        ({"agent": "echo"}, ["agent"]),
        ({"deadline_ms": 1_000}, ["deadline_ms"]),
        ({"mode": "join"}, ["mode"]),
        ({"callback_url": "https://example.com/"}, ["callback_url"]),
        ({"agent": "echo", "value": 3}, ["agent", "input"]),
    ],
)
def test_same_key_with_other_content_is_refused_naming_what_differs(
    changed: dict[str, Any], differing: list[str]
) -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        asked: dict[str, Any] = {"agent": "orders", "value": {"cents": 1, "order": "a"}}
        receipt = lane.submit(**asked, key="k")
        refusal = refused(lane, **{**asked, **changed}, key="k")
        assert refusal.code is RefusalCode.IDEMPOTENCY_CONFLICT
        assert refusal.facts["differing"] == differing
        assert refusal.facts["submission"] == receipt.submission
        deployment.run_until_quiet()


# Limits


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("nobody", 1), RefusalCode.UNKNOWN_AGENT),
        (("orders", {"order": "a"}), RefusalCode.INVALID_REQUEST),
        (("orders", {"order": "a", "cents": "many"}), RefusalCode.INVALID_REQUEST),
        (("echo", float("nan")), RefusalCode.INVALID_REQUEST),
        (("echo", "x" * 600), RefusalCode.INPUT_TOO_LARGE),
    ],
)
def test_refusal_leaves_a_virgin_object_virgin(
    arguments: tuple[Any, ...], code: RefusalCode
) -> None:
    with deployed(input_bytes_max=512) as deployment:
        lane = deployment.conversation("one")
        assert refused(lane, *arguments).code is code
        assert lane.is_virgin
        assert lane.alarm_at_ms is None


def test_refusal_names_each_wrong_field_and_no_value() -> None:
    with deployed() as deployment:
        refusal = refused(deployment.conversation("one"), "orders", {"cents": "secret"})
        assert [each["field"] for each in refusal.facts["errors"]] == ["input.order", "input.cents"]
        assert "secret" not in str(refusal.facts)


def test_li_1_queue_depth_is_bounded_and_replays_are_exempt() -> None:
    with deployed(queue_depth_max=2) as deployment:
        lane = deployment.conversation("one")
        head = lane.submit("ask", key="head")
        lane.submit("echo", 1, key="queued")
        deployment.run_until_quiet()
        assert lane.alarm_at_ms is None, "a suspended head and a queued row are quiet"
        refusal = refused(lane, "echo", 2)
        assert refusal.code is RefusalCode.QUEUE_FULL
        assert (refusal.facts["actual"], refusal.facts["maximum"]) == (2, 2)
        assert lane.submit("echo", 1, key="queued").is_replayed
        lane.approve(head.submission, "question")
        deployment.run_until_quiet()
        lane.submit("echo", 2)
        deployment.run_until_quiet()
        assert lane.state().counts[State.SETTLED] == 3


def test_li_2_input_bytes_are_bounded_at_their_edge() -> None:
    with deployed(input_bytes_max=512) as deployment:
        lane = deployment.conversation("one")
        assert len(canonical_json("é" * 255).encode()) == 512
        lane.submit("echo", "é" * 255, key="fits")
        refusal = refused(lane, "echo", "é" * 255 + "x")
        assert refusal.code is RefusalCode.INPUT_TOO_LARGE
        assert (refusal.facts["actual"], refusal.facts["maximum"]) == (513, 512)
        lane.submit("echo", "small")
        deployment.run_until_quiet()


def test_li_3_database_bytes_are_bounded() -> None:
    with deployed(database_bytes_max=1) as deployment:
        lane = deployment.conversation("one")
        assert refused(lane, "echo", 1).code is RefusalCode.DATABASE_FULL
        assert lane.is_virgin


def test_replay_is_exempt_from_every_limit() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", "x" * 400, key="k")
        deployment.settings = Settings(input_bytes_max=1, queue_depth_max=1, database_bytes_max=1)
        deployment.deploy([])
        assert lane.submit("echo", "x" * 400, key="k").is_replayed


def test_count_and_insert_are_one_transaction() -> None:
    with deployed(queue_depth_max=3) as deployment:
        lane = deployment.conversation("one")
        requests = [
            admission.Request(lane.name, "tester", f"k{number}", "echo", number)
            for number in range(10)
        ]
        tasks = [
            lane.start(lambda request=request: admission.admit(lane.lane, request))
            for request in requests
        ]
        refusals = [task for task in tasks if isinstance(task.exception(), Refusal)]
        assert len(refusals) == 7
        assert lane.state().counts[State.READY] == 3
        deployment.run_until_quiet()


def test_depth_counts_what_is_open_and_not_what_is_settled() -> None:
    with deployed(queue_depth_max=2) as deployment:
        lane = deployment.conversation("one")
        for number in range(6):
            lane.submit("echo", number)
            if number % 2:
                deployment.run_until_quiet()
        assert lane.state().counts[State.SETTLED] == 6


# Crashes


@pytest.mark.parametrize(
    ("failpoint", "is_durable"),
    [
        ("admit:before", False),
        ("maintenance:dirty:before", False),
        ("maintenance:dirty:after", True),
        ("admit:after", True),
    ],
)
def test_ev_1_ev_2_ev_3_object_that_dies_within_a_post(failpoint: str, *, is_durable: bool) -> None:
    """S72: nothing is awaited between the key and the commit, so there is no half of an admission."""
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.crash_at(failpoint, keeps_unsynced=False)
        with pytest.raises(Crashed):
            lane.submit("echo", 1, key="k")
        deployment.run_until_quiet()
        assert lane.is_virgin is not is_durable
        receipt = lane.submit("echo", 1, key="k")
        assert receipt.is_replayed is is_durable
        assert receipt.sequence == 1
        assert (receipt.settlement is not None) is is_durable
        deployment.run_until_quiet()
        assert lane.settlement(receipt.submission).result == 1


def test_s72_client_that_hangs_up_changes_nothing() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        pause = lane.pause_at("maintenance:dirty:after")
        request = admission.Request(lane.name, "tester", "k", "echo", 1)
        task = lane.start(lambda: admission.admit(lane.lane, request))
        assert pause.is_reached
        task.cancel()
        deployment.run_until_quiet()
        assert lane.submit("echo", 1, key="k").settlement is not None


def test_sequences_are_in_the_order_of_admission_and_never_reused() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        receipts = []
        for number in range(6):
            receipts.append(lane.submit("echo", number))
            if number % 3 == 2:
                deployment.run_until_quiet()
                lane.evict()
        assert [receipt.sequence for receipt in receipts] == [1, 2, 3, 4, 5, 6]
