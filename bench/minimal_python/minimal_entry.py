"""The minimal Python Object: what somebody would write by hand who wants the same durable acts and nothing else.

It is the yardstick of `bench/run`. It makes the same storage acts as Quiesce makes for one `echo`, in the same
order and with the same guarantees of what is on disk when:

1. admission: parse the JSON body, one RPC to the Object; there one `ctx.storage.transaction`, which like every
   one here first reads the alarm slot, and which reads and puts one key-value record, inserts one row and sets the
   alarm; `sync`; a 202 with a JSON receipt.
2. alarm: *begin* is one transaction (record put, alarm set), `sync`; for each open row in order, *claim* is one
   `transactionSync` (insert a record, update the row), `sync`, then *settle* is another (insert a record, update
   the row); *finish* is one transaction (record put, alarm deleted or, if somebody came meanwhile, set), `sync`.
3. settlement: read the row; while it is open wait in memory, at most 25 seconds, and read it again.

The tables have as many indexes as ours, so the same number of rows is written. The plain JavaScript objects are
bound as Quiesce binds them, because the SDK's wrapper would only make it slower. What is left out is everything
that Quiesce is for: tokens, roles, limits, validation, idempotency with other content, digests and a chain, fences,
recovery, retries, pacing, repair, cost, inspection. So the ratio to it is the price of those.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import js
from pyodide.ffi import jsnull, to_js
from workers import DurableObject, WorkerEntrypoint

SCHEMA = """
    CREATE TABLE IF NOT EXISTS submissions (
        sequence INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        input TEXT,
        state TEXT NOT NULL,
        result TEXT
    ) STRICT;
    CREATE TABLE IF NOT EXISTS records (
        sequence INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        kind TEXT NOT NULL,
        payload TEXT NOT NULL
    ) STRICT;
"""
RECORD_KEY = "generation"
WAIT_S = 25


def _now_ms() -> int:
    return int(time.time() * 1_000)


def _response(status: int, text: str) -> Any:
    options = {"status": status, "headers": {"content-type": "application/json"}}
    return js.Response.new(text, to_js(options, dict_converter=js.Object.fromEntries))


class MinimalObject(DurableObject):
    """One lane of work."""

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        self.raw = ctx._ctx.storage  # noqa: SLF001 - the plain object, as Quiesce binds it
        self.sql = self.raw.sql.exec
        self.kv = self.raw.kv
        self.waiting: dict[str, asyncio.Event] = {}
        ctx.blockConcurrencyWhile(self._open)

    async def _open(self) -> None:
        self.sql(SCHEMA)

    def _rows(self, sql: str, *params: Any) -> list[list[Any]]:
        rows = self.sql(sql, *params).raw().toArray().to_py()
        return [[None if cell is jsnull else cell for cell in row] for row in rows]

    async def _transaction(self, step: Callable[[Any], Awaitable[Any]]) -> Any:
        async def whole(transaction: Any) -> Any:
            # Whoever writes the alarm has to know how it stands: it must not move one later, nor pay for it twice.
            await self.raw.getAlarm()
            return await step(transaction)

        value = await self.raw.transaction(whole)
        await self.raw.sync()
        return value

    def _load(self) -> dict[str, Any]:
        text = self.kv.get(RECORD_KEY)
        return json.loads(text) if isinstance(text, str) else {"dirty": 0, "processed": 0}

    async def admit(self, text: str) -> str:
        """Admit one submission, and return its receipt."""
        asked = json.loads(text)
        accepted_at_ms = _now_ms()

        async def step(_transaction: Any) -> int:
            record = self._load()
            record["dirty"] += 1
            self.kv.put(RECORD_KEY, json.dumps(record))
            [[sequence]] = self._rows(
                "INSERT INTO submissions (id, input, state) VALUES (?, ?, 'ready') RETURNING sequence",
                asked["key"],
                json.dumps(asked["input"]),
            )
            await self.raw.setAlarm(accepted_at_ms + 1)
            return int(sequence)

        sequence = await self._transaction(step)
        receipt = {
            "submission": asked["key"],
            "sequence": sequence,
            "accepted_at": accepted_at_ms,
            "settlement": None,
        }
        return json.dumps(receipt)

    async def alarm(self, _info: Any = None) -> None:
        """Run whatever is open."""
        generation = await self._transaction(self._begin)
        while head := self._rows(
            "SELECT sequence, id, input FROM submissions WHERE state = 'ready' ORDER BY sequence LIMIT 1"
        ):
            [[sequence, submission, text]] = head
            self.raw.transactionSync(lambda: self._claim(sequence, submission, text))  # noqa: B023 - called at once
            await self.raw.sync()
            result = json.dumps(json.loads(text))
            self.raw.transactionSync(lambda: self._settle(sequence, submission, result))  # noqa: B023 - as above
            if event := self.waiting.pop(submission, None):
                event.set()
        await self._transaction(lambda transaction: self._finish(transaction, generation))

    async def _begin(self, _transaction: Any) -> int:
        record = self._load()
        self.kv.put(RECORD_KEY, json.dumps({**record, "failures": record.get("failures", 0) + 1}))
        await self.raw.setAlarm(_now_ms() + 50)
        return int(record["dirty"])

    def _claim(self, sequence: int, submission: str, text: str) -> None:
        self.sql(
            "INSERT INTO records (id, kind, payload) VALUES (?, 'input', ?)",
            f"{submission}/input",
            text,
        )
        self.sql(
            "UPDATE submissions SET state = 'running', input = NULL WHERE sequence = ?", sequence
        )

    def _settle(self, sequence: int, submission: str, result: str) -> None:
        self.sql(
            "INSERT INTO records (id, kind, payload) VALUES (?, 'settlement', ?)",
            f"{submission}/settlement",
            result,
        )
        self.sql(
            "UPDATE submissions SET state = 'settled', result = ? WHERE sequence = ?",
            result,
            sequence,
        )

    async def _finish(self, _transaction: Any, generation: int) -> None:
        record = {**self._load(), "processed": generation, "failures": 0}
        self.kv.put(RECORD_KEY, json.dumps(record))
        if record["dirty"] > generation:
            await self.raw.setAlarm(_now_ms() + 1)
        else:
            await self.raw.deleteAlarm()

    async def settlement(self, submission: str) -> str:
        """Read a settlement; while there is none, wait for it."""
        found = self._result(submission)
        if found is None:
            event = self.waiting.setdefault(submission, asyncio.Event())
            await asyncio.wait_for(event.wait(), WAIT_S)
            found = self._result(submission)
        return json.dumps({"submission": submission, "outcome": "completed", "result": found})

    def _result(self, submission: str) -> Any:
        rows = self._rows(
            "SELECT result FROM submissions WHERE id = ? AND state = 'settled'", submission
        )
        return json.loads(rows[0][0]) if rows else None


class Default(WorkerEntrypoint):
    """POST /{lane} admits; GET /{lane}/{submission} reads a settlement."""

    async def fetch(self, request: Any) -> Any:
        """Answer one request."""
        raw = request.js_object
        _, lane, *rest = str(js.URL.new(raw.url).pathname).split("/")
        if not lane:
            return _response(200, "{}")
        stub = self.env._env.LANES.getByName(lane)  # noqa: SLF001 - the plain object, as Quiesce binds it
        if str(raw.method) == "POST":
            body = json.loads(await raw.text())
            asked = {"key": str(raw.headers.get("idempotency-key")), "input": body["input"]}
            return _response(202, await stub.admit(json.dumps(asked)))
        return _response(200, await stub.settlement(rest[0]))
