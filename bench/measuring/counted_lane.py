"""One conversation of the counted deployment, driven one act at a time.

Between the acts the lane is quiet, so that what an entry of the journal says belongs to one act alone. Nothing is
asked of the Object while it works: waiting is reading the journal, which lies outside it.
"""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from measuring.client import CallFailed, Connection

WAIT_S = 60
POLL_S = 0.002
MUTATIONS = frozenset({"submit", "force-pass", "decide"})


@dataclass(frozen=True, slots=True)
class Spent:
    """What some acts have asked of storage."""

    rows_read: int = 0
    rows_written: int = 0
    statements: int = 0
    kv_reads: int = 0
    alarm_writes: int = 0

    @classmethod
    def of(cls, entry: dict[str, Any]) -> Self:
        """Read the counts of one entry."""
        return cls(**entry["counts"])

    def plus(self, other: "Spent") -> "Spent":
        """Add two."""
        return Spent(
            self.rows_read + other.rows_read,
            self.rows_written + other.rows_written,
            self.statements + other.statements,
            self.kv_reads + other.kv_reads,
            self.alarm_writes + other.alarm_writes,
        )

    def minus(self, other: "Spent") -> "Spent":
        """Take away what stood there before."""
        return Spent(
            self.rows_read - other.rows_read,
            self.rows_written - other.rows_written,
            self.statements - other.statements,
            self.kv_reads - other.kv_reads,
            self.alarm_writes - other.alarm_writes,
        )


@dataclass(frozen=True, slots=True)
class Settled:
    """One submission from its POST until its lane was quiet again."""

    submission: str
    admission: Spent
    whole: Spent
    """Admission and every pass that it took."""
    until_settled: Spent
    """From the admission up to the commit that settles it."""
    settlement: dict[str, Any]


class CountedLane:
    """One conversation and its journal."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection = connection
        self.name = f"{name}-{uuid.uuid4().hex[:8]}"

    @property
    def path(self) -> str:
        """Where its routes begin."""
        return f"/v1/conversations/{self.name}"

    def bench(self, act: str, number: int = 0) -> Any:
        """Do one of the acts that only the counted deployment has."""
        return self.connection.expect(200, "GET", f"/bench/{act}/{self.name}?{number}")

    def now(self) -> int:
        """Return the place in the journal where the next entry will stand."""
        return int(self.bench("journal", 2**31)["length"])

    def journal(self, start: int) -> list[dict[str, Any]]:
        """Read what has happened, from an entry on."""
        found: list[dict[str, Any]] = self.bench("journal", start)["entries"]
        return found

    def grow(self, count: int) -> None:
        """Add settled submissions to the history; the first call creates the conversation.

        One read follows: the first request of an incarnation reads the conversation's name, whatever its history.
        """
        self.bench("grow", count)
        self.connection.expect(200, "GET", f"{self.path}/maintenance")

    def post(self, agent: str, value: Any) -> str:
        """Admit one submission, and return its id at once."""
        headers = f"idempotency-key: {uuid.uuid4().hex}\r\n"
        body = {"agent": agent, "input": value}
        receipt = self.connection.expect(202, "POST", f"{self.path}/submissions", body, headers)
        return str(receipt["submission"])

    def admit(self, agent: str, value: Any) -> tuple[str, list[dict[str, Any]]]:
        """Admit one submission and wait until the lane is quiet; returns its id and what happened."""
        start = self.now()
        submission = self.post(agent, value)
        self.wait_until_quiet(start)
        return submission, self.journal(start)

    def settle(self, agent: str, value: Any) -> Settled:
        """Admit one submission that settles by itself, and read what that took."""
        submission, entries = self.admit(agent, value)
        [command] = [each for each in entries if each["event"] == "command"]
        admission = Spent.of(command)
        whole = admission
        for each in entries:
            whole = whole.plus(Spent.of(each)) if each["event"] == "alarm" else whole
        first, last = _point(entries, "admit:before"), _point(entries, "settle:before")
        path = f"{self.path}/submissions/{submission}/settlement"
        settlement = self.connection.expect(200, "GET", path)
        return Settled(submission, admission, whole, last.minus(first), settlement)

    def force_pass(self) -> Spent:
        """Have a pass run over the lane as it stands, and return what the pass itself took."""
        start = self.now()
        body = {"reason": "a benchmark"}
        self.connection.expect(202, "POST", f"{self.path}/maintenance/pass", body)
        self.wait_until_quiet(start)
        alarms = [each for each in self.journal(start) if each["event"] == "alarm"]
        return Spent.of(alarms[-1])

    def ring(self) -> Spent:
        """Have an alarm delivered that nobody needs, and return what it took."""
        start = self.now()
        self.bench("ring")
        self._wait(start, lambda entries: any("is_owed" in each for each in entries))
        [alarm] = [each for each in self.journal(start) if each["event"] == "alarm"]
        return Spent.of(alarm)

    def wait_until_quiet(self, start: int) -> None:
        """Wait until a pass that began after the last mutation has ended, and nothing is owed."""
        self._wait(start, _is_quiet)

    def _wait(self, start: int, holds: Callable[[list[dict[str, Any]]], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not holds(self.journal(start)):
            if time.monotonic() > deadline:
                raise CallFailed(f"{self.name} is not quiet: {self.journal(start)[-3:]}")
            time.sleep(POLL_S)

    def alarms_and_rows(self, start: int) -> tuple[int, int]:
        """Return how many alarms were delivered since an entry, and how many rows anything has touched."""
        entries = [each for each in self.journal(start) if each["event"] != "point"]
        spent = [Spent.of(each) for each in entries]
        alarms = sum(each["event"] == "alarm" for each in entries)
        return alarms, sum(each.rows_read + each.rows_written for each in spent)


def _is_quiet(entries: list[dict[str, Any]]) -> bool:
    """Judge by the last mutation and the last alarm, both of which are noted where they start."""
    is_mutation = [each.get("verb") in MUTATIONS for each in entries]
    is_alarm = [each["event"] == "alarm" for each in entries]
    if True not in is_alarm or True not in is_mutation:
        return False
    last_alarm = len(entries) - 1 - is_alarm[::-1].index(True)
    last_mutation = len(entries) - 1 - is_mutation[::-1].index(True)
    return last_alarm > last_mutation and entries[last_alarm].get("is_owed") is False


def _point(entries: list[dict[str, Any]], name: str) -> Spent:
    [found] = [each for each in entries if each.get("name") == name]
    return Spent.of(found)
