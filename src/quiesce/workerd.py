"""Storage, clock, randomness, settings and HTTP over the JavaScript API of workerd.

1. The plain JavaScript objects are bound once: the SDK's wrapper costs eight to sixteen times more per statement,
   and turns values. Where a later SDK hides them, the wrapper is used.
2. Everything that is bound is one of the types that JavaScript and SQLite agree on: a boolean is bound as 0 or 1,
   bytes as an ArrayBuffer, and an integer that a double cannot hold is refused.
3. What a step raised inside a transaction reaches the caller as the same object; what the platform raised
   is StorageUnavailable, and never blames the work.
"""

import contextlib
import random
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import js
from pyodide.ffi import JsException, jsnull, to_js

from quiesce.errors import Refusal, RefusalCode, StorageUnavailable
from quiesce.settings import PREFIX, Settings, parse_settings
from quiesce.storage import AlarmSlot, Counts, Row, SqlValue

APPLICATION_ERRORS = frozenset({"TypeError", "SyntaxError", "RangeError", "ReferenceError"})
INTEGER_MAX = 2**53 - 2
ALARM_AT_MS_MAX = 6_900_000_000_000
"""In the year 2188: the platform takes no alarm after 2189. One that comes too early is set again by its pass."""
STATEMENT_ERRORS = ("SQLITE_CONSTRAINT", "SQLITE_ERROR", "SQLITE_MISMATCH")


_AS_IT_IS = frozenset({str, int, float})
_BOUND_AS_IT_IS = frozenset({str, float, type(None)})


class StatementFailed(Exception):
    """A row broke a law of the schema, or a statement cannot be run at all: a bug, and its commit is gone."""


def now_ms() -> int:
    """Read the clock, in milliseconds since the epoch."""
    return int(time.time() * 1_000)


def jitter() -> float:
    """Draw from [0, 1)."""
    return random.random()  # noqa: S311 - spreads retries, keeps no secret


def drawn_name() -> str:
    """Draw a name that nothing else has."""
    return f"{random.getrandbits(128):032x}"


def is_platform_error(error: BaseException) -> bool:
    """Say whether an exception came from the platform: a reset, a lost connection, a deploy."""
    if isinstance(error, StorageUnavailable):
        return True
    # What JavaScript itself says of a wrong call is the application's; a reset or a lost connection is an Error.
    return isinstance(error, JsException) and (
        str(getattr(error, "name", "")) not in APPLICATION_ERRORS
        or bool(getattr(error, "durableObjectReset", False))
    )


def _tell_nobody() -> None:
    """Say nothing of what was written."""


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
        self.on_written: Callable[[], None] = _tell_nobody
        """Called when a step has been committed."""

    def execute(self, sql: str, *params: SqlValue) -> list[Row]:
        """Run one statement and drain its cursor at once."""
        try:
            cursor = self._execute(sql, *_bound_all(params))
            rows = cursor.raw().toArray().to_py()
        except JsException as error:
            raise _storage_error(error) from None
        self._statements += 1
        self._rows_read += cursor.rowsRead
        # What a row holds is nearly always its own value already, and a call for each cell is what a read costs.
        return [
            tuple([value if type(value) in _AS_IT_IS else _read(value) for value in row])
            for row in rows
        ]

    def write(self, sql: str, *params: SqlValue) -> int:
        """Run one INSERT, UPDATE or DELETE; returns the rows and index entries that it wrote."""
        try:
            cursor = self._execute(sql, *_bound_all(params))
            written = int(cursor.rowsWritten)
        except JsException as error:
            raise _storage_error(error) from None
        self._statements += 1
        self._rows_read += cursor.rowsRead
        self._rows_written += written
        return written

    def kv_get(self, key: str) -> str | None:
        """Read one text from the key-value store."""
        self._kv_reads += 1
        try:
            value = self._kv_get(key)
        except JsException as error:
            raise _storage_error(error) from None
        return value if isinstance(value, str) else None

    def kv_put(self, key: str, text: str) -> None:
        """Write one text to the key-value store."""
        self._kv_writes += 1
        try:
            self._kv_put(key, text)
        except JsException as error:
            raise _storage_error(error) from None

    async def transaction[T](self, step: Callable[[AlarmSlot], T]) -> T:
        """Run one step in the Object's `ctx.storage.transaction`, and return when it is on disk."""
        writes_before = self._writes()
        box = _Box[T]()

        async def body(_transaction: Any) -> None:
            slot = AlarmSlot(_instant(await self._raw.getAlarm()))
            box.run(lambda: step(slot))
            if slot.is_changed:
                self._alarm_writes += 1
                # Neither is awaited: both have taken effect when they return, and an await is a turn of the loop.
                if slot.at_ms is None:
                    self._raw.deleteAlarm()
                else:
                    self._raw.setAlarm(min(slot.at_ms, ALARM_AT_MS_MAX))

        try:
            await self._raw.transaction(body)
            if self._writes() != writes_before:
                await self._raw.sync()
        except JsException as error:
            raise box.error or _storage_error(error) from None
        self.on_written()
        return box.value

    def commit[T](self, step: Callable[[], T]) -> T:
        """Run one step in the Object's `ctx.storage.transactionSync`."""
        box = _Box[T]()
        try:
            self._raw.transactionSync(lambda: box.run(step))
        except JsException as error:
            raise box.error or _storage_error(error) from None
        self.on_written()
        return box.value

    async def sync(self) -> None:
        """Return when everything written so far is on disk."""
        try:
            await self._raw.sync()
        except JsException as error:
            raise _storage_error(error) from None

    async def alarm_at_ms(self) -> int | None:
        """Read the alarm slot outside any transaction."""
        try:
            return _instant(await self._raw.getAlarm())
        except JsException as error:
            raise _storage_error(error) from None

    async def arm(self, at_ms: int) -> None:
        """Set the alarm outside any transaction."""
        self._alarm_writes += 1
        try:
            await self._raw.setAlarm(min(at_ms, ALARM_AT_MS_MAX))
        except JsException as error:
            raise _storage_error(error) from None

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


def _bound_all(values: tuple[SqlValue, ...]) -> list[Any]:
    return [
        value
        if (kind := type(value)) in _BOUND_AS_IT_IS
        or (kind is int and -INTEGER_MAX <= value <= INTEGER_MAX)  # type: ignore[operator]
        else _bound(value)
        for value in values
    ]


def _bound(value: SqlValue) -> Any:
    if value is None or isinstance(value, str | float):
        return value
    if isinstance(value, int):
        assert abs(value) <= INTEGER_MAX, value
        return int(value)
    return to_js(value)


def _read(value: Any) -> Any:
    if value is jsnull:
        return None
    return bytes(value) if isinstance(value, memoryview) else value


def _instant(value: Any) -> int | None:
    return None if value is None or value is jsnull else int(value)


def _storage_error(error: JsException) -> Exception:
    text = str(error)
    if any(each in text for each in STATEMENT_ERRORS):
        return StatementFailed(text)
    return StorageUnavailable(text)


class Deployment:
    """The settings of this deployment, parsed once in an isolate, or what is wrong with them."""

    _parsed: Settings | None = None
    _wrong = ""

    @classmethod
    def settings(cls, env: Any) -> Settings:
        """Return the settings.

        Raises ValueError whose message names every variable that is wrong, the misspelt ones included.
        """
        if cls._parsed is None and not cls._wrong:
            try:
                cls._parsed = parse_settings(_variables(getattr(env, "_env", env)))
            except ValueError as error:
                # Its words alone: an error that is raised again and again keeps the frames of all who saw it.
                cls._wrong = str(error)
        if cls._parsed is None:
            raise ValueError(cls._wrong)
        return cls._parsed


def _variables(raw_env: Any) -> dict[str, str]:
    names = [name for name in js.Object.keys(raw_env) if name.startswith(PREFIX)]
    found = {name: getattr(raw_env, name) for name in names}
    # A variable may have been deployed as JSON; its text is what we parse.
    return {
        name: value if isinstance(value, str) else js.JSON.stringify(value)
        for name, value in found.items()
    }


class HttpRequest:
    """A request of the runtime's, read without the SDK's wrapper, which knows no unknown method."""

    def __init__(self, request: Any) -> None:
        self._request = getattr(request, "js_object", request)
        self._headers = self._request.headers
        self.method = str(self._request.method)
        parts = urlsplit(str(self._request.url))
        self.path = parts.path
        self.query = parts.query

    def header(self, name: str) -> str | None:
        """Return a header's value, or None if it was not sent."""
        value = self._headers.get(name)
        return value if isinstance(value, str) else None

    async def body(self, bytes_max: int) -> tuple[bytes, bool]:
        """Read the body in chunks, and say whether that was all of it: reading stops past `bytes_max`.

        Raises Refusal: `invalid-request` when the caller's connection ended before its body did.
        """
        stream = self._request.body
        read = bytearray()
        if stream is None or stream is jsnull:
            return b"", True
        length = self.header("content-length") or ""
        try:
            if length.isdecimal() and int(length) <= bytes_max:
                return (await self._request.arrayBuffer()).to_bytes(), True
            reader = stream.getReader()
            while not (chunk := await reader.read()).done:
                read += chunk.value.to_bytes()
                if len(read) > bytes_max:
                    await reader.cancel("the body is too large")
                    return bytes(read), False
        except JsException:
            message = "the body ended before it was whole"
            raise Refusal(RefusalCode.INVALID_REQUEST, message) from None
        return bytes(read), True


def http_response(status: int, headers: Mapping[str, str], body: str | None) -> Any:
    """Build a response of the runtime's."""
    options = {"status": status, "headers": dict(headers)}
    return js.Response.new(
        jsnull if body is None else body, to_js(options, dict_converter=js.Object.fromEntries)
    )


class WorkerdOutside:
    """How one Object reaches other Objects of its deployment, and callback URLs."""

    def __init__(self, env: Any) -> None:
        self._env = env

    async def ask(self, conversation: str, text: str) -> str:
        """Carry one message to another conversation's Object and bring its answer."""
        return await _call(self._env, conversation, "port", text)

    async def post(self, url: str, body: str, headers: Mapping[str, str]) -> int:
        """POST a body to a URL and return the status of the answer; redirects are not followed."""
        from workers import fetch  # noqa: PLC0415 - the runtime's own module, loaded where it is used

        try:
            response = await fetch(
                url, method="POST", body=body, headers=dict(headers), redirect="manual"
            )
        except (JsException, OSError) as error:
            raise StorageUnavailable(str(error)) from None
        unread = getattr(response, "js_object", response).body
        if unread is not None and unread is not jsnull:
            # Nobody reads it, and unread it holds one of the few connections that an invocation may have.
            with contextlib.suppress(JsException):
                await unread.cancel()
        return int(response.status)


async def ask_object(env: Any, conversation: str, command: str) -> str:
    """Carry one command to a conversation's Object and bring its answer.

    Raises StorageUnavailable whatever went wrong on the way.
    """
    return await _call(env, conversation, "call", command)


async def _call(env: Any, conversation: str, method: str, text: str) -> str:
    """Call an Object through a fresh stub: one that has failed fails for ever."""
    namespace = getattr(env, "_env", env).CONVERSATIONS
    try:
        return str(await getattr(namespace.getByName(conversation), method)(text))
    except (JsException, OSError) as error:
        raise StorageUnavailable(str(error)) from None


def log(line: str) -> None:
    """Write one line to the Worker's log."""
    js.console.log(line)
