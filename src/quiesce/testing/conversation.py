"""One simulated conversation: what a client can ask, what the platform does to it, and what can be read raw.

1. *Verbs of a client* (`submit`, `visit`, `approve`, `signal` and their like) and of the platform (`deliver`,
   `crash`, `evict`) are events: each builds the Object if there is none, as the platform would.
2. *Probes* (`status`, `settlement`, `state`, `records`, `generation`, `alarm_at_ms`) read what is stored and are
   no events: they build nothing, repair nothing and wake nothing.
3. After every event the laws of the conversation are checked, and after every crash that it can still wake: a
   lane that is owed a pass, or waits for a clock, has an alarm.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from quiesce import admission, commands, deciding, inspection, maintenance, wake
from quiesce.admission import Receipt
from quiesce.commands import Accepted, Address, Author
from quiesce.deciding import Choice, Resolution
from quiesce.errors import NewerStorage
from quiesce.generation_record import GenerationRecord
from quiesce.ids import ConversationId, OperationId, SubmissionId
from quiesce.inspection import LaneState, Status
from quiesce.invariants import broken_laws
from quiesce.pass_report import PassReport
from quiesce.records import Record, SettlementRecorded
from quiesce.testing.crashing import Crashed
from quiesce.testing.host import Host

if TYPE_CHECKING:
    from quiesce.testing.deployment import Deployment

DELIVERY_RETRIES_MAX = 6
DELIVERY_RETRY_BASE_MS = 2_000


class Conversation(Host):
    """One conversation of a simulated deployment, and the verbs of the protocol on it."""

    def __init__(self, deployment: "Deployment", name: str) -> None:
        super().__init__(deployment)
        self.name = ConversationId(name)
        self.reports: list[PassReport] = []
        """What the passes of all incarnations reported, in order."""
        self.wakes = 0
        self.errors: list[BaseException] = []
        """What deliveries have let out, crashes included."""
        self.alarm_was_lost = False
        """The platform has dropped the alarm; only a request may put it right."""
        self._retry_at_ms: int | None = None
        self._retry_count = 0
        self._keys = itertools.count(1)

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
        """Admit one submission; raises Refusal. Without a key, each call has a new one.

        `terms` are the optional fields of admission: `mode`, `deadline_ms`, `callback_url`.
        """
        request = admission.Request(
            conversation=self.name,
            principal=principal,
            key=key or f"key-{next(self._keys)}",
            agent=agent,
            input=value,
            **terms,
        )
        return self.event(lambda: admission.admit(self.lane, request))

    def visit(self) -> None:
        """Send a request that reads: it changes nothing, but puts a lost alarm right."""
        self.event(lambda: maintenance.on_request(self.lane))

    def force_pass(self, reason: str = "asked to") -> None:
        """Owe the lane a pass."""
        self.event(lambda: commands.force_pass(self.lane, self.name, Author("operator", reason)))

    def retry(self, submission: SubmissionId, reason: str = "asked to") -> None:
        """Let a submission go on at once that is quarantined, or waits for its next attempt."""
        author = Author("operator", reason)
        self.event(lambda: commands.retry(self.lane, self._address(submission), author))

    def abort(
        self, submission: SubmissionId, reason: str = "asked to", *, detaches: bool = False
    ) -> Accepted:
        """Ask for the submission's abort."""
        address, author = self._address(submission), Author("tester", reason)
        return self.event(lambda: commands.abort(self.lane, address, author, detaches=detaches))

    def skip(self, submission: SubmissionId, reason: str = "asked to") -> Accepted:
        """End the head of the queue, so that what stands behind it can run."""
        address, author = self._address(submission), Author("operator", reason)
        return self.event(
            lambda: commands.abort(self.lane, address, author, detaches=True, skips=True)
        )

    def approve(
        self, submission: SubmissionId, operation: str, reason: str = "fine", by: str = "tester"
    ) -> Accepted:
        """Approve what the submission asks for."""
        return self._decide(submission, operation, "approved", Author(by, reason))

    def deny(
        self, submission: SubmissionId, operation: str, reason: str = "no", by: str = "tester"
    ) -> Accepted:
        """Deny what the submission asks for."""
        return self._decide(submission, operation, "denied", Author(by, reason))

    def _decide(
        self, submission: SubmissionId, operation: str, choice: Choice, author: Author
    ) -> Accepted:
        address = self._address(submission, operation)
        return self.event(lambda: deciding.decide(self.lane, address, choice, author))

    def resolve(
        self,
        submission: SubmissionId,
        operation: str,
        resolution: Resolution,
        result: Any = None,
        *,
        reason: str = "looked it up",
        number: int | None = None,
    ) -> Accepted:
        """Say what became of an unknown call, or of exactly its call of this number."""
        address, author = self._address(submission, operation), Author("tester", reason)
        return self.event(
            lambda: deciding.resolve(self.lane, address, resolution, result, author, number=number)
        )

    def signal(
        self, submission: SubmissionId, name: str, payload: Any = None, *, key: str | None = None
    ) -> Accepted:
        """Deliver a signal; without a key, each call has a new one."""
        signal = (name, key or f"key-{next(self._keys)}")
        address, author = self._address(submission), Author("tester", "")
        return self.event(
            lambda: deciding.deliver_signal(self.lane, address, signal, payload, author)
        )

    def _address(self, submission: SubmissionId, operation: str | None = None) -> Address:
        identity = None if operation is None else OperationId(operation)
        return Address(self.name, submission, identity)

    def event[T](self, work: Callable[[], Awaitable[T]]) -> T:
        """Run one event of the Object to its end; a crash within it ends the incarnation and is raised."""
        try:
            return self.deployment.run(self.within(work))
        finally:
            self._after_event()

    def start[T](self, work: Callable[[], Awaitable[T]]) -> "asyncio.Task[T]":
        """Begin an event and run it until it waits; `deployment.run_until_idle()` lets it go on."""
        task = self.deployment.loop.create_task(self.within(work))
        self.deployment.run_until_idle()
        return task

    async def within[T](self, work: Callable[[], Awaitable[T]]) -> T:
        """Run one event of the Object inside the running loop."""
        try:
            await self._opened()
            return await work()
        except Crashed:
            self._die(keeps_unsynced=True)
            raise

    # Probes.

    def status(self, submission: SubmissionId) -> Status:
        """Read one submission."""
        return inspection.status(self._reader, self.name, submission)

    def settlement(self, submission: SubmissionId) -> SettlementRecorded:
        """Read a settlement; raises AssertionError when it is still owed."""
        status = self.status(submission)
        assert status.settlement is not None, (
            f"{submission} is not settled but {status.submission.state}, waiting for {status.waiting_for}"
        )
        return status.settlement.recorded

    def state(self) -> LaneState:
        """Read the whole lane."""
        return self.deployment.run(inspection.lane_state(self._reader, self.name))

    def records(self) -> list[Record]:
        """Read the whole log; that of a virgin conversation is empty."""
        reader = self._reader
        return list(inspection.export(reader, None).records) if wake.load(reader.storage) else []

    def generation(self) -> GenerationRecord:
        """Read the generation record; a virgin conversation has none, which raises AssertionError."""
        record = wake.load(self._reader.storage)
        assert record is not None, f"conversation {self.name} is virgin"
        return record

    @property
    def is_virgin(self) -> bool:
        """Whether nothing was ever written for this conversation."""
        return wake.load(self._reader.storage) is None

    @property
    def alarm_at_ms(self) -> int | None:
        """The alarm slot."""
        return self.disk.alarm_at_ms

    @property
    def delivery_at_ms(self) -> int | None:
        """When the platform will next deliver an alarm: a set one, or a failed one again."""
        times = [self.disk.alarm_at_ms, self._retry_at_ms]
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    # What the platform does.

    def alarm(self) -> PassReport | None:
        """Deliver an alarm now, whether or not one is set."""
        return self.deliver()

    def deliver(self, retry_count: int | None = None) -> PassReport | None:
        """Deliver the alarm as the platform does; what the handler raises is kept in `errors`.

        `retry_count` overrides how often the platform says that it has tried before.
        """
        report = self.deployment.run(self._deliver(retry_count))
        if report is not None:
            self.reports.append(report)
        self._after_event()
        return report

    def start_delivery(self) -> "asyncio.Task[PassReport | None]":
        """Begin to deliver the alarm and run until it waits; `deployment.run_until_idle()` lets it go on."""
        task = self.deployment.loop.create_task(self._deliver(None))
        self.deployment.run_until_idle()
        return task

    async def _deliver(self, retry_count: int | None) -> PassReport | None:
        slot_ms, is_retried = self.disk.alarm_at_ms, self._retry_at_ms is not None
        if retry_count is None:
            retry_count = self._retry_count if is_retried else 0
        self._retry_at_ms = None
        self.wakes += 1
        writes = self.disk.alarm_writes
        try:
            lane = await self._opened()
            if slot_ms is not None and self.disk.alarm_at_ms != slot_ms:
                # An alarm that moved while its Object was being built is not delivered.
                return None
            # What the construction wrote is no write of the handler.
            writes = self.disk.alarm_writes
            self.disk.alarm_at_ms = None
            self.disk.sync()
            report = await maintenance.on_alarm(lane, retry_count)
        except (Crashed, asyncio.CancelledError) as end:
            if isinstance(end, Crashed):
                self.errors.append(end)
                self._die(keeps_unsynced=True)
            if self.disk.alarm_writes == writes and (slot_ms is not None or is_retried):
                # Nothing took the place of the delivered alarm, so it comes again.
                self.disk.alarm_at_ms = self.deployment.now_ms
                self.disk.sync()
            return None
        except Exception as error:  # noqa: BLE001 - the platform survives whatever a handler raises
            self.errors.append(error)
            self.disk.sync()
            self._fail_delivery(retry_count, has_written=self.disk.alarm_writes != writes)
            return None
        self._retry_count = 0
        return report

    def _fail_delivery(self, retry_count: int, *, has_written: bool) -> None:
        if has_written or self.disk.alarm_at_ms is not None:
            # What the handler did to the alarm before it raised wins over the platform's own retry.
            self._retry_count = 0
        elif retry_count >= DELIVERY_RETRIES_MAX:
            self._retry_count = 0
            self.alarm_was_lost = True
        else:
            self._retry_count = retry_count + 1
            self._retry_at_ms = self.deployment.now_ms + DELIVERY_RETRY_BASE_MS * 2**retry_count

    def lose_alarm(self) -> None:
        """Drop the alarm, as no platform should and some do."""
        self.disk.alarm_at_ms = None
        self.disk.sync()
        self.alarm_was_lost = True

    # Checks.

    def _after_event(self) -> None:
        if self._storage is not None and self._storage.is_gone:
            self._die(keeps_unsynced=True)
        if self._lane is None:
            # What died runs to its end, without reaching the disk.
            self.deployment.run_until_idle()
        if self.deployment.checks_every_event:
            self.check_laws()
        else:
            self.check_armed()

    def check_laws(self) -> None:
        """Assert that every law of the conversation holds now."""
        self.check_armed()
        reader = self._reader
        try:
            if wake.load(reader.storage) is None:
                return
        except NewerStorage:
            return
        export = inspection.export(reader, self.delivery_at_ms)
        broken = broken_laws(export)
        if self.alarm_was_lost and self.delivery_at_ms is None:
            broken = [law for law in broken if not law.endswith("no alarm is set")]
        assert not broken, f"conversation {self.name} breaks laws: {broken}"

    def check_armed(self) -> None:
        """Assert that the lane will wake by itself if it has to, reading the disk alone."""
        if self.delivery_at_ms is not None:
            self.alarm_was_lost = False
            return
        text = self.disk.get(wake.RECORD_KEY)
        if text is None or self.alarm_was_lost:
            return
        try:
            record = GenerationRecord.model_validate_json(text)
        except ValueError:
            return
        need = record.is_owed or record.due_at_ms is not None
        assert not need, (
            f"conversation {self.name} is stranded: generation {record.dirty}, processed"
            f" {record.processed}, due {record.due_at_ms}, and no alarm is set"
        )

    def close(self) -> None:
        """End the conversation's incarnation and close its database."""
        self._die(keeps_unsynced=True)
        self.deployment.run_until_idle()
        self.disk.close()
