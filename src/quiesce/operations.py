"""The open operations of a Run: what recovery has to find again.

1. A row stands here exactly as long as its operation is open: from the commit that opens it to the commit that
   settles, decides or closes it. What it has become stands in the log.
2. So evidence costs what is open, never what is history; and what is due is the least of the rows that are here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from quiesce.errors import IllegalMove
from quiesce.ids import OperationId, parse_json, plain_json
from quiesce.storage import Row, Storage


class OperationKind(StrEnum):
    """What can be open."""

    TOOL = "tool"
    APPROVAL = "approval"
    SIGNAL = "signal"
    TIMER = "timer"
    CHILD = "child"


class OperationState(StrEnum):
    """How it is open: a call that may be under way, a call that nobody can prove, a wait."""

    PREPARED = "prepared"
    UNKNOWN = "unknown"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class OpenOperation:
    """One open operation."""

    submission_sequence: int
    operation: OperationId
    kind: OperationKind
    state: OperationState
    arguments_digest: str
    opened_at_ms: int
    due_at_ms: int | None
    detail: Mapping[str, Any]
    """What its kind needs: `name`; a tool's `effect` and `call`; a signal's `signal`; a wait-any's `choice`; a
    child's address, what it is owed, and the tries."""

    @property
    def name(self) -> str:
        """The name that the handler gave it."""
        return str(self.detail["name"])


_COLUMNS = (
    "submission_sequence, operation, kind, state, arguments_digest, opened_at_ms, due_at_ms, detail"
)


def _operation(row: Row) -> OpenOperation:
    sequence, operation, kind, state, arguments_digest, opened_at_ms, due_at_ms, detail = row
    return OpenOperation(
        sequence,
        OperationId(operation),
        OperationKind(kind),
        OperationState(state),
        arguments_digest,
        opened_at_ms,
        due_at_ms,
        parse_json(detail),
    )


def open_(storage: Storage, operation: OpenOperation) -> None:
    """Open an operation, in the commit of the record that says so."""
    storage.write(
        f"INSERT INTO operations ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        operation.submission_sequence,
        operation.operation,
        operation.kind.value,
        operation.state.value,
        operation.arguments_digest,
        operation.opened_at_ms,
        operation.due_at_ms,
        plain_json(dict(operation.detail)),
    )


def close(storage: Storage, operation: OpenOperation) -> None:
    """Close an operation that stands in the state it was read in, in the commit of what it has become.

    Raises IllegalMove, and changes nothing, when somebody else has closed it.
    """
    closed = storage.write(
        "DELETE FROM operations WHERE submission_sequence = ? AND operation = ? AND state = ?",
        operation.submission_sequence,
        operation.operation,
        operation.state.value,
    )
    if not closed:
        raise IllegalMove(f"operation {operation.operation} is no longer {operation.state}")


def update_detail(storage: Storage, operation: OpenOperation, detail: Mapping[str, Any]) -> None:
    """Replace what is known of an open operation; raises IllegalMove when it is not open any more."""
    updated = storage.write(
        "UPDATE operations SET detail = ? WHERE submission_sequence = ? AND operation = ? AND state = ?",
        plain_json(dict(detail)),
        operation.submission_sequence,
        operation.operation,
        operation.state.value,
    )
    if not updated:
        raise IllegalMove(f"operation {operation.operation} is no longer {operation.state}")


def mark_unknown(storage: Storage, operation: OpenOperation) -> None:
    """Mark a prepared call as unknown; raises IllegalMove when it is not prepared any more."""
    marked = storage.write(
        "UPDATE operations SET state = 'unknown'"
        " WHERE submission_sequence = ? AND operation = ? AND state = 'prepared'",
        operation.submission_sequence,
        operation.operation,
    )
    if not marked:
        raise IllegalMove(f"operation {operation.operation} is no longer prepared")


def close_all(storage: Storage, submission_sequence: int) -> list[OpenOperation]:
    """Close whatever is open of a submission, in the commit that settles it; returns what was."""
    found = of_submission(storage, submission_sequence)
    if found:
        storage.write("DELETE FROM operations WHERE submission_sequence = ?", submission_sequence)
    return found


def of_submission(storage: Storage, submission_sequence: int) -> list[OpenOperation]:
    """Read what is open of a submission, the earliest opened first."""
    rows = storage.execute(
        f"SELECT {_COLUMNS} FROM operations WHERE submission_sequence = ?", submission_sequence
    )
    return sorted(map(_operation, rows), key=lambda each: (each.opened_at_ms, each.operation))


def counted(storage: Storage) -> dict[tuple[OperationKind, OperationState], int]:
    """Count what is open in the whole lane, by kind and state."""
    rows = storage.execute("SELECT kind, state, count(*) FROM operations GROUP BY kind, state")
    return {(OperationKind(kind), OperationState(state)): count for kind, state, count in rows}


def find(
    storage: Storage, submission_sequence: int, operation: OperationId
) -> OpenOperation | None:
    """Read one open operation."""
    rows = storage.execute(
        f"SELECT {_COLUMNS} FROM operations WHERE submission_sequence = ? AND operation = ?",
        submission_sequence,
        operation,
    )
    return _operation(rows[0]) if rows else None


def strays(storage: Storage, limit: int) -> list[int]:
    """Read the places in the queue of submissions that are not open and have open operations; it finds none."""
    rows = storage.execute(
        "SELECT DISTINCT submission_sequence FROM operations WHERE NOT EXISTS"
        " (SELECT 1 FROM submissions WHERE sequence = submission_sequence AND settled_at_ms IS NULL)"
        " ORDER BY submission_sequence LIMIT ?",
        limit,
    )
    return [place for (place,) in rows]
