"""Scenes: what a client and a person do with one conversation whose agents use every kind of operation.

Each is played undisturbed, and then again with the process dying at every commit, also within what the client asks
for. The client whose answer was lost asks the same again, and does nothing else about it. Whoever has to resolve
an unknown call looks at the world first and says what is true, unless the scene wants to hear something else.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from operations.ground import DAY_MS, HOUR_MS, World, agent, begin
from quiesce import (
    Agent,
    Approval,
    Happened,
    NeverStarted,
    Run,
    Signal,
    Timer,
    ToolFailed,
    UncertainCall,
)
from quiesce.admission import Receipt
from quiesce.ids import SubmissionId
from quiesce.recovery import WaitKind
from quiesce.testing import Conversation, Crashed, Deployment

IDEMPOTENT = frozenset({"mail"})
"""What the world takes as often as it is done."""


@dataclass
class Client:
    """One client of one conversation, and the person who answers it."""

    deployment: Deployment
    world: World
    lane: Conversation
    resolution: Any = None
    """What is said of every unknown call; None: the truth."""
    receipts: list[Receipt] = field(default_factory=list)
    allowed: Counter[str] = field(default_factory=Counter)
    """How often each call was allowed to be made once more."""

    def act[T](self, verb: Callable[[], T]) -> T:
        """Ask for something; if the process dies over it, ask the same again."""
        while True:
            try:
                return verb()
            except Crashed:
                continue

    def submit(self, name: str, value: Any = None, **terms: Any) -> SubmissionId:
        """POST a submission and keep its Receipt."""
        key = f"{name}-{len(self.receipts)}"
        receipt = self.act(lambda: self.lane.submit(name, value, key=key, **terms))
        self.receipts.append(receipt)
        return receipt.submission

    def wait(self, within_ms: int = HOUR_MS // 2) -> None:
        """Let alarms come until only an outside event can move the lane, and resolve what is unknown."""
        self.deployment.run_until_quiet(within_ms=within_ms)
        while (blocked := self.lane.state().blocked_on) is not None:
            if blocked.kind is not WaitKind.RESOLUTION:
                return
            assert blocked.operation is not None
            self._resolve(blocked.operation)
            self.deployment.run_until_quiet(within_ms=within_ms)

    def _resolve(self, operation: str) -> None:
        is_done = ("did", operation) in self.world.seen
        said = self.resolution or ("completed" if is_done else "never-happened")
        self.allowed[operation] += said in {"never-happened", "safe-to-retry"}
        result = f"{operation} done" if said == "completed" else None
        head = self.lane.state().head
        assert head is not None
        self.act(lambda: self.lane.resolve(head, operation, said, result))


def agents(world: World) -> list[Agent]:  # noqa: C901 - one after the other, and each is simple
    """Declare the agents of the scenes, which act on this world."""

    async def do(name: str) -> Any:
        await asyncio.sleep(0)
        value = await world.act(name)
        world.seen.append(("did", name))
        return value

    async def refund(run: Run, cents: int) -> Any:
        order = await run.step("load", lambda: "order")
        if cents > 10_000:
            decision = await run.approval("large", reason="large", expires_in_s=86_400)
            if not decision.approved:
                return "expired" if decision.expired else "denied"
        return [order, await run.tool("charge", do, "charge")]

    async def charge(run: Run, _value: Any) -> Any:
        try:
            value = await run.tool("charge", do, "charge")
        except ToolFailed as failure:
            value = f"failed: {failure}"
        decision = await run.approval("go-on")
        return [value, decision.approved]

    async def mail(run: Run, _value: Any) -> Any:
        sent = await run.tool("mail", do, "mail", effect="idempotent")
        return [sent, await run.tool("look", lambda: "seen", effect="readonly")]

    async def two_calls(run: Run, _value: Any) -> list[Any]:
        return list(await asyncio.gather(run.tool("one", do, "one"), run.tool("two", do, "two")))

    async def call_and_ask(run: Run, _value: Any) -> list[Any]:
        value, decision = await asyncio.gather(run.tool("one", do, "one"), run.approval("go-on"))
        return [value, decision.approved]

    async def three_approvals(run: Run, _value: Any) -> list[bool]:
        asked = [run.approval(f"ask-{number}") for number in range(3)]
        return [each.approved for each in await asyncio.gather(*asked)]

    async def race(run: Run, _value: Any) -> str:
        won = await run.first(
            "decide", Approval("allow"), Signal("cancel"), Timer("late", delay_ms=DAY_MS)
        )
        return won.name

    async def listen(run: Run, timeout_ms: int | None) -> list[Any]:
        received = await run.signal("paid", timeout_ms=timeout_ms)
        return [received.payload, received.timed_out]

    async def nap(run: Run, delay_ms: int) -> str:
        await run.sleep("nap", delay_ms=delay_ms)
        return "awake"

    async def collect(run: Run, value: Any) -> list[Any]:
        await run.approval("go-on")
        return [value, *(each.input for each in await run.inbox())]

    async def slow_charge(run: Run, _value: Any) -> Any:
        async def slow() -> Any:
            await do("charge")
            await asyncio.sleep(60)

        return await run.tool("charge", slow)

    reconciled = agent(charge, "reconciled")

    @reconciled.reconciler("charge")
    async def _(_call: UncertainCall) -> Any:
        return Happened("charge done") if ("did", "charge") in world.seen else NeverStarted()

    plain = [
        refund,
        charge,
        mail,
        two_calls,
        call_and_ask,
        three_approvals,
        race,
        listen,
        nap,
        collect,
        slow_charge,
    ]
    return [reconciled, *(agent(each, each.__name__) for each in plain)]


@dataclass(frozen=True)
class Scene:
    """One scene: its name, what happens in it, how the world behaves, and what is said of unknown calls."""

    name: str
    play: Callable[[Client], None]
    world: dict[str, list[Any]]
    resolution: Any
    is_long: bool


SCENES: list[Scene] = []


def scene(
    *, resolution: Any = None, is_long: bool = False, **world: list[Any]
) -> Callable[[Callable[[Client], None]], Callable[[Client], None]]:
    """Add a function to the scenes."""

    def add(play: Callable[[Client], None]) -> Callable[[Client], None]:
        SCENES.append(Scene(play.__name__, play, world, resolution, is_long))
        return play

    return add


@scene()
def refund_that_a_person_approves(client: Client) -> None:
    submission = client.submit("refund", 17_000)
    client.wait()
    client.act(lambda: client.lane.approve(submission, "large"))
    client.wait()


@scene(is_long=True)
def refund_that_a_person_denies(client: Client) -> None:
    submission = client.submit("refund", 17_000)
    client.wait()
    client.act(lambda: client.lane.deny(submission, "large"))
    client.wait()


@scene(is_long=True)
def refund_that_nobody_decides(client: Client) -> None:
    client.submit("refund", 17_000)
    client.wait()
    client.wait(2 * DAY_MS)


@scene(is_long=True)
def call_then_approval(client: Client) -> None:
    submission = client.submit("charge")
    client.wait()
    client.act(lambda: client.lane.approve(submission, "go-on"))
    client.wait()


@scene(charge=[ToolFailed("no funds")], is_long=True)
def call_that_fails_as_expected(client: Client) -> None:
    call_then_approval(client)


@scene(is_long=True)
def call_with_a_reconciler(client: Client) -> None:
    submission = client.submit("reconciled")
    client.wait()
    client.act(lambda: client.lane.approve(submission, "go-on"))
    client.wait()


@scene(charge=[ConnectionError(), "charge done"])
def call_that_raises_and_is_made_again_by_its_reconciler(client: Client) -> None:
    call_with_a_reconciler(client)


@scene(charge=[ConnectionError(), "charge done"], is_long=True)
def call_that_raises_and_is_decided_by_a_person(client: Client) -> None:
    call_then_approval(client)


@scene(mail=[ConnectionError(), "mail done"], is_long=True)
def idempotent_and_readonly_calls(client: Client) -> None:
    client.submit("mail")
    client.wait()


@scene(is_long=True)
def two_calls_together(client: Client) -> None:
    client.submit("two_calls")
    client.wait()


@scene(is_long=True)
def call_beside_an_approval(client: Client) -> None:
    submission = client.submit("call_and_ask")
    client.wait()
    client.act(lambda: client.lane.approve(submission, "go-on"))
    client.wait()


@scene(is_long=True)
def three_approvals_out_of_order(client: Client) -> None:
    submission = client.submit("three_approvals")
    client.wait()
    for operation in ("ask-2", "ask-0", "ask-1"):
        client.act(lambda each=operation: client.lane.approve(submission, each))
        client.wait()


@scene()
def first_of_three(client: Client) -> None:
    submission = client.submit("race")
    client.wait()
    client.act(lambda: client.lane.signal(submission, "cancel", 1, key="cancel"))
    client.wait()


@scene(is_long=True)
def first_that_time_wins(client: Client) -> None:
    client.submit("race")
    client.wait()
    client.wait(2 * DAY_MS)


@scene(is_long=True)
def signal_before_its_wait(client: Client) -> None:
    submission = client.submit("listen")
    client.act(lambda: client.lane.signal(submission, "paid", None, key="paid"))
    client.wait()


@scene(is_long=True)
def signal_that_is_waited_for(client: Client) -> None:
    submission = client.submit("listen")
    client.wait()
    client.act(lambda: client.lane.signal(submission, "paid", 7, key="paid"))
    client.wait()


@scene(is_long=True)
def signal_that_never_comes(client: Client) -> None:
    client.submit("listen", 60_000)
    client.wait()


@scene(is_long=True)
def timer(client: Client) -> None:
    client.submit("nap", 60_000)
    client.submit("nap", 0)
    client.wait()


@scene(is_long=True)
def two_join_a_host(client: Client) -> None:
    host = client.submit("collect", 0)
    client.submit("collect", 1, mode="join")
    client.submit("collect", 2, mode="join")
    client.wait()
    client.act(lambda: client.lane.approve(host, "go-on"))
    client.wait()


@scene()
def abort_during_a_call(client: Client) -> None:
    submission = client.submit("slow_charge")
    delivery = begin(client.deployment, client.lane)
    client.act(lambda: client.lane.abort(submission))
    client.deployment.run(delivery)
    client.wait()


@scene(is_long=True)
def abort_of_what_waits_and_of_what_is_queued(client: Client) -> None:
    head = client.submit("listen")
    queued = client.submit("listen")
    client.wait()
    client.act(lambda: client.lane.abort(queued))
    client.act(lambda: client.lane.abort(head))
    client.wait()


@scene()
def skip_of_a_stuck_head(client: Client) -> None:
    head = client.submit("listen")
    client.submit("nap", 0)
    client.wait()
    client.act(lambda: client.lane.skip(head))
    client.wait()


@scene()
def skip_during_a_call(client: Client) -> None:
    head = client.submit("slow_charge")
    client.submit("nap", 0)
    delivery = begin(client.deployment, client.lane)
    client.act(lambda: client.lane.skip(head))
    client.deployment.run(delivery)
    client.wait()


def _resolved(client: Client) -> None:
    submission = client.submit("charge")
    client.wait()
    if client.resolution != "abort":
        client.act(lambda: client.lane.approve(submission, "go-on"))
    client.wait()


@scene(resolution="completed", charge=[ConnectionError()], is_long=True)
def resolved_as_completed(client: Client) -> None:
    _resolved(client)


@scene(resolution="failed", charge=[ConnectionError()], is_long=True)
def resolved_as_failed(client: Client) -> None:
    _resolved(client)


@scene(resolution="never-happened", charge=[ConnectionError(), "charge done"], is_long=True)
def resolved_as_never_happened(client: Client) -> None:
    _resolved(client)


@scene(resolution="safe-to-retry", charge=[ConnectionError(), "charge done"], is_long=True)
def resolved_as_safe_to_retry(client: Client) -> None:
    _resolved(client)


@scene(resolution="abort", charge=[ConnectionError()], is_long=True)
def resolved_by_an_abort(client: Client) -> None:
    _resolved(client)


@scene(charge=[ConnectionError()], is_long=True)
def unknown_at_its_deadline(client: Client) -> None:
    client.submit("charge", deadline_ms=DAY_MS)
    client.submit("nap", 0)
    client.deployment.run_until_quiet(within_ms=HOUR_MS)
    client.deployment.run_until_quiet()
