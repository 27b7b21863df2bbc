"""A conversation as it stands in its Object's file, read by the host while workerd runs: nothing is asked."""

import contextlib
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from quiesce import generation_record, wake
from quiesce.generation_record import GenerationRecord
from quiesce.invariants import Export, broken_laws
from quiesce.laws import SubmissionFacts
from quiesce.records import Record, SettlementRecorded
from quiesce.states import State

TIMEOUT_S = 30.0
PAUSE_S, PAUSE_S_MAX = 0.01, 0.2
"""Between two reads: what comes at once is seen at once, and what takes longer is not asked after all the time."""
NANOSECONDS = 1_000_000
TEXT_OF_BYTES, TEXT_OF_PAIRS = 0x22, 0x63
"""How the serialization of V8 marks a string of one and of two bytes a character."""


def until[T](read: Callable[[], T], holds: Callable[[T], bool], timeout_s: float = TIMEOUT_S) -> T:
    """Read until what is read holds, and return it; fails at the deadline with what was read last."""
    deadline = time.monotonic() + timeout_s
    pause_s = PAUSE_S
    while not holds(found := read()):
        assert time.monotonic() < deadline, f"it never came to hold; last read: {found}"
        time.sleep(pause_s)
        pause_s = min(PAUSE_S_MAX, pause_s * 1.5)
    return found


@dataclass(frozen=True)
class Seen:
    """One conversation at one moment: its rows, its log, its generation record, its alarm."""

    submissions: tuple[SubmissionFacts, ...] = ()
    records: tuple[Record, ...] = ()
    generation: GenerationRecord | None = None
    alarm_at_ms: int | None = None
    totals: tuple[int, int] = (0, 1)

    @property
    def states(self) -> list[str]:
        """The state of each submission, in the order of the queue."""
        return [each.state.value for each in self.submissions]

    @property
    def is_settled(self) -> bool:
        """Whether there is work, and all of it is settled."""
        return bool(self.submissions) and set(self.states) == {"settled"}

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is owed, and no alarm is set but for a time that is known."""
        record = self.generation
        return record is not None and not record.is_owed and self.alarm_at_ms == record.due_at_ms

    @property
    def broken_laws(self) -> list[str]:
        """What is wrong with the conversation."""
        assert self.generation is not None
        return broken_laws(
            Export(
                submissions=self.submissions,
                records=self.records,
                settled_total=self.totals[0],
                head=self.totals[1],
                dirty=self.generation.dirty,
                processed=self.generation.processed,
                due_at_ms=self.generation.due_at_ms,
                alarm_at_ms=self.alarm_at_ms,
            )
        )

    @property
    def settlements(self) -> list[SettlementRecorded]:
        """The settlement records, in their order."""
        parsed = [record.parsed() for record in self.records if record.kind == "settlement"]
        return [payload for payload in parsed if isinstance(payload, SettlementRecorded)]

    def count(self, kind: str) -> int:
        """Count the records of a kind."""
        return sum(record.kind == kind for record in self.records)


def read(file: Path) -> Seen:
    """Read a conversation in one read transaction; one that is not there yet holds nothing."""
    if not file.exists():
        return Seen()
    with contextlib.closing(
        sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=5, isolation_level=None)
    ) as database:
        database.execute("BEGIN")
        return _read(database)


def _read(database: sqlite3.Connection) -> Seen:
    tables = {
        name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    alarm_at_ms = generation = None
    if "_cf_METADATA" in tables:
        rows = database.execute("SELECT value FROM _cf_METADATA WHERE key = 1").fetchall()
        if rows and rows[0][0] is not None:
            alarm_at_ms = rows[0][0] // NANOSECONDS
    if "_cf_KV" in tables:
        rows = database.execute(
            "SELECT value FROM _cf_KV WHERE key = ?", (wake.RECORD_KEY,)
        ).fetchall()
        if rows:
            generation = generation_record.parse_record(_text(rows[0][0]))
    if "submissions" not in tables:
        return Seen(generation=generation, alarm_at_ms=alarm_at_ms)
    submissions = database.execute(
        "SELECT sequence, id, state, outcome, owner IS NOT NULL, purged_at_ms IS NOT NULL"
        " FROM submissions ORDER BY sequence"
    )
    records = database.execute(
        "SELECT sequence, record_id, kind, submission, epoch, created_at_ms, version, payload,"
        " digest, chain FROM records ORDER BY sequence"
    )
    totals = database.execute(
        "SELECT settled, head FROM records ORDER BY sequence DESC LIMIT 1"
    ).fetchone()
    return Seen(
        submissions=tuple(
            SubmissionFacts(place, name, State(state), outcome, bool(is_owned), bool(is_purged))
            for place, name, state, outcome, is_owned, is_purged in submissions
        ),
        records=tuple(Record(*row) for row in records),
        generation=generation,
        alarm_at_ms=alarm_at_ms,
        totals=totals,
    )


def _text(stored: bytes) -> str:
    """Read a string that V8 serialized."""
    start = stored.index(0xFF) + 2
    while stored[start] not in {TEXT_OF_BYTES, TEXT_OF_PAIRS}:
        start += 1
    tag, size, place, shift = stored[start], 0, start + 1, 0
    while True:
        size |= (stored[place] & 0x7F) << shift
        shift += 7
        place += 1
        if not stored[place - 1] & 0x80:
            break
    encoding = "latin-1" if tag == TEXT_OF_BYTES else "utf-16-le"
    return stored[place : place + size].decode(encoding)
