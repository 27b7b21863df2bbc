"""What a Run can wait for, and how it opens a wait: approvals, signals, timers, and the first of several.

1. A wait is opened in one commit: its record, its row, and what it can be answered with at once.
2. A signal that came before its wait is consumed in the commit that opens the wait; a time that has come by then
   ends it there. Otherwise the attempt ends, and the wait costs nothing until somebody or a clock ends it.
3. Time decides in the transaction that ends a wait, never in an alarm's delay.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from quiesce import signals
from quiesce.agent import Failed
from quiesce.conversation_log import Tail
from quiesce.errors import FailureType
from quiesce.fence import Fence
from quiesce.ids import OperationId, parse_json
from quiesce.journal import Journal, Operation
from quiesce.operations import OpenOperation, OperationKind, OperationState, open_
from quiesce.records import (
    ApprovalDecided,
    ApprovalRequested,
    ChoiceMade,
    ChoiceOpened,
    Payload,
    SignalAwaited,
    SignalReceived,
    TimerSet,
)
from quiesce.waits import ENDED_AS, end_wait, expiry_of

OPENED_AS = {
    OperationKind.APPROVAL: "requested",
    OperationKind.SIGNAL: "awaited",
    OperationKind.TIMER: "set",
}


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person decided, or that nobody did in time."""

    approved: bool
    decided_by: str | None
    reason: str
    expired: bool = False


@dataclass(frozen=True, slots=True)
class Received:
    """A signal's payload, which may be JSON null, or that none came in time."""

    payload: Any
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class Won:
    """The branch of a wait-any that ended first, by its name, and what it ended with."""

    name: str
    value: Decision | Received | int


@dataclass(frozen=True, slots=True)
class Approval:
    """Wait for a person's decision, for ever or for a time."""

    name: str
    reason: str = ""
    expires_in_s: float | None = None
    key: str | None = None

    kind = OperationKind.APPROVAL

    def arguments(self) -> list[Any]:
        """What a replay must ask for again."""
        return [self.reason, self.expires_in_s]

    def due_at_ms(self, now_ms: int) -> int | None:
        """When the wait ends by itself."""
        return None if self.expires_in_s is None else now_ms + round(self.expires_in_s * 1_000)

    def opened(self, operation: Operation, due_at_ms: int | None) -> Payload:
        """The record that opens the wait."""
        return ApprovalRequested(
            operation=operation.id,
            arguments_digest=operation.arguments_digest,
            reason=self.reason,
            expires_at_ms=due_at_ms,
        )


@dataclass(frozen=True, slots=True)
class Signal:
    """Wait for a signal of this name, for ever or for a time."""

    name: str
    timeout_ms: int | None = None
    key: str | None = None

    kind = OperationKind.SIGNAL

    def arguments(self) -> list[Any]:
        """What a replay must ask for again."""
        return [self.timeout_ms]

    def due_at_ms(self, now_ms: int) -> int | None:
        """When the wait ends by itself."""
        return None if self.timeout_ms is None else now_ms + self.timeout_ms

    def opened(self, operation: Operation, due_at_ms: int | None) -> Payload:
        """The record that opens the wait."""
        return SignalAwaited(
            operation=operation.id,
            arguments_digest=operation.arguments_digest,
            signal=self.name,
            expires_at_ms=due_at_ms,
        )


@dataclass(frozen=True, slots=True)
class Timer:
    """Wait for a time to pass, or for an instant; one of the two."""

    name: str
    delay_ms: int | None = None
    at_ms: int | None = None
    key: str | None = None

    kind = OperationKind.TIMER

    def arguments(self) -> list[Any]:
        """What a replay must ask for again."""
        return [self.delay_ms, self.at_ms]

    def due_at_ms(self, now_ms: int) -> int | None:
        """When the wait ends."""
        if self.at_ms is not None:
            return self.at_ms
        return now_ms + max(0, self.delay_ms or 0)

    def opened(self, operation: Operation, due_at_ms: int | None) -> Payload:
        """The record that opens the wait."""
        assert due_at_ms is not None
        return TimerSet(
            operation=operation.id,
            arguments_digest=operation.arguments_digest,
            due_at_ms=due_at_ms,
        )


type WaitSpec = Approval | Signal | Timer


def await_one(fence: Fence, journal: Journal, spec: WaitSpec) -> Decision | Received | int:
    """Return what a wait ended with, or open it and end the attempt."""
    operation = journal.ask(spec.kind, spec.name, spec.key, spec.arguments())
    ended = journal.find(operation.id, ENDED_AS[spec.kind])
    if ended is not None:
        return _value(journal, operation.id, ended)
    if journal.find(operation.id, OPENED_AS[spec.kind]) is None:
        at_once = fence.commit(lambda end, now_ms: _open(fence, end, operation, spec, now_ms))
        if at_once is not None:
            return _value_at_once(at_once)
    raise fence.suspend(f"waits for {spec.kind} {spec.name!r}")


def await_first(
    fence: Fence, journal: Journal, name: str, key: str | None, specs: Sequence[WaitSpec]
) -> Won:
    """Return the branch that has won, or open every branch and end the attempt."""
    if len({spec.name for spec in specs}) != len(specs) or not specs:
        raise ValueError(f"the branches of {name!r} need names that differ, and at least one")
    asked = [[spec.kind.value, spec.name, *spec.arguments()] for spec in specs]
    choice = journal.ask("first", name, key, asked)
    branches = [
        (spec, journal.ask(spec.kind, spec.name, spec.key, spec.arguments())) for spec in specs
    ]
    chosen = journal.find(choice.id, "chosen")
    if isinstance(chosen, ChoiceMade):
        winner, operation = next(each for each in branches if each[1].id == chosen.winner)
        ended = journal.find(operation.id, ENDED_AS[winner.kind])
        assert ended is not None
        return Won(winner.name, _value(journal, operation.id, ended))
    if journal.find(choice.id, "opened") is None:
        won = fence.commit(lambda end, now_ms: _open_all(fence, end, choice, branches, now_ms))
        if won is not None:
            return won
    raise fence.suspend(f"waits for the first of {name!r}")


def _open_all(
    fence: Fence,
    end: Tail,
    choice: Operation,
    branches: Sequence[tuple[WaitSpec, Operation]],
    now_ms: int,
) -> Won | None:
    opened = ChoiceOpened(
        operation=choice.id,
        arguments_digest=choice.arguments_digest,
        branches={spec.name: operation.id for spec, operation in branches},
    )
    end = fence.append(end, (choice.id, "opened"), opened, now_ms)
    rows: list[tuple[WaitSpec, OpenOperation]] = []
    for spec, operation in branches:
        row = _open_row(fence, operation, spec, now_ms, choice=choice.id)
        payload = spec.opened(operation, row.due_at_ms)
        end = fence.append(end, (operation.id, OPENED_AS[spec.kind]), payload, now_ms)
        rows.append((spec, row))
    for spec, row in rows:
        ended = _end_at_once(fence, row, now_ms)
        if ended is not None:
            return Won(spec.name, _value_at_once(ended))
    return None


def _open(
    fence: Fence, end: Tail, operation: Operation, spec: WaitSpec, now_ms: int
) -> Payload | None:
    row = _open_row(fence, operation, spec, now_ms)
    payload = spec.opened(operation, row.due_at_ms)
    fence.append(end, (operation.id, OPENED_AS[spec.kind]), payload, now_ms)
    return _end_at_once(fence, row, now_ms)


def _open_row(
    fence: Fence,
    operation: Operation,
    spec: WaitSpec,
    now_ms: int,
    *,
    choice: OperationId | None = None,
) -> OpenOperation:
    maximum = fence.lane.settings.value_bytes_max
    if isinstance(spec, Approval) and (size := len(spec.reason.encode())) > maximum:
        message = f"the reason of approval {operation.id!r}: {size} bytes, VALUE_BYTES_MAX allows {maximum}"
        raise Failed(message, error_type=FailureType.RESULT_TOO_LARGE)
    detail: dict[str, Any] = {"name": spec.name}
    if spec.kind is OperationKind.SIGNAL:
        detail["signal"] = spec.name
    if choice is not None:
        detail["choice"] = choice
    row = OpenOperation(
        submission_sequence=fence.sequence,
        operation=operation.id,
        kind=spec.kind,
        state=OperationState.WAITING,
        arguments_digest=operation.arguments_digest,
        opened_at_ms=now_ms,
        due_at_ms=spec.due_at_ms(now_ms),
        detail=detail,
    )
    open_(fence.lane.storage, row)
    return row


def _end_at_once(fence: Fence, row: OpenOperation, now_ms: int) -> Payload | None:
    """End a wait that has just been opened, if what it waits for is there already."""
    storage = fence.lane.storage
    ended: Payload | None = None
    if row.kind is OperationKind.SIGNAL:
        for signal in signals.pending(storage, fence.sequence):
            if signal.signal == row.detail["signal"]:
                signals.consume(storage, signal, row.operation)
                ended = SignalReceived(
                    operation=row.operation,
                    signal=signal.signal,
                    payload=parse_json(signal.payload),
                    timed_out=False,
                    author=signal.author,
                )
                break
    if ended is None and row.due_at_ms is not None and row.due_at_ms <= now_ms:
        ended = expiry_of(row, now_ms)
    if ended is not None:
        end_wait(storage, fence.submission, row, ended, now_ms)
    return ended


def _value_at_once(ended: Payload) -> Decision | Received | int:
    match ended:
        case ApprovalDecided():
            return Decision(
                approved=ended.decision == "approved",
                decided_by=ended.author,
                reason=ended.reason,
                expired=ended.decision == "expired",
            )
        case SignalReceived():
            return Received(ended.payload, timed_out=ended.timed_out)
        case _:
            return 0


def _value(journal: Journal, operation: OperationId, ended: Payload) -> Decision | Received | int:
    if isinstance(ended, ApprovalDecided | SignalReceived):
        return _value_at_once(ended)
    fired_at_ms = journal.created_at_ms(operation, ENDED_AS[OperationKind.TIMER])
    return fired_at_ms - journal.created_at_ms(operation, OPENED_AS[OperationKind.TIMER])
