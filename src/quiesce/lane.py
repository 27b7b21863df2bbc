"""A Lane: one conversation's work in one incarnation, and everything that its stages are given.

1. Nothing durable lives here. A Lane that is dropped loses prompt wake-ups and nothing else.
2. The *generation gate* covers pairs of the active count and a generation transaction, and nothing longer: it is
   never held across a body, a handler or another Object's call.
3. The *pass gate* serialises whole passes. Mutations never take it, so that two Objects which call each
   other cannot deadlock.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from quiesce import conversation_log, ledger, wake
from quiesce.agent import Registry
from quiesce.audience import Audience
from quiesce.errors import Refusal, RefusalCode
from quiesce.failpoints import Failpoints
from quiesce.generation import Begun
from quiesce.generation_record import Cost
from quiesce.ids import ConversationId, SubmissionId
from quiesce.ledger import Submission
from quiesce.outbox import Message
from quiesce.settings import Settings
from quiesce.storage import AlarmSlot, Counts, Storage
from quiesce.wake import Wake


def _nobody_listens(_submission: SubmissionId, _value: Any) -> None:
    """Drop a Run's progress."""


@dataclass(slots=True)
class Gates:
    """The two gates of an incarnation, and what they count."""

    generation: asyncio.Lock = field(default_factory=asyncio.Lock)
    passes: asyncio.Lock = field(default_factory=asyncio.Lock)
    active: int = 0
    """Mutations whose body runs."""
    passing: int = 0
    """Passes that run or wait for their turn."""
    waited_passes: int = 0
    """Passes in a row that only waited for an active mutation."""


class Outside(Protocol):
    """How a lane reaches other Objects and callback URLs."""

    async def ask(self, conversation: str, text: str) -> str:
        """Carry one message to another conversation's Object and bring its answer.

        Raises StorageUnavailable whatever went wrong: then nobody knows whether it arrived.
        """
        ...

    async def post(self, url: str, body: str, headers: Mapping[str, str]) -> int:
        """POST a body to a URL and return the status of the answer; raises StorageUnavailable without one."""
        ...


@dataclass(slots=True)
class Lane:
    """One incarnation's view of its conversation: storage, clock, agents, gates."""

    storage: Storage
    clock: Callable[[], int]
    """Milliseconds since the epoch; read once per event and handed on."""
    jitter: Callable[[], float]
    settings: Settings
    agents: Registry
    failpoints: Failpoints
    incarnation: str
    abort_object: Callable[[str], None]
    """End this incarnation at once: the last resort against a handler that ignores its cancellation."""
    outside: Outside
    is_platform_error: Callable[[BaseException], bool]
    """Whether an exception speaks of the platform and not of the application."""
    gates: Gates = field(default_factory=Gates)
    conversation: ConversationId | None = None
    is_repaired: bool = False
    """A request has armed this lane again in this incarnation."""
    armed_at_ms: int | None = None
    """The alarm that this incarnation has last seen set: until it is long past due, an empty slot may only mean
    that it is being delivered."""
    hurt: Exception | None = None
    """What keeps this Object from serving mutations, found when it was opened."""
    watchers: dict[SubmissionId, set[asyncio.Event]] = field(default_factory=dict)
    running: dict[SubmissionId, Callable[[], None]] = field(default_factory=dict)
    """Whose attempt runs now, and how to tell it of an abort; a hint, which decides nothing."""
    publish: Callable[[SubmissionId, Any], None] = _nobody_listens
    """Where a Run's progress goes: to whoever streams it, and nowhere else."""
    audience: Audience = field(default_factory=Audience)
    """Who follows this conversation's events just now."""

    def wake(self, slot: AlarmSlot, now_ms: int) -> Wake:
        """Open the generation inside a transaction."""
        return Wake(
            storage=self.storage,
            slot=slot,
            settings=self.settings,
            deployment=self.agents.deployment,
            now_ms=now_ms,
            jitter=self.jitter(),
            pass_runs=self.gates.passing > 0,
        )

    def note_alarm(self, slot: AlarmSlot) -> None:
        """Remember the alarm that a transaction leaves behind."""
        if slot.at_ms is not None:
            self.armed_at_ms = slot.at_ms

    def require_conversation(self, conversation: ConversationId) -> None:
        """Refuse a request for a conversation that this Object does not hold.

        The name was written at admission and never changes, so it is read once in an incarnation.
        """
        missing = f"there is no conversation {conversation!r}"
        if self.conversation is None and wake.load(self.storage) is None:
            raise Refusal(RefusalCode.NOT_FOUND, missing)
        if self.own_conversation() != conversation:
            raise Refusal(RefusalCode.NOT_FOUND, missing)

    def own_conversation(self) -> ConversationId:
        """Return which conversation this Object holds, which is none that is virgin."""
        if self.conversation is None:
            self.conversation = conversation_log.conversation(self.storage)
        return self.conversation

    def require_submission(
        self, conversation: ConversationId, submission: SubmissionId
    ) -> Submission:
        """Read a submission of this conversation, or refuse."""
        self.require_conversation(conversation)
        found = ledger.find(self.storage, submission)
        if found is None:
            message = f"conversation {conversation!r} has no submission {submission!r}"
            raise Refusal(RefusalCode.NOT_FOUND, message)
        return found

    def announce(self, settled: Iterable[SubmissionId]) -> None:
        """Tell whoever waits for these settlements to read them."""
        for submission in settled:
            for event in self.watchers.pop(submission, ()):
                event.set()


@dataclass(slots=True)
class Pass:
    """One maintenance pass under way: what it began with, what it has done, what it has spent."""

    begun: Begun
    started_ms: int
    started: Counts
    tail_before: int | None = None
    """The tail of the log before the first claim: a later one at the end is progress."""
    recovered: int = 0
    settled: int = 0
    delivered: int = 0
    messages: list[Message] = field(default_factory=list)
    """What the outbox owes and is due, as recovery found it."""
    woken: set[SubmissionId] = field(default_factory=set)
    _mark: Counts = field(default_factory=Counts)
    _marked_ms: int = 0

    def __post_init__(self) -> None:
        self._mark = self.started
        self._marked_ms = self.started_ms

    def note_tail(self, sequence: int) -> None:
        """Remember where the log ended before this pass claimed anything."""
        if self.tail_before is None:
            self.tail_before = sequence

    def charge(self, submission: SubmissionId, counts: Counts, now_ms: int) -> Cost:
        """Return what was spent since the last charge, to be added to what this submission has cost."""
        spent = counts.since(self._mark)
        cost = Cost(
            wakes=0 if submission in self.woken else 1,
            rows_read=spent.rows_read,
            rows_written=spent.rows_written,
            active_ms=max(0, now_ms - self._marked_ms),
        )
        self.woken.add(submission)
        self._mark = counts
        self._marked_ms = now_ms
        return cost


async def mutate[T](lane: Lane, step: Callable[[Wake, int], T]) -> T:
    """Run one mutation as one transaction: its rows, the generation and the alarm together.

    What the step refuses is raised here, after nothing was written.
    """

    def whole(slot: AlarmSlot) -> T | Refusal:
        # The clock is read in here: what was waited for the gate must not make an alarm too early.
        now_ms = lane.clock()
        try:
            return step(lane.wake(slot, now_ms), now_ms)
        except Refusal as refusal:
            return refusal
        finally:
            lane.note_alarm(slot)

    await lane.failpoints.reach("maintenance:dirty:before")
    async with lane.gates.generation:
        answer = await lane.storage.transaction(whole)
    await lane.failpoints.reach_after("maintenance:dirty:after", lane.storage)
    if isinstance(answer, Refusal):
        raise answer
    return answer
