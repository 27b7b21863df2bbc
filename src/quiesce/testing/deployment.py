"""The simulated deployment: conversations by name, their alarms, and one virtual clock over all of them."""

import asyncio
import itertools
import random
from collections.abc import Coroutine, Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from quiesce.agent import Agent, Registry
from quiesce.settings import Settings
from quiesce.telemetry import Reporter
from quiesce.testing.conversation import Conversation
from quiesce.testing.network import Network
from quiesce.testing.virtual_time import VirtualTimeLoop

START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z: when a simulation starts unless it is told otherwise."""
HORIZON_MS = 7 * 86_400_000
WAKES_MAX = 2_000


class Deployment:
    """A simulated deployment of some agents.

    Use it as a context manager: leaving it checks every conversation's laws once more and closes the databases.
    `seed` decides the jitter of every backoff, or `jitter` fixes it; `start_ms` is the time at which the simulation
    begins. With `checks_every_event=False` the laws are checked only at the end, for a test of a long history: what
    a check costs grows with it.
    """

    def __init__(
        self,
        agents: Iterable[Agent],
        settings: Settings | None = None,
        *,
        start_ms: int = START_MS,
        seed: int = 0,
        jitter: float | None = None,
        checks_every_event: bool = True,
    ) -> None:
        self.registry = Registry(agents)
        self.settings = settings or Settings()
        self.loop = VirtualTimeLoop()
        self._start_ms = start_ms
        self._random = random.Random(seed)  # noqa: S311 - a simulation repeats itself
        self.network = Network()
        """What lies between the Objects; a test may make it fail."""
        self.reporter: Reporter | None = None
        """Who is told of the work, from the next incarnation on; nobody, unless a test wants to listen."""
        self._jitter = jitter
        self.checks_every_event = checks_every_event
        self._conversations: dict[str, Conversation] = {}
        self._incarnations = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                for conversation in self:
                    conversation.check_laws()
        finally:
            for conversation in self:
                conversation.close()
            # What is left are handlers that ignore even their end; nobody needs to read about them.
            self.loop.set_exception_handler(lambda _loop, _context: None)
            self.loop.close()

    def __iter__(self) -> "Iterator[Conversation]":
        return iter(list(self._conversations.values()))

    def conversation(self, name: str) -> Conversation:
        """Return the conversation of this name; it is virgin until something is submitted to it."""
        if name not in self._conversations:
            self._conversations[name] = Conversation(self, name)
        return self._conversations[name]

    def deploy(self, agents: Iterable[Agent]) -> None:
        """Replace the agents: every Object is built anew at its next event, as after a real deploy."""
        self.registry = Registry(agents)
        for conversation in self:
            conversation.evict()

    @property
    def now_ms(self) -> int:
        """The virtual time in milliseconds since the epoch."""
        return self._start_ms + round(self.loop.time() * 1_000)

    def jitter(self) -> float:
        """Draw from [0, 1); the same draws in every run of one seed."""
        return self._random.random() if self._jitter is None else self._jitter

    def next_incarnation(self) -> str:
        """Name one construction of an Object."""
        return f"incarnation-{next(self._incarnations)}"

    def run[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end on virtual time."""
        return self.loop.run_until_complete(work)

    def run_until_idle(self) -> None:
        """Run what was started until everything waits, without moving the clock."""
        self.loop.run_until_idle()

    def next_alarm_ms(self) -> int | None:
        """Return when the earliest alarm of any conversation will be delivered."""
        due = [each.delivery_at_ms for each in self]
        return min((at_ms for at_ms in due if at_ms is not None), default=None)

    def advance(self, delay_ms: int, wakes_max: int = WAKES_MAX) -> int:
        """Let time pass, delivering every alarm that comes due; returns how many were delivered.

        Raises AssertionError when more than `wakes_max` come due: something spins.
        """
        until_ms = self.now_ms + delay_ms
        wakes = 0
        while (at_ms := self.next_alarm_ms()) is not None and at_ms <= until_ms:
            wakes += self._deliver_next(at_ms)
            assert wakes <= wakes_max, f"{wakes} wakes within {delay_ms} ms"
        self._move_to(until_ms)
        return wakes

    def run_until_quiet(self, within_ms: int = HORIZON_MS, wakes_max: int = WAKES_MAX) -> int:
        """Deliver alarms, moving the clock to each, until none is set within the horizon; returns how many.

        Raises AssertionError when it does not become quiet, and when a lane that is owed a pass, or waits for a
        clock, is left without an alarm.
        """
        horizon_ms = self.now_ms + within_ms
        wakes = 0
        while (at_ms := self.next_alarm_ms()) is not None and at_ms <= horizon_ms:
            wakes += self._deliver_next(at_ms)
            assert wakes <= wakes_max, f"not quiet after {wakes} wakes"
        for conversation in self:
            conversation.check_armed()
        return wakes

    def _deliver_next(self, at_ms: int) -> int:
        self._move_to(at_ms)
        # What was started before may have moved an alarm while the clock moved: only what is due now is delivered.
        times = {each: each.delivery_at_ms for each in self}
        due = {each: at for each, at in times.items() if at is not None and at <= self.now_ms}
        if not due:
            return 0
        min(due, key=lambda each: due[each]).deliver()
        return 1

    def _move_to(self, at_ms: int) -> None:
        delay_ms = at_ms - self.now_ms
        if delay_ms > 0:
            self.run(asyncio.sleep(delay_ms / 1_000))
