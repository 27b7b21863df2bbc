"""The exact budgets: rows, statements and alarms, which are the bill, and do not depend on the machine.

Rows written are the cursors' `rowsWritten`, index entries included, plus key-value puts, plus alarm writes.
"""

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

from measuring import deployments, outside
from measuring.client import Connection
from measuring.counted_lane import CountedLane, Settled, Spent
from measuring.results import Result, at_most, exactly, same
from workshop.serving import Server

ECHO_ROWS_WRITTEN_MAX = 15
ECHO_STATEMENTS_MAX = 25
ECHO_ROWS_READ_MAX = 25
STEP_ROWS_WRITTEN_MAX = 3
CALL_ROWS_WRITTEN_MAX = 6
HISTORIES = (0, 1_000, 5_000)
QUEUED = 200
HOUR_S = 3_600
DAY_HOURS = 24
TEN_MINUTES_S = 600


def measure() -> Iterator[Result]:
    """Serve the counted deployment and measure everything that is exact."""
    with tempfile.TemporaryDirectory() as name, outside.serve() as outside_url:
        folder = Path(name)
        with Server.start(
            [deployments.counted()],
            persist=folder / "state",
            clock=folder / "clock",
            snapshot=True,
            log=folder / "log",
        ) as server:
            connection = Connection(server.url, deployments.AUTHORIZATION)
            old = CountedLane(connection, "old")
            yield from _echo(server, old)
            yield from _operations(connection, outside_url)
            yield from _blocked(server, old)
            yield from _asleep(server, connection)


def _echo(server: Server, lane: CountedLane) -> Iterator[Result]:
    """Measure one echo at every length of history; `lane` is new, and has the longest one afterwards."""
    virgin = CountedLane(lane.connection, "virgin").settle("echo", 1)
    grown = 0
    found: list[Settled] = []
    for history in HISTORIES:
        lane.grow(history - grown)
        found.append(lane.settle("echo", 1))
        grown = history + 1
    wholes = [each.whole for each in found]
    shown = " and ".join(f"{history:,}" for history in HISTORIES)
    written = max(each.rows_written for each in wholes)
    statements = max(each.statements for each in wholes)
    read = max(each.rows_read for each in wholes)
    yield at_most("echo, POST to quiet: rows written", written, ECHO_ROWS_WRITTEN_MAX)
    yield at_most("echo, POST to quiet: SQL statements", statements, ECHO_STATEMENTS_MAX)
    yield at_most("echo, POST to quiet: rows read", read, ECHO_ROWS_READ_MAX)
    yield same(f"echo: (read, written, statements) after {shown} settled", [*map(_act, wholes)])
    yield same(
        f"admission: (read, written) after {shown} settled",
        [_rows(each.admission) for each in found],
    )
    yield Result(
        "first echo of a conversation, which makes its tables: (read, written, statements)",
        _act(virgin.whole),
        "",
    )
    yield _cost("echo", found[-1])
    yield from _caught_up(server, lane)


def _caught_up(server: Server, lane: CountedLane) -> Iterator[Result]:
    alarm = _idle(lane.ring())
    yield exactly("caught-up alarm: (statements, KV reads, rows written)", alarm, "(0, 1, 0)")
    yield _construction(server, lane, "constructor, caught up after 5,000")
    checked = CountedLane(lane.connection, "checked")
    checked.grow(50)
    checked.settle("echo", 1)
    broken = checked.bench("check")["broken_laws"]
    yield exactly("laws broken by a history as it is grown here", len(broken), 0)


def _construction(server: Server, lane: CountedLane, name: str) -> Result:
    server.evict(deployments.CLASS, lane.name)
    start = lane.now()
    lane.bench("touch")
    [construction] = [each for each in lane.journal(start) if each["event"] == "construction"]
    found = _idle(Spent.of(construction))
    return exactly(f"{name}: (statements, KV reads, rows written)", found, "(0, 1, 0)")


def _operations(connection: Connection, outside_url: str) -> Iterator[Result]:
    lane = CountedLane(connection, "operations")
    lane.grow(0)
    by_count = [lane.settle("steps", {"count": count}) for count in range(5)]
    written = [each.whole.rows_written for each in by_count]
    further = [after - before for before, after in itertools.pairwise(written)]
    yield at_most("each further step: rows written", max(further), STEP_ROWS_WRITTEN_MAX)
    yield _cost("steps, four of them", by_count[-1])
    charged = lane.settle("charge", {"url": outside_url, "amount": 1})
    without = lane.settle("no-charge", {"url": outside_url, "amount": 1})
    call = charged.whole.rows_written - without.whole.rows_written
    yield at_most("an uncertain tool call: rows written", call, CALL_ROWS_WRITTEN_MAX)
    yield _cost("charge", charged)


def _blocked(server: Server, old: CountedLane) -> Iterator[Result]:
    """Measure what waits behind a suspended head, on a new lane and on one with a long history."""
    connection = old.connection
    young, alone = CountedLane(connection, "young"), CountedLane(connection, "alone")
    young.grow(0)
    old.grow(0)
    alone.grow(0)
    alone.admit("approval", {"question": "go on?"})
    passes: list[Spent] = []
    admissions: list[Spent] = []
    for lane in (young, old):
        lane.admit("approval", {"question": "go on?"})
        admissions.append(_queue(lane))
        passes.append(lane.force_pass())
        for _ in range(QUEUED - 2):
            lane.post("echo", 1)
        lane.force_pass()
        admissions.append(_queue(lane))
        passes.append(lane.force_pass())
    varied = f"0 and {QUEUED} queued, after 0 and {HISTORIES[-1]:,} settled"
    yield same(f"admission: (read, written) at {varied}", [*map(_rows, admissions)])
    yield same(
        f"pass behind a suspended head: rows read at {varied}", [p.rows_read for p in passes]
    )
    yield _construction(server, old, f"constructor, suspended, {QUEUED} queued")
    starts = [lane.now() for lane in (alone, old)]
    _let_pass(server, connection, TEN_MINUTES_S, HOUR_S // TEN_MINUTES_S)
    for lane, start, how in zip((alone, old), starts, ("alone", f"{QUEUED} queued"), strict=True):
        waited = lane.alarms_and_rows(start)
        yield exactly(f"an hour of waiting on an approval, {how}: (alarms, rows)", waited, (0, 0))
        assert lane.name not in server.alarms(deployments.CLASS)


def _queue(lane: CountedLane) -> Spent:
    """Admit one more behind the head, and return what the admission alone took."""
    _, entries = lane.admit("echo", 1)
    [command] = [each for each in entries if each["event"] == "command"]
    return Spent.of(command)


def _asleep(server: Server, connection: Connection) -> Iterator[Result]:
    lane = CountedLane(connection, "asleep")
    lane.grow(0)
    submission, _ = lane.admit("sleep", {"ms": DAY_HOURS * HOUR_S * 1_000})
    start = lane.now()
    _let_pass(server, connection, HOUR_S, DAY_HOURS)
    path = f"{lane.path}/submissions/{submission}/settlement"
    settlement = connection.expect(200, "GET", path, headers="prefer: wait=25\r\n")
    assert settlement["outcome"] == "completed", settlement
    alarms, _ = lane.alarms_and_rows(start)
    yield exactly(f"{DAY_HOURS} hours asleep on one timer: alarms", alarms, 1)


def _let_pass(server: Server, connection: Connection, seconds: int, times: int) -> None:
    """Let virtual time pass, in steps that no alarm can hide in."""
    # To the server a kept connection has been idle all that time, and it would close it under our next call.
    connection.close()
    for _ in range(times):
        server.advance(seconds)


def _cost(agent: str, settled: Settled) -> Result:
    cost = settled.settlement["cost"]
    told = (cost["rows_read"], cost["rows_written"])
    measured = (settled.until_settled.rows_read, settled.until_settled.rows_written)
    return exactly(f"cost told by a settlement of {agent}: (read, written)", told, measured)


def _act(spent: Spent) -> str:
    return f"({spent.rows_read}, {spent.rows_written}, {spent.statements})"


def _rows(spent: Spent) -> str:
    return f"({spent.rows_read}, {spent.rows_written})"


def _idle(spent: Spent) -> str:
    return f"({spent.statements}, {spent.kv_reads}, {spent.rows_written})"
