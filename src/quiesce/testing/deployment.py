"""The simulated deployment: conversations by name, their alarms, and one virtual clock over all of them."""

import asyncio
import itertools
import random
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Self

from quiesce import admission, commands, inspection, maintenance, wake
from quiesce.admission import Receipt
from quiesce.agent import Agent, Registry
from quiesce.errors import StorageUnavailable
from quiesce.failpoints import ArmedFailpoints
from quiesce.generation_record import GenerationRecord
from quiesce.ids import ConversationId, SubmissionId
from quiesce.inspection import LaneState, Status
from quiesce.invariants import broken_laws
from quiesce.lane import Lane
from quiesce.maintenance import PassReport
from quiesce.records import Record, SettlementRecorded
from quiesce.settings import Settings
from quiesce.testing.crashing import Crashed, CrashPlan
from quiesce.testing.sqlite_storage import Disk, SqliteStorage
from quiesce.testing.virtual_time import VirtualTimeLoop

START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z: when a simulation starts unless it is told otherwise."""
DELIVERY_RETRIES_MAX = 6
DELIVERY_RETRY_BASE_MS = 2_000
HORIZON_MS = 7 * 86_400_000
WAKES_MAX = 2_000


class Deployment:
    """A simulated deployment of some agents.

    Use it as a context manager: leaving it checks every conversation's laws once more and closes the databases.
    """

    def __init__(
        self,
        agents: Iterable[Agent],
        settings: Settings | None = None,
        *,
        start_ms: int = START_MS,
        seed: int = 0,
    ) -> None:
        self.registry = Registry(agents)
        self.settings = settings or Settings()
        self.loop = VirtualTimeLoop()
        self._start_ms = start_ms
        self._random = random.Random(seed)  # noqa: S311 - a simulation repeats itself
        self._conversations: dict[str, Conversation] = {}
        self._incarnations = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            for conversation in self._conversations.values():
                conversation.check_laws()
        for conversation in self._conversations.values():
            conversation.close()
        self.loop.close()

    def conversation(self, name: str) -> "Conversation":
        """Return the conversation of this name; it is virgin until something is submitted to it."""
        if name not in self._conversations:
            self._conversations[name] = Conversation(self, name)
        return self._conversations[name]

    def deploy(self, agents: Iterable[Agent]) -> None:
        """Replace the agents: every Object is built anew at its next event, as after a real deploy."""
        self.registry = Registry(agents)
        for conversation in self._conversations.values():
            conversation.evict()

    @property
    def now_ms(self) -> int:
        """The virtual time in milliseconds since the epoch."""
        return self._start_ms + round(self.loop.time() * 1_000)

    def jitter(self) -> float:
        """Draw from [0, 1); the same draws in every run of one seed."""
        return self._random.random()

    def next_incarnation(self) -> str:
        """Name one construction of an Object."""
        return f"incarnation-{next(self._incarnations)}"

    def run[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end on virtual time."""
        return self.loop.run_until_complete(work)

    def next_alarm_ms(self) -> int | None:
        """Return when the earliest alarm of any conversation is due."""
        due = [each.delivery_at_ms for each in self._conversations.values()]
        return min((at_ms for at_ms in due if at_ms is not None), default=None)

    def advance(self, delay_ms: int) -> int:
        """Let time pass, delivering every alarm that comes due; returns how many were delivered."""
        return self._deliver_until(self.now_ms + delay_ms, WAKES_MAX)

    def run_until_quiet(self, within_ms: int = HORIZON_MS, wakes_max: int = WAKES_MAX) -> int:
        """Deliver alarms, moving the clock to each, until none is set within the horizon; returns how many.

        Raises AssertionError when it does not become quiet.
        """
        horizon_ms = self.now_ms + within_ms
        wakes = 0
        while True:
            at_ms = self.next_alarm_ms()
            if at_ms is None or at_ms > horizon_ms:
                return wakes
            wakes += self._deliver_until(max(at_ms, self.now_ms), wakes_max - wakes)
            assert wakes < wakes_max, f"not quiet after {wakes} wakes"

    def _deliver_until(self, until_ms: int, wakes_max: int) -> int:
        wakes = 0
        while wakes < wakes_max:
            at_ms = self.next_alarm_ms()
            if at_ms is None or at_ms > until_ms:
                break
            self._move_to(at_ms)
            due = [each for each in self._conversations.values() if each.delivery_at_ms == at_ms]
            due[0].deliver()
            wakes += 1
        self._move_to(until_ms)
        return wakes

    def _move_to(self, at_ms: int) -> None:
        delay_ms = at_ms - self.now_ms
        if delay_ms > 0:
            self.run(asyncio.sleep(delay_ms / 1_000))


class Conversation:
    """One conversation of a simulated deployment, and the verbs of the protocol on it."""

    def __init__(self, deployment: Deployment, name: str) -> None:
        self.deployment = deployment
        self.name = ConversationId(name)
        self.disk = Disk()
        self.disk.sync()
        self.failpoints = ArmedFailpoints()
        self.reports: list[PassReport] = []
        self.wakes = 0
        self.errors: list[BaseException] = []
        """What passes have let out."""
        self._lane: Lane | None = None
        self._storage: SqliteStorage | None = None
        self._plan: CrashPlan | None = None
        self._retry_at_ms: int | None = None
        self._retry_count = 0
        self._keys = itertools.count(1)

    @property
    def lane(self) -> Lane:
        """The present incarnation, built when it is first needed."""
        if self._lane is None:
            self._lane = self._construct()
            self.deployment.run(maintenance.open_lane(self._lane))
        return self._lane

    def _construct(self) -> Lane:
        self._storage = SqliteStorage(self.disk)
        self._storage.plan = self._plan
        return Lane(
            storage=self._storage,
            clock=lambda: self.deployment.now_ms,
            jitter=self.deployment.jitter,
            settings=self.deployment.settings,
            agents=self.deployment.registry,
            failpoints=self.failpoints,
            incarnation=self.deployment.next_incarnation(),
            abort_object=_abort,
            is_platform_error=lambda error: isinstance(error, StorageUnavailable),
        )

    @property
    def storage(self) -> SqliteStorage:
        """The present incarnation's storage."""
        _ = self.lane
        assert self._storage is not None
        return self._storage

    # Verbs of a client.

    def submit(
        self,
        agent: str,
        value: Any = None,
        *,
        key: str | None = None,
        principal: str = "tester",
        **terms: Any,
    ) -> Receipt:
        """Admit one submission; raises Refusal. Without a key, each call has a new one."""
        request = admission.Request(
            conversation=self.name,
            principal=principal,
            key=key or f"key-{next(self._keys)}",
            agent=agent,
            input=value,
            **terms,
        )
        return self.event(lambda: admission.admit(self.lane, request))

    def status(self, submission: SubmissionId) -> Status:
        """Read one submission."""
        return inspection.status(self.lane, self.name, submission)

    def settlement(self, submission: SubmissionId) -> SettlementRecorded:
        """Read a settlement; fails when it is still owed."""
        found = self.status(submission).settlement
        assert found is not None, f"{submission} is {self.status(submission).submission.state}"
        return found.recorded

    def state(self) -> LaneState:
        """Read the whole lane."""
        return self.deployment.run(inspection.lane_state(self.lane, self.name))

    def records(self) -> list[Record]:
        """Read the whole log."""
        return list(inspection.export(self.lane, None).records)

    def force_pass(self, reason: str = "asked to") -> None:
        """Owe the lane a pass."""
        self.event(lambda: commands.force_pass(self.lane, self.name, "operator", reason))

    def retry(self, submission: SubmissionId, reason: str = "asked to") -> None:
        """Release a quarantined submission."""
        self.event(
            lambda: commands.release_quarantined(
                self.lane, self.name, submission, "operator", reason
            )
        )

    def generation(self) -> GenerationRecord:
        """Read the generation record."""
        record = wake.load(self.storage)
        assert record is not None
        return record

    # What the platform does.

    def event[T](self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run one event of the Object to its end; a crash within it ends the incarnation and is raised."""
        try:
            result = self.deployment.run(work())
        except Crashed:
            self._die()
            raise
        self.check_laws()
        return result

    @property
    def alarm_at_ms(self) -> int | None:
        """The alarm slot."""
        return self.disk.alarm_at_ms

    @property
    def delivery_at_ms(self) -> int | None:
        """When the platform will next deliver an alarm: a set one, or a failed one again."""
        times = [self.disk.alarm_at_ms, self._retry_at_ms]
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def alarm(self) -> PassReport | None:
        """Deliver an alarm now, whether or not one is set."""
        return self.deliver()

    def deliver(self) -> PassReport | None:
        """Deliver the alarm as the platform does; what the handler raises is kept in `errors`."""
        delivered_at_ms = self.disk.alarm_at_ms
        retry_count = self._retry_count if self._retry_at_ms is not None else 0
        self._retry_at_ms = None
        self.disk.alarm_at_ms = None
        self.disk.sync()
        self.wakes += 1
        try:
            report = self.deployment.run(maintenance.on_alarm(self.lane, retry_count))
        except Crashed as crash:
            self.errors.append(crash)
            self._die()
            self._redeliver(delivered_at_ms)
            return None
        except Exception as error:  # noqa: BLE001 - the platform survives whatever a handler raises
            self.errors.append(error)
            self._fail_delivery(retry_count)
            return None
        self._retry_count = 0
        if report is not None:
            self.reports.append(report)
        self.check_laws()
        return report

    def _fail_delivery(self, retry_count: int) -> None:
        self.disk.sync()
        if self.disk.alarm_at_ms is not None or retry_count >= DELIVERY_RETRIES_MAX:
            # An alarm that the handler set before it raised wins over the platform's own retry.
            self._retry_count = 0
            return
        self._retry_count = retry_count + 1
        self._retry_at_ms = self.deployment.now_ms + DELIVERY_RETRY_BASE_MS * 2**retry_count

    def _redeliver(self, delivered_at_ms: int | None) -> None:
        """The process died during a delivery: without a later alarm on disk the same one comes again."""
        if self.disk.alarm_at_ms is None and delivered_at_ms is not None:
            self.disk.alarm_at_ms = self.deployment.now_ms
            self.disk.sync()

    def crash(self, *, keeps_unsynced: bool = True) -> None:
        """End the incarnation at once; the next event builds another."""
        self._die(keeps_unsynced=keeps_unsynced)

    def evict(self) -> None:
        """End an idle incarnation: everything written is on disk."""
        self._die()

    def plan_crash(self, plan: CrashPlan | None) -> None:
        """Make the process die at a planned commit."""
        self._plan = plan
        if self._storage is not None:
            self._storage.plan = plan

    def _die(self, *, keeps_unsynced: bool = True) -> None:
        if self._plan is not None and self._plan.fired:
            keeps_unsynced = self._plan.keeps_unsynced
        if keeps_unsynced:
            self.disk.sync()
        else:
            self.disk.lose_unsynced()
        if self._storage is not None:
            self._storage.is_gone = True
        self._lane = self._storage = None
        for task in asyncio.all_tasks(self.deployment.loop):
            task.cancel()
        self.deployment.loop.run_until_idle()

    def check_laws(self) -> None:
        """Assert that every law of the conversation holds now."""
        if self._storage is not None and self._storage.fault is not None:
            return
        if wake.load(self.storage) is None:
            return
        alarm_at_ms = self.delivery_at_ms
        broken = broken_laws(inspection.export(self.lane, alarm_at_ms))
        assert not broken, broken

    def close(self) -> None:
        """End the conversation's incarnation and close its database."""
        self._die()
        self.disk.close()


def _abort(reason: str) -> None:
    raise Crashed(reason)
