"""Quiesce with a journal around it: what each event of an Object asked of its storage. Only `bench/run` serves it.

1. Every construction, command and alarm becomes an entry when it starts, and gets its counts when it has ended.
2. Every failpoint becomes an entry too, with the totals of its incarnation at that place; nothing is armed there.
3. The journal lives in the isolate, not in the Object. Reading it wakes no Object and costs no storage act, and it
   outlives an eviction.
4. What the Worker does otherwise is what the deployed one does; agents that exist for comparison are added.
"""

import json
from dataclasses import asdict
from typing import Any

import history

from agents import REGISTRY
from agents.charge import Charge, Charged
from quiesce import (
    Agent,
    Registry,
    Run,
    conversation_object,
    inspection,
    invariants,
    router,
    wake,
    workerd,
)
from quiesce.failpoints import Failpoints
from quiesce.storage import Counts, Storage

no_charge = Agent("no-charge", input=Charge, output=Charged)


@no_charge.handler
async def _charge_nothing(_run: Run, wanted: Charge) -> Charged:
    """Do what `charge` does, without its call."""
    return Charged(reference=wanted.amount)


AGENTS = Registry([*REGISTRY, no_charge])
JOURNALS: dict[str, list[dict[str, Any]]] = {}
"""What happened to each Object of this isolate, by its id."""


class Journal(Failpoints):
    """The journal of one incarnation, which notes also what passes a failpoint."""

    def __init__(self, object_id: str) -> None:
        self.entries = JOURNALS.setdefault(object_id, [])
        self.storage: Storage | None = None

    def start(self, event: str, **facts: Any) -> tuple[dict[str, Any], Counts]:
        """Note that an event has started."""
        assert self.storage is not None
        entry = {"event": event, "has_ended": False, **facts}
        self.entries.append(entry)
        return entry, self.storage.counts()

    def end(self, entry: dict[str, Any], mark: Counts, **facts: Any) -> None:
        """Note that it has ended, and what it has asked of storage."""
        assert self.storage is not None
        counts = self.storage.counts().since(mark)
        entry.update(has_ended=True, counts=asdict(counts), **facts)

    async def reach(self, name: str) -> None:
        """Note the totals at a named place."""
        assert self.storage is not None
        totals = asdict(self.storage.counts())
        self.entries.append({"event": "point", "name": name, "counts": totals})

    async def reach_after(self, name: str, storage: Storage) -> None:
        """Note the totals at a named place."""
        assert storage is self.storage
        await self.reach(name)


class ConversationObject(conversation_object.ConversationObject):
    """One conversation, journaled."""

    agents = AGENTS

    def __init__(self, ctx: Any, env: Any) -> None:
        self.journal = Journal(str(getattr(ctx, "_ctx", ctx).id.toString()))
        super().__init__(ctx, env)
        self.journal.storage = self.lane.storage

    def failpoints(self) -> Failpoints:
        """Return the journal, which stops nothing."""
        return self.journal

    async def _open(self) -> None:
        entry, mark = self.journal.start("construction")
        await super()._open()
        self.journal.end(entry, mark)

    async def call(self, command: str) -> str:
        """Answer one request."""
        entry, mark = self.journal.start("command", verb=json.loads(command)["verb"])
        answer = await super().call(command)
        self.journal.end(entry, mark)
        return answer

    async def alarm(self, info: Any = None) -> None:
        """Run a pass, and note whether another one is owed after it."""
        entry, mark = self.journal.start("alarm")
        await super().alarm(info)
        self.journal.end(entry, mark)
        record = wake.load(self.lane.storage)
        entry["is_owed"] = record is not None and record.is_owed

    async def touch(self) -> str:
        """Do nothing: whoever calls this has the Object constructed."""
        return "{}"

    async def ring(self) -> str:
        """Have an alarm delivered that nobody needs."""
        await self.lane.storage.arm(self.lane.clock() + 1)
        return "{}"

    async def grow(self, conversation: str, count: int) -> str:
        """Add settled submissions to the history."""
        history.grow(self.lane, conversation, count)
        await self.lane.storage.sync()
        return "{}"

    async def check(self) -> str:
        """Check the laws of the whole conversation."""
        found = inspection.export(self.lane, await self.lane.storage.alarm_at_ms())
        return json.dumps({"broken_laws": invariants.broken_laws(found)})


class Default(router.Worker):
    """The deployed fetch handler, and /bench beside it."""

    agents = AGENTS

    async def fetch(self, request: Any) -> Any:
        """Answer one request."""
        incoming = workerd.HttpRequest(request)
        _, first, *rest = incoming.path.split("/")
        if first != "bench":
            return await super().fetch(request)
        try:
            text = await self._bench(rest[0], rest[1], int(incoming.query or 0))
        except Exception as error:  # noqa: BLE001 - the benchmark shows what went wrong in here
            headers = {"content-type": "text/plain"}
            return workerd.http_response(500, headers, f"{type(error).__name__}: {error}")
        return workerd.http_response(200, {"content-type": "application/json"}, text)

    async def _bench(self, act: str, conversation: str, number: int) -> str:
        env: Any = self.env
        namespace = getattr(env, "_env", env).CONVERSATIONS
        stub = namespace.getByName(conversation)
        match act:
            case "journal":
                found = JOURNALS.get(str(namespace.idFromName(conversation).toString()), [])
                return json.dumps({"length": len(found), "entries": found[number:]})
            case "grow":
                return str(await stub.grow(conversation, number))
            case "touch":
                return str(await stub.touch())
            case "ring":
                return str(await stub.ring())
            case _:
                return str(await stub.check())
