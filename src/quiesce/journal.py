"""The journal of a Run: what its operations have left in the log, and the identities under which they find it.

1. An operation's identity is its name, its key, and how many times this Run has used them, counted from the top of
   the handler on every attempt.
2. A replay that asks under a recorded identity for another kind of operation or other arguments has *diverged*. It
   is refused with both named, and never answered with another call's value.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from quiesce.agent import Failed
from quiesce.errors import FailureType
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
from quiesce.records import Payload, Record

_KINDS = {
    "step-completed": "step",
    "tool-prepared": "tool",
    "tool-settled": "tool",
    "approval-requested": "approval",
    "signal-awaited": "signal",
    "timer-set": "timer",
    "choice-opened": "first",
    "inbox-read": "inbox",
    "child-requested": "child",
}
"""The kinds of record that say which operation they are, and with which arguments it was asked for."""
_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation that the handler asks for."""

    id: OperationId
    name: str
    kind: str
    arguments_digest: str
    arguments: Any
    """In their JSON form."""
    arguments_bytes: int
    """How large that is as canonical JSON."""


class Journal:
    """What stands in the log of one submission, and which operations this attempt has asked for."""

    def __init__(
        self, submission: SubmissionId, records: Iterable[Record], operations_max: int
    ) -> None:
        self._submission = submission
        self._records = {record.record_id: record for record in records}
        self._operations_max = operations_max
        self._recorded: dict[str, tuple[str, str]] = {}
        self._uses: dict[str, int] = {}
        self._asked = 0
        self._noted: dict[str, int] = {}
        for record in self._records.values():
            if record.kind in _KINDS:
                payload = parse_json(record.payload or "")
                found = (_KINDS[record.kind], payload["arguments_digest"])
                self._recorded.setdefault(payload["operation"], found)

    def ask(self, kind: str, name: str, key: str | None, arguments: list[Any]) -> Operation:
        """Give an operation its identity.

        Raises Failed: `diverged`, or `budget-exhausted` beyond the limit of operations; ValueError for a name
        that cannot stand in an id, TypeError for arguments without a JSON form.
        """
        for part in (name, *([] if key is None else [key])):
            if not OPERATION_NAME.fullmatch(part):
                message = f"{part!r} cannot name an operation: 1 to 100 letters, digits, '_', '.', ':', '-'"
                raise ValueError(message)
        use = name if key is None else f"{name}@{key}"
        ordinal = self._uses.get(use, 0)
        self._uses[use] = ordinal + 1
        self._asked += 1
        if self._asked > self._operations_max:
            message = f"a Run may have {self._operations_max} operations (OPERATIONS_MAX)"
            raise Failed(message, error_type=FailureType.BUDGET_EXHAUSTED)
        try:
            text = canonical_json(arguments)
        except ValueError as error:
            message = f"the arguments of {name!r} have no JSON form: {error}"
            raise TypeError(message) from None
        identity = operation_id(name, ordinal, key)
        size = len(text.encode())
        operation = Operation(identity, name, kind, digest(text), parse_json(text), size)
        self._check_replay(operation)
        return operation

    def _check_replay(self, operation: Operation) -> None:
        recorded = self._recorded.get(operation.id)
        asked = (operation.kind, operation.arguments_digest)
        if recorded is None or recorded == asked:
            return
        message = (
            f"operation {operation.id!r} is recorded as a {recorded[0]} with arguments"
            f" {recorded[1][:_SHOWN]}…, and this attempt asks for a {asked[0]} with arguments"
            f" {asked[1][:_SHOWN]}…; changed code needs a new version of its agent"
        )
        raise Failed(message, error_type=FailureType.DIVERGED)

    def find(self, operation: OperationId, part: str) -> Payload | None:
        """Return what the log says of one part of an operation, or None."""
        record = self._records.get(record_id(self._submission, operation, part))
        return None if record is None else record.parsed()

    def created_at_ms(self, operation: OperationId, part: str) -> int:
        """Return when that part was recorded."""
        return self._records[record_id(self._submission, operation, part)].created_at_ms

    def count(self, kind: str) -> int:
        """Return how many operations of a kind this Run has opened, in all attempts."""
        recorded = sum(found == kind for found, _ in self._recorded.values())
        return recorded + self._noted.get(kind, 0)

    def note(self, kind: str) -> None:
        """Count an operation that this attempt has opened."""
        self._noted[kind] = self._noted.get(kind, 0) + 1

    def last_call(self, operation: OperationId) -> int:
        """Return how often a tool was called under this identity, as far as the log tells."""
        call = 0
        while record_id(self._submission, operation, f"prepared-{call + 1}") in self._records:
            call += 1
        return call
