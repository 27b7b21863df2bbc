"""run_pass: begin → recover → deliver → drain → observe → finish; and the mutations and repairs around it.

The engine that the rest hangs on. A mutation only records that work is owed; the pass does it; what a pass did
not see at its begin it never acknowledges.

1. begin is one transaction, and arms the pass's own successor before anything that can fail.
2. A pass that fails acknowledges nothing and lets the error out; its successor is armed already.
3. finish is one transaction: acknowledgement, pacing and alarm change together.
4. If begin itself fails, one bare alarm write is the last resort, and the platform's count of failed deliveries
   must not run out: from the fifth retry on the delivery ends normally.
5. A mutation with a body counts as active from the commit that records it until it is released, always.
6. Nothing here is kept from one event to the next but the gates, which an eviction opens.
"""

import contextlib
from collections.abc import Awaitable, Callable

from quiesce import (
    agenda,
    conversation_log,
    deliver,
    drain,
    generation,
    generation_record,
    ledger,
    operations,
    quiescence,
    repair,
    retention,
    telemetry,
    wake,
)
from quiesce.conversation_log import Tail
from quiesce.errors import Corruption, NewerStorage, StorageUnavailable
from quiesce.generation import Autonomous, Begun, CaughtUp, Clear, DueAt, LaneView, Moment, SetAt
from quiesce.generation_record import Cost, GenerationRecord, Swept
from quiesce.lane import Lane, Pass
from quiesce.ledger import Submission
from quiesce.pass_report import PassReport, caught_up_report
from quiesce.recovery import Decision, classify
from quiesce.states import State
from quiesce.storage import AlarmSlot
from quiesce.telemetry import ATTEMPT_SPANS_MAX, PASS_SPAN

BEGIN_FAILED_DELAY_MS = 60_000
DELIVERIES_LEFT_UNFAILED = 5
"""From this retry on a failed begin ends normally: the platform drops an alarm after six retries."""


_WITH_OPERATIONS = frozenset(
    {
        State.INPUT_APPLIED,
        State.SUSPENDED,
        State.UNKNOWN,
        State.QUARANTINED,
        State.TERMINALIZING,
    }
)
"""The states in which a submission can have operations open, and so owe something to a child."""


class _BeginFailed(Exception):
    """begin raised this error, before anything was done."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


async def on_alarm(lane: Lane, retry_count: int) -> PassReport | None:
    """Deliver one alarm: run a pass, and never let the lane lose its alarm.

    `retry_count` is how often the platform has delivered this alarm before. What a failed pass raised is raised
    again, so that the platform's own reporting sees it.
    """
    if lane.hurt is not None:
        await lane.storage.arm(lane.clock() + lane.settings.parked_wake_ms)
        return None
    try:
        return await run_pass(lane)
    except _BeginFailed as failed:
        await _arm_as_a_last_resort(lane)
        if retry_count >= DELIVERIES_LEFT_UNFAILED:
            return None
        raise failed.error from None


async def _arm_as_a_last_resort(lane: Lane) -> None:
    """Arm outside any transaction, unless an earlier alarm stands; a slot that cannot be read counts as empty."""
    wanted_ms = lane.clock() + BEGIN_FAILED_DELAY_MS
    try:
        slot_ms = await lane.storage.alarm_at_ms()
    except StorageUnavailable:
        slot_ms = None
    if slot_ms is None or slot_ms > wanted_ms:
        await lane.storage.arm(wanted_ms)


async def run_pass(lane: Lane) -> PassReport:
    """Run one whole maintenance pass; passes of one incarnation follow one another."""
    lane.gates.passing += 1
    try:
        async with lane.gates.passes:
            return await _pass(lane)
    finally:
        lane.gates.passing -= 1


async def _pass(lane: Lane) -> PassReport:
    started_ms, started = lane.clock(), lane.storage.counts()
    try:
        begun = await _begin(lane)
    except Exception as error:
        raise _BeginFailed(error) from error
    if isinstance(begun, CaughtUp):
        return caught_up_report(begun, started_ms)
    work = Pass(begun, started_ms, started)
    with telemetry.span_of(lane.reporter, PASS_SPAN, ATTEMPT_SPANS_MAX) as work.span:
        decided = await repair.recover(lane, work)
        if work.messages or _may_owe_children(decided):
            await deliver.deliver(lane, work)
            decided = await repair.recover_head(lane, work)
        await drain.drain(lane, work, decided)
        retention.sweep(lane, work)
        report = await _finish(lane, work)
        work.span.note(report.facts())
    lane.tell("pass", None, report.facts(), at_ms=report.at_ms)
    return report


async def _begin(lane: Lane) -> CaughtUp | Begun:
    def step(slot: AlarmSlot) -> CaughtUp | Begun:
        # Every step reads the clock itself: what was waited for the gate must not make an alarm too early.
        now_ms = lane.clock()
        record = wake.open_record(lane.storage)
        if record is None:
            # A virgin Object owes nothing and is left as it was found, but for an alarm that nobody needs.
            slot.clear()
            return CaughtUp(Clear())
        begun = generation.begin(
            record,
            Moment(now_ms, lane.jitter(), slot.at_ms),
            lane.settings,
            deployment=lane.agents.deployment,
            active=lane.gates.active,
        )
        if isinstance(begun, Begun):
            wake.store(lane.storage, begun.record)
        wake.write_alarm(slot, begun.alarm)
        lane.note_alarm(slot)
        return begun

    await lane.failpoints.reach("maintenance:begin:before")
    async with lane.gates.generation:
        begun = await lane.storage.transaction(step)
    await lane.failpoints.reach("maintenance:begin:after")
    return begun


def observe(lane: Lane, work: Pass, end: Tail, swept: Swept | None = None) -> LaneView:
    """Look at the lane once more: what is open, what the head waits for, what is due, and was there progress."""
    now_ms = lane.clock()
    parts: list[generation.Quiescence] = []
    head = ledger.at(lane.storage, end.head) if end.nonterminal else None
    if head is not None:
        decision = classify(repair.fold(lane, head, now_ms, is_head=True))
        parts.append(quiescence.of_decision(decision))
        if head.state in _WITH_OPERATIONS:
            parts += deliver.owed_by(operations.of_submission(lane.storage, head.sequence))
    owed = agenda.next_due(lane.storage)
    if owed is not None:
        parts.append(_owed_at(owed))
    sweep_at_ms = retention.sweep_at_ms(swept, lane.settings)
    if sweep_at_ms is not None:
        parts.append(DueAt(sweep_at_ms, "what was settled is to be purged"))
    quiet, due_at_ms = quiescence.combine(parts, now_ms)
    appended = work.tail_before is not None and end.sequence > work.tail_before
    progressed = appended or work.recovered + work.delivered + work.purged > 0
    return LaneView(quiet, end.nonterminal, due_at_ms, progressed)


def _owed_at(owed: agenda.Entry) -> generation.Quiescence:
    if owed.kind == "message" and not owed.detail["tries"]:
        return Autonomous("a settlement has not been told", is_runnable=True)
    what = (
        "a submission has a deadline" if owed.kind == "deadline" else "a settlement is told again"
    )
    return DueAt(owed.at_ms, what)


def _may_owe_children(decided: tuple[Submission, Decision] | None) -> bool:
    return decided is not None and decided[0].state in _WITH_OPERATIONS


async def _finish(lane: Lane, work: Pass) -> PassReport:
    await lane.failpoints.reach("maintenance:finish:before")
    async with lane.gates.generation:
        report = await lane.storage.transaction(lambda slot: _finish_step(lane, work, slot))
    await lane.failpoints.reach("maintenance:finish:after")
    return report


def _finish_step(lane: Lane, work: Pass, slot: AlarmSlot) -> PassReport:
    # Observed inside the transaction: no mutation can come between what is seen and what is acknowledged.
    now_ms, gates = lane.clock(), lane.gates
    record = wake.open_record(lane.storage)
    assert record is not None
    end = conversation_log.tail(lane.storage)
    swept = retention.plan(lane, work, record, end)
    view = observe(lane, work, end, swept)
    finished = generation.finish(
        record,
        work.begun,
        view,
        Moment(now_ms, lane.jitter(), slot.at_ms),
        lane.settings,
        deployment=lane.agents.deployment,
        active=gates.active,
        waited_passes=gates.waited_passes,
    )
    gates.waited_passes = gates.waited_passes + 1 if gates.active else 0
    wake.write_alarm(slot, finished.alarm)
    lane.note_alarm(slot)
    spent = lane.storage.counts().since(work.started)
    after = finished.record
    report = PassReport(
        phase="actionable",
        recovered=work.recovered,
        settled=work.settled,
        purged=work.purged,
        nonterminal=view.nonterminal,
        alarm="cleared" if slot.at_ms is None else "rearmed",
        reason=_reason(finished, view),
        generation_lag=after.dirty - after.processed,
        next_due_ms=view.due_at_ms,
        rows_read=spent.rows_read,
        rows_written=spent.rows_written,
        duration_ms=max(0, now_ms - work.started_ms),
        at_ms=now_ms,
    )
    cost = Cost(
        wakes=1,
        rows_read=spent.rows_read,
        rows_written=spent.rows_written + 1 + slot.is_changed,
        active_ms=report.duration_ms,
    )
    stored = after.changed(cost=after.cost.plus(cost), last_pass=report.fields(), swept=swept)
    wake.store(lane.storage, stored)
    return report


def _reason(finished: generation.Finished, view: LaneView) -> str:
    if finished.raced:
        return "a mutation came in while the pass ran"
    return view.quiet.reason


async def with_mutation[T](lane: Lane, body: Callable[[], Awaitable[T]]) -> T:
    """Run a mutation of several steps: count it and arm for it first, then its body, then wake.

    The mutation is active from its commit until it is released, also when the body raises or is cancelled. If it
    cannot be counted, the body never runs.
    """
    mark = lane.storage.counts()
    await lane.failpoints.reach("maintenance:dirty:before")
    async with lane.gates.generation:
        lane.gates.active += 1
        try:
            await lane.storage.transaction(
                lambda slot: lane.wake(slot, lane.clock()).count_mutation(mark, deferred=True)
            )
        except BaseException:
            lane.gates.active -= 1
            raise
    try:
        await lane.failpoints.reach("maintenance:dirty:after")
        await lane.failpoints.reach("maintenance:mutation:armed")
        result = await body()
        await lane.failpoints.reach("maintenance:mutation:finished")
        return result
    finally:
        lane.gates.active -= 1
        if lane.gates.active == 0:
            lane.gates.waited_passes = 0
            # A hint must not hide what the body raised; the alarm of the bump stands in any case.
            with contextlib.suppress(StorageUnavailable):
                await hasten(lane)


async def hasten(lane: Lane) -> None:
    """Wake an owed lane sooner: a hint, dropped while a pass runs."""
    if lane.gates.passing > 0:
        return
    await lane.failpoints.reach("maintenance:ensure:before")
    async with lane.gates.generation:
        await lane.storage.transaction(lambda slot: lane.wake(slot, lane.clock()).hasten())
    await lane.failpoints.reach("maintenance:ensure:after")


async def open_lane(lane: Lane) -> None:
    """The constructor's gate: one key-value read, and an alarm for a lane that needs one and has none.

    It never moves or deletes an alarm, scans nothing and raises nothing: what keeps the Object from serving is
    kept as a value, `lane.hurt`.
    """
    try:
        record = _record_at_opening(lane)
        if record is None or not (record.is_owed or record.due_at_ms is not None):
            return
        moment = Moment(lane.clock(), lane.jitter(), await lane.storage.alarm_at_ms())
        write = generation.fill_empty_slot(record, moment, lane.settings)
        if isinstance(write, SetAt):
            await lane.storage.arm(write.at_ms)
    except NewerStorage as newer:
        lane.hurt = newer
    except StorageUnavailable:
        # The store is down. Whatever opened the Object meets that itself, and says so.
        return


def _record_at_opening(lane: Lane) -> GenerationRecord | None:
    """Read the record without SQL: an Object without one is looked at by the first event that may write."""
    text = lane.storage.kv_get(wake.RECORD_KEY)
    if text is None:
        return None
    try:
        return generation_record.parse_record(text)
    except Corruption:
        return generation_record.RECOVERED


async def on_request(lane: Lane) -> None:
    """Repair what a request finds: an owed lane whose alarm was lost, or a deployment that changed.

    Once in an incarnation, and never while a pass runs: a running pass has its successor armed.
    """
    if lane.is_repaired or lane.hurt is not None or lane.gates.passing > 0:
        return
    now_ms = lane.clock()
    if may_be_in_delivery(lane, now_ms):
        return
    record = wake.load(lane.storage)
    if record is None or not (record.is_owed or record.due_at_ms is not None or record.nonterminal):
        return
    slot_ms = await lane.storage.alarm_at_ms()
    moment = Moment(now_ms, 0.0, slot_ms)
    repaired, _ = generation.ensure(
        record, moment, lane.settings, deployment=lane.agents.deployment
    )
    if repaired is record:
        return
    await lane.failpoints.reach("maintenance:ensure:before")
    async with lane.gates.generation:
        lane.is_repaired = await lane.storage.transaction(
            lambda slot: lane.wake(slot, lane.clock()).repair()
        )
    await lane.failpoints.reach("maintenance:ensure:after")


def may_be_in_delivery(lane: Lane, now_ms: int) -> bool:
    """Say whether an alarm that was armed here may be on its way: its slot is empty from the delivery on."""
    armed_at_ms = lane.armed_at_ms
    return armed_at_ms is not None and abs(now_ms - armed_at_ms) < generation.STALE_ALARM_MS
