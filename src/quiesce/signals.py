"""Signals that were delivered to a submission: those that wait for their wait, and the keys of those consumed.

1. A signal that comes first is kept, in the order of arrival, until the Run waits for it.
2. A consumed signal keeps its row until its submission settles, so that its key goes on answering.
"""

from dataclasses import dataclass

from quiesce.ids import OperationId
from quiesce.storage import Row, Storage


@dataclass(frozen=True, slots=True)
class Signal:
    """One delivered signal."""

    submission_sequence: int
    arrival: int
    signal: str
    idempotency_key: str
    author: str
    payload: str
    """Canonical JSON."""
    consumed_by: OperationId | None = None


_COLUMNS = "submission_sequence, arrival, signal, idempotency_key, author, payload, consumed_by"


def _signal(row: Row) -> Signal:
    return Signal(*row)


def insert(storage: Storage, signal: Signal) -> None:
    """Keep one delivered signal."""
    storage.write(
        f"INSERT INTO signals ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
        signal.submission_sequence,
        signal.arrival,
        signal.signal,
        signal.idempotency_key,
        signal.author,
        signal.payload,
        signal.consumed_by,
    )


def find(storage: Storage, submission_sequence: int, signal: str, key: str) -> Signal | None:
    """Read the signal that was delivered under a key."""
    rows = storage.execute(
        f"SELECT {_COLUMNS} FROM signals"
        " WHERE submission_sequence = ? AND signal = ? AND idempotency_key = ?",
        submission_sequence,
        signal,
        key,
    )
    return _signal(rows[0]) if rows else None


def pending(storage: Storage, submission_sequence: int) -> list[Signal]:
    """Read what nobody has consumed, in the order of arrival; never more than the limit admits."""
    rows = storage.execute(
        f"SELECT {_COLUMNS} FROM signals WHERE submission_sequence = ? AND consumed_by IS NULL"
        " ORDER BY arrival",
        submission_sequence,
    )
    return [_signal(row) for row in rows]


def next_arrival(storage: Storage, submission_sequence: int) -> int:
    """Return the place of the next signal in the order of arrival."""
    rows = storage.execute(
        "SELECT coalesce(max(arrival), 0) + 1 FROM signals WHERE submission_sequence = ?",
        submission_sequence,
    )
    place: int = rows[0][0]
    return place


def consume(storage: Storage, signal: Signal, operation: OperationId) -> None:
    """Give a pending signal to the operation that waits for it."""
    storage.write(
        "UPDATE signals SET consumed_by = ?"
        " WHERE submission_sequence = ? AND signal = ? AND idempotency_key = ?",
        operation,
        signal.submission_sequence,
        signal.signal,
        signal.idempotency_key,
    )


def delete_all(storage: Storage, submission_sequence: int) -> None:
    """Forget the signals of a submission, in the commit that settles it."""
    storage.write("DELETE FROM signals WHERE submission_sequence = ?", submission_sequence)
