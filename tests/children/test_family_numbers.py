"""What a delegation costs, in rows written over both Objects and in alarms.

The rows of a delegation are those of the parent and the child together, less the same child run alone (one echo,
from its POST to its end), less the same parent that waits for a signal instead (one admission, two passes, two
claims, one suspension, one mutation that ends the wait, one settlement). What is left is what delegating itself
writes: request and open operation, start, join, closing and telling. Rows here are what the simulation counts: rows
touched, key-value puts and alarm writes. test_families_in_workerd counts what is billed, index entries included.
"""

from typing import Any

import pytest

from children.family import Family, child_of, delegate, family, lane_of
from operations.ground import DAY_MS, HOUR_MS, agent
from quiesce import Run
from quiesce.testing import Conversation

ROWS_WRITTEN_MAX = 12


async def wait_for_signal(run: Run, _value: Any) -> Any:
    return (await run.signal("child")).payload


def written(deployment: Family, *lanes: Conversation) -> int:
    """Return how many rows have been written by Objects that were never evicted."""
    assert deployment.next_alarm_ms() is None
    return sum(each.storage.counts().rows_written for each in lanes)


def delegation_rows(names: list[str]) -> int:
    """Measure what delegations to these children write, by the difference to the same work without them."""
    with family(agent(wait_for_signal, "waits")) as (deployment, lane):
        lane.submit("fan-out", {name: ["echo", 1] for name in names})
        deployment.run_until_quiet()
        together = written(deployment, *deployment)
        alone = deployment.conversation("alone")
        alone.submit("echo", 1)
        deployment.run_until_quiet()
        child = written(deployment, alone)
        waiting = deployment.conversation("waiting")
        submission = waiting.submit("waits", None).submission
        deployment.run_until_quiet()
        waiting.signal(submission, "child", 1)
        deployment.run_until_quiet()
        # The wait itself is a delegation's counterpart: its request and its end are the delegation's own to count.
        parent = written(deployment, waiting) - WAIT_ROWS
        return together - parent - len(names) * child


WAIT_ROWS = 4
"""What the signal's wait writes: two records, and an open operation that is inserted and deleted."""


def test_a_delegation_writes_few_rows_beyond_its_childs_own_work() -> None:
    rows = delegation_rows(["a"])
    print(f"rows written by one delegation, over both Objects: {rows}")  # noqa: T201 - a measurement
    assert rows <= ROWS_WRITTEN_MAX


def test_three_delegations_write_no_more_for_each() -> None:
    rows = delegation_rows(["a", "b", "c"])
    print(f"rows written by three delegations, over all Objects: {rows}")  # noqa: T201 - a measurement
    assert rows <= 3 * ROWS_WRITTEN_MAX


def test_a_delegation_takes_two_passes_of_the_parent_and_one_of_the_child() -> None:
    with family() as (deployment, lane):
        root = lane.submit("delegate", ["echo", 1]).submission
        deployment.run_until_quiet()
        assert (lane.wakes, lane_of(deployment, root).wakes) == (2, 1)


@pytest.mark.parametrize("span_ms", [HOUR_MS, 30 * DAY_MS])
def test_a_parent_that_waits_for_a_child_holds_no_alarm(span_ms: int) -> None:
    with family(agent(delegate, "again")) as (deployment, lane):
        root = lane.submit("again", ["ask", None]).submission
        deployment.run_until_quiet()
        child = lane_of(deployment, root)
        assert (lane.alarm_at_ms, child.alarm_at_ms) == (None, None)
        wakes = (lane.wakes, child.wakes)
        assert deployment.advance(span_ms) == 0
        assert (lane.wakes, child.wakes) == wakes
        child.approve(child_of(root)[1], "ask")
        deployment.run_until_quiet()
        assert lane.settlement(root).result["result"] == "approved"


def test_an_hour_of_an_unreachable_child_is_paced() -> None:
    """At most one try a minute once the backoff has grown, and each try writes few rows."""
    with family() as (deployment, lane):
        deployment.fates = lambda _name, _call: "lost"
        lane.submit("delegate", ["echo", 1])
        deployment.advance(60_000)
        wakes, rows = lane.wakes, lane.storage.counts().rows_written
        deployment.advance(HOUR_MS)
        assert lane.wakes - wakes <= 120
        assert lane.storage.counts().rows_written - rows <= 6 * (lane.wakes - wakes)
