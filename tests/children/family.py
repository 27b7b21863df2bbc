"""What the tests of children stand on: agents that delegate, and deployments that watch families.

After every event, and at every call between Objects, the laws of the family are checked over all logs (`laws_of`).
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from children.laws import Facts, facts_of, laws_of
from operations.ground import World, agent
from quiesce import Agent, Failed, Run
from quiesce.children import child_key
from quiesce.ids import ConversationId, SubmissionId, digest, parse_json, submission_id
from quiesce.ports import AdmitChild, Call
from quiesce.settings import Settings
from quiesce.testing import Conversation, Crashed, Deployment
from quiesce.testing.network import Fate

type Handler = Callable[[Run, Any], Any]
PRINCIPAL = "tester"
TERMS: dict[str, Any] = {
    "callback_origins": ("https://example.com",),
    "callback_secret": "0123456789abcdef",
}


def child_of(
    parent: SubmissionId,
    operation: str = "child",
    principal: str = PRINCIPAL,
    *,
    root: str = "one",
) -> tuple[ConversationId, SubmissionId]:
    """Derive, independently of the engine's row, where the child of a delegation lives."""
    conversation = ConversationId(f"{root}~child-{digest(f'{parent}/{operation}')[:32]}")
    return conversation, submission_id(conversation, principal, child_key(parent, operation))


def root_of(key: str, lane: str = "one") -> SubmissionId:
    """Derive the submission that a test's client gets for a key."""
    return submission_id(ConversationId(lane), PRINCIPAL, key)


async def echo(_run: Run, value: Any) -> Any:
    return value


async def fail(_run: Run, value: Any) -> None:
    raise Failed(str(value), error_type="no-luck")


async def ask(run: Run, _value: Any) -> str:
    decision = await run.approval("ask")
    return "approved" if decision.approved else "denied"


async def delegate(run: Run, wanted: Any) -> Any:
    """Delegate `[agent, value]`, and return all that is known of how that settled."""
    child = await run.delegate(wanted[0], wanted[1], name="child")
    return {"outcome": child.outcome, "result": child.result, "failure": child.failure}


async def fan_out(run: Run, wanted: Any) -> Any:
    """Delegate each of `{name: [agent, value]}` at once."""
    children = await asyncio.gather(
        *(run.delegate(*each, name=name) for name, each in wanted.items())
    )
    return {name: child.result for name, child in zip(wanted, children, strict=True)}


def served(world: World | None = None) -> list[Agent]:
    """Declare the agents that every family may use."""
    outside = world or World()

    async def steps(run: Run, count: int) -> int:
        for number in range(count):
            await run.step(f"step-{number}", outside.act, f"step-{number}")
        return count

    async def charge(run: Run, amount: int) -> Any:
        return await run.tool("charge", outside.act, "charge", amount)

    kinds: dict[str, Handler] = {
        "echo": echo,
        "fail": fail,
        "ask": ask,
        "delegate": delegate,
        "fan-out": fan_out,
        "steps": steps,
        "charge": charge,
    }
    return [agent(handle, name) for name, handle in kinds.items()]


class Family(Deployment):
    """A deployment whose conversations are checked together: after each event, and at each call on the way."""

    def __init__(
        self, agents: list[Agent], settings: Settings | None = None, *, seed: int = 0
    ) -> None:
        super().__init__(agents, settings, seed=seed)
        self.fates: Callable[[str, Call], Fate] = lambda _conversation, _call: "arrives"
        """What becomes of a call; a test may put its own rule in place."""
        self.seen: list[Call] = []
        self._facts: dict[str, tuple[tuple[str, int], Facts]] = {}
        self.network.rule = self._rule

    def conversation(self, name: str) -> Conversation:
        """Return the conversation of this name, and check it with its family from now on."""
        is_known = any(each.name == name for each in self)
        found = super().conversation(name)
        if not is_known:
            found.check_laws = partial(self._check, found)  # type: ignore[method-assign]
        return found

    def facts(self) -> dict[str, Facts]:
        """Return what every disk says; one that has not changed is not read again."""
        for lane in self:
            if lane.is_virgin:
                continue
            incarnation = lane.lane.incarnation if lane.is_built else ""
            key = (incarnation, lane.disk.connection.total_changes)
            if lane.name not in self._facts or self._facts[lane.name][0] != key:
                self._facts[lane.name] = (key, facts_of(lane))
        return {name: found for name, (_, found) in self._facts.items()}

    def _check(self, lane: Conversation) -> None:
        Conversation.check_laws(lane)
        laws_of(self.facts())

    def _rule(self, conversation: str, text: str) -> Fate:
        laws_of(self.facts())
        call = call_of(text)
        self.seen.append(call)
        return self.fates(conversation, call)

    def arrive_late(self, index: int = 0) -> None:
        """Let a call arrive whose caller has given it up long ago."""
        from quiesce.ports import receive  # noqa: PLC0415 - the only place that plays the receiver by hand

        conversation, text = self.network.late.pop(index)
        target = self.conversation(conversation)
        target.event(lambda: receive(target.lane, text))

    def kinds(self) -> list[str]:
        """Return which calls were made between Objects, in order."""
        return [each.kind for each in self.seen]


def call_of(text: str) -> Call:
    """Read a sealed call."""
    from pydantic import TypeAdapter  # noqa: PLC0415 - only calls are read with it

    adapter: TypeAdapter[Call] = TypeAdapter(Call)
    return adapter.validate_python(parse_json(parse_json(text)["call"]))


@contextmanager
def family(
    *more: Agent | Handler, world: World | None = None, seed: int = 0, **settings: Any
) -> Iterator[tuple[Family, Conversation]]:
    """Deploy the agents of `served` and these, and give the first conversation."""
    extra = [each if isinstance(each, Agent) else agent(each) for each in more]
    with Family([*served(world), *extra], Settings(**settings), seed=seed) as deployment:
        yield deployment, deployment.conversation("one")


def lane_of(deployment: Deployment, parent: SubmissionId, operation: str = "child") -> Conversation:
    """Return the conversation of a delegation's child."""
    return deployment.conversation(child_of(parent, operation)[0])


def insist(verb: Callable[[], object]) -> None:
    """Do what a client does until it has an answer: an act that died is repeated, with the same key."""
    while True:
        try:
            verb()
        except Crashed:
            continue
        return


def admissions(deployment: Family) -> int:
    """Count how often a child's admission was asked for."""
    return sum(isinstance(each, AdmitChild) for each in deployment.seen)
