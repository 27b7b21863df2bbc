"""Decisions of people and news from other systems: approvals, resolutions of unknown calls, signals.

1. Bump, rows and alarm are one transaction; a refused decision writes nothing, save the expiry that it found.
2. The same decision again is the same answer; another one is a conflict that shows what is recorded.
3. Time decides in the transaction. A decision or signal that comes at or after the expiry of what it is for finds
   the expiry recorded, or records it, and is refused with it; before that it wins, however late the alarm.
"""

from dataclasses import replace
from typing import Any, Literal

from quiesce import conversation_log, ledger, operations, signals, waits
from quiesce.commands import (
    Accepted,
    Address,
    Author,
    abort_now,
    already_settled,
    append,
    not_waiting,
    require_open,
    spent_since,
    tell,
)
from quiesce.errors import Refusal, RefusalCode, limit_exceeded
from quiesce.ids import OperationId, canonical_json, parse_json, record_id
from quiesce.lane import Lane, mutate
from quiesce.ledger import Submission
from quiesce.operations import OpenOperation, OperationKind, OperationState
from quiesce.records import ApprovalDecided, CallResolved, Payload, SignalReceived, ToolSettled
from quiesce.signals import Signal
from quiesce.states import State
from quiesce.storage import Counts
from quiesce.telemetry import Fact
from quiesce.wake import Wake

type Resolution = Literal["completed", "failed", "never-happened", "safe-to-retry", "abort"]
type Choice = Literal["approved", "denied"]

RETRY_AFTER_S = 5


async def decide(lane: Lane, address: Address, choice: Choice, author: Author) -> Accepted:
    """Decide an approval.

    Raises Refusal: `decision-conflict` with what is recorded, `not-waiting`, `already-settled`, `not-found`.
    """

    def step(wake: Wake, now_ms: int) -> Accepted:
        found = lane.require_submission(address.conversation, address.submission)
        recorded = _recorded_decision(lane, address)
        if recorded is not None:
            if recorded.decision != choice:
                raise _decision_conflict(address, recorded)
            wake.repair()
            return Accepted(is_replayed=True, traceparent=found.traceparent)
        wait = operations.find(lane.storage, found.sequence, _operation(address))
        if wait is None or wait.kind is not OperationKind.APPROVAL:
            raise _no_such_wait(found, address, "an undecided approval")
        decided = ApprovalDecided(
            operation=_operation(address),
            decision=choice,
            author=author.name,
            reason=author.reason,
            decided_at_ms=now_ms,
        )
        expiry = _end_in_time(lane, wake, found, wait, decided)
        if isinstance(expiry, ApprovalDecided):
            raise _decision_conflict(address, expiry)
        if expiry is not None:
            raise _came_too_late(_operation(address))
        return Accepted(traceparent=found.traceparent)

    return _tell(lane, "approval", await mutate(lane, step), address, decision=choice)


def _tell(lane: Lane, act: str, accepted: Accepted, address: Address, **facts: Fact) -> Accepted:
    about: dict[str, Fact] = {"submission": address.submission, "operation": address.operation}
    return tell(lane, act, accepted, **about, **facts)


def _operation(address: Address) -> OperationId:
    assert address.operation is not None
    return address.operation


def _recorded_decision(lane: Lane, address: Address) -> ApprovalDecided | None:
    identity = record_id(address.submission, _operation(address), "decided")
    record = conversation_log.read(lane.storage, identity)
    payload = None if record is None else record.parsed()
    return payload if isinstance(payload, ApprovalDecided) else None


def _end_in_time(
    lane: Lane, wake: Wake, found: Submission, wait: OpenOperation, payload: Payload
) -> Payload | None:
    """End a wait with `payload`; or, if its time or that of a branch beside it came first, with that, returned."""
    mark = lane.storage.counts()
    late = waits.earliest_due(lane.storage, wait, wake.now_ms)
    expiry = None if late is None else waits.expiry_of(late, wake.now_ms)
    waits.end_wait(lane.storage, found.id, late or wait, expiry or payload, wake.now_ms)
    spent = spent_since(lane.storage.counts(), mark)
    waits.resume_if_decided(lane.storage, found, wake.now_ms, spent)
    wake.count_mutation(mark)
    return expiry


async def resolve(
    lane: Lane,
    address: Address,
    resolution: Resolution,
    result: Any,
    author: Author,
    *,
    number: int | None = None,
) -> Accepted:
    """Say what became of an unknown call.

    `completed` records `result` as the call's; `failed` records a ToolFailed with the reason; `never-happened` and
    `safe-to-retry` let the call be made once more; `abort` aborts the submission.
    With `number` only that call of the operation is meant: a repeat that arrives when a later one has become
    unknown decides nothing about it.
    Raises Refusal: `decision-conflict` with what is recorded, `not-waiting`, `already-settled`, `not-found`.
    """
    _stored_form("the result", result, "VALUE_BYTES_MAX", lane.settings.value_bytes_max)

    def step(wake: Wake, now_ms: int) -> Accepted:
        found = lane.require_submission(address.conversation, address.submission)
        call = operations.find(lane.storage, found.sequence, _operation(address))
        if not _is_unresolved(lane, found, call):
            _check_same_resolution(lane, found, address, resolution, result)
            wake.repair()
            return Accepted(is_replayed=True, traceparent=found.traceparent)
        assert call is not None
        mark = lane.storage.counts()
        this_call = int(call.detail["call"])
        if number is not None and number != this_call:
            raise not_waiting(found, f"call {this_call} is unknown, and not call {number}")
        resolved = CallResolved(
            operation=_operation(address),
            call=this_call,
            resolution=resolution,
            author=author.name,
            reason=author.reason,
        )
        append(lane, address, f"resolved-{this_call}", resolved, now_ms)
        if resolution == "abort":
            return abort_now(lane, wake, found, author)
        if resolution in {"completed", "failed"}:
            settled = _settled_by(author, call, resolution, result)
            append(lane, address, "settled", settled, now_ms)
        operations.close(lane.storage, call)
        _go_on_if_covered(lane, found, mark, now_ms)
        wake.count_mutation(mark)
        return Accepted(traceparent=found.traceparent)

    return _tell(lane, "resolution", await mutate(lane, step), address, decision=resolution)


def _stored_form(what: str, value: Any, limit: str, maximum: int) -> str:
    """Return the text that is stored of what somebody sent, or refuse what cannot be."""
    try:
        text = canonical_json(value)
    except ValueError as error:
        message = f"{what} is not JSON that can be stored: {error}"
        raise Refusal(RefusalCode.INVALID_REQUEST, message) from None
    size = len(text.encode())
    if size > maximum:
        raise limit_exceeded(RefusalCode.INPUT_TOO_LARGE, limit, size, maximum)
    return text


def _settled_by(
    author: Author, call: OpenOperation, resolution: Resolution, result: Any
) -> ToolSettled:
    is_failed = resolution == "failed"
    return ToolSettled(
        operation=call.operation,
        arguments_digest=call.arguments_digest,
        value=None if is_failed else result,
        failure={"error_type": "tool-failed", "message": author.reason} if is_failed else None,
        proof="resolved",
    )


def _go_on_if_covered(lane: Lane, found: Submission, mark: Counts, now_ms: int) -> None:
    left = operations.of_submission(lane.storage, found.sequence)
    is_covered = not any(each.state is OperationState.UNKNOWN for each in left)
    if found.state is State.UNKNOWN and is_covered:
        cost = found.cost.plus(spent_since(lane.storage.counts(), mark))
        ledger.move(lane.storage, found, State.INPUT_APPLIED, now_ms, cost)


def _is_unresolved(lane: Lane, found: Submission, call: OpenOperation | None) -> bool:
    """Say whether a call waits for its resolution; one that was resolved as an abort may still be open."""
    if call is None or call.state is not OperationState.UNKNOWN:
        return False
    identity = record_id(found.id, call.operation, f"resolved-{call.detail['call']}")
    return conversation_log.read(lane.storage, identity) is None


def _check_same_resolution(
    lane: Lane, found: Submission, address: Address, resolution: Resolution, result: Any
) -> None:
    """Accept a repeated resolution; refuse another one, and one of what is not unknown."""
    records = conversation_log.of_operation(lane.storage, found.id, _operation(address))
    payloads = [record.parsed() for record in records]
    resolved = [
        payload
        for payload in payloads
        if isinstance(payload, CallResolved) and payload.author != "reconciler"
    ]
    if not resolved:
        raise _no_such_wait(found, address, "an unknown call")
    last = max(resolved, key=_call_number)
    recorded = last.model_dump(mode="json", exclude={"kind"})
    is_same = last.resolution == resolution
    for payload in payloads:
        if resolution == "completed" and isinstance(payload, ToolSettled):
            recorded["result"] = payload.value
            is_same = is_same and canonical_json(payload.value) == canonical_json(result)
    if not is_same:
        raise Refusal(
            RefusalCode.DECISION_CONFLICT,
            f"operation {address.operation!r} was resolved as {last.resolution!r}",
            {"recorded": recorded},
        )


def _call_number(resolved: CallResolved) -> int:
    return resolved.call


async def deliver_signal(
    lane: Lane,
    address: Address,
    signal: tuple[str, str],
    payload: Any,
    author: Author,
    *,
    is_rated: bool = False,
) -> Accepted:
    """Deliver a signal: to the Run that waits for it, or to be kept until it does.

    `signal` is its name and the idempotency key of this delivery; `is_rated` counts a new one against the rate of
    its author. Raises Refusal: `idempotency-conflict`, `decision-conflict` when the wait for it had expired,
    `rate-limited`, `input-too-large`, `already-settled`.
    """
    name, key = signal
    text = _stored_form("the payload", payload, "INPUT_BYTES_MAX", lane.settings.input_bytes_max)

    def step(wake: Wake, _now_ms: int) -> Accepted:
        found = require_open(lane, address)
        earlier = signals.find(lane.storage, found.sequence, name, key)
        if earlier is not None:
            if earlier.payload != text:
                message = "this key was used for a signal with another payload"
                raise Refusal(RefusalCode.IDEMPOTENCY_CONFLICT, message, {"differing": ["payload"]})
            wake.repair()
            return Accepted(is_replayed=True, traceparent=found.traceparent)
        if is_rated:
            lane.rates.take(author.name, lane.settings, wake.now_ms)
        return _deliver(lane, wake, found, Signal(found.sequence, 0, name, key, author.name, text))

    return _tell(lane, "signal", await mutate(lane, step), address, signal=name)


def _deliver(lane: Lane, wake: Wake, found: Submission, signal: Signal) -> Accepted:
    mark = lane.storage.counts()
    wait = _waiting_for_signal(lane, found, signal.signal)
    if wait is not None:
        received = SignalReceived(
            operation=wait.operation,
            signal=signal.signal,
            payload=parse_json(signal.payload),
            timed_out=False,
            author=signal.author,
        )
        if _end_in_time(lane, wake, found, wait, received) is not None:
            raise _came_too_late(wait.operation)
    else:
        _check_signal_room(lane, found)
        wake.count_mutation(mark)
    kept = replace(
        signal,
        arrival=signals.next_arrival(lane.storage, found.sequence),
        consumed_by=None if wait is None else wait.operation,
    )
    signals.insert(lane.storage, kept)
    return Accepted(traceparent=found.traceparent)


def _check_signal_room(lane: Lane, found: Submission) -> None:
    maximum = lane.settings.signals_pending_max
    pending = len(signals.pending(lane.storage, found.sequence))
    if pending >= maximum:
        raise Refusal(
            RefusalCode.RATE_LIMITED,
            f"{pending} signals wait for {found.id} already, SIGNALS_PENDING_MAX is {maximum}",
            {
                "limit": "SIGNALS_PENDING_MAX",
                "actual": pending,
                "maximum": maximum,
                "retry_after_s": RETRY_AFTER_S,
            },
        )


def _waiting_for_signal(lane: Lane, found: Submission, name: str) -> OpenOperation | None:
    for each in operations.of_submission(lane.storage, found.sequence):
        if each.kind is OperationKind.SIGNAL and each.detail["signal"] == name:
            return each
    return None


def _no_such_wait(found: Submission, address: Address, what: str) -> Refusal:
    if not found.is_open:
        return already_settled(found, None)
    return not_waiting(found, f"operation {address.operation!r} is not {what} of it")


def _came_too_late(operation: OperationId) -> Refusal:
    message = f"the time of {operation!r} had come before this arrived; it was not taken"
    facts = {"recorded": {"operation": operation, "outcome": "expired"}}
    return Refusal(RefusalCode.DECISION_CONFLICT, message, facts)


def _decision_conflict(address: Address, decided: ApprovalDecided) -> Refusal:
    return Refusal(
        RefusalCode.DECISION_CONFLICT,
        f"approval {address.operation!r} is decided: {decided.decision}",
        {"recorded": decided.model_dump(mode="json", exclude={"kind"})},
    )
