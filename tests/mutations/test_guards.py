"""Every guard of the engine is seen by some test: S71.

`scripts/mutate` does the same and shows what it does; here each guard is one test, so that no mutant can survive
unnoticed. What cannot be seen one at a time, since a second guard holds the same, is not in the list.
"""

import pytest

from workshop.mutation import Guard, check_control, judge, load_guards, mutated_text

GUARDS = load_guards()
NAMED = [pytest.param(each, id=each.name) for each in GUARDS]


def test_guards_have_names_of_their_own() -> None:
    names = [guard.name for guard in GUARDS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("guard", NAMED)
def test_the_text_of_a_guard_stands_where_the_list_says(guard: Guard) -> None:
    assert mutated_text(guard)


@pytest.mark.slow
def test_the_selected_tests_pass_without_a_mutation() -> None:
    assert not check_control(GUARDS)


@pytest.mark.slow
@pytest.mark.parametrize("guard", NAMED)
def test_a_guard_that_is_taken_away_is_missed_by_a_test(guard: Guard) -> None:
    verdict = judge(guard)
    assert verdict.killed_by is not None, f"{guard.name} survived:\n{verdict.output[-2_000:]}"
