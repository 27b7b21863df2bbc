"""The storage seam: the one real port, because it has two real implementations.

1. Both run the same SQL: the Object's storage under workerd, and the standard `sqlite3` on a host.
2. `transaction` is one step, atomic over SQL, key-value store and alarm slot. An exception rolls all three
   back and reaches the caller as the same object. When it returns, what it wrote is on disk.
3. `commit` is the same for small steps inside an attempt, without the alarm slot. When it returns the step is
   committed, but not yet on disk: what must survive the very next act is followed by `sync`.
4. A step is a plain function. It decides before it writes, and between its reads and its writes nothing awaits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

type SqlValue = int | float | str | bytes | None
type Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Counts:
    """What storage has been asked for since it was opened; every number only grows."""

    rows_read: int = 0
    rows_written: int = 0
    """Rows and index entries by SQL, plus key-value puts, plus alarm writes: what is billed."""
    statements: int = 0
    kv_reads: int = 0
    alarm_writes: int = 0

    def since(self, mark: "Counts") -> "Counts":
        """Return what was added after `mark` was taken."""
        return Counts(
            self.rows_read - mark.rows_read,
            self.rows_written - mark.rows_written,
            self.statements - mark.statements,
            self.kv_reads - mark.kv_reads,
            self.alarm_writes - mark.alarm_writes,
        )


class AlarmSlot:
    """The Object's one alarm, as a transaction sees it: read at its start, written with its commit."""

    def __init__(self, at_ms: int | None) -> None:
        self.at_ms = at_ms
        """When the alarm is set to, in milliseconds since the epoch, or None when it is not set."""
        self.is_changed = False

    def set(self, at_ms: int) -> None:
        """Set the alarm; a write equal to what is stored is skipped, since each is billed as a row."""
        if at_ms != self.at_ms:
            self.at_ms = at_ms
            self.is_changed = True

    def clear(self) -> None:
        """Empty the slot, unless it is empty."""
        if self.at_ms is not None:
            self.at_ms = None
            self.is_changed = True


class Storage(Protocol):
    """One Object's durable storage.

    Every method may raise StorageUnavailable, which says nothing about the work that it interrupted.
    """

    def execute(self, sql: str, *params: SqlValue) -> list[Row]:
        """Run one statement and drain its cursor at once.

        Booleans are bound as 0 and 1, integers exactly.
        """
        ...

    def write(self, sql: str, *params: SqlValue) -> int:
        """Run one INSERT, UPDATE or DELETE; returns how much it wrote, where 0 means that nothing matched.

        RETURNING would tell the same, and is billed as rows read.
        """
        ...

    def kv_get(self, key: str) -> str | None:
        """Read one text from the key-value store."""
        ...

    def kv_put(self, key: str, text: str) -> None:
        """Write one text to the key-value store."""
        ...

    async def transaction[T](self, step: Callable[[AlarmSlot], T]) -> T:
        """Run one step atomically over SQL, key-value store and alarm; on disk when it returns."""
        ...

    def commit[T](self, step: Callable[[], T]) -> T:
        """Run one step atomically over SQL and key-value store; not yet on disk when it returns."""
        ...

    async def sync(self) -> None:
        """Return when everything written so far is on disk."""
        ...

    async def alarm_at_ms(self) -> int | None:
        """Read the alarm slot outside any transaction."""
        ...

    async def arm(self, at_ms: int) -> None:
        """Set the alarm outside any transaction: the last resort of a pass whose begin failed."""
        ...

    def database_bytes(self) -> int:
        """Return the size of the database in bytes."""
        ...

    def counts(self) -> Counts:
        """Return what storage has been asked for so far."""
        ...
