"""The storage seam on the standard `sqlite3`: the same SQL, and the same words about what is on disk.

One outer transaction holds everything since the last sync, and every commit is a savepoint within it. A crash that
loses what was not on disk is a rollback of the outer transaction; one that keeps it is a commit.

sqlite3 does not tell rows read and index entries; its counts are lower bounds, and the exact ones are measured
under workerd.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from typing import Any, Literal

from quiesce.errors import StorageUnavailable
from quiesce.storage import AlarmSlot, Counts, Row, SqlValue
from quiesce.testing.crashing import Crashed, CrashPlan

type FaultScope = Literal["everything", "transactions", "commits"]
"""What a fault hits: every use of the store, only transactions, or only commits within an attempt."""

_ALARM_KEY = "host:alarm"
_ALARM_WRITES_KEY = "host:alarm-writes"


class Disk:
    """What survives a crash: one database with the Object's tables, its key-value store and its alarm."""

    def __init__(self, path: str = ":memory:") -> None:
        self.fault: Exception | None = None
        """While set, the store is down, for this incarnation and the next: its uses raise this."""
        self.fault_scope: FaultScope = "everything"
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute(
            "CREATE TABLE IF NOT EXISTS host_kv (key TEXT PRIMARY KEY, value TEXT NOT NULL)"
        )
        self.connection.execute("BEGIN")
        self._synced_changes = self.connection.total_changes

    @property
    def is_synced(self) -> bool:
        """Whether everything written so far would survive a crash."""
        return self.connection.total_changes == self._synced_changes

    def sync(self) -> None:
        """Everything written so far survives."""
        self.connection.execute("COMMIT")
        self.connection.execute("BEGIN")
        self._synced_changes = self.connection.total_changes

    def lose_unsynced(self) -> None:
        """What was written since the last sync never happened."""
        self.connection.execute("ROLLBACK")
        self.connection.execute("BEGIN")
        self._synced_changes = self.connection.total_changes

    def image(self) -> bytes:
        """Return everything on this disk, to be restored on another."""
        self.sync()
        return self.connection.serialize()

    def restore(self, image: bytes) -> None:
        """Replace everything on this disk by an image."""
        self.connection.execute("ROLLBACK")
        # Copied page by page: a connection that takes an image as its own leaves its statements on freed memory.
        with contextlib.closing(sqlite3.connect(":memory:")) as source:
            source.deserialize(image)
            source.backup(self.connection)
        self.connection.execute("BEGIN")
        self._synced_changes = self.connection.total_changes

    def close(self) -> None:
        """Close the database."""
        self.connection.close()

    def get(self, key: str) -> str | None:
        """Read one text."""
        row = self.connection.execute("SELECT value FROM host_kv WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def put(self, key: str, text: str) -> None:
        """Write one text."""
        self.connection.execute("INSERT OR REPLACE INTO host_kv VALUES (?, ?)", (key, text))

    def delete(self, key: str) -> None:
        """Remove one text."""
        self.connection.execute("DELETE FROM host_kv WHERE key = ?", (key,))

    @property
    def alarm_at_ms(self) -> int | None:
        """The alarm slot."""
        text = self.get(_ALARM_KEY)
        return None if text is None else int(text)

    @alarm_at_ms.setter
    def alarm_at_ms(self, at_ms: int | None) -> None:
        if at_ms is None:
            self.delete(_ALARM_KEY)
        else:
            self.put(_ALARM_KEY, str(at_ms))

    @property
    def alarm_writes(self) -> int:
        """How often the Object has set or cleared its alarm; every incarnation counts."""
        return int(self.get(_ALARM_WRITES_KEY) or 0)

    def write_alarm(self, at_ms: int | None) -> None:
        """Set or clear the alarm on behalf of the Object."""
        self.alarm_at_ms = at_ms
        self.put(_ALARM_WRITES_KEY, str(self.alarm_writes + 1))


class SqliteStorage:
    """One incarnation's hold on a disk; after a crash it answers nothing any more."""

    def __init__(self, disk: Disk, *, is_probe: bool = False) -> None:
        self.disk = disk
        self._is_probe = is_probe
        """A probe looks at the disk from outside: no fault hinders it."""
        self.plan: CrashPlan | None = None
        self.is_gone = False
        self._rows_read = 0
        self._rows_written = 0
        self._statements = 0
        self._kv_reads = 0
        self._alarm_writes = 0

    @property
    def fault(self) -> Exception | None:
        """While set, uses of the disk raise it: a store that is down."""
        return self.disk.fault

    @fault.setter
    def fault(self, fault: Exception | None) -> None:
        self.disk.fault = fault

    def die(self, *, keeps_unsynced: bool) -> None:
        """End this hold: from here on nothing of its incarnation reaches the disk."""
        if self.is_gone:
            return
        self.is_gone = True
        if keeps_unsynced:
            self.disk.sync()
        else:
            self.disk.lose_unsynced()

    def _check(self, scope: FaultScope = "everything") -> None:
        if self.is_gone:
            raise StorageUnavailable("this incarnation has ended")
        if self._is_probe or self.disk.fault is None:
            return
        if self.disk.fault_scope in {"everything", scope}:
            raise self.disk.fault

    def execute(self, sql: str, *params: SqlValue) -> list[Row]:
        """Run one statement and drain its cursor at once."""
        self._check()
        cursor = self.disk.connection.execute(sql, params)
        rows: list[Row] = cursor.fetchall()
        self._statements += 1
        self._rows_read += len(rows)
        return rows

    def write(self, sql: str, *params: SqlValue) -> int:
        """Run one INSERT, UPDATE or DELETE; returns how many rows it touched."""
        self._check()
        touched = max(0, self.disk.connection.execute(sql, params).rowcount)
        self._statements += 1
        self._rows_written += touched
        return touched

    def kv_get(self, key: str) -> str | None:
        """Read one text from the key-value store."""
        self._check()
        self._kv_reads += 1
        return self.disk.get(key)

    def kv_put(self, key: str, text: str) -> None:
        """Write one text to the key-value store."""
        self._check()
        self._rows_written += 1
        self.disk.put(key, text)

    async def transaction[T](self, step: Callable[[AlarmSlot], T]) -> T:
        """Run one step atomically; other tasks may run before it and after it, never within."""
        await asyncio.sleep(0)
        self._check("transactions")

        def whole() -> T:
            slot = AlarmSlot(self.disk.alarm_at_ms)
            value = step(slot)
            if slot.is_changed:
                self._alarm_writes += 1
                self._rows_written += 1
                self.disk.write_alarm(slot.at_ms)
            return value

        value = self._atomically(whole, syncs=True)
        await asyncio.sleep(0)
        return value

    def commit[T](self, step: Callable[[], T]) -> T:
        """Run one step atomically; it may be lost until the next sync."""
        self._check("commits")
        return self._atomically(step, syncs=False)

    def _atomically[T](self, step: Callable[[], T], *, syncs: bool) -> T:
        connection, plan = self.disk.connection, self.plan
        connection.execute("SAVEPOINT step")
        changes = connection.total_changes
        try:
            value = step()
            wrote = connection.total_changes > changes
            if wrote and plan is not None:
                plan.at_commit("before")
        except BaseException as error:
            connection.execute("ROLLBACK TO step")
            connection.execute("RELEASE step")
            if isinstance(error, Crashed) and plan is not None:
                # What the process's own code does while the crash passes through it must not be written.
                self.die(keeps_unsynced=plan.keeps_unsynced)
            raise
        connection.execute("RELEASE step")
        if syncs:
            self.disk.sync()
        if wrote and plan is not None:
            try:
                plan.at_commit("after")
            except Crashed:
                self.die(keeps_unsynced=plan.keeps_unsynced)
                raise
        return value

    async def sync(self) -> None:
        """Return when everything written so far survives."""
        await asyncio.sleep(0)
        self._check()
        self.disk.sync()

    async def alarm_at_ms(self) -> int | None:
        """Read the alarm slot."""
        await asyncio.sleep(0)
        self._check()
        return self.disk.alarm_at_ms

    async def arm(self, at_ms: int) -> None:
        """Set the alarm outside any transaction."""
        self._check()
        self._alarm_writes += 1
        self._rows_written += 1
        self._atomically(lambda: self.disk.write_alarm(at_ms), syncs=True)

    def database_bytes(self) -> int:
        """Return the size of the database in bytes."""
        self._check()
        pages: Any = self.disk.connection.execute("PRAGMA page_count").fetchone()[0]
        size: Any = self.disk.connection.execute("PRAGMA page_size").fetchone()[0]
        return int(pages) * int(size)

    def counts(self) -> Counts:
        """Return what storage has been asked for so far."""
        return Counts(
            self._rows_read,
            self._rows_written,
            self._statements,
            self._kv_reads,
            self._alarm_writes,
        )
