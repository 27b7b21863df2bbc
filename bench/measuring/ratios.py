"""Times, as ratios within one run: the same acts by Quiesce, by a minimal Python Object and by a JavaScript one.

1. Absolute times belong to a machine; a ratio of two medians, taken from rounds that alternate on one workerd,
   belongs to the code.
2. A round is one submission to each, in turn, on lanes that are quiet. Between two acts there is a pause in which
   whatever the last one still does after its settlement ends, since the next one would pay for it.
3. Throughput is 500 submissions to one lane by 16 callers, each of which waits for its settlement before
   it submits again. The deployments take turns of 100, so that a machine that slows down does so for all.
4. A busy machine gets fewer rounds rather than a longer run, down to a number that a median can stand on.
"""

import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measuring import deployments
from measuring.client import Connection
from measuring.results import Result, at_most
from workshop.serving import Server

ROUNDS_MAX = 300
ROUNDS_MIN = 60
ROUNDS_S = 40
WARM_UP_ROUNDS = 20
PAUSE_S = 0.01
LANE_ROUNDS_MAX = 3
LANE_ROUNDS_S = 30
TURNS = 5
TURN_SUBMISSIONS = 100
SUBMISSIONS = TURNS * TURN_SUBMISSIONS
CALLERS = 16
SUBMIT_RATIO_MAX = 1.5
SETTLED_RATIO_MAX = 1.5
THROUGHPUT_RATIO_MIN = 0.6


@dataclass
class Target:
    """One deployment under measurement: how to submit to it and how to read its settlement."""

    name: str
    connect: Callable[[], Connection]
    submit_path: str
    settlement_path: str
    body: dict[str, Any]
    submit_s: list[float] = field(default_factory=list)
    settled_s: list[float] = field(default_factory=list)
    per_second: list[float] = field(default_factory=list)

    def run_once(self, connection: Connection, lane: str) -> tuple[float, float]:
        """Submit once and wait for the settlement; returns the seconds to the receipt and to the settlement."""
        key = f"idempotency-key: {uuid.uuid4().hex}\r\n"
        started = time.perf_counter()
        path = self.submit_path.format(lane=lane)
        receipt = connection.expect(202, "POST", path, self.body, key)
        accepted = time.perf_counter()
        path = self.settlement_path.format(lane=lane, submission=receipt["submission"])
        settlement = connection.expect(200, "GET", path, headers="prefer: wait=25\r\n")
        settled = time.perf_counter()
        assert settlement["result"] == self.body["input"], settlement
        return accepted - started, settled - started


def measure() -> Iterator[Result]:
    """Serve all three from one workerd and compare them."""
    workers = [
        deployments.deployed(),
        deployments.minimal_python(),
        deployments.minimal_javascript(),
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Server.start(workers, persist=folder / "state", log=folder / "log") as server:
            targets = _targets(server)
            _alternate(targets)
            _fill_lanes(targets)
    yield from _results(*targets)


def _targets(server: Server) -> list[Target]:
    value = {"say": "hello", "to": ["whom", "it", "may", "concern"]}
    submissions = "/v1/conversations/{lane}/submissions"
    ours, *others = server.urls
    quiesce = Target(
        name="Quiesce",
        connect=lambda: Connection(server.urls[ours], deployments.AUTHORIZATION),
        submit_path=submissions,
        settlement_path=f"{submissions}/{{submission}}/settlement",
        body={"agent": "echo", "input": value},
    )
    return [quiesce, *(_minimal(server.urls[each], each, value) for each in others)]


def _minimal(url: str, name: str, value: Any) -> Target:
    return Target(
        name=name,
        connect=lambda: Connection(url),
        submit_path="/{lane}",
        settlement_path="/{lane}/{submission}",
        body={"input": value},
    )


def _alternate(targets: list[Target]) -> None:
    lane = uuid.uuid4().hex
    callers = [(target, target.connect()) for target in targets]
    for _ in range(WARM_UP_ROUNDS):
        for target, connection in callers:
            target.run_once(connection, lane)
    started = time.perf_counter()
    for number in range(ROUNDS_MAX):
        if number >= ROUNDS_MIN and time.perf_counter() - started > ROUNDS_S:
            break
        for target, connection in callers:
            submit_s, settled_s = target.run_once(connection, lane)
            target.submit_s.append(submit_s)
            target.settled_s.append(settled_s)
            time.sleep(PAUSE_S)


def _fill_lanes(targets: list[Target]) -> None:
    started = time.perf_counter()
    for number in range(LANE_ROUNDS_MAX):
        if number > 0 and time.perf_counter() - started > LANE_ROUNDS_S:
            break
        lane = uuid.uuid4().hex
        took_s = [0.0 for _ in targets]
        for _ in range(TURNS):
            for place, target in enumerate(targets):
                took_s[place] += _take_turn(target, lane)
        for target, seconds in zip(targets, took_s, strict=True):
            target.per_second.append(SUBMISSIONS / seconds)


def _take_turn(target: Target, lane: str) -> float:
    """Have all callers settle a turn's submissions; returns the seconds that it took."""
    left = iter(range(TURN_SUBMISSIONS))
    lock = threading.Lock()
    failures: list[BaseException] = []

    def call() -> None:
        connection = target.connect()
        try:
            while True:
                with lock:
                    if next(left, None) is None:
                        return
                target.run_once(connection, lane)
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that measures
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=call) for _ in range(CALLERS)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return time.perf_counter() - started


def _results(quiesce: Target, python: Target, javascript: Target) -> Iterator[Result]:
    all_three = (quiesce, python, javascript)
    ours, theirs, js = (statistics.median(each.submit_s) for each in all_three)
    yield _ratio("submit, to the minimal Python Object", ours, theirs, SUBMIT_RATIO_MAX)
    yield _told("submit, to the minimal JavaScript Object", ours, js)
    ours, theirs, js = (statistics.median(each.settled_s) for each in all_three)
    yield _ratio("submit to settled, to the minimal Python Object", ours, theirs, SETTLED_RATIO_MAX)
    yield _told("submit to settled, to the minimal JavaScript Object", ours, js)
    ours, theirs, js = (statistics.median(each.per_second) for each in all_three)
    name = f"settled per second, {SUBMISSIONS} on one lane by {CALLERS} callers"
    share = ours / theirs
    shown = f"{share:.2f} ({ours:.0f} to {theirs:.0f})"
    is_kept = share >= THROUGHPUT_RATIO_MIN
    yield Result(f"{name}, to the Python one", shown, f"≥ {THROUGHPUT_RATIO_MIN}", is_kept)
    yield Result(f"{name}, to the JavaScript one", f"{ours / js:.2f} ({ours:.0f} to {js:.0f})", "")


def _ratio(name: str, ours_s: float, theirs_s: float, budget: float) -> Result:
    return at_most(name, ours_s / theirs_s, budget, shown=_shown(ours_s, theirs_s))


def _told(name: str, ours_s: float, theirs_s: float) -> Result:
    return Result(name, _shown(ours_s, theirs_s), "")


def _shown(ours_s: float, theirs_s: float) -> str:
    return f"{ours_s / theirs_s:.2f} ({ours_s * 1_000:.1f} ms to {theirs_s * 1_000:.1f} ms)"
