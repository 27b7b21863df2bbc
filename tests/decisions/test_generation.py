"""What a mutation, begin, finish and a repair do to the generation record and the alarm slot.

The ids of the cases are the numbered laws of `maintenance`: need (M1), mutations (M2), begin (M4), finish (M5),
bookkeeping (M6), alarm times (M8), pacing (M9), parking (M11), the constructor's gate (M12), requests (M13).

Not tested here: gates and order (M3, M7, M10, M14), which only a running lane has.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiesce.generation import (
    AlarmWrite,
    Autonomous,
    Begun,
    CaughtUp,
    Clear,
    DueAt,
    Finished,
    Keep,
    LaneView,
    Moment,
    Quiescence,
    Quiet,
    SetAt,
    arm_by,
    begin,
    ensure,
    fill_empty_slot,
    finish,
    is_parked,
    mutate,
    retry_delay_ms,
)
from quiesce.generation_record import FIRST, GenerationRecord
from quiesce.settings import Settings

LIMITS = Settings()
NOW = 1_000_000
DELAY = 50
"""The shortest delay: half of the backoff base of 100."""
PARKED = 3_600_000
THIS, OTHER = "this-deployment", "another-deployment"
OWED = {"dirty": 5, "processed": 4}
CAUGHT_UP = {"dirty": 5, "processed": 5}
RUNNABLE = Autonomous("it can run", is_runnable=True)
STUCK = Autonomous("a repair was deferred")
QUIET = Quiet("a person must decide")


def record(**values: Any) -> GenerationRecord:
    return FIRST.changed(**{**CAUGHT_UP, "deployment": THIS, **values})


def at(slot_ms: int | None = None, *, now_ms: int = NOW, jitter: float = 0.0) -> Moment:
    return Moment(now_ms, jitter, slot_ms)


def slot_after(slot_ms: int | None, write: AlarmWrite) -> int | None:
    match write:
        case SetAt(at_ms=at_ms):
            return at_ms
        case Clear():
            return None
        case Keep():
            return slot_ms


# Mutations.


@pytest.mark.parametrize(
    ("slot_ms", "pass_runs", "deferred", "alarm"),
    [
        pytest.param(None, False, False, SetAt(NOW + 1), id="M2-at-once"),
        pytest.param(None, True, False, SetAt(NOW + DELAY), id="M2-by-the-delay-in-a-pass"),
        pytest.param(None, False, True, SetAt(NOW + DELAY), id="M2-by-the-delay-with-a-body"),
        pytest.param(NOW + 9_000, False, False, SetAt(NOW + 1), id="M2-a-later-alarm-comes-nearer"),
        pytest.param(NOW + 9_000, True, False, SetAt(NOW + DELAY), id="M2-nearer-in-a-pass"),
        pytest.param(NOW + 1, False, False, Keep(), id="M2-armed-by-then-already"),
        pytest.param(NOW + DELAY, True, False, Keep(), id="M2-armed-by-then-in-a-pass"),
        pytest.param(NOW + DELAY + 1, True, False, SetAt(NOW + DELAY), id="M2-one-too-late"),
        pytest.param(NOW, False, False, Keep(), id="M2-due-now"),
        pytest.param(NOW - 30_000, False, False, Keep(), id="M2-late-and-still-coming"),
        pytest.param(NOW - 30_001, False, False, SetAt(NOW + 1), id="M13-so-late-that-it-is-lost"),
        pytest.param(NOW - 30_001, True, False, Keep(), id="M2-a-long-pass-has-its-successor"),
        pytest.param(NOW - 30_001, False, True, SetAt(NOW + DELAY), id="M13-lost-with-a-body"),
    ],
)
def test_a_mutation_arms_and_never_moves_an_alarm_later(
    slot_ms: int | None, alarm: AlarmWrite, *, pass_runs: bool, deferred: bool
) -> None:
    after, write = mutate(record(), at(slot_ms), LIMITS, pass_runs=pass_runs, deferred=deferred)
    assert write == alarm
    assert (after.dirty, after.processed) == (6, 5)


def test_a_mutation_counts_one_and_releases_a_parked_lane() -> None:
    parked = record(**OWED, idle_wakes=100, failures=3, nonterminal=2, due_at_ms=NOW + 9)
    after, write = mutate(parked, at(NOW + PARKED), LIMITS, pass_runs=False)
    assert after == parked.changed(dirty=6, idle_wakes=0)
    assert write == SetAt(NOW + 1)


def test_a_generation_counts_on_beyond_what_javascript_can_count() -> None:
    """M5 holds at any size: nothing is rounded."""
    huge = 2**53
    after, _ = mutate(record(dirty=huge, processed=huge), at(), LIMITS, pass_runs=False)
    assert after.dirty == huge + 1
    begun = begun_on(after, at())
    done = ended(begun, after=begun.record)
    assert (done.record.dirty, done.record.processed) == (huge + 1, huge + 1)
    assert f'"processed":"{huge + 1}"' in done.record.model_dump_json()


# Begin.


def started(before: GenerationRecord, moment: Moment, *, active: int = 0) -> CaughtUp | Begun:
    return begin(before, moment, LIMITS, deployment=THIS, active=active)


def begun_on(before: GenerationRecord, moment: Moment, *, active: int = 0) -> Begun:
    begun = started(before, moment, active=active)
    assert isinstance(begun, Begun)
    return begun


@pytest.mark.parametrize(
    ("values", "slot_ms", "alarm"),
    [
        pytest.param({}, None, Keep(), id="M4-nothing-due-and-empty"),
        pytest.param({}, NOW + 9, Clear(), id="M4-nothing-due-and-set"),
        pytest.param({}, NOW - 9, Clear(), id="M4-nothing-due-and-past"),
        pytest.param({"due_at_ms": NOW + 9}, None, SetAt(NOW + 9), id="M4-due-and-empty"),
        pytest.param({"due_at_ms": NOW + 1}, None, SetAt(NOW + 1), id="M4-due-in-one"),
        pytest.param({"due_at_ms": NOW + 9}, NOW + 9, Keep(), id="M4-due-and-set-so"),
        pytest.param({"due_at_ms": NOW + 9}, NOW + 8, SetAt(NOW + 9), id="M4-due-and-set-earlier"),
        pytest.param({"due_at_ms": NOW + 9}, NOW + 10, SetAt(NOW + 9), id="M4-due-and-set-later"),
        pytest.param({"deployment": OTHER}, None, Keep(), id="M4-redeployed-with-nothing-open"),
        pytest.param({"idle_wakes": 100}, None, Keep(), id="M4-idle-and-caught-up"),
        pytest.param({"nonterminal": 7}, None, Keep(), id="M4-open-work-that-waits"),
    ],
)
def test_begin_of_a_lane_that_is_caught_up_sets_or_clears_the_alarm(
    values: dict[str, Any], slot_ms: int | None, alarm: AlarmWrite
) -> None:
    assert started(record(**values), at(slot_ms)) == CaughtUp(alarm)


@pytest.mark.parametrize(
    ("values", "slot_ms", "jitter", "armed_at_ms"),
    [
        pytest.param({}, None, 0.9, NOW + DELAY, id="M4-idle-0-is-not-paced"),
        pytest.param({"idle_wakes": 1}, None, 0.0, NOW + 100, id="M4-idle-1-is-paced"),
        pytest.param({"idle_wakes": 1}, None, 0.999, NOW + 200, id="M4-idle-1-with-jitter"),
        pytest.param({"idle_wakes": 10}, None, 0.0, NOW + 30_000, id="M4-idle-10-at-the-cap"),
        pytest.param({"idle_wakes": 64}, None, 0.0, NOW + 30_000, id="M11-idle-64-is-not-parked"),
        pytest.param({"idle_wakes": 65}, None, 0.5, NOW + PARKED, id="M11-idle-65-is-parked"),
        pytest.param({}, NOW + DELAY, 0.0, NOW + DELAY, id="M8-an-equal-slot"),
        pytest.param({}, NOW + 9, 0.0, NOW + 9, id="M4-a-nearer-slot-stays"),
        pytest.param({}, NOW + 9_000, 0.0, NOW + DELAY, id="M4-a-later-slot-comes-nearer"),
        pytest.param({}, NOW - 30_001, 0.0, NOW + DELAY, id="M4-a-lost-slot-is-replaced"),
        pytest.param({"due_at_ms": NOW + 9}, None, 0.0, NOW + 9, id="M4-due-before-the-delay"),
        pytest.param(
            {"due_at_ms": NOW + 90, "idle_wakes": 10}, None, 0.0, NOW + 90, id="M4-due-before-paced"
        ),
        pytest.param(
            {"due_at_ms": NOW + 90, "idle_wakes": 65}, None, 0.0, NOW + 90, id="M11-due-is-kept"
        ),
        pytest.param({"due_at_ms": NOW + 99}, None, 0.0, NOW + DELAY, id="M4-due-after-the-delay"),
    ],
)
def test_begin_arms_its_successor_before_anything_that_can_fail(
    values: dict[str, Any], slot_ms: int | None, jitter: float, armed_at_ms: int
) -> None:
    before = record(**{**OWED, **values})
    begun = begun_on(before, at(slot_ms, jitter=jitter))
    assert begun.armed_at_ms == armed_at_ms
    assert slot_after(slot_ms, begun.alarm) == armed_at_ms
    assert isinstance(begun.alarm, Keep) == (slot_ms == armed_at_ms)


def test_begin_counts_itself_before_any_work() -> None:
    """M4: a pass that dies is counted, in `failures` and in the pacing exponent."""
    before = record(**OWED, failures=2, idle_wakes=3, nonterminal=4)
    begun = begun_on(before, at(), active=2)
    assert begun.record == before.changed(failures=3, idle_wakes=4)
    assert (begun.generation, begun.idle_wakes_before, begun.active) == (5, 3, 2)


@pytest.mark.parametrize("due_at_ms", [NOW, NOW - 1, 1])
def test_a_due_time_that_has_come_becomes_a_generation(due_at_ms: int) -> None:
    """M4: a pass that dies still owes it; and the past instant pulls no successor forward."""
    begun = begun_on(record(due_at_ms=due_at_ms, idle_wakes=3), at())
    assert (begun.record.dirty, begun.record.processed) == (6, 5)
    assert begun.record.due_at_ms is None
    assert begun.generation == 6
    assert begun.armed_at_ms == NOW + 400


def test_a_due_time_that_has_come_in_an_owed_lane_is_consumed_without_another_generation() -> None:
    begun = begun_on(record(**OWED, due_at_ms=NOW), at())
    assert (begun.record.dirty, begun.record.due_at_ms) == (5, None)


def test_a_due_time_ahead_stays_due() -> None:
    assert begun_on(record(**OWED, due_at_ms=NOW + 1), at()).record.due_at_ms == NOW + 1


def test_open_work_is_looked_at_once_after_a_deploy() -> None:
    """M4: begin finds another deployment than finish stored, and bumps."""
    begun = begun_on(record(deployment=OTHER, nonterminal=1), at())
    assert begun.generation == 6
    assert begun.record.deployment == OTHER, "only finish says that this deployment has looked"
    assert isinstance(started(record(nonterminal=1), at()), CaughtUp)


def test_a_deploy_adds_no_generation_to_an_owed_lane() -> None:
    assert begun_on(record(**OWED, deployment=OTHER, nonterminal=1), at()).generation == 5


# Finish.


@dataclass(frozen=True)
class Ending:
    """How a pass ended: what it observed, and what happened around it."""

    quiet: Quiescence = QUIET
    progressed: bool = False
    due_at_ms: int | None = None
    nonterminal: int = 1
    active: int = 0
    active_at_begin: int = 0
    mutations: int = 0
    """Mutations that came in while the pass ran."""
    idle_wakes: int = 0
    """Before begin."""
    lasted_ms: int = 10
    slot_ms: int | None = field(default=-1)
    """What stands in the slot at the end; -1: what begin armed."""
    jitter: float = 0.0
    jitter_at_begin: float = 0.0
    waited_passes: int = 0


def ended(
    begun: Begun, ending: Ending | None = None, *, after: GenerationRecord | None = None
) -> Finished:
    ending = ending or Ending()
    current = after or begun.record
    slot_ms = begun.armed_at_ms if ending.slot_ms == -1 else ending.slot_ms
    for _ in range(ending.mutations):
        moment = at(slot_ms, now_ms=NOW + ending.lasted_ms // 2)
        current, write = mutate(current, moment, LIMITS, pass_runs=True)
        slot_ms = slot_after(slot_ms, write)
    view = LaneView(ending.quiet, ending.nonterminal, ending.due_at_ms, ending.progressed)
    return finish(
        current,
        begun,
        view,
        at(slot_ms, now_ms=NOW + ending.lasted_ms, jitter=ending.jitter),
        LIMITS,
        deployment=THIS,
        active=ending.active,
        waited_passes=ending.waited_passes,
    )


def passed(ending: Ending) -> tuple[Begun, Finished]:
    """Begin an owed lane and end it so."""
    before = record(**OWED, idle_wakes=ending.idle_wakes, failures=2, deployment=OTHER)
    begun = begun_on(before, at(jitter=ending.jitter_at_begin), active=ending.active_at_begin)
    return begun, ended(begun, ending)


DUE = DueAt(NOW + 5_000, "a timer")


@pytest.mark.parametrize(
    ("ending", "acknowledged", "raced"),
    [
        pytest.param(Ending(QUIET), True, False, id="M5-quiet"),
        pytest.param(Ending(DUE, due_at_ms=NOW + 5_000), True, False, id="M5-due"),
        pytest.param(Ending(RUNNABLE), False, False, id="M5-runnable"),
        pytest.param(Ending(STUCK), False, False, id="M5-deferred"),
        pytest.param(Ending(RUNNABLE, progressed=True), False, False, id="M5-yielded"),
        pytest.param(Ending(active_at_begin=1), False, True, id="M5-active-at-begin"),
        pytest.param(Ending(active=1), False, True, id="M5-active-now"),
        pytest.param(Ending(active=1, active_at_begin=1), False, True, id="M5-active-throughout"),
        pytest.param(Ending(mutations=1), True, True, id="M5-raced-and-quiet"),
        pytest.param(Ending(RUNNABLE, mutations=1), False, True, id="M5-raced-and-runnable"),
        pytest.param(Ending(mutations=1, active=1), False, True, id="M5-raced-with-a-body"),
    ],
)
def test_finish_acknowledges_what_begin_saw_if_nothing_autonomous_remains_and_no_body_ran(
    ending: Ending, *, acknowledged: bool, raced: bool
) -> None:
    """Never a later generation than begin saw: what came in meanwhile is owed another pass."""
    begun, finished = passed(ending)
    assert (finished.acknowledged, finished.raced) == (acknowledged, raced)
    assert finished.record.processed == (begun.generation if acknowledged else 4)
    assert finished.record.dirty == 5 + ending.mutations
    assert finished.record.is_owed == (not acknowledged or ending.mutations > 0)


def test_finish_never_takes_an_acknowledgement_back() -> None:
    """Of two incarnations, the one that finishes last may have begun first."""
    begun = begun_on(record(**OWED), at())
    further = begun.record.changed(dirty=9, processed=8)
    assert ended(begun, after=further).record.processed == 8


@pytest.mark.parametrize(
    ("ending", "idle_wakes"),
    [
        pytest.param(Ending(QUIET, idle_wakes=3), 0, id="M5-quiet"),
        pytest.param(Ending(DUE, idle_wakes=3), 0, id="M5-due"),
        pytest.param(Ending(STUCK, idle_wakes=3), 4, id="M9-autonomous-without-progress"),
        pytest.param(Ending(RUNNABLE, idle_wakes=3), 4, id="M9-runnable-without-progress"),
        pytest.param(Ending(STUCK, progressed=True, idle_wakes=3), 0, id="M9-progress"),
        pytest.param(Ending(RUNNABLE, progressed=True, idle_wakes=3), 0, id="M9-yielded"),
        pytest.param(Ending(STUCK, active=1, idle_wakes=3), 3, id="M9-only-waited-for-a-body"),
        pytest.param(
            Ending(STUCK, active_at_begin=1, idle_wakes=3), 3, id="M9-waited-for-a-body-that-ended"
        ),
        pytest.param(
            Ending(STUCK, active=1, progressed=True, idle_wakes=3),
            0,
            id="M9-progress-beside-a-body",
        ),
        pytest.param(Ending(STUCK, mutations=1, idle_wakes=3), 0, id="M5-raced-keeps-the-release"),
        pytest.param(Ending(QUIET, mutations=1, idle_wakes=3), 0, id="M5-raced-and-quiet"),
    ],
)
def test_finish_counts_the_passes_in_a_row_that_came_to_nothing(
    ending: Ending, idle_wakes: int
) -> None:
    assert passed(ending)[1].record.idle_wakes == idle_wakes


def test_idle_wakes_belong_to_the_mutation_that_came_in() -> None:
    """M5: only if `dirty` is what begin saw. Here the mutation released, and an idle pass counted since."""
    begun = begun_on(record(**OWED, idle_wakes=9), at())
    released = begun.record.changed(dirty=6, idle_wakes=2)
    assert ended(begun, Ending(STUCK), after=released).record.idle_wakes == 2
    assert ended(begun, Ending(QUIET), after=released).record.idle_wakes == 2


def test_finish_stores_what_it_observed_and_that_it_got_so_far() -> None:
    begun, finished = passed(Ending(DUE, due_at_ms=NOW + 5_000, nonterminal=3))
    assert begun.record.failures == 3
    assert finished.record.failures == 0
    assert finished.record.nonterminal == 3
    assert finished.record.due_at_ms == NOW + 5_000
    assert finished.record.deployment == THIS


@pytest.mark.parametrize(
    "quiet", [QUIET, DUE, STUCK, RUNNABLE], ids=["quiet", "due", "deferred", "runnable"]
)
def test_a_pass_by_itself_never_bumps_the_generation(quiet: Quiescence) -> None:
    """M6."""
    begun, finished = passed(Ending(quiet))
    assert begun.record.dirty == finished.record.dirty == 5


END = NOW + 10
"""When the passes below end, ten milliseconds after they began."""


@pytest.mark.parametrize(
    ("ending", "alarm"),
    [
        # (1) raced
        pytest.param(Ending(mutations=1), Keep(), id="M5.1-raced-the-armed-slot-is-near"),
        pytest.param(
            Ending(mutations=1, idle_wakes=10),
            Keep(),
            id="M5.1-raced-the-mutation-has-armed-nearer",
        ),
        pytest.param(
            Ending(mutations=1, idle_wakes=100, slot_ms=NOW + PARKED),
            Keep(),
            id="M5.1-raced-in-a-parked-lane",
        ),
        pytest.param(
            Ending(active_at_begin=1, idle_wakes=100),
            SetAt(END + DELAY),
            id="M5.1-a-body-that-ended-unparks",
        ),
        pytest.param(
            Ending(active_at_begin=1, slot_ms=None),
            SetAt(END + DELAY),
            id="M5.1-raced-with-an-empty-slot",
        ),
        pytest.param(
            Ending(active_at_begin=1, lasted_ms=100_000),
            Keep(),
            id="M5.1-raced-and-the-slot-is-past-due",
        ),
        pytest.param(
            Ending(active=1, slot_ms=None), SetAt(END + 50), id="M5.1-a-body-runs-first-wait"
        ),
        pytest.param(
            Ending(active=1, slot_ms=None, waited_passes=2),
            SetAt(END + 200),
            id="M5.1-a-body-runs-third-wait",
        ),
        pytest.param(
            Ending(active=1, slot_ms=None, waited_passes=20),
            SetAt(END + 1_000),
            id="M5.1-a-body-runs-at-most-a-second",
        ),
        pytest.param(
            Ending(active=1, idle_wakes=100, waited_passes=20),
            SetAt(END + 1_000),
            id="M5.1-a-body-runs-in-a-parked-lane",
        ),
        pytest.param(
            Ending(RUNNABLE, progressed=True, active=1, slot_ms=None),
            SetAt(END + 50),
            id="M5.1-raced-comes-before-autonomous",
        ),
        pytest.param(
            Ending(DUE, due_at_ms=NOW + 5_000, active_at_begin=1),
            Keep(),
            id="M5.1-raced-comes-before-due",
        ),
        # (2) autonomous
        pytest.param(
            Ending(RUNNABLE, progressed=True, slot_ms=None),
            SetAt(NOW + DELAY),
            id="M8-yielded-no-earlier-than-armed",
        ),
        pytest.param(
            Ending(RUNNABLE, progressed=True), Keep(), id="M8-yielded-keeps-the-armed-slot"
        ),
        pytest.param(
            Ending(RUNNABLE, progressed=True, lasted_ms=60_000),
            SetAt(NOW + 60_001),
            id="M9-yielded-one-millisecond-ahead-once-the-slot-is-past",
        ),
        pytest.param(
            Ending(RUNNABLE, progressed=True, idle_wakes=100),
            SetAt(END + 1),
            id="M9-progress-ends-parking",
        ),
        pytest.param(
            Ending(STUCK, progressed=True), SetAt(END + 100), id="M9-progressed-otherwise"
        ),
        pytest.param(
            Ending(STUCK, progressed=True, idle_wakes=100),
            SetAt(END + 100),
            id="M9-progressed-otherwise-ends-parking",
        ),
        pytest.param(Ending(STUCK), SetAt(END + 100), id="M9-no-progress-the-first-time"),
        pytest.param(
            Ending(STUCK, jitter=0.999), SetAt(END + 200), id="M9-no-progress-with-jitter"
        ),
        pytest.param(
            Ending(RUNNABLE), SetAt(END + 100), id="M9-runnable-without-progress-is-paced"
        ),
        pytest.param(
            Ending(STUCK, idle_wakes=4), SetAt(END + 1_600), id="M9-no-progress-the-fifth-time"
        ),
        pytest.param(
            Ending(STUCK, idle_wakes=63), SetAt(END + 30_000), id="M11-the-last-before-parking"
        ),
        pytest.param(Ending(STUCK, idle_wakes=64), SetAt(END + PARKED), id="M11-parked"),
        pytest.param(
            Ending(STUCK, idle_wakes=12, jitter_at_begin=0.999),
            Keep(),
            id="M8-no-progress-no-earlier-than-armed",
        ),
        pytest.param(
            Ending(STUCK, due_at_ms=NOW + 80), SetAt(NOW + 80), id="M5.2-due-before-the-retry"
        ),
        pytest.param(
            Ending(STUCK, due_at_ms=NOW + 800), SetAt(END + 100), id="M5.2-due-after-the-retry"
        ),
        pytest.param(
            Ending(STUCK, due_at_ms=NOW + 80_000, idle_wakes=64),
            SetAt(NOW + 80_000),
            id="M11-a-due-time-is-kept-when-parking-begins",
        ),
        pytest.param(
            Ending(STUCK, due_at_ms=NOW + 80_000, idle_wakes=65),
            SetAt(NOW + 80_000),
            id="M11-a-due-time-is-kept-in-a-parked-lane",
        ),
        # (3) timed waits only
        pytest.param(
            Ending(DUE, due_at_ms=NOW + 5_000), SetAt(NOW + 5_000), id="M5.3-exactly-when-due"
        ),
        pytest.param(
            Ending(DUE, due_at_ms=NOW + 5_000, slot_ms=NOW + 5_000), Keep(), id="M8-an-equal-write"
        ),
        pytest.param(
            Ending(DueAt(NOW + 20, "a timer"), due_at_ms=NOW + 20),
            Keep(),
            id="M8-due-before-the-armed-slot",
        ),
        pytest.param(
            Ending(DueAt(NOW + 20, "a timer"), due_at_ms=NOW + 20, lasted_ms=60_000),
            SetAt(NOW + 60_001),
            id="M8-due-in-a-pass-that-lasted",
        ),
        pytest.param(
            Ending(DUE, due_at_ms=NOW + 5_000, progressed=True, idle_wakes=100),
            SetAt(NOW + 5_000),
            id="M5.3-due-in-a-parked-lane-with-progress",
        ),
        pytest.param(
            Ending(DUE, due_at_ms=NOW + 5_000, idle_wakes=100),
            SetAt(NOW + 5_000),
            id="M5.3-due-in-a-parked-lane-without-progress",
        ),
        # (4) otherwise
        pytest.param(Ending(QUIET), Clear(), id="M5.4-quiet"),
        pytest.param(Ending(QUIET, progressed=True), Clear(), id="M5.4-quiet-after-progress"),
        pytest.param(Ending(QUIET, idle_wakes=100), Clear(), id="M5.4-quiet-in-a-parked-lane"),
        pytest.param(Ending(QUIET, slot_ms=None), Keep(), id="M8-quiet-and-empty"),
        pytest.param(Ending(QUIET, nonterminal=0), Clear(), id="M5.4-nothing-open"),
    ],
)
def test_finish_sets_the_next_useful_alarm(ending: Ending, alarm: AlarmWrite) -> None:
    assert passed(ending)[1].alarm == alarm


# Laws over all endings.

ENDINGS = st.builds(
    Ending,
    quiet=st.sampled_from([QUIET, STUCK, RUNNABLE])
    | st.integers(NOW + 60_001, NOW + 10**7).map(lambda at_ms: DueAt(at_ms, "a timer")),
    progressed=st.booleans(),
    due_at_ms=st.none() | st.integers(NOW + 60_001, NOW + 10**7),
    active=st.integers(0, 1),
    active_at_begin=st.integers(0, 1),
    mutations=st.integers(0, 2),
    idle_wakes=st.sampled_from([0, 1, 5, 63, 64, 65, 1_000]),
    lasted_ms=st.sampled_from([0, 1, 49, 50, 51, 29_999, 30_051, 60_000]),
    jitter=st.floats(0, 1, exclude_max=True),
    waited_passes=st.integers(0, 40),
)


@settings(deadline=None, max_examples=300)
@given(ENDINGS)
def test_a_lane_with_a_need_is_armed_by_then_and_one_without_has_no_alarm(ending: Ending) -> None:
    """M1 over every ending: owed is soon, or paced, or parked; due is when it is due; quiet is nothing."""
    if isinstance(ending.quiet, DueAt):
        ending = replace(ending, due_at_ms=ending.quiet.at_ms)
    if isinstance(ending.quiet, Quiet):
        ending = replace(ending, due_at_ms=None)
    begun, finished = passed(ending)
    now_ms = NOW + ending.lasted_ms
    slot_ms = begun.armed_at_ms
    if ending.mutations:
        slot_ms = min(slot_ms, NOW + ending.lasted_ms // 2 + DELAY)
    alarm_ms = slot_after(slot_ms, finished.alarm)
    after = finished.record
    if after.is_owed or after.due_at_ms is not None:
        assert alarm_ms is not None
    else:
        assert alarm_ms is None
    if after.due_at_ms is not None and not finished.raced:
        assert alarm_ms is not None
        assert alarm_ms <= max(after.due_at_ms, now_ms + DELAY)
    if finished.raced:
        assert alarm_ms is not None
        assert alarm_ms <= now_ms + 1_000
    if isinstance(finished.alarm, SetAt):
        assert finished.alarm.at_ms > now_ms
        assert finished.alarm.at_ms <= now_ms + max(PARKED, 10**7)


@settings(deadline=None)
@given(st.integers(0, 200), st.floats(0, 1, exclude_max=True))
def test_a_parked_lane_is_tried_once_an_hour_and_any_other_within_the_cap(
    idle_wakes: int, jitter: float
) -> None:
    """M11: above the wake budget, and not at it."""
    lane = record(idle_wakes=idle_wakes)
    delay_ms = retry_delay_ms(lane, LIMITS, jitter)
    assert is_parked(lane, LIMITS) == (idle_wakes > 64)
    if idle_wakes > 64:
        assert delay_ms == PARKED
    else:
        assert delay_ms <= LIMITS.backoff_cap_ms


# Repairs.


@pytest.mark.parametrize(
    ("values", "slot_ms", "alarm"),
    [
        pytest.param(OWED, None, SetAt(NOW + 1), id="M13-owed-and-empty"),
        pytest.param(OWED, NOW - 30_001, SetAt(NOW + 1), id="M13-owed-and-long-past-due"),
        pytest.param(OWED, NOW - 30_000, None, id="M13-owed-and-late"),
        pytest.param(OWED, NOW + 10**7, None, id="M13-owed-and-armed-late-is-no-loss"),
        pytest.param({}, None, None, id="M13-caught-up-and-empty"),
        pytest.param({}, NOW - 10**6, None, id="M13-caught-up-and-past-due"),
        pytest.param({"due_at_ms": NOW + 900}, None, SetAt(NOW + 900), id="M13-due-and-empty"),
        pytest.param({"due_at_ms": NOW - 900}, None, SetAt(NOW + 1), id="M13-past-due-and-empty"),
        pytest.param({"due_at_ms": NOW + 900}, NOW + 900, None, id="M13-due-and-armed"),
        pytest.param(
            {"due_at_ms": NOW - 40_000}, NOW - 40_000, SetAt(NOW + 1), id="M13-due-and-lost"
        ),
        pytest.param({**OWED, "idle_wakes": 4}, None, SetAt(NOW + 800), id="M13-owed-and-paced"),
        pytest.param(
            {**OWED, "idle_wakes": 65}, None, SetAt(NOW + PARKED), id="M13-owed-and-parked"
        ),
        pytest.param(
            {**OWED, "idle_wakes": 65, "due_at_ms": NOW + 7},
            None,
            SetAt(NOW + 7),
            id="M13-parked-and-due",
        ),
    ],
)
def test_a_request_arms_a_lane_whose_alarm_was_lost(
    values: dict[str, Any], slot_ms: int | None, alarm: AlarmWrite | None
) -> None:
    before = record(**values, alarm_repaired=2)
    after, write = ensure(before, at(slot_ms), LIMITS, deployment=THIS)
    if alarm is None:
        assert after is before
        assert write == Keep()
    else:
        assert after == before.changed(alarm_repaired=3)
        assert write == alarm


def test_a_request_has_open_work_looked_at_after_a_deploy() -> None:
    before = record(deployment=OTHER, nonterminal=1)
    after, write = ensure(before, at(NOW + 10**6), LIMITS, deployment=THIS)
    assert after.dirty == before.dirty + 1
    assert write == SetAt(NOW + 1)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"nonterminal": 0}, id="nothing-is-open"),
        pytest.param({"nonterminal": 1, "dirty": 6}, id="a-pass-is-owed-anyway"),
    ],
)
def test_a_deploy_by_itself_owes_nothing_more(values: dict[str, Any]) -> None:
    before = record(deployment=OTHER, **values)
    after, write = ensure(before, at(NOW + 1), LIMITS, deployment=THIS)
    assert after is before
    assert write == Keep()


@pytest.mark.parametrize(
    ("values", "slot_ms", "alarm"),
    [
        pytest.param({}, None, Keep(), id="M12-no-need"),
        pytest.param({"due_at_ms": NOW + 900}, None, SetAt(NOW + 900), id="M12-due"),
        pytest.param({"due_at_ms": NOW - 900}, None, SetAt(NOW + 1), id="M12-past-due"),
        pytest.param({**OWED, "idle_wakes": 4}, None, SetAt(NOW + 800), id="M12-owed-and-paced"),
        pytest.param({**OWED, "idle_wakes": 65}, None, SetAt(NOW + PARKED), id="M12-parked"),
        pytest.param(OWED, NOW + 10**6, Keep(), id="M12-a-later-slot-stays"),
        pytest.param(OWED, NOW - 10**6, Keep(), id="M12-a-slot-past-due-stays"),
        pytest.param({}, NOW + 9, Keep(), id="M12-a-needless-slot-stays"),
        pytest.param({"due_at_ms": NOW + 900}, NOW + 1, Keep(), id="M12-a-nearer-slot-stays"),
    ],
)
def test_the_constructors_gate_fills_an_empty_slot_and_touches_no_other(
    values: dict[str, Any], slot_ms: int | None, alarm: AlarmWrite
) -> None:
    assert fill_empty_slot(record(**values), at(slot_ms), LIMITS) == alarm


def test_the_constructors_gate_arms_an_owed_lane_within_the_shortest_delay() -> None:
    write = fill_empty_slot(record(**OWED), at(), LIMITS)
    assert isinstance(write, SetAt)
    assert NOW < write.at_ms <= NOW + DELAY


@pytest.mark.parametrize(
    ("slot_ms", "tolerate_stale", "write"),
    [
        (None, False, SetAt(NOW + 100)),
        (NOW + 100, False, Keep()),
        (NOW + 101, False, SetAt(NOW + 100)),
        (NOW - 30_000, False, Keep()),
        (NOW - 30_001, False, SetAt(NOW + 100)),
        (NOW - 30_001, True, Keep()),
    ],
)
def test_arming_by_an_instant_never_moves_an_alarm_later(
    slot_ms: int | None, write: AlarmWrite, *, tolerate_stale: bool
) -> None:
    assert arm_by(NOW + 100, at(slot_ms), tolerate_stale=tolerate_stale) == write


def test_no_alarm_is_set_for_now_or_the_past() -> None:
    """M8."""
    assert arm_by(NOW - 5, at(), tolerate_stale=False) == SetAt(NOW + 1)
