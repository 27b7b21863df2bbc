"""What begin, finish, a mutation and a repair must do to the generation record and the alarm slot, as values.

1. A lane is *owed* a pass while `dirty > processed`. Its need is now while it is owed, and `due_at_ms` if set.
2. A mutation adds one to `dirty` and arms; it never moves an alarm later.
3. begin counts itself (`failures`, `idle_wakes`) and arms its successor before anything that can fail.
4. finish acknowledges the generation that begin saw and no later one, and only when nothing autonomous
   remains and no mutation was active at either end.
5. A due time that a pass was woken for becomes a generation, so that a pass which dies still owes it.

Everything here is pure: the record, the slot, the clock and the jitter come in, the next record and one alarm
write come out. `wake.py` reads and writes them in one transaction.
"""

from dataclasses import dataclass

from quiesce.generation_record import GenerationRecord
from quiesce.pacing import alarm_time_ms, backoff_ms
from quiesce.settings import Settings

STALE_ALARM_MS = 30_000
"""An alarm that is past due by more than this will not come by itself any more."""
ACTIVE_BODY_DELAY_MAX_MS = 1_000


@dataclass(frozen=True, slots=True)
class Quiet:
    """Only an outside event can move the lane."""

    reason: str


@dataclass(frozen=True, slots=True)
class DueAt:
    """The lane moves at this instant, in milliseconds since the epoch."""

    at_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class Autonomous:
    """The lane can move without an outside event; `is_runnable` when it can move at once."""

    reason: str
    is_runnable: bool = False


type Quiescence = Quiet | DueAt | Autonomous


@dataclass(frozen=True, slots=True)
class LaneView:
    """What a pass observed at its end."""

    quiet: Quiescence
    nonterminal: int
    due_at_ms: int | None
    progressed: bool


@dataclass(frozen=True, slots=True)
class Keep:
    """Leave the alarm slot as it is."""


@dataclass(frozen=True, slots=True)
class SetAt:
    """Set the alarm slot to this instant."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class Clear:
    """Empty the alarm slot."""


type AlarmWrite = Keep | SetAt | Clear


@dataclass(frozen=True, slots=True)
class Moment:
    """What every decision about the generation is given: the clock, the jitter and the alarm slot."""

    now_ms: int
    jitter: float
    slot_ms: int | None


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Nothing is owed: no pass."""

    alarm: AlarmWrite


@dataclass(frozen=True, slots=True)
class Begun:
    """A pass has begun: what it saw, and what it armed before doing anything."""

    record: GenerationRecord
    alarm: AlarmWrite
    generation: int
    idle_wakes_before: int
    armed_at_ms: int
    active: int


@dataclass(frozen=True, slots=True)
class Finished:
    """A pass has ended in order."""

    record: GenerationRecord
    alarm: AlarmWrite
    raced: bool
    acknowledged: bool


def arm_by(wanted_ms: int, at: Moment, *, tolerate_stale: bool) -> AlarmWrite:
    """Return the write after which an alarm stands no later than `wanted_ms`, never moving one later.

    A slot that is long past due is as good as empty, except while a pass runs: its successor may rightly lie
    in the past then.
    """
    if at.slot_ms is not None and at.slot_ms <= wanted_ms:
        is_stale = at.slot_ms < at.now_ms - STALE_ALARM_MS
        if tolerate_stale or not is_stale:
            return Keep()
    return SetAt(alarm_time_ms(wanted_ms, at.now_ms))


def mutate(
    record: GenerationRecord,
    at: Moment,
    settings: Settings,
    *,
    pass_runs: bool,
    deferred: bool = False,
) -> tuple[GenerationRecord, AlarmWrite]:
    """Count one mutation and arm for it: at once, or by the shortest delay while a pass or a body runs."""
    waits = pass_runs or deferred
    wanted_ms = at.now_ms + (settings.alarm_delay_ms if waits else 1)
    alarm = arm_by(wanted_ms, at, tolerate_stale=pass_runs)
    return record.changed(dirty=record.dirty + 1, idle_wakes=0), alarm


def is_parked(record: GenerationRecord, settings: Settings) -> bool:
    """Say whether a lane woke so often without progress that it is tried once an hour."""
    return record.idle_wakes > settings.idle_wakes_max


def retry_delay_ms(record: GenerationRecord, settings: Settings, jitter: float) -> int:
    """Return how long an autonomous lane waits for its next try."""
    if is_parked(record, settings):
        return settings.parked_wake_ms
    return backoff_ms(settings.backoff_base_ms, settings.backoff_cap_ms, record.idle_wakes, jitter)


def begin(
    record: GenerationRecord, at: Moment, settings: Settings, *, deployment: str, active: int
) -> CaughtUp | Begun:
    """Decide whether a pass is owed; if so count it and arm its successor."""
    if not record.is_owed:
        is_due = record.due_at_ms is not None and record.due_at_ms <= at.now_ms
        is_redeployed = record.deployment != deployment and record.nonterminal > 0
        if not is_due and not is_redeployed:
            return CaughtUp(_caught_up_alarm(record, at))
        record = record.changed(dirty=record.dirty + 1)
    if record.due_at_ms is not None and record.due_at_ms <= at.now_ms:
        # The pass that begins here is what was due. Were the past instant kept, a pass that dies would
        # pull its own paced successor forward to now, for ever.
        record = record.changed(due_at_ms=None)
    idle_wakes = record.idle_wakes
    delay_ms = (
        settings.alarm_delay_ms if idle_wakes == 0 else retry_delay_ms(record, settings, at.jitter)
    )
    wanted_ms = at.now_ms + delay_ms
    if record.due_at_ms is not None:
        wanted_ms = min(wanted_ms, record.due_at_ms)
    alarm = arm_by(wanted_ms, at, tolerate_stale=False)
    armed_at_ms = alarm.at_ms if isinstance(alarm, SetAt) else at.slot_ms
    assert armed_at_ms is not None
    return Begun(
        record=record.changed(failures=record.failures + 1, idle_wakes=idle_wakes + 1),
        alarm=alarm,
        generation=record.dirty,
        idle_wakes_before=idle_wakes,
        armed_at_ms=armed_at_ms,
        active=active,
    )


def _caught_up_alarm(record: GenerationRecord, at: Moment) -> AlarmWrite:
    if record.due_at_ms is None:
        return Keep() if at.slot_ms is None else Clear()
    due_at_ms = alarm_time_ms(record.due_at_ms, at.now_ms)
    return Keep() if at.slot_ms == due_at_ms else SetAt(due_at_ms)


def finish(
    record: GenerationRecord,
    begun: Begun,
    view: LaneView,
    at: Moment,
    settings: Settings,
    *,
    deployment: str,
    active: int,
    waited_passes: int,
) -> Finished:
    """Acknowledge what begin saw, if nothing more can be done for it now, and set the next useful alarm.

    `waited_passes` counts the passes in a row that only waited for a mutation whose body still runs; it paces
    them, and dies with the body that it waits for.
    """
    body_ran = begun.active > 0 or active > 0
    raced = record.dirty > begun.generation or body_ran
    is_autonomous = isinstance(view.quiet, Autonomous)
    acknowledged = not is_autonomous and not body_ran
    idle_wakes = record.idle_wakes
    if record.dirty == begun.generation:
        if view.progressed or not is_autonomous:
            idle_wakes = 0
        if body_ran and not view.progressed:
            idle_wakes = begun.idle_wakes_before
    after = record.changed(
        processed=max(record.processed, begun.generation) if acknowledged else record.processed,
        nonterminal=view.nonterminal,
        due_at_ms=view.due_at_ms,
        idle_wakes=idle_wakes,
        failures=0,
        deployment=deployment,
    )
    if raced:
        alarm = _raced_alarm(
            record, begun, at, settings, active=active, waited_passes=waited_passes
        )
    else:
        alarm = _settled_alarm(after, begun, view, at, settings)
    return Finished(after, alarm, raced=raced, acknowledged=acknowledged)


def _raced_alarm(
    record: GenerationRecord,
    begun: Begun,
    at: Moment,
    settings: Settings,
    *,
    active: int,
    waited_passes: int,
) -> AlarmWrite:
    delay_ms = settings.alarm_delay_ms
    slot_ms = at.slot_ms
    if active > 0:
        paced_ms = backoff_ms(
            settings.backoff_base_ms, settings.backoff_cap_ms, waited_passes, at.jitter
        )
        delay_ms = min(ACTIVE_BODY_DELAY_MAX_MS, paced_ms)
        if record.dirty == begun.generation:
            # Nothing came in but the body that still runs: the slot is begin's own, and gives way to the paced one.
            # Were it kept, a body that waits a minute for another Object would wake its lane a thousand times.
            slot_ms = None
    wanted_ms = at.now_ms + delay_ms
    if slot_ms is not None and slot_ms <= wanted_ms:
        return Keep()
    # A paced or parked slot gives way here: the mutation that raced has released the lane.
    armed_at_ms = begun.armed_at_ms if begun.idle_wakes_before == 0 else None
    return SetAt(alarm_time_ms(wanted_ms, at.now_ms, armed_at_ms))


def _settled_alarm(
    record: GenerationRecord, begun: Begun, view: LaneView, at: Moment, settings: Settings
) -> AlarmWrite:
    # A slot that was paced or parked at begin is no floor for what ends the pacing, which is progress, nor for a
    # clock that is known to move the lane: due times are kept, and a healed lane does not crawl.
    was_paced = begun.idle_wakes_before > 0
    floor_ms = None if was_paced and view.progressed else begun.armed_at_ms
    due_floor_ms = None if was_paced else begun.armed_at_ms
    wanted: list[int] = []
    if record.due_at_ms is not None:
        wanted.append(alarm_time_ms(record.due_at_ms, at.now_ms, due_floor_ms))
    if isinstance(view.quiet, Autonomous):
        if view.progressed:
            delay_ms = 1 if view.quiet.is_runnable else settings.backoff_base_ms
        else:
            delay_ms = retry_delay_ms(record, settings, at.jitter)
        wanted.append(alarm_time_ms(at.now_ms + delay_ms, at.now_ms, floor_ms))
    if not wanted:
        return Keep() if at.slot_ms is None else Clear()
    return Keep() if at.slot_ms == min(wanted) else SetAt(min(wanted))


def ensure(
    record: GenerationRecord, at: Moment, settings: Settings, *, deployment: str
) -> tuple[GenerationRecord, AlarmWrite]:
    """Repair what a request finds: a lane with a need and no live alarm, or a new deployment.

    Returns the record unchanged and Keep when there is nothing to repair.
    """
    if record.deployment != deployment and record.nonterminal > 0 and not record.is_owed:
        return mutate(record, at, settings, pass_runs=False)
    if _needs_alarm(record, at):
        repaired = record.changed(alarm_repaired=record.alarm_repaired + 1)
        return repaired, SetAt(_need_ms(record, at, settings))
    return record, Keep()


def fill_empty_slot(record: GenerationRecord, at: Moment, settings: Settings) -> AlarmWrite:
    """Return the alarm of a lane with a need whose slot is empty; an existing slot is never touched."""
    has_need = record.is_owed or record.due_at_ms is not None
    if not has_need or at.slot_ms is not None:
        return Keep()
    return SetAt(_need_ms(record, at, settings))


def _needs_alarm(record: GenerationRecord, at: Moment) -> bool:
    has_need = record.is_owed or record.due_at_ms is not None
    is_lost = at.slot_ms is None or at.slot_ms < at.now_ms - STALE_ALARM_MS
    return has_need and is_lost


def _need_ms(record: GenerationRecord, at: Moment, settings: Settings) -> int:
    wanted: list[int] = []
    if record.due_at_ms is not None:
        wanted.append(record.due_at_ms)
    if record.is_owed:
        is_fresh = record.idle_wakes == 0
        delay_ms = 1 if is_fresh else retry_delay_ms(record, settings, at.jitter)
        wanted.append(at.now_ms + delay_ms)
    return alarm_time_ms(min(wanted), at.now_ms)
