"""The conversation's Object with traps: it can be paused, broken, aborted and ended at every failpoint.

What outlives an incarnation but not the process stands in `LIVES`, by the Object's id: counts, rigged faults, and
what is armed for every incarnation to come.
"""

import asyncio
import contextlib
import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyodide_js
from outside_agents import REGISTRY
from pydantic_core import from_json, to_json

from quiesce import admission, conversation_object, maintenance, workerd
from quiesce.errors import StorageUnavailable
from quiesce.failpoints import COMMITS, MAINTENANCE
from quiesce.ids import ConversationId
from quiesce.storage import Counts, Storage

EXIT_CODE = 70
PAUSE_TICK_S = 20.0
"""How often a paused event moves, so that the platform does not take it for hung."""


@dataclass
class Life:
    """What this process knows of one Object over all its incarnations."""

    constructions: int = 0
    deliveries: list[dict[str, Any]] = field(default_factory=list)
    storages: list["RiggedStorage"] = field(default_factory=list)
    rigged: dict[str, int] = field(default_factory=dict)
    """How often more each part of storage refuses."""
    refused: Counter[str] = field(default_factory=Counter)
    seen: list[str] = field(default_factory=list)
    paused: list[str] = field(default_factory=list)
    sprung: list[str] = field(default_factory=list)
    """The traps that have acted, in their order."""
    fails: dict[str, int] = field(default_factory=dict)
    """How often more each failpoint raises, in whatever incarnation it is passed."""

    def shown(self) -> dict[str, Any]:
        """Return what a test wants to know."""
        total = [each.counts() for each in self.storages]
        return {
            "constructions": self.constructions,
            "deliveries": self.deliveries,
            "refused": dict(self.refused),
            "seen": self.seen,
            "paused": self.paused,
            "sprung": self.sprung,
            "counts": {
                name: sum(getattr(each, name) for each in total) for name in Counts.__slots__
            },
        }


LIVES: dict[str, Life] = {}


class RiggedStorage(workerd.WorkerdStorage):
    """The Object's real storage, parts of which a test can break."""

    def __init__(self, context: Any, life: Life) -> None:
        super().__init__(context)
        self.life = life
        life.storages.append(self)

    def _check(self, part: str) -> None:
        if self.life.rigged.get(part, 0) > 0:
            self.life.rigged[part] -= 1
            self.life.refused[part] += 1
            message = f"{part} is broken on purpose"
            raise StorageUnavailable(message)

    def execute(self, sql: str, *params: Any) -> list[Any]:
        self._check("sql")
        return super().execute(sql, *params)

    def write(self, sql: str, *params: Any) -> int:
        self._check("sql")
        return super().write(sql, *params)

    def kv_get(self, key: str) -> str | None:
        self._check("kv")
        return super().kv_get(key)

    async def transaction(self, step: Any) -> Any:
        self._check("transaction")
        return await super().transaction(step)


@dataclass
class Trap:
    """What happens at one failpoint, after it has been passed `skip` times."""

    point: str
    action: str
    skip: int = 0


class Traps:
    """Failpoints that a control arms; each trap is consumed once, in order, before it acts."""

    def __init__(self, owner: "ConversationObject") -> None:
        self._owner = owner
        self._armed: list[Trap] = []
        self._released: dict[str, asyncio.Event] = {}

    def arm(self, trap: Trap) -> None:
        if trap.point not in MAINTENANCE + COMMITS:
            message = f"{trap.point!r} is no failpoint"
            raise LookupError(message)
        self._armed.append(trap)

    def release(self, point: str) -> None:
        self._released[point].set()

    async def reach(self, name: str) -> None:
        life = self._owner.life
        life.seen.append(name)
        if life.fails.get(name, 0) > 0:
            life.fails[name] -= 1
            message = f"armed to fail at {name}"
            raise RuntimeError(message)
        trap = self._next(name)
        if trap is None:
            return
        if trap.skip > 0:
            trap.skip -= 1
            return
        self._armed.remove(trap)
        life.sprung.append(name)
        await self._spring(trap)

    async def reach_after(self, name: str, storage: Storage) -> None:
        trap = self._next(name)
        if trap is not None and trap.skip == 0:
            await storage.sync()
        await self.reach(name)

    def _next(self, name: str) -> Trap | None:
        return next((trap for trap in self._armed if trap.point == name), None)

    async def _spring(self, trap: Trap) -> None:
        match trap.action:
            case "pause":
                released = self._released[trap.point] = asyncio.Event()
                self._owner.life.paused.append(trap.point)
                while not released.is_set():
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(released.wait(), PAUSE_TICK_S)
                self._owner.life.paused.remove(trap.point)
            case "raise":
                message = f"armed to fail at {trap.point}"
                raise RuntimeError(message)
            case "abort":
                self._owner.ctx.abort(f"armed to abort at {trap.point}")
            case "exit":
                os._exit(EXIT_CODE)
            case _:
                raise LookupError(trap.action)


class ConversationObject(conversation_object.ConversationObject):
    """One conversation under test."""

    agents = REGISTRY

    def __init__(self, ctx: Any, env: Any) -> None:
        raw = getattr(ctx, "_ctx", ctx)
        self.raw = raw.storage
        self.id = str(raw.id.toString())
        self.life = LIVES.setdefault(self.id, Life())
        self.life.constructions += 1
        self.traps = Traps(self)
        super().__init__(ctx, env)
        self.lane.storage = RiggedStorage(ctx, self.life)

    def failpoints(self) -> Traps:
        return self.traps

    async def alarm(self, info: Any = None) -> None:
        retry_count = int(getattr(info, "retryCount", 0) or 0)
        delivery: dict[str, Any] = {
            "at_ms": workerd.now_ms(),
            "retry_count": retry_count,
            "ended": None,
        }
        self.life.deliveries.append(delivery)
        try:
            await super().alarm(info)
            delivery["ended"] = "in order"
        except BaseException as error:
            delivery["ended"] = f"{type(error).__name__}: {error}"[:300]
            raise

    async def control(self, text: str) -> str:
        """Carry out one control of a test: JSON in, JSON out."""
        asked: dict[str, Any] = from_json(text)
        answer = await CONTROLS[asked.pop("do")](self, **asked)
        return to_json({} if answer is None else answer).decode()


async def state(owned: ConversationObject) -> dict[str, Any]:
    """Say how this incarnation stands; its storage is not asked."""
    return {
        "id": owned.id,
        "incarnation": owned.lane.incarnation,
        "active": owned.lane.gates.active,
        "passing": owned.lane.gates.passing,
        "now_ms": workerd.now_ms(),
        "heap_bytes": int(pyodide_js._module.HEAP8.length),  # noqa: SLF001 - the only way to the heap
    }


async def until_watched(owned: ConversationObject, times: int) -> None:
    """Return when so many requests wait for settlements."""
    while sum(len(each) for each in owned.lane.watchers.values()) < times:  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.05)


async def arm(owned: ConversationObject, point: str, action: str, skip: int = 0) -> dict[str, Any]:
    """Set one trap."""
    owned.traps.arm(Trap(point, action, skip))
    return {"id": owned.id}


async def fail_at(owned: ConversationObject, point: str, times: int) -> None:
    """Let a failpoint raise so often, whatever incarnation comes there."""
    owned.life.fails[point] = times


async def release(owned: ConversationObject, point: str) -> None:
    """Let what is paused go on."""
    owned.traps.release(point)


async def rig(owned: ConversationObject, part: str, times: int) -> None:
    """Let a part of storage refuse so often, in this and every later incarnation; 0 mends it."""
    owned.life.rigged[part] = times


async def set_alarm(owned: ConversationObject, in_ms: int = 0) -> None:
    """Set the alarm from outside the engine."""
    await owned.raw.setAlarm(workerd.now_ms() + in_ms)


async def delete_alarm(owned: ConversationObject) -> None:
    """Lose the alarm."""
    await owned.raw.deleteAlarm()


async def deliver(owned: ConversationObject, times: int) -> None:
    """Deliver the alarm so often at once, as no platform should."""
    await asyncio.gather(*(owned.alarm() for _ in range(times)))


async def abort(owned: ConversationObject) -> None:
    """End this incarnation."""
    owned.ctx.abort("a test asked for it")


async def put(owned: ConversationObject, key: str, value: str) -> None:
    """Write one value behind the engine's back."""
    owned.raw.kv.put(key, value)


async def mutation(owned: ConversationObject, conversation: str, key: str) -> dict[str, Any]:
    """Run a mutation with a body: one that admits work."""
    request = admission.Request(
        conversation=ConversationId(conversation),
        principal="dev",
        key=key,
        agent="echo",
        input="of a mutation",
    )
    receipt = await maintenance.with_mutation(
        owned.lane, lambda: admission.admit(owned.lane, request)
    )
    return {"submission": receipt.submission}


CONTROLS = {
    each.__name__: each
    for each in (
        state,
        until_watched,
        arm,
        fail_at,
        release,
        rig,
        set_alarm,
        delete_alarm,
        deliver,
        abort,
        put,
        mutation,
    )
}
