"""The table of lawful moves, walked as stories; every other pair is unlawful.

Not tested here: that a move which is not lawful changes nothing; the contract of the books says so.
"""

from itertools import pairwise, product

import pytest

from quiesce.states import MOVES, OPEN, OWNED, OutcomeKind, State, is_lawful

STORIES = {
    "a submission that runs and settles": "ready running input-applied settled",
    "claim and apply are one commit": "ready input-applied settled",
    "a child that its parent established": "admitted ready input-applied settled",
    "a child that was aborted before": "admitted settled",
    "a child whose abort waits for others": "admitted terminalizing settled",
    "an attempt that was released before its input": "ready running ready",
    "an attempt that is claimed again": "ready input-applied input-applied settled",
    "a wait that was decided": "input-applied suspended input-applied settled",
    "a wait that was aborted": "input-applied suspended settled",
    "a wait that turns out to have lost a call": "input-applied suspended unknown",
    "a call that nobody can prove, resolved": "input-applied unknown input-applied settled",
    "a call that nobody can prove, aborted": "input-applied unknown settled",
    "a row that joined a running host": "ready joining joined settled",
    "a row that joined in one commit": "ready joined settled",
    "a join whose input was not consumed": "ready joining ready",
    "a joined row that settles with its host": "joining joined terminalizing settled",
    "a head that used up its attempts, retried": "input-applied quarantined ready",
    "a head that never ran, held": "ready quarantined settled",
    "an owner that died, held": "ready running quarantined settled",
    "a suspension that is held": "suspended quarantined terminalizing settled",
    "an unknown that is held": "unknown quarantined",
    "an abort that waits for children": "input-applied terminalizing settled",
    "an abort of what is queued": "ready settled",
    "a queued abort that waits for others": "ready terminalizing settled",
    "a running abort": "running terminalizing settled",
    "a running attempt that settles": "running settled",
    "a suspended abort that waits for children": "suspended terminalizing settled",
    "an unknown abort that waits for children": "unknown terminalizing settled",
    "a joining row that is aborted": "joining settled",
}
"""Section by section, the moves that the contract names; together they are all lawful ones."""
TOLD = {
    pair for story in STORIES.values() for pair in pairwise(State(each) for each in story.split())
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_the_story_is_lawful(story: str) -> None:
    for leaves, enters in pairwise(State(each) for each in story.split()):
        assert is_lawful(leaves, enters), f"{leaves} to {enters}"


@pytest.mark.parametrize(
    ("leaves", "enters"),
    [pair for pair in product(State, State) if pair not in TOLD],
    ids=lambda state: state.value,
)
def test_a_move_that_no_story_tells_is_unlawful(leaves: State, enters: State) -> None:
    assert not is_lawful(leaves, enters)


def test_settled_is_left_by_nothing() -> None:
    assert MOVES[State.SETTLED] == frozenset()


def test_every_open_state_can_end_settled() -> None:
    """No state is a trap: whatever happens, a settlement can still be reached."""
    for start in OPEN:
        reached, ahead = {start}, [start]
        while ahead:
            new = MOVES[ahead.pop()] - reached
            reached |= new
            ahead.extend(new)
        assert State.SETTLED in reached


def test_every_state_but_settled_is_open() -> None:
    assert set(State) - OPEN == {State.SETTLED}


def test_only_running_and_input_applied_are_owned() -> None:
    assert {State.RUNNING, State.INPUT_APPLIED} == OWNED


def test_states_and_outcomes_are_spelt_as_the_contract_spells_them() -> None:
    assert [state.value for state in State] == [
        "admitted",
        "ready",
        "running",
        "input-applied",
        "suspended",
        "unknown",
        "joining",
        "joined",
        "terminalizing",
        "quarantined",
        "settled",
    ]
    assert [outcome.value for outcome in OutcomeKind] == ["completed", "failed", "aborted"]
