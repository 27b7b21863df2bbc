"""What an operator or a client does to what was accepted: abort it, release it, force a pass.

1. Bump, rows and alarm are one transaction; a refused command writes nothing.
2. The same command again is the same answer.
3. Every command leaves a record with its author and its reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from quiesce import conversation_log, ledger, operations, outbox, settlement
from quiesce.conversation_log import Entry
from quiesce.errors import Refusal, RefusalCode
from quiesce.generation_record import Cost
from quiesce.ids import (
    ConversationId,
    OperationId,
    RecordId,
    SubmissionId,
    canonical_json,
    record_id,
)
from quiesce.lane import Lane, mutate
from quiesce.ledger import Submission
from quiesce.operations import OperationKind, OperationState
from quiesce.outbox import MessageKind
from quiesce.records import AbortRequested, OperatorActed, OperatorAction, Payload
from quiesce.settlement import Aborted, Settlement
from quiesce.states import OWNED, State
from quiesce.storage import Counts, Storage
from quiesce.telemetry import Fact
from quiesce.wake import Wake


@dataclass(frozen=True, slots=True)
class Address:
    """Which submission a command is for, and which of its operations, if it is for one."""

    conversation: ConversationId
    submission: SubmissionId
    operation: OperationId | None = None


@dataclass(frozen=True, slots=True)
class Author:
    """Who acts, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """A command was carried out now, or had been before."""

    is_replayed: bool = False
    settlement: Settlement | None = None
    traceparent: str | None = field(default=None, compare=False)
    """The trace of the submission that it was about."""


async def force_pass(lane: Lane, conversation: ConversationId, author: Author) -> Accepted:
    """Owe the lane a pass and arm for it: the lever that an operator always has."""

    def step(wake: Wake, now_ms: int) -> Accepted:
        lane.require_conversation(conversation)
        mark = lane.storage.counts()
        end = conversation_log.tail(lane.storage)
        acted = OperatorActed(action="pass-forced", author=author.name, reason=author.reason)
        entry = Entry(record_id("operator", str(end.sequence + 1)), None, None, acted)
        conversation_log.append(lane.storage, end, entry, now_ms)
        wake.count_mutation(mark)
        return Accepted()

    return tell(lane, "forced-pass", await mutate(lane, step))


async def retry(lane: Lane, address: Address, author: Author) -> Accepted:
    """Let a submission go on at once: one that is quarantined, or that waits for the time of its next attempt.

    What was quarantined has its attempts and interruptions forgotten. Of a settled submission whose callback was
    given up, the callback is owed again.
    """

    def step(wake: Wake, now_ms: int) -> Accepted:
        found = lane.require_submission(address.conversation, address.submission)
        if not found.is_open and _revive_callback(lane, wake, found, author):
            return Accepted(traceparent=found.traceparent)
        found = require_open(lane, address)
        mark = lane.storage.counts()
        if found.state is State.QUARANTINED:
            _note(lane, address, "quarantine-released", author, now_ms)
            forgotten: dict[str, Any] = {
                "attempts": 0,
                "interruptions": 0,
                "interrupted_since_ms": None,
            }
            ledger.move(lane.storage, found, State.READY, now_ms, not_before_ms=None, **forgotten)
        elif found.owner is None and (found.not_before_ms or 0) > now_ms:
            _note(lane, address, "retry-hastened", author, now_ms)
            ledger.move(lane.storage, found, found.state, now_ms, not_before_ms=None)
        else:
            why = "only what is quarantined, or waits for its next attempt, can be retried"
            raise not_waiting(found, why)
        wake.count_mutation(mark)
        return Accepted(traceparent=found.traceparent)

    return tell(lane, "retry", await mutate(lane, step), submission=address.submission)


def _note(
    lane: Lane, address: Address, action: OperatorAction, author: Author, now_ms: int
) -> None:
    """Record what an operator did to a submission; each time is another record."""
    end = conversation_log.tail(lane.storage)
    acted = OperatorActed(action=action, author=author.name, reason=author.reason)
    append(lane, address, f"{action}-{end.sequence + 1}", acted, now_ms)


def _revive_callback(lane: Lane, wake: Wake, found: Submission, author: Author) -> bool:
    mark = lane.storage.counts()
    if not outbox.revive(lane.storage, MessageKind.CALLBACK, found.id, wake.now_ms):
        return False
    end = conversation_log.tail(lane.storage)
    acted = OperatorActed(action="callback-revived", author=author.name, reason=author.reason)
    entry = Entry(record_id("operator", str(end.sequence + 1)), None, None, acted)
    conversation_log.append(lane.storage, end, entry, wake.now_ms)
    wake.count_mutation(mark)
    return True


async def abort(
    lane: Lane, address: Address, author: Author, *, detaches: bool = False, skips: bool = False
) -> Accepted:
    """Record that the submission has to end, and settle it at once if nothing stands in the way.

    What runs, what holds a call without a result, and what others have joined goes through the pass. Children are
    aborted and waited for; with `detaches` they are let go, and what they still do is recorded as late. With
    `skips` it must be the head of the queue: who looked at a queue that has moved on since ends nothing else.
    """

    def step(wake: Wake, _now_ms: int) -> Accepted:
        found = lane.require_submission(address.conversation, address.submission)
        if not found.is_open:
            settled = settlement.read(lane.storage, found)
            if found.outcome == "aborted":
                return Accepted(is_replayed=True, settlement=settled, traceparent=found.traceparent)
            raise already_settled(found, settled)
        if found.state in {State.JOINED, State.JOINING}:
            host = ledger.at(lane.storage, found.host_sequence or 0)
            message = f"{address.submission} has joined another submission; abort that one"
            facts = {"host": None if host is None else host.id}
            raise Refusal(RefusalCode.JOINED_TO_HOST, message, facts)
        return abort_now(lane, wake, found, author, detaches=detaches, skips=skips)

    accepted = await mutate(lane, step)
    unwind = lane.running.get(address.submission)
    if accepted.settlement is None and unwind is not None:
        unwind()
    act = "skip" if skips else "abort"
    tell(lane, act, accepted, submission=address.submission, detaches=detaches)
    if accepted.settlement is not None and not accepted.is_replayed:
        lane.announce([settlement.settled_as(accepted.settlement)])
    return accepted


def tell(lane: Lane, act: str, accepted: Accepted, **facts: Fact) -> Accepted:
    """Tell that a command was carried out, or had been before."""
    about: dict[str, Fact] = {"act": act, "is_replayed": accepted.is_replayed}
    lane.tell("decided", accepted.traceparent, about | facts)
    return accepted


def _abort_id(submission: SubmissionId, *, detaches: bool) -> RecordId:
    return record_id(submission, "detach" if detaches else "abort")


def _is_wished(lane: Lane, found: Submission, *, detaches: bool) -> bool:
    """Say whether this abort, or one that goes further, has been recorded."""
    wishes = [True] if detaches else [False, True]
    identities = [_abort_id(found.id, detaches=each) for each in wishes]
    return any(conversation_log.read(lane.storage, each) is not None for each in identities)


def abort_now(
    lane: Lane,
    wake: Wake,
    found: Submission,
    author: Author,
    *,
    detaches: bool = False,
    skips: bool = False,
) -> Accepted:
    """Record an abort inside the transaction of a command, and settle what nothing stands in the way of.

    One that was recorded before, or goes less far than that, is a replay. Raises Refusal: `not-waiting` when it
    `skips` what is not the head of the queue.
    """
    storage, now_ms = lane.storage, wake.now_ms
    if _is_wished(lane, found, detaches=detaches):
        wake.repair()
        return Accepted(is_replayed=True, traceparent=found.traceparent)
    mark = storage.counts()
    if skips:
        if found.sequence != conversation_log.tail(storage).head:
            raise not_waiting(found, "only the head of the queue can be skipped")
        address = Address(lane.own_conversation(), found.id)
        _note(lane, address, "head-skipped", author, now_ms)
    wished = AbortRequested(author=author.name, reason=author.reason, detaches=detaches)
    identity = _abort_id(found.id, detaches=detaches)
    end = conversation_log.tail(storage)
    conversation_log.append(storage, end, Entry(identity, found.id, None, wished), now_ms)
    if not _is_free(storage, found, detaches=detaches):
        intent = {"author": author.name, "reason": author.reason, "detaches": detaches}
        keeps: dict[str, Any] = {"owner": found.owner} if found.state in OWNED else {}
        text = canonical_json(intent)
        ledger.move(storage, found, found.state, now_ms, abort=text, **keeps)
        wake.count_mutation(mark)
        return Accepted(traceparent=found.traceparent)
    cost = found.cost.plus(spent_since(storage.counts(), mark))
    if found.state is State.TERMINALIZING:
        settlement.settle_reserved(storage, found, now_ms, cost)
    else:
        settlement.conclude(storage, found, Aborted(author.reason, detaches), now_ms, cost)
    wake.count_mutation(mark, opened=-1)
    settled = ledger.at(storage, found.sequence)
    assert settled is not None
    read = settlement.read(storage, settled)
    return Accepted(settlement=read, traceparent=found.traceparent)


def _is_free(storage: Storage, found: Submission, *, detaches: bool) -> bool:
    """Say whether the abort's own transaction may settle the submission."""
    left = operations.of_submission(storage, found.sequence)
    is_undecided = all(each.state is OperationState.WAITING for each in left)
    has_children = any(each.kind is OperationKind.CHILD for each in left)
    is_alone = found.owner is None and found.host_sequence is None
    return is_alone and is_undecided and (detaches or not has_children)


def append(lane: Lane, address: Address, part: str, payload: Payload, now_ms: int) -> None:
    """Append what a command records about a submission, or about one operation of it."""
    parts = (part,) if address.operation is None else (address.operation, part)
    entry = Entry(record_id(address.submission, *parts), address.submission, None, payload)
    end = conversation_log.tail(lane.storage)
    conversation_log.append(lane.storage, end, entry, now_ms)


def spent_since(counts: Counts, mark: Counts) -> Cost:
    """Return what a command has cost its submission."""
    spent = counts.since(mark)
    return Cost(rows_read=spent.rows_read, rows_written=spent.rows_written)


def require_open(lane: Lane, address: Address) -> Submission:
    """Read an open submission, or refuse."""
    found = lane.require_submission(address.conversation, address.submission)
    if not found.is_open:
        raise already_settled(found, settlement.read(lane.storage, found))
    return found


def not_waiting(found: Submission, why: str) -> Refusal:
    """Refuse what a submission does not wait for."""
    message = f"{found.id} is {found.state}: {why}"
    return Refusal(RefusalCode.NOT_WAITING, message, {"state": found.state.value})


def already_settled(found: Submission, settled: Settlement | None) -> Refusal:
    """Refuse what comes after the settlement, and show it."""
    facts: Mapping[str, Any] = {} if settled is None else {"settlement": settled}
    return Refusal(RefusalCode.ALREADY_SETTLED, f"{found.id} is settled: {found.outcome}", facts)
