"""A corpus of scenarios: what a client does with a deployment, as small named functions.

Each is run undisturbed, and then again with the process dying at every commit. The world outside is a `World`: it
counts what handlers do to it, and knows when a recorded step runs again, which must never happen.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from quiesce import Agent, Failed, Retryable, Run, admission, maintenance
from quiesce.admission import Receipt
from quiesce.errors import StorageUnavailable
from quiesce.ids import SubmissionId
from quiesce.settings import Settings
from quiesce.states import State
from quiesce.testing import Conversation, Crashed, CrashPlan, Deployment

LONG_MS = 7_200_000


class ScenarioOver(Exception):
    """The process has died: from here on no client speaks to it any more."""


@dataclass
class World:
    """The world outside: what handlers did to it, and what it was like when they did."""

    calls: Counter[str] = field(default_factory=Counter)
    steps: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    is_mended: bool = False
    deployment: Deployment | None = None

    def call(self, name: str) -> int:
        """Count one act; returns how often it has happened."""
        self.calls[name] += 1
        return self.calls[name]

    def step(self, run: Run, operation: str) -> None:
        """Count the act of a step: once in an attempt, and never once its record stands in the log."""
        assert self.deployment is not None
        for lane in self.deployment:
            records = [each.record_id for each in lane.records()]
            assert f"{run.submission}/{operation}/completed" not in records, (
                f"{operation} ran again"
            )
            if f"{run.submission}/input" in records:
                epoch = lane.status(run.submission).submission.epoch
                self.steps[run.submission, epoch, operation] += 1
                assert self.steps[run.submission, epoch, operation] == 1, f"{operation} ran twice"

    @property
    def now_ms(self) -> int:
        """The time."""
        assert self.deployment is not None
        return self.deployment.now_ms


def agents(world: World) -> list[Agent]:
    """Declare the agents of the corpus, which act on this world."""
    kinds = (_that_finish, _that_fail, _that_break_limits, _that_are_interrupted)
    return [agent for kind in kinds for agent in kind(world)]


def _that_finish(world: World) -> list[Agent]:
    """Agents that finish, sooner or later."""
    echo = Agent("echo", input=Any)
    steps = Agent("steps", input=int)
    slow = Agent("slow", input=int)
    later = Agent("later", input=int)

    @echo.handler
    async def _(run: Run, value: Any) -> Any:
        world.call(run.submission)
        return value

    @steps.handler
    async def _(run: Run, count: int) -> list[int]:
        async def take(number: int) -> int:
            world.step(run, f"step-{number}")
            await asyncio.sleep(0)
            return number * 10

        return [await run.step(f"step-{number}", take, number) for number in range(count)]

    @slow.handler
    async def _(run: Run, delay_ms: int) -> str:
        await run.step("before", lambda: None)
        await asyncio.sleep(delay_ms / 1_000)
        return "done"

    @later.handler
    async def _(_run: Run, until_ms: int) -> str:
        if world.now_ms < until_ms:
            raise Retryable("too early")
        return "done"

    return [echo, steps, slow, later]


def _that_fail(world: World) -> list[Agent]:
    """Agents that fail, for a while or for good."""
    flaky = Agent("flaky", input=int)
    final = Agent("final", input=Any)
    broken = Agent("broken", input=Any)
    held = Agent("held", input=Any, on_exhausted="quarantine")
    partial = Agent("partial", input=int)

    @flaky.handler
    async def _(run: Run, failures: int) -> str:
        if world.call(run.submission) <= failures:
            raise Retryable("not yet", error_type="not-yet")
        return "done"

    @final.handler
    async def _(_run: Run, _value: Any) -> None:
        raise Failed("no", error_type="refused")

    @broken.handler
    async def _(_run: Run, _value: Any) -> None:
        raise TypeError("a bug of the application")

    @held.handler
    async def _(_run: Run, _value: Any) -> str:
        if not world.is_mended:
            raise Retryable("broken")
        return "done"

    @partial.handler
    async def _(run: Run, count: int) -> None:
        for number in range(count):
            await run.step(f"step-{number}", lambda each=number: world.step(run, f"step-{each}"))
        raise Retryable("never")

    return [flaky, final, broken, held, partial]


def _that_break_limits(world: World) -> list[Agent]:
    """Agents that return too much, never return, or diverge."""
    large = Agent("large", input=str)
    hang = Agent("hang", input=Any, attempt_ms_max=1_000)
    diverging = Agent("diverging", input=Any)

    @large.handler
    async def _(run: Run, where: str) -> str:
        if where == "step":
            await run.step("large", lambda: "x" * 5_000)
        return "x" * 5_000

    @hang.handler
    async def _(run: Run, _value: Any) -> str:
        while world.call(run.submission) == 1:
            try:
                await asyncio.sleep(LONG_MS)
            except asyncio.CancelledError:
                world.calls[run.submission] = 0
        return "done"

    @diverging.handler
    async def _(run: Run, _value: Any) -> None:
        await run.step("same", lambda *_: None, world.call(run.submission))
        raise Retryable("again")

    return [large, hang, diverging]


def _that_are_interrupted(world: World) -> list[Agent]:
    """Agents whose attempts end for reasons of the platform."""
    reset = Agent("reset", input=int)
    cancelled = Agent("cancelled", input=int)

    @reset.handler
    async def _(run: Run, resets: int) -> str:
        if world.call(run.submission) <= resets:
            raise StorageUnavailable("Durable Object reset because its code was updated.")
        return "done"

    @cancelled.handler
    async def _(run: Run, times: int) -> str:
        if world.call(run.submission) <= times:
            raise asyncio.CancelledError
        return "done"

    return [reset, cancelled]


class Client:
    """A client of one deployment, who falls silent as soon as the process has died.

    With `repeats` it does one thing more: a POST whose answer it never got it sends once again, with the same key.
    """

    def __init__(
        self, deployment: Deployment, plans: list[CrashPlan], *, repeats: bool = False
    ) -> None:
        self.deployment = deployment
        self.world = World(deployment=deployment)
        self.receipts: dict[tuple[str, str], Receipt] = {}
        self.unanswered: tuple[str, str] | None = None
        self._plans = plans
        self._repeats = repeats

    def lane(self, name: str = "one") -> Conversation:
        """Return a conversation, with this run's crashes planned for the first one."""
        known = any(each.name == name for each in self.deployment)
        lane = self.deployment.conversation(name)
        if not known and name == "one":
            lane.plan_crash(*self._plans)
        return lane

    def submit(self, agent: str, value: Any, key: str, *, lane: str = "one", **terms: Any) -> None:
        """POST a submission and keep its Receipt."""
        conversation = self.lane(lane)
        self._go_on()
        try:
            receipt = conversation.submit(agent, value, key=key, **terms)
        except Crashed:
            self.unanswered = (lane, key)
            if not self._repeats:
                raise ScenarioOver from None
            try:
                receipt = conversation.submit(agent, value, key=key, **terms)
            except Crashed:
                raise ScenarioOver from None
        known = self.receipts.setdefault((lane, key), receipt)
        assert known.submission == receipt.submission
        assert known.sequence == receipt.sequence
        self._go_on()

    def wait(self) -> None:
        """Let alarms come until all is quiet."""
        self.deployment.run_until_quiet()
        self._go_on()

    def advance(self, delay_ms: int) -> None:
        """Let time pass, with its alarms."""
        self.deployment.advance(delay_ms)
        self._go_on()

    def act(self, verb: Callable[[Conversation], object]) -> None:
        """Do something else to the first conversation."""
        try:
            verb(self.lane())
        except Crashed:
            raise ScenarioOver from None
        self._go_on()

    def _go_on(self) -> None:
        if any(plan.fired for plan in self._plans):
            raise ScenarioOver

    def release_quarantined(self) -> None:
        """Mend the world and release what waits for an operator."""
        self.world.is_mended = True
        for conversation in self.deployment:
            if conversation.is_virgin:
                continue
            for submission in quarantined(conversation):
                conversation.retry(submission)


def quarantined(conversation: Conversation) -> list[SubmissionId]:
    """Return what waits for an operator: only ever the head."""
    state = conversation.state()
    if state.counts[State.QUARANTINED] == 0:
        return []
    assert state.head is not None
    return [state.head]


@dataclass(frozen=True)
class Scenario:
    """One scenario of the corpus: its name, what the client does, and the settings of its deployment."""

    name: str
    play: Callable[[Client], None]
    settings: Settings
    is_small: bool


CORPUS: list[Scenario] = []


def scenario(
    *, is_small: bool = False, **settings: Any
) -> Callable[[Callable[[Client], None]], Callable[[Client], None]]:
    """Add a function to the corpus."""

    def add(play: Callable[[Client], None]) -> Callable[[Client], None]:
        CORPUS.append(Scenario(play.__name__, play, Settings(**settings), is_small))
        return play

    return add


@scenario(is_small=True)
def echo_alone(client: Client) -> None:
    client.submit("echo", {"hello": [1, None]}, "a")
    client.wait()


@scenario()
def two_conversations(client: Client) -> None:
    client.submit("echo", 1, "a")
    client.submit("steps", 1, "a", lane="two")
    client.submit("echo", 2, "b")
    client.wait()


@scenario()
def echo_after_history(client: Client) -> None:
    for number in range(3):
        client.submit("echo", number, f"history-{number}")
        client.wait()
    client.submit("echo", "new", "a")
    client.wait()


@scenario()
def three_queued(client: Client) -> None:
    for number in range(3):
        client.submit("echo", number, f"queued-{number}")
    client.wait()


@scenario(pass_submissions_max=1)
def three_queued_one_a_pass(client: Client) -> None:
    for number in range(3):
        client.submit("echo", number, f"queued-{number}")
    client.wait()


@scenario(is_small=True)
def three_steps(client: Client) -> None:
    client.submit("steps", 3, "a")
    client.wait()


@scenario(is_small=True)
def retryable_twice_then_success(client: Client) -> None:
    client.submit("flaky", 2, "a")
    client.wait()


@scenario(attempts_max=3)
def retryable_to_exhaustion(client: Client) -> None:
    client.submit("flaky", 1_000, "a")
    client.submit("echo", "behind", "b")
    client.wait()


@scenario(attempts_max=2)
def exhaustion_keeps_completed_steps(client: Client) -> None:
    """S62."""
    client.submit("partial", 2, "a")
    client.wait()


@scenario(is_small=True)
def final_failure(client: Client) -> None:
    client.submit("final", None, "a")
    client.wait()


@scenario()
def bug_of_the_application(client: Client) -> None:
    client.submit("broken", None, "a")
    client.submit("echo", "behind", "b")
    client.wait()


@scenario(value_bytes_max=2_000, input_bytes_max=1_000)
def oversize(client: Client) -> None:
    client.submit("large", "result", "a")
    client.submit("large", "step", "b")
    client.wait()


@scenario()
def hang_and_deadline_of_the_attempt(client: Client) -> None:
    client.submit("hang", None, "a")
    client.submit("echo", "behind", "b")
    client.wait()


@scenario(attempts_max=2)
def quarantine_then_retry(client: Client) -> None:
    client.submit("held", None, "a")
    client.submit("echo", "behind", "b")
    client.wait()
    for submission in quarantined(client.lane()):
        client.world.is_mended = True
        client.act(lambda lane, which=submission: lane.retry(which))
    client.wait()


@scenario(backoff_base_ms=1_000, backoff_cap_ms=4_000, attempts_max=100)
def deadline_in_the_queue(client: Client) -> None:
    client.submit("later", client.world.now_ms + 10_000, "a")
    client.submit("echo", "expires", "b", deadline_ms=5_000)
    client.submit("echo", "behind", "c")
    client.wait()


@scenario()
def queued_behind_a_retrying_head(client: Client) -> None:
    client.submit("flaky", 1, "a")
    client.advance(60)
    client.submit("echo", "behind", "b")
    client.wait()


@scenario()
def forced_pass(client: Client) -> None:
    client.submit("echo", 1, "a")
    client.act(lambda lane: lane.force_pass())
    client.wait()
    client.act(lambda lane: lane.force_pass())
    client.wait()


@scenario()
def replayed_submission(client: Client) -> None:
    client.submit("echo", 1, "a")
    client.submit("echo", 1, "a")
    client.wait()
    client.submit("echo", 1, "a")


@scenario()
def mutation_with_a_body(client: Client) -> None:
    lane = client.lane()

    def request(key: str) -> admission.Request:
        return admission.Request(lane.name, "tester", key, "echo", key)

    async def body() -> None:
        client.receipts["one", "c"] = await admission.admit(lane.lane, request("c"))
        await asyncio.sleep(0.3)
        client.receipts["one", "d"] = await admission.admit(lane.lane, request("d"))

    client.submit("echo", 1, "a")
    client.act(lambda each: each.start(lambda: maintenance.with_mutation(each.lane, body)))
    client.advance(1_000)
    client.wait()


@scenario()
def reset_by_the_platform(client: Client) -> None:
    """S41."""
    client.submit("reset", 3, "a")
    client.submit("echo", "behind", "b")
    client.wait()


@scenario(interruptions_max=2, interruption_window_ms=1_000)
def interruptions_to_exhaustion(client: Client) -> None:
    client.submit("reset", 1_000, "a")
    client.submit("echo", "behind", "b")
    client.wait()


@scenario()
def cancelled_by_nobody(client: Client) -> None:
    """S150."""
    client.submit("cancelled", 2, "a")
    client.wait()


@scenario()
def handler_outlives_its_prearmed_alarm(client: Client) -> None:
    client.submit("slow", 90_000, "a")
    client.submit("slow", 90_000, "b")
    client.wait()


@scenario(attempts_max=3)
def replay_diverges(client: Client) -> None:
    """S116."""
    client.submit("diverging", None, "a")
    client.wait()
