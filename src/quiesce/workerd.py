"""Storage, clock and randomness over the JavaScript API of workerd.

1. The plain JavaScript objects are bound once: the SDK's wrapper costs eight to sixteen times more per statement,
   and turns values. Where a later SDK hides them, the wrapper is used.
2. Everything that is bound is one of the types that JavaScript and SQLite agree on: a boolean is bound as 0 or 1,
   bytes as an ArrayBuffer, and an integer that a double cannot hold is refused.
3. What a step raised inside a transaction reaches the caller as the same object; what the platform raised
   is StorageUnavailable, and never blames the work.
"""

import random
import time
from collections.abc import Callable
from typing import Any

from pyodide.ffi import JsException, jsnull, to_js

from quiesce.errors import StorageUnavailable
from quiesce.storage import AlarmSlot, Counts, Row, SqlValue

INTEGER_MAX = 2**53 - 2
_CONSTRAINT = "SQLITE_CONSTRAINT"


class ConstraintFailed(Exception):
    """A row broke a CHECK, a UNIQUE or a NOT NULL of the schema: a bug, which its commit did not survive."""


def now_ms() -> int:
    """Read the clock, in milliseconds since the epoch."""
    return int(time.time() * 1_000)


def jitter() -> float:
    """Draw from [0, 1)."""
    return random.random()  # noqa: S311 - spreads retries, keeps no secret


def is_platform_error(error: BaseException) -> bool:
    """Say whether an exception came from the platform: a reset, a lost connection, a deploy."""
    return isinstance(error, StorageUnavailable | JsException)


class WorkerdStorage:
    """One Object's durable storage under workerd."""

    def __init__(self, context: Any) -> None:
        raw_context = getattr(context, "_ctx", context)
        self._raw = raw_context.storage
        self._sql = self._raw.sql
        self._execute = self._sql.exec
        self._kv_get = self._raw.kv.get
        self._kv_put = self._raw.kv.put
        self._rows_read = 0
        self._rows_written = 0
        self._statements = 0
        self._kv_reads = 0
        self._kv_writes = 0
        self._alarm_writes = 0

    def execute(self, sql: str, *params: SqlValue) -> list[Row]:
        """Run one statement and drain its cursor at once."""
        try:
            cursor = self._execute(sql, *map(_bound, params))
            rows = cursor.raw().toArray().to_py()
        except JsException as error:
            raise _storage_error(error) from None
        self._statements += 1
        self._rows_read += cursor.rowsRead
        self._rows_written += cursor.rowsWritten
        return [tuple(None if value is jsnull else value for value in row) for row in rows]

    def kv_get(self, key: str) -> str | None:
        """Read one text from the key-value store."""
        self._kv_reads += 1
        value = self._kv_get(key)
        return value if isinstance(value, str) else None

    def kv_put(self, key: str, text: str) -> None:
        """Write one text to the key-value store."""
        self._kv_writes += 1
        self._kv_put(key, text)

    async def transaction[T](self, step: Callable[[AlarmSlot], T]) -> T:
        """Run one step in the Object's `ctx.storage.transaction`, and return when it is on disk."""
        writes_before = self._writes()
        box = _Box[T]()

        async def body(_transaction: Any) -> None:
            slot = AlarmSlot(_instant(await self._raw.getAlarm()))
            box.run(lambda: step(slot))
            if slot.is_changed:
                self._alarm_writes += 1
                if slot.at_ms is None:
                    await self._raw.deleteAlarm()
                else:
                    await self._raw.setAlarm(slot.at_ms)

        try:
            await self._raw.transaction(body)
            if self._writes() != writes_before:
                await self._raw.sync()
        except JsException as error:
            raise box.error or _storage_error(error) from None
        return box.value

    def commit[T](self, step: Callable[[], T]) -> T:
        """Run one step in the Object's `ctx.storage.transactionSync`."""
        box = _Box[T]()
        try:
            self._raw.transactionSync(lambda: box.run(step))
        except JsException as error:
            raise box.error or _storage_error(error) from None
        return box.value

    async def sync(self) -> None:
        """Return when everything written so far is on disk."""
        try:
            await self._raw.sync()
        except JsException as error:
            raise _storage_error(error) from None

    async def alarm_at_ms(self) -> int | None:
        """Read the alarm slot outside any transaction."""
        return _instant(await self._raw.getAlarm())

    async def arm(self, at_ms: int) -> None:
        """Set the alarm outside any transaction."""
        self._alarm_writes += 1
        await self._raw.setAlarm(at_ms)

    def database_bytes(self) -> int:
        """Return the size of the database in bytes."""
        return int(self._sql.databaseSize)

    def counts(self) -> Counts:
        """Return what storage has been asked for so far."""
        return Counts(
            self._rows_read,
            self._writes(),
            self._statements,
            self._kv_reads,
            self._alarm_writes,
        )

    def _writes(self) -> int:
        return self._rows_written + self._kv_writes + self._alarm_writes


class _Box[T]:
    """Carries a step's value or exception past the JavaScript between it and its caller."""

    value: T
    error: BaseException | None = None

    def run(self, step: Callable[[], T]) -> None:
        try:
            self.value = step()
        except BaseException as error:
            self.error = error
            raise


def _bound(value: SqlValue) -> Any:
    if value is None or isinstance(value, str | float):
        return value
    if isinstance(value, int):
        assert abs(value) <= INTEGER_MAX, value
        return int(value)
    return to_js(value)


def _instant(value: Any) -> int | None:
    return None if value is None or value is jsnull else int(value)


def _storage_error(error: JsException) -> Exception:
    text = str(error)
    if _CONSTRAINT in text:
        return ConstraintFailed(text)
    return StorageUnavailable(text)
