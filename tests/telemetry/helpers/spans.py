"""The trace store of a local server, read from its file."""

import contextlib
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from workshop.serving import Server

TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Stored:
    """One span as it was stored."""

    id: str
    parent: str | None
    name: str
    attributes: bytes
    has_ended: bool


def stored(server: Server) -> list[Stored]:
    """Read every span of ours."""
    folder = server.persist / "observability" / "miniflare-wobs-trace-store"
    found: list[Stored] = []
    for file in folder.glob("*.sqlite"):
        if file.name != "metadata.sqlite":
            found += _read(file)
    return found


def _read(file: Path) -> list[Stored]:
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        rows = database.execute(
            "SELECT span_id, parent_id, name, attributes, duration_ms IS NOT NULL FROM spans"
            " WHERE name LIKE 'quiesce.%' ORDER BY rowid"
        ).fetchall()
    return [
        Stored(span, parent, name, bytes(facts or b""), bool(ended))
        for span, parent, name, facts, ended in rows
    ]


def until(holds: Callable[[list[Stored]], bool], server: Server) -> list[Stored]:
    """Read the spans until they hold: the store is written behind the work."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        with contextlib.suppress(sqlite3.OperationalError):
            found = stored(server)
            if holds(found):
                return found
        assert time.monotonic() < deadline, "the spans never came to that"
        time.sleep(0.05)
