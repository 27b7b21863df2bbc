"""The agenda: what a clock owes. Deadlines of open submissions, and messages that have to be sent.

1. An entry stands here from the commit that owes it to the commit that is done with it.
2. The table is ordered by time, so that what is due, and what is due next, is one short read however much is owed.
3. A message that was given up is buried: it is kept at the end of all time, for an operator.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from quiesce.ids import parse_json, plain_json
from quiesce.storage import Row, Storage

type EntryKind = Literal["deadline", "message", "buried"]

NEVER_MS = 8_000_000_000_000_000


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that is owed at an instant."""

    at_ms: int
    kind: EntryKind
    subject: str
    detail: Mapping[str, Any]


def _entry(row: Row) -> Entry:
    at_ms, kind, subject, detail = row
    return Entry(at_ms, kind, subject, parse_json(detail))


def deadline(sequence: int, at_ms: int) -> Entry:
    """Build the entry of a submission's deadline."""
    return Entry(at_ms, "deadline", str(sequence), {})


def add(storage: Storage, entry: Entry) -> None:
    """Owe something."""
    storage.write(
        "INSERT INTO agenda (at_ms, kind, subject, detail) VALUES (?, ?, ?, ?)",
        entry.at_ms,
        entry.kind,
        entry.subject,
        plain_json(dict(entry.detail)),
    )


def remove(storage: Storage, entry: Entry) -> bool:
    """Owe it no more; returns whether it was owed."""
    removed = storage.write(
        "DELETE FROM agenda WHERE at_ms = ? AND kind = ? AND subject = ?",
        entry.at_ms,
        entry.kind,
        entry.subject,
    )
    return removed > 0


def due(storage: Storage, now_ms: int, limit: int) -> list[Entry]:
    """Read what is due, the earliest first."""
    rows = storage.execute(
        "SELECT at_ms, kind, subject, detail FROM agenda WHERE at_ms <= ?"
        " ORDER BY at_ms, kind, subject LIMIT ?",
        now_ms,
        limit,
    )
    return [_entry(row) for row in rows]


def next_due(storage: Storage) -> Entry | None:
    """Read what is due first, now or later; None when nothing ever is."""
    rows = storage.execute(
        "SELECT at_ms, kind, subject, detail FROM agenda ORDER BY at_ms, kind, subject LIMIT 1"
    )
    return _entry(rows[0]) if rows and rows[0][0] < NEVER_MS else None


def buried(storage: Storage, subject: str) -> Entry | None:
    """Read a message that was given up."""
    rows = storage.execute(
        "SELECT at_ms, kind, subject, detail FROM agenda WHERE at_ms = ? AND kind = ? AND subject = ?",
        NEVER_MS,
        "buried",
        subject,
    )
    return _entry(rows[0]) if rows else None
