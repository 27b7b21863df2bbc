"""What workerd has written, read from its files while it runs."""

import contextlib
import sqlite3
from pathlib import Path

from workshop.serving import Server

CLASS = "ConversationObject"


def object_files(server: Server) -> set[Path]:
    """Return the database file of every Object that has one."""
    folder = server.persist / "do" / f"quiesce-{CLASS}"
    return {file for file in folder.glob("*.sqlite") if file.name != "metadata.sqlite"}


def rows_by_table(file: Path) -> dict[str, int]:
    """Count the rows of each table of one Object."""
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {
            name: database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]
            for (name,) in tables
        }


def is_virgin(file: Path) -> bool:
    """Say whether an Object holds no table of ours, no value and no alarm."""
    rows = rows_by_table(file)
    ours = {name for name in rows if not name.startswith("_cf_")}
    return not ours and rows.get("_cf_KV", 0) == 0
