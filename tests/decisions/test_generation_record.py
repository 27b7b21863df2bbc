"""The generation record as a document: what is stored, what can be read, what is refused.

Not tested here: where it is stored; the contract of the books says so.
"""

from typing import Any

import pytest

from quiesce.errors import Corruption, NewerStorage
from quiesce.generation_record import FIRST, RECOVERED, Cost, parse_record
from quiesce.ids import canonical_json, parse_json

HUGE = 2**53 * 1_000 + 1


def stored(**values: Any) -> str:
    return canonical_json({**parse_json(FIRST.model_dump_json()), **values})


def test_a_record_comes_back_as_it_was_stored() -> None:
    record = FIRST.changed(
        dirty=5,
        processed=3,
        nonterminal=2,
        due_at_ms=1_767_225_600_000,
        idle_wakes=7,
        failures=1,
        deployment="b5c855ea9329697a",
        alarm_repaired=1,
        cost=Cost(wakes=1, rows_read=2, rows_written=3, active_ms=4),
        last_pass={"phase": "actionable"},
    )
    assert parse_record(record.model_dump_json()) == record


def test_the_counters_are_decimal_strings_without_a_bound() -> None:
    """JavaScript's numbers end at 2**53; a generation only ever grows."""
    text = FIRST.changed(dirty=HUGE + 1, processed=HUGE).model_dump_json()
    assert f'"dirty":"{HUGE + 1}"' in text
    assert parse_record(text).dirty - parse_record(text).processed == 1
    assert parse_record(text).is_owed


def test_a_lane_is_owed_a_pass_while_dirty_is_greater_than_processed() -> None:
    assert FIRST.changed(dirty=1).is_owed
    assert not FIRST.changed(dirty=1, processed=1).is_owed
    assert not FIRST.is_owed
    assert RECOVERED.is_owed


def test_a_record_of_this_version_with_only_its_counters_is_readable() -> None:
    """What older code did not write has its default."""
    record = parse_record('{"schema_version":1,"dirty":"2","processed":"1"}')
    assert (record.dirty, record.processed, record.nonterminal, record.due_at_ms) == (2, 1, 0, None)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("{", id="cut-short"),
        pytest.param("null", id="null"),
        pytest.param("[]", id="an-array"),
        pytest.param("{}", id="nothing-in-it"),
        pytest.param("[" * 100_000, id="too-deep"),
        pytest.param('{"schema_version":1}', id="no-counters"),
        pytest.param('{"dirty":"1","processed":"0"}', id="no-version"),
        pytest.param(stored(schema_version=0), id="a-version-that-never-was"),
        pytest.param(stored(schema_version="x"), id="no-version-at-all"),
        pytest.param(stored(dirty=1), id="a-counter-that-is-a-number"),
        pytest.param(stored(dirty="-1"), id="a-negative-counter"),
        pytest.param(stored(dirty="1.0"), id="a-counter-with-a-point"),
        pytest.param(stored(dirty=""), id="an-empty-counter"),
        pytest.param(stored(dirty="²"), id="a-digit-that-is-not-decimal"),
        pytest.param(stored(dirty="٣"), id="a-digit-of-another-script"),
        pytest.param(stored(dirty="9" * 5_000), id="more-digits-than-can-be-read"),
        pytest.param(stored(nonterminal=-1), id="a-negative-count"),
        pytest.param(stored(idle_wakes=None), id="a-count-that-is-null"),
        pytest.param(stored(due_at_ms="soon"), id="a-due-time-that-is-none"),
        pytest.param(stored(unheard_of=1), id="a-field-that-this-version-lacks"),
    ],
)
def test_a_record_that_cannot_be_read_is_corruption(text: str) -> None:
    with pytest.raises(Corruption) as found:
        parse_record(text)
    assert found.value.law == "the generation record is readable"
    assert len(found.value.found) <= 300


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"schema_version":2}', id="and-nothing-else-that-we-know"),
        pytest.param(stored(schema_version=2), id="and-everything-that-we-know"),
        pytest.param(stored(schema_version=99, dirty={"high": 1, "low": 2}), id="in-other-forms"),
    ],
)
def test_a_record_of_newer_code_is_refused_by_its_version_alone(text: str) -> None:
    with pytest.raises(NewerStorage):
        parse_record(text)


def test_a_changed_record_leaves_the_first_one_alone() -> None:
    assert FIRST.changed(dirty=1).dirty == 1
    assert FIRST.dirty == 0
    with pytest.raises(ValueError, match="frozen"):
        FIRST.dirty = 1  # type: ignore[misc]


def test_costs_add_up_part_by_part() -> None:
    one = Cost(wakes=1, rows_read=2, rows_written=3, active_ms=4)
    other = Cost(wakes=10, rows_read=20, rows_written=30, active_ms=40)
    assert one.plus(other) == Cost(wakes=11, rows_read=22, rows_written=33, active_ms=44)
    assert one == Cost(wakes=1, rows_read=2, rows_written=3, active_ms=4)
