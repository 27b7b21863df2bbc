"""What a reader sees: submissions, settlements, the lane, the log, maintenance. It writes nothing.

1. Everything is read from durable rows; what this incarnation remembers is never an answer.
2. Reading an Object that holds nothing is `not-found`, and leaves it holding nothing.
3. What a submission waits for is what recovery decides about it, in the same words.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from quiesce import conversation_log, generation, ledger, ledger_facts, repair, settlement, wake
from quiesce.errors import Refusal, RefusalCode
from quiesce.generation_record import GenerationRecord
from quiesce.ids import ConversationId, SubmissionId, canonical_json
from quiesce.invariants import Export
from quiesce.lane import Lane
from quiesce.ledger import Submission
from quiesce.records import Record
from quiesce.recovery import Await, AwaitUntil, Postpone, Wait, WaitKind, classify
from quiesce.settlement import Settlement
from quiesce.states import State

RECORDS_BYTES_MAX = 1_000_000
"""A page of the log holds at most so many bytes of payload, or one record."""
RESULTS_BYTES_MAX = 1_000_000
"""A page of submissions holds at most so many bytes of results, or one submission."""


@dataclass(frozen=True, slots=True)
class Status:
    """One submission: where it stands, what it waits for, and what it has cost."""

    conversation: ConversationId
    submission: Submission
    waiting_for: Wait | None
    next_attempt_at_ms: int | None
    settlement: Settlement | None


@dataclass(frozen=True, slots=True)
class MaintenanceView:
    """The generation record and the alarm slot."""

    record: GenerationRecord
    alarm_at_ms: int | None
    is_parked: bool


@dataclass(frozen=True, slots=True)
class LaneState:
    """The whole lane: what is open, what heads the queue, and what blocks it."""

    conversation: ConversationId
    counts: dict[State, int]
    head: SubmissionId | None
    blocked_on: Wait | None
    maintenance: MaintenanceView


def status(lane: Lane, conversation: ConversationId, submission: SubmissionId) -> Status:
    """Read one submission."""
    found = lane.require_submission(conversation, submission)
    return _status(lane, conversation, found, ledger.head(lane.storage))


def _status(
    lane: Lane, conversation: ConversationId, found: Submission, head: Submission | None
) -> Status:
    if found.purged_at_ms is not None:
        return Status(conversation, found, None, None, None)
    if not found.is_open:
        settled = settlement.read(lane.storage, found)
        return Status(conversation, found, None, None, settled)
    wait = waiting_for(lane, found, head)
    next_at_ms = wait.until_ms if wait is not None and wait.kind is WaitKind.RETRY else None
    return Status(conversation, found, wait, next_at_ms, None)


def waiting_for(lane: Lane, found: Submission, head: Submission | None) -> Wait | None:
    """Say what an open submission waits for, or None if it runs or can run."""
    if found.id in lane.running:
        return None
    is_head = head is not None and head.sequence == found.sequence
    now_ms = lane.clock()
    match classify(repair.fold(lane, found, now_ms, is_head=is_head)):
        case Await(wait=wait) | AwaitUntil(wait=wait):
            if wait.kind is WaitKind.HEAD and head is not None:
                return replace(wait, behind=head.id)
            return wait
        case Postpone(not_before_ms=not_before_ms, reason=reason):
            return Wait(WaitKind.RETRY, reason, found.state_since_ms, until_ms=not_before_ms)
        case _:
            return None


def page(
    lane: Lane, conversation: ConversationId, after: int, limit: int, state: State | None
) -> tuple[list[Status], bool]:
    """Read a page of submissions in the order of the queue, bounded by count and bytes; says whether it is full."""
    lane.require_conversation(conversation)
    head = ledger.head(lane.storage)
    if state not in {None, State.SETTLED}:
        # What is open stands from the head on: history is not read to find it.
        after = max(after, conversation_log.tail(lane.storage).head - 1)
    listed: list[Status] = []
    size = 0
    for each in ledger.page(lane.storage, after, limit, state):
        status = _status(lane, conversation, each, head)
        if status.settlement is not None:
            size += len(canonical_json(status.settlement.recorded.result).encode())
        if listed and size > RESULTS_BYTES_MAX:
            return listed, True
        listed.append(status)
    return listed, len(listed) == limit


def records(
    lane: Lane, conversation: ConversationId, after: int, limit: int
) -> tuple[list[Record], int]:
    """Read a page of the log, bounded by count and bytes, and where the log ends."""
    lane.require_conversation(conversation)
    end = conversation_log.tail(lane.storage).sequence
    return conversation_log.page(lane.storage, after, limit, RECORDS_BYTES_MAX), end


async def maintenance(lane: Lane, conversation: ConversationId) -> MaintenanceView:
    """Read the generation record and the alarm."""
    lane.require_conversation(conversation)
    record = wake.load(lane.storage)
    assert record is not None
    alarm_at_ms = await lane.storage.alarm_at_ms()
    return MaintenanceView(record, alarm_at_ms, generation.is_parked(record, lane.settings))


async def lane_state(lane: Lane, conversation: ConversationId) -> LaneState:
    """Read the whole lane."""
    view = await maintenance(lane, conversation)
    end = conversation_log.tail(lane.storage)
    head = ledger.head(lane.storage)
    counts = dict.fromkeys(State, 0) | ledger.counts_by_state(lane.storage, end.head)
    counts[State.SETTLED] = end.settled
    return LaneState(
        conversation=conversation,
        counts=counts,
        head=None if head is None else head.id,
        blocked_on=None if head is None else waiting_for(lane, head, head),
        maintenance=view,
    )


async def await_settlement(
    lane: Lane, conversation: ConversationId, submission: SubmissionId, wait_s: float
) -> Settlement | None:
    """Read a settlement, waiting for it for a bounded time; None if it is still owed then.

    The wait is a watcher in memory: it makes the answer prompt, and an answer is only ever read from rows.
    """
    found = lane.require_submission(conversation, submission)
    if not found.is_open:
        return settlement.read(lane.storage, found)
    if wait_s <= 0:
        return None
    watching = sum(len(events) for events in lane.watchers.values())
    if watching >= lane.settings.waiters_max:
        raise Refusal(
            RefusalCode.RATE_LIMITED,
            f"{watching} requests wait on this conversation already, WAITERS_MAX is"
            f" {lane.settings.waiters_max}; read without waiting, or try again",
            {
                "limit": "WAITERS_MAX",
                "actual": watching,
                "maximum": lane.settings.waiters_max,
                "retry_after_s": 1,
            },
        )
    await _watch(lane, submission, wait_s)
    found = lane.require_submission(conversation, submission)
    return None if found.is_open else settlement.read(lane.storage, found)


async def _watch(lane: Lane, submission: SubmissionId, wait_s: float) -> None:
    event = asyncio.Event()
    lane.watchers.setdefault(submission, set()).add(event)
    try:
        await asyncio.wait_for(event.wait(), wait_s)
    except TimeoutError:
        pass
    finally:
        watchers = lane.watchers.get(submission)
        if watchers is not None:
            watchers.discard(event)
            if not watchers:
                del lane.watchers[submission]


def parsed_payload(record: Record) -> dict[str, Any] | None:
    """Return a record's payload as JSON values, or None when it was purged."""
    if record.payload is None:
        return None
    return record.parsed().model_dump(mode="json", exclude={"kind"})


def export(lane: Lane, alarm_at_ms: int | None) -> Export:
    """Read a whole conversation for the checker of its laws; what this costs grows with history."""
    record = wake.load(lane.storage)
    assert record is not None
    end = conversation_log.tail(lane.storage)
    return Export(
        submissions=tuple(ledger_facts.facts(lane.storage, 0, end.last + 1)),
        records=tuple(conversation_log.page(lane.storage, 0, end.sequence + 1, 2**40)),
        settled_total=end.settled,
        head=end.head,
        dirty=record.dirty,
        processed=record.processed,
        due_at_ms=record.due_at_ms,
        alarm_at_ms=alarm_at_ms,
        nonterminal=record.nonterminal,
    )
