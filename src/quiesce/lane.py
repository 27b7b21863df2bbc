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
from quiesce.rates import Rates
from quiesce.settings import Settings
from quiesce.storage import AlarmSlot, Counts, Storage
from quiesce.telemetry import UNTRACED, Facts, Line, Reporter, Settled, Span, harmless
from quiesce.trace_context import trace_id
from quiesce.wake import Wake

WOKEN_AT_ONCE = 8
WOKEN_EVERY_S = 0.01
"""So many of those who wait for one settlement are answered together, and the next ones after so long."""


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
    is_verifying: bool = False
    """Whether a check of the whole conversation is under way."""
    audience: Audience = field(default_factory=Audience)
    """Who follows this conversation's events just now."""
    rates: Rates = field(default_factory=Rates)
    """How much each principal may still ask just now."""
    reporter: Reporter | None = None
    """Who is told of this conversation's work, if anybody is."""

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
        """Read a submission of this conversation that has not been purged, or refuse."""
        found = self.require_row(conversation, submission)
        if found.purged_at_ms is not None:
            raise gone(found)
        return found

    def require_row(self, conversation: ConversationId, submission: SubmissionId) -> Submission:
        """Read a submission of this conversation, which may be a tombstone, or refuse."""
        self.require_conversation(conversation)
        found = ledger.find(self.storage, submission)
        if found is None:
            message = f"conversation {conversation!r} has no submission {submission!r}"
            raise Refusal(RefusalCode.NOT_FOUND, message)
        return found

    def announce(self, settled: Iterable[Settled]) -> None:
        """Tell whoever waits for these settlements to read them, and the reporter of each."""
        for each in settled:
            for place, event in enumerate(self.watchers.pop(each.submission.id, ())):
                if place < WOKEN_AT_ONCE:
                    event.set()
                else:
                    # Each answer holds the whole settlement: no more of them at once than memory has room for.
                    delay_s = place // WOKEN_AT_ONCE * WOKEN_EVERY_S
                    asyncio.get_running_loop().call_later(delay_s, event.set)
            trace = each.submission.traceparent
            self.tell("settled", trace, each.facts(), at_ms=each.settled_at_ms)

    def tell(
        self, event: str, traceparent: str | None, facts: Facts, *, at_ms: int | None = None
    ) -> None:
        """Tell the reporter what a commit has done, now or at the time that it names."""
        reporter = self.reporter
        if reporter is None:
            return
        conversation = self.conversation or harmless(self.own_conversation)
        time_ms = self.clock() if at_ms is None else at_ms
        line = Line(event, time_ms, conversation, trace_id(traceparent), facts)
        harmless(lambda: reporter.hear(line))


def gone(found: Submission) -> Refusal:
    """Refuse what was purged, and show its tombstone."""
    message = (
        f"{found.id} settled ({found.outcome}), and what it said was purged by this deployment's retention;"
        " its key stays used"
    )
    return Refusal(RefusalCode.GONE, message, {"tombstone": found})


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
    purged: int = 0
    has_sent: bool = False
    """Whether this pass has tried to send a message of the outbox."""
    has_swept: bool = False
    """Whether this pass has looked for what is due to be purged."""
    messages: list[Message] = field(default_factory=list)
    """What the outbox owes and is due, as recovery found it."""
    woken: set[SubmissionId] = field(default_factory=set)
    span: Span = UNTRACED
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
