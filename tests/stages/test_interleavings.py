"""Every interleaving, on the real engine with one simulated Object.

`exploring.py` says how. After every step of every schedule it is checked that

1. what is owed is armed, or a delivery is under way that has not begun its pass yet;
2. no generation is acknowledged that a pass did not see at begin, and none of a body that was active at its begin
   or still runs;
3. no alarm is set at or before now, and none earlier than the slot of begin from within a pass (M8; a paced pass
   that progressed or raced is the documented exception, and so is a mutation);
4. a lane with only stable waits has no alarm once its passes are over;
and at the end of every schedule alarms alone lead to everything processed and everything settled.

Not explored: more than one Object; time that passes within a transaction.
Covers EV-7, EV-14, EV-16, AL-2, AL-3, AL-4, S12, S25, S31, S37.
"""

import pytest

from stages.exploring import SPARSE_STOPS, STOPS, Bounds, explore

pytestmark = pytest.mark.slow

FAST = (
    (Bounds(crashes=1, stops=STOPS), 40),
    (Bounds(crashes=2, stops=STOPS), 100),
    (Bounds(steps=2, crashes=1, stops=STOPS), 60),
    (Bounds(duplicates=2, stops=STOPS), 80),
    (Bounds(admissions=1, stops=STOPS), 100),
    (Bounds(bodies=1), 300),
    (Bounds(bodies=1, broken_bodies=True), 250),
)
"""What every run explores, and how many states it must come to at least."""
SLOW = (
    (Bounds(admissions=1, crashes=1), 400),
    (Bounds(admissions=1, duplicates=1), 400),
    (Bounds(bodies=1, crashes=1), 1_200),
    (Bounds(bodies=1, delays=1), 900),
    (Bounds(bodies=1, duplicates=1), 1_800),
    (Bounds(bodies=1, admissions=1, stops=SPARSE_STOPS), 1_000),
    (Bounds(admissions=1, crashes=1, duplicates=1), 1_500),
    (Bounds(admissions=1, crashes=1, delays=1), 1_000),
    (Bounds(admissions=2), 400),
)
"""The big bounds."""


def named(table: tuple[tuple[Bounds, int], ...]) -> list[object]:
    return [pytest.param(bounds, least, id=bounds.told()) for bounds, least in table]


def explore_and_tell(bounds: Bounds, least: int, capsys: pytest.CaptureFixture[str]) -> None:
    explored = explore(bounds)
    with capsys.disabled():
        print(  # noqa: T201 - how much was explored is the result
            f"\n  {bounds.told()}: {explored.states} states, {explored.moves} moves,"
            f" {explored.schedules} schedules of up to {explored.deepest} moves"
        )
    assert explored.states >= least


@pytest.mark.parametrize(("bounds", "least"), named(FAST))
def test_every_interleaving_within_a_small_bound(
    bounds: Bounds, least: int, capsys: pytest.CaptureFixture[str]
) -> None:
    explore_and_tell(bounds, least, capsys)


@pytest.mark.slow
@pytest.mark.parametrize(("bounds", "least"), named(SLOW))
def test_every_interleaving_within_a_big_bound(
    bounds: Bounds, least: int, capsys: pytest.CaptureFixture[str]
) -> None:
    explore_and_tell(bounds, least, capsys)
