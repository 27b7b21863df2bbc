"""A bare Object that shows what the platform does with an alarm, a transaction and a sync."""

import asyncio
import os
from typing import Any

import js
from pydantic_core import from_json, to_json
from pyodide.ffi import jsnull
from workers import DurableObject

EXIT_CODE = 70


def _instant(value: Any) -> int | None:
    return None if value is None or value is jsnull else int(value)


def _now_ms() -> int:
    return int(js.Date.now())


class ProbeObject(DurableObject):
    """Writes down each construction and each delivery, and does in them what it was told to."""

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        self.raw = getattr(ctx, "_ctx", ctx).storage
        ctx.blockConcurrencyWhile(self.gate)

    def told(self) -> dict[str, Any]:
        text = self.raw.kv.get("told")
        return from_json(text) if isinstance(text, str) else {}

    def note(self, what: str, **more: Any) -> None:
        text = self.raw.kv.get("notes")
        notes = from_json(text) if isinstance(text, str) else []
        notes.append({"what": what, "at_ms": _now_ms(), **more})
        self.raw.kv.put("notes", to_json(notes).decode())

    async def gate(self) -> None:
        told = self.told()
        if "gate" not in told:
            return
        slot_ms = _instant(await self.raw.getAlarm())
        self.note("constructed", slot_ms=slot_ms)
        if told["gate"] == "always" or (told["gate"] == "when-empty" and slot_ms is None):
            await self.raw.setAlarm(_now_ms() + told["gate_delay_ms"])

    async def alarm(self, _info: Any = None) -> None:
        told = self.told()
        slot_ms = _instant(await self.raw.getAlarm())
        self.note("delivered", slot_ms=slot_ms)
        left = int(told.get("alarms_left", 0))
        if left > 0:
            self.raw.kv.put("told", to_json({**told, "alarms_left": left - 1}).decode())
            for in_ms in told["alarm_sets_ms"]:
                await self.raw.setAlarm(_now_ms() + in_ms)
        if "alarm_takes_ms" in told:
            await asyncio.sleep(told["alarm_takes_ms"] / 1_000)

    async def control(self, text: str) -> str:
        asked: dict[str, Any] = from_json(text)
        answer = await getattr(self, f"do_{asked.pop('do')}")(**asked)
        return to_json({} if answer is None else answer).decode()

    async def do_tell(self, in_ms: int | None = None, **told: Any) -> None:
        self.raw.kv.put("told", to_json(told).decode())
        if in_ms is not None:
            await self.raw.setAlarm(_now_ms() + in_ms)
        await self.raw.sync()

    async def do_notes(self) -> dict[str, Any]:
        text = self.raw.kv.get("notes")
        slot_ms = _instant(await self.raw.getAlarm())
        return {
            "notes": from_json(text) if isinstance(text, str) else [],
            "slot_ms": slot_ms,
            "now_ms": _now_ms(),
        }

    async def do_transaction(self, in_ms: int, *, fails: bool) -> dict[str, Any]:
        """Set the alarm, a key and a row in one transaction, which may fail."""
        self.raw.sql.exec("CREATE TABLE IF NOT EXISTS rows (n INTEGER) STRICT")
        raised = None

        async def body(_transaction: Any) -> None:
            await self.raw.setAlarm(_now_ms() + in_ms)
            self.raw.kv.put("inside", "yes")
            self.raw.sql.exec("INSERT INTO rows VALUES (1)")
            if fails:
                message = "on purpose"
                raise RuntimeError(message)

        try:
            await self.raw.transaction(body)
        except Exception as error:  # noqa: BLE001 - what the platform makes of it is asked
            raised = str(error)
        return {
            "raised": raised,
            "slot_ms": _instant(await self.raw.getAlarm()),
            "inside": self.raw.kv.get("inside") == "yes",
            "rows": self.raw.sql.exec("SELECT count(*) AS n FROM rows").one().n,
        }

    async def do_write_then_exit(self, *, syncs: bool) -> None:
        """Commit a row, wait until it is on disk or not, and end the process."""
        self.raw.sql.exec("CREATE TABLE IF NOT EXISTS rows (n INTEGER) STRICT")
        self.raw.transactionSync(lambda: self.raw.sql.exec("INSERT INTO rows VALUES (1)"))
        if syncs:
            await self.raw.sync()
        os._exit(EXIT_CODE)

    async def do_rows(self) -> dict[str, Any]:
        found = self.raw.sql.exec(
            "SELECT count(*) AS n FROM sqlite_master WHERE name = 'rows'"
        ).one()
        rows = self.raw.sql.exec("SELECT count(*) AS n FROM rows").one().n if found.n else 0
        return {"rows": rows}
