"""The fence of an attempt: what every one of its writes must still find, and how it is made to stop.

1. Every write of an attempt is one commit that first checks that the attempt still owns its submission.
2. What ends an attempt from inside unwinds the handler with a signal that `except Exception` cannot catch, and is
   remembered here, so that a handler which swallows the signal changes nothing.
3. Of several reasons to end, the gravest counts.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from quiesce import conversation_log
from quiesce.conversation_log import Entry, Tail
from quiesce.errors import StorageUnavailable
from quiesce.ids import OperationId, SubmissionId, record_id
from quiesce.lane import Lane
from quiesce.records import Payload


class UnwindReason(IntEnum):
    """Why an attempt ends from inside, in growing gravity."""

    SUSPENDED = 1
    """It waits for something that is undecided."""
    RETRY = 2
    """A call that can be made again failed."""
    UNCERTAIN = 3
    """A call failed that may have had its effect."""
    ABORTED = 4
    """Somebody asked for its abort."""
    INTERRUPTED = 5
    """The store did not answer."""
    FENCED = 6
    """Another attempt owns the submission."""


class Unwind(BaseException):
    """Ends an attempt from inside its handler; not an Exception, so that handlers do not catch it."""

    def __init__(self, reason: UnwindReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


@dataclass(slots=True)
class Fence:
    """One attempt's hold on its submission."""

    lane: Lane
    sequence: int
    submission: SubmissionId
    epoch: int
    unwound: Unwind | None = None
    """What ends the attempt, if anything does."""
    has_recorded_late: bool = False
    """A call has left its result after a branch began to wait, so the handler may be able to go on."""
    _is_closed: bool = False
    _unwinding: set[asyncio.Task[Any] | None] = field(default_factory=set)

    def unwind(self, reason: UnwindReason, detail: str) -> Unwind:
        """Remember why the attempt ends, unless something graver is known; returns the signal to raise."""
        if self.unwound is None or reason > self.unwound.reason:
            self.unwound = Unwind(reason, detail)
        return self.unwound

    def suspend(self, detail: str) -> Unwind:
        """Remember that a branch of the handler waits; returns the signal to raise in it.

        Sibling branches that were started together still get their turn, so that they open their own waits and
        make their own calls: the attempt is closed to new operations one turn of the event loop later, and to the
        branch that waits at once.
        """
        self._unwinding.add(asyncio.current_task())
        asyncio.get_running_loop().call_soon(self._close)
        return self.unwind(UnwindReason.SUSPENDED, detail)

    def _close(self) -> None:
        self._is_closed = True

    def check(self) -> None:
        """Raise what has ended the attempt, if anything has; asked before each new operation."""
        if self.unwound is None:
            return
        is_suspended = self.unwound.reason is UnwindReason.SUSPENDED
        if not is_suspended or self._is_closed or asyncio.current_task() in self._unwinding:
            raise self.unwound

    def commit[T](self, step: Callable[[Tail, int], T]) -> T:
        """Run one step as a commit of this attempt, with the tail of the log and the time."""
        if self.unwound is not None and self.unwound.reason is not UnwindReason.SUSPENDED:
            raise self.unwound
        return self._commit(step, heeds_abort=True)

    def commit_result[T](self, step: Callable[[Tail, int], T]) -> T:
        """Commit the result of a call that has returned, whatever the attempt is ending for.

        Only an attempt that lost its submission, or its store, may not write down what has happened.
        """
        if self.unwound is not None and self.unwound.reason >= UnwindReason.INTERRUPTED:
            raise self.unwound
        committed = self._commit(step, heeds_abort=False)
        self.has_recorded_late = self.has_recorded_late or self._is_closed
        return committed

    def _commit[T](self, step: Callable[[Tail, int], T], *, heeds_abort: bool) -> T:
        now_ms = self.lane.clock()

        def fenced() -> T:
            self._check_ownership(heeds_abort=heeds_abort)
            return step(conversation_log.tail(self.lane.storage), now_ms)

        try:
            return self.lane.storage.commit(fenced)
        except StorageUnavailable as error:
            raise self.unwind(UnwindReason.INTERRUPTED, str(error)) from None

    async def sync(self) -> None:
        """Return when everything that this attempt has written is on disk."""
        try:
            await self.lane.storage.sync()
        except StorageUnavailable as error:
            raise self.unwind(UnwindReason.INTERRUPTED, str(error)) from None

    def append(
        self, end: Tail, part: tuple[OperationId, str], payload: Payload, now_ms: int
    ) -> Tail:
        """Append the record of one part of an operation, inside a commit of this attempt."""
        identity = record_id(self.submission, *part)
        entry = Entry(identity, self.submission, self.epoch, payload)
        return conversation_log.append(self.lane.storage, end, entry, now_ms)

    def _check_ownership(self, *, heeds_abort: bool) -> None:
        found = self.lane.storage.execute(
            "SELECT abort FROM submissions WHERE sequence = ? AND epoch = ? AND owner = ?",
            self.sequence,
            self.epoch,
            self.lane.incarnation,
        )
        if not found:
            raise self.unwind(UnwindReason.FENCED, "another attempt owns the submission")
        if found[0][0] is not None:
            aborted = self.unwind(UnwindReason.ABORTED, "somebody asked for the abort")
            if heeds_abort:
                raise aborted
