"""The durable Run: what a handler is given, and how its operations are recorded and replayed.

1. Every attempt calls the handler again from the top. An operation that stands in the log returns its recorded
   value without running.
2. An operation's identity is its name, its key, and how many times this Run has used them. A replay that asks
   under a recorded identity for another kind or other arguments has *diverged*, and is refused.
3. Every write carries the attempt's epoch and is fenced by it: an attempt that lost its submission writes nothing.
4. What ends an attempt from inside unwinds the handler with a signal that `except Exception` cannot catch, and
   is remembered here, so that a handler which swallows the signal changes nothing.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from quiesce import conversation_log
from quiesce.agent import Failed
from quiesce.conversation_log import Entry
from quiesce.errors import FailureType, StorageUnavailable
from quiesce.ids import (
    OPERATION_NAME,
    OperationId,
    SubmissionId,
    canonical_json,
    digest,
    operation_id,
    parse_json,
    record_id,
)
from quiesce.lane import Lane
from quiesce.records import Payload, Record, StepCompleted

type UnwindReason = Literal["interrupted", "fenced"]


class Unwind(BaseException):
    """Ends an attempt from inside its handler; not an Exception, so that handlers do not catch it."""

    def __init__(self, reason: UnwindReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Fence:
    """What every write of an attempt must still find: the submission, owned at its epoch."""

    sequence: int
    submission: SubmissionId
    owner: str
    epoch: int
    attempt: int


@dataclass(frozen=True, slots=True)
class _Operation:
    id: OperationId
    kind: str
    arguments_digest: str


class Run:
    """The logical execution of one submission, as its handler sees it."""

    def __init__(self, lane: Lane, fence: Fence, journal: list[Record]) -> None:
        self._lane = lane
        self._fence = fence
        self._journal = {record.record_id: record for record in journal}
        self._kinds = _recorded_operations(journal)
        self._uses: dict[str, int] = {}
        self.unwound: Unwind | None = None
        """What ended the attempt from inside, if anything did."""

    @property
    def submission(self) -> SubmissionId:
        """The submission that this Run executes."""
        return self._fence.submission

    @property
    def attempt(self) -> int:
        """Which try this is, counting from 1: the failed attempts, the interrupted ones in a row, and this one."""
        return self._fence.attempt

    def idempotency_key(self, name: str) -> str:
        """Return a key for an outside system that is the same on every attempt and unlike any other Run's."""
        return f"{self._fence.submission}:{name}"

    async def step(
        self,
        name: str,
        function: Callable[..., Any],
        *arguments: Any,
        key: str | None = None,
    ) -> Any:
        """Run `function(*arguments)` and record what it returns; on replay return the recorded value.

        The function may be plain or async. Its arguments and its value must have a JSON form, and the value
        comes back in that form, on the first attempt and on every replay alike. Only success is recorded: a
        crash between the act and the record runs it again.
        """
        operation = self._open("step", name, key, arguments)
        record = self._journal.get(record_id(self.submission, operation.id, "completed"))
        if record is not None:
            completed = record.parsed()
            assert isinstance(completed, StepCompleted)
            return completed.value
        value = function(*arguments)
        if inspect.isawaitable(value):
            value = await value
        stored = self._stored_form(value, f"the value of step {operation.id!r}")
        payload = StepCompleted(
            operation=operation.id, arguments_digest=operation.arguments_digest, value=stored
        )
        await self._lane.failpoints.reach("step:before")
        self._append(operation, "completed", payload)
        await self._lane.failpoints.reach_after("step:after", self._lane.storage)
        return stored

    def _open(
        self, kind: str, name: str, key: str | None, arguments: tuple[Any, ...]
    ) -> _Operation:
        """Give an operation its identity, and refuse a replay that diverged."""
        if self.unwound is not None:
            raise self.unwound
        for part in (name, *([] if key is None else [key])):
            if not OPERATION_NAME.fullmatch(part):
                message = f"{part!r} cannot name an operation: 1 to 100 letters, digits, '_', '.', ':' or '-'"
                raise ValueError(message)
        use = name if key is None else f"{name}@{key}"
        ordinal = self._uses.get(use, 0)
        self._uses[use] = ordinal + 1
        if sum(self._uses.values()) > self._lane.settings.operations_max:
            message = f"a Run may have {self._lane.settings.operations_max} operations"
            raise Failed(message, error_type=FailureType.BUDGET_EXHAUSTED)
        try:
            text = canonical_json(list(arguments))
        except ValueError as error:
            message = f"the arguments of {name!r} have no JSON form: {error}"
            raise TypeError(message) from None
        operation = _Operation(operation_id(name, ordinal, key), kind, digest(text))
        self._check_replay(operation)
        return operation

    def _check_replay(self, operation: _Operation) -> None:
        recorded = self._kinds.get(operation.id)
        if recorded is None or recorded == (operation.kind, operation.arguments_digest):
            return
        kind, arguments_digest = recorded
        what = (
            f"a {kind}" if kind != operation.kind else f"other arguments ({arguments_digest[:12]})"
        )
        message = (
            f"operation {operation.id!r} is recorded as {what}, and this attempt asks for a"
            f" {operation.kind} ({operation.arguments_digest[:12]}) under that name;"
            " give the changed agent a new version"
        )
        raise Failed(message, error_type=FailureType.DIVERGED)

    def _stored_form(self, value: Any, what: str) -> Any:
        try:
            text = canonical_json(value)
        except ValueError as error:
            message = f"{what} has no JSON form: {error}"
            raise TypeError(message) from None
        maximum = self._lane.settings.value_bytes_max
        size = len(text.encode())
        if size > maximum:
            message = f"{what} has {size} bytes, VALUE_BYTES_MAX allows {maximum}"
            raise Failed(message, error_type=FailureType.RESULT_TOO_LARGE)
        return parse_json(text)

    def _append(self, operation: _Operation, part: str, payload: Payload) -> None:
        """Append one record of this attempt, if it still owns its submission."""
        fence = self._fence
        now_ms = self._lane.clock()
        entry = Entry(
            record_id(fence.submission, operation.id, part), fence.submission, fence.epoch, payload
        )

        def step() -> None:
            self._check_fence()
            storage = self._lane.storage
            conversation_log.append(storage, conversation_log.tail(storage), entry, now_ms)

        try:
            self._lane.storage.commit(step)
        except StorageUnavailable as error:
            self.unwound = Unwind("interrupted", str(error))
            raise self.unwound from None

    def _check_fence(self) -> None:
        fence = self._fence
        owned = self._lane.storage.execute(
            "SELECT 1 FROM submissions WHERE sequence = ? AND epoch = ? AND owner = ?",
            fence.sequence,
            fence.epoch,
            fence.owner,
        )
        if not owned:
            self.unwound = Unwind("fenced", "another attempt owns the submission")
            raise self.unwound


def _recorded_operations(journal: list[Record]) -> dict[str, tuple[str, str]]:
    """Map each recorded operation to its kind and the digest of its arguments."""
    found: dict[str, tuple[str, str]] = {}
    for record in journal:
        if record.kind == "step-completed":
            payload = parse_json(record.payload)
            found[payload["operation"]] = ("step", payload["arguments_digest"])
    return found
