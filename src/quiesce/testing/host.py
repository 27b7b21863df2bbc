"""The host of one simulated Object: it builds incarnations, ends them, and holds what outlives them.

1. An incarnation is built at an event and never otherwise, as the platform does it.
2. When it ends, its storage answers nothing any more, its tasks are cancelled, and nothing that they still do is
   written: the process is gone, whatever its code would like to clean up.
"""

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from quiesce import maintenance
from quiesce.errors import StorageUnavailable
from quiesce.failpoints import ArmedFailpoints, Failpoints
from quiesce.lane import Lane
from quiesce.storage import Storage
from quiesce.testing.crashing import Crashed, CrashPlan
from quiesce.testing.network import SimulatedOutside
from quiesce.testing.sqlite_storage import Disk, FaultScope, SqliteStorage

if TYPE_CHECKING:
    from quiesce.testing.deployment import Deployment

_incarnation: ContextVar[str] = ContextVar("incarnation", default="")
"""Which incarnation a task belongs to: its own tasks end with it, and no others."""


@dataclass(slots=True)
class Pause:
    """A place where an event stands still until it is released."""

    is_reached: bool = False
    _released: asyncio.Event = field(default_factory=asyncio.Event)

    def release(self) -> None:
        """Let the event go on, the next time that the loop runs."""
        self._released.set()

    async def stand(self) -> None:
        """Stand still here."""
        self.is_reached = True
        await self._released.wait()


class _LivingFailpoints:
    """The Object's failpoints as one incarnation meets them: none, once it has ended."""

    def __init__(self, host: "Host", storage: SqliteStorage) -> None:
        self._host = host
        self._storage = storage

    async def reach(self, name: str) -> None:
        if not self._storage.is_gone:
            await self._host.failpoints.reach(name)

    async def reach_after(self, name: str, storage: Storage) -> None:
        if not self._storage.is_gone:
            await self._host.failpoints.reach_after(name, storage)


class Host:
    """One simulated Object: its disk, its present incarnation, and the ways in which that can end."""

    def __init__(self, deployment: "Deployment") -> None:
        self.deployment = deployment
        self.disk = Disk()
        self.disk.sync()
        self.armed = ArmedFailpoints()
        self.failpoints: Failpoints = self.armed
        """What every incarnation meets at the failpoints; a test may put its own in place."""
        self._lane: Lane | None = None
        self._storage: SqliteStorage | None = None
        self._plans: list[CrashPlan] = []

    @property
    def lane(self) -> Lane:
        """The present incarnation, built when it is first needed."""
        if self._lane is None:
            self.deployment.run(self._opened())
        assert self._lane is not None
        return self._lane

    @property
    def storage(self) -> SqliteStorage:
        """The present incarnation's storage."""
        _ = self.lane
        assert self._storage is not None
        return self._storage

    @property
    def is_built(self) -> bool:
        """Whether an incarnation is in memory."""
        return self._lane is not None

    async def _opened(self) -> Lane:
        if self._lane is None:
            storage = SqliteStorage(self.disk)
            storage.plan = next((plan for plan in self._plans if not plan.fired), None)
            incarnation = self.deployment.next_incarnation()
            self._storage, self._lane = storage, self._built(storage, incarnation)
            _incarnation.set(incarnation)
            await maintenance.open_lane(self._lane)
        _incarnation.set(self._lane.incarnation)
        return self._lane

    def _built(self, storage: SqliteStorage, incarnation: str) -> Lane:
        return Lane(
            storage=storage,
            clock=lambda: self.deployment.now_ms,
            jitter=self.deployment.jitter,
            settings=self.deployment.settings,
            agents=self.deployment.registry,
            failpoints=_LivingFailpoints(self, storage),
            incarnation=incarnation,
            abort_object=lambda reason: self._end(storage, reason),
            outside=SimulatedOutside(self.deployment),
            is_platform_error=lambda error: isinstance(error, StorageUnavailable),
            reporter=self.deployment.reporter,
        )

    def _end(self, storage: SqliteStorage, reason: str, *, keeps_unsynced: bool = False) -> None:
        storage.die(keeps_unsynced=keeps_unsynced)
        raise Crashed(reason)

    @property
    def _reader(self) -> Lane:
        """What a probe reads through: the disk as it stands, whether or not the store answers the Object."""
        reader = self._built(SqliteStorage(self.disk, is_probe=True), "probe")
        if self._lane is not None:
            reader.running = self._lane.running
        return reader

    def crash(self, *, keeps_unsynced: bool = True) -> None:
        """End the incarnation at once; the next event builds another."""
        self._die(keeps_unsynced=keeps_unsynced)
        self._after_event()

    def evict(self) -> None:
        """End an idle incarnation: everything written is on disk."""
        self.crash()

    def forget(self) -> None:
        """Let the next event build another incarnation while this one's tasks and storage live on.

        The platform promises that this cannot happen; the fences hold even if it does.
        """
        self._lane = self._storage = None

    def plan_crash(self, *plans: CrashPlan) -> None:
        """Make the process die at planned commits, one after the other; none: let it live."""
        self._plans = list(plans)
        if self._storage is not None:
            self._storage.plan = plans[0] if plans else None

    def break_storage(
        self, error: Exception | None = None, *, scope: FaultScope = "everything"
    ) -> None:
        """Let the store be down from here on, for every incarnation, until it is mended."""
        self.disk.fault = error or StorageUnavailable("the store is down")
        self.disk.fault_scope = scope

    def mend_storage(self) -> None:
        """Let the store answer again."""
        self.disk.fault = None
        self.disk.fault_scope = "everything"

    def crash_at(self, failpoint: str, *, keeps_unsynced: bool = True) -> None:
        """End the incarnation at the next pass of a failpoint."""

        async def die() -> None:
            assert self._storage is not None
            self._end(self._storage, failpoint, keeps_unsynced=keeps_unsynced)

        self.armed.arm(failpoint, die)

    def fail_at(self, failpoint: str, error: Exception) -> None:
        """Raise an error at the next pass of a failpoint."""

        async def fail() -> None:
            raise error

        self.armed.arm(failpoint, fail)

    def pause_at(self, failpoint: str) -> Pause:
        """Stand still at the next pass of a failpoint until the returned Pause is released."""
        pause = Pause()
        self.armed.arm(failpoint, pause.stand)
        return pause

    def _after_event(self) -> None:
        """Whatever is checked after each event."""

    def _die(self, *, keeps_unsynced: bool) -> None:
        """End the incarnation: nothing of it is written from here on, and its tasks are cancelled."""
        storage, lane = self._storage, self._lane
        self._lane = self._storage = None
        if storage is not None:
            storage.die(keeps_unsynced=keeps_unsynced)
        if lane is None:
            return
        try:
            present = asyncio.current_task()
        except RuntimeError:
            present = None
        for task in asyncio.all_tasks(self.deployment.loop):
            if task is not present and task.get_context().get(_incarnation) == lane.incarnation:
                task.cancel()
