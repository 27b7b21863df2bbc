"""Who may know the platform, the clock, chance, SQL, and what it is to wait.

Every allow-list here is exact: what is not used any more is taken off it.

Not tested: what a library does behind its own functions.
"""

import ast
import re

import pytest

from rules.sources import (
    BOOKS,
    DECISIONS,
    ROOT,
    TESTING,
    WORDS,
    WORKER,
    calls_of,
    functions_of,
    imports_of,
    tree_of,
)

KEPT = (*WORKER, *TESTING)
"""Whose purity is kept: callers are ordinary programs."""
PLATFORM = frozenset({"js", "pyodide", "workers", "_pyodide_entrypoint_helper"})
PLATFORM_MODULES = {
    "timers": {"js", "pyodide"},
    "streaming": {"js", "pyodide"},
    "workerd": {"js", "pyodide", "workers"},
    "signatures": {"js", "pyodide"},
    "observing": {"js", "pyodide", "workers"},
    "conversation_object": {"workers"},
    "router": {"workers"},
}
CLOCK_AND_CHANCE = frozenset({"time", "random", "secrets", "uuid", "os"})
CLOCK_AND_CHANCE_MODULES = {
    "workerd": {"time", "random"},
    "conversation_object": {"os"},  # The name of an incarnation is drawn.
    "testing.deployment": {"random"},  # The virtual clock's own, from a seed.
}
DATETIME_MODULES = {"settlement_shape"}
"""Writes an instant that it was given as RFC 3339."""
NOW = frozenset({"now", "utcnow", "today", "time_ns", "monotonic", "perf_counter"})

ASYNC_MODULES = {
    "storage",  # The seam: a transaction ends on disk.
    "failpoints",
    "lane",  # mutate: one transaction behind the gate.
    "admission",
    "commands",
    "deciding",
    "fence",  # What was written is on disk before the very next act.
    "run",
    "attempt",
    "ports",
    "deliver",
    "repair",  # It may ask an agent's reconciler.
    "drain",
    "maintenance",
    "inspection",  # Waiting for a settlement, and reading the alarm slot.
    "verifying",  # It gives way between two pages.
    "events",
    "watching",
    "bundle",
    "exporting",
    "dispatch",
    "streaming",
    "workerd",
    "signatures",
    "conversation_object",
    "router",
    "testing.sqlite_storage",
    "testing.network",
    "testing.host",
    "testing.conversation",
}
SQL_MODULES = {
    "schema",
    "agenda",
    "ledger",
    "ledger_facts",
    "conversation_log",
    "operations",
    "signals",
    "following",  # Reads on behind a place of the log.
    "fence",  # What every write of an attempt must still find; no book, and stands before each.
}
STORES = {"workerd", "testing.sqlite_storage"}
"""The two implementations of the seam."""


def roots_imported(module: str) -> set[str]:
    return {name.partition(".")[0] for name, _ in imports_of(module)}


def importers_of(roots: frozenset[str]) -> dict[str, set[str]]:
    """Map each module that imports any of these libraries to those that it imports."""
    found = {module: roots_imported(module) & roots for module in KEPT}
    return {module: imported for module, imported in found.items() if imported}


def test_the_platform_is_imported_only_in_the_host() -> None:
    assert importers_of(PLATFORM) == PLATFORM_MODULES


def test_an_agent_imports_the_platform_only_where_it_uses_it() -> None:
    """A test of an agent runs on a host, where the runtime's modules do not exist."""
    for path in (ROOT / "src" / "agents").glob("*.py"):
        for statement in ast.parse(path.read_text(encoding="utf-8")).body:
            named = []
            if isinstance(statement, ast.Import):
                named = [name.name for name in statement.names]
            elif isinstance(statement, ast.ImportFrom):
                named = [statement.module or ""]
            assert not {root.partition(".")[0] for root in named} & PLATFORM, path.name


def test_clock_and_chance_are_imported_only_in_the_host() -> None:
    assert importers_of(CLOCK_AND_CHANCE) == CLOCK_AND_CHANCE_MODULES


def test_only_what_writes_an_instant_knows_the_calendar() -> None:
    assert importers_of(frozenset({"datetime", "calendar", "zoneinfo"})).keys() == DATETIME_MODULES


def test_no_module_asks_for_the_present_time() -> None:
    asked = {
        (module, called)
        for module in KEPT
        for called, _ in calls_of(module)
        if called.rpartition(".")[2] in NOW
    }
    assert asked == set()


def test_async_stands_only_where_the_outside_world_is_awaited() -> None:
    found = {
        module
        for module in KEPT
        if any(isinstance(each, ast.AsyncFunctionDef) for each in functions_of(module))
    }
    assert found == ASYNC_MODULES


def test_words_decisions_and_books_await_nothing() -> None:
    waits = ast.Await | ast.AsyncFor | ast.AsyncWith
    for module in (*WORDS, *DECISIONS, *BOOKS):
        assert not [node for node in ast.walk(tree_of(module)) if isinstance(node, waits)], module


def sql_calls_of(module: str) -> list[ast.Call]:
    calls = calls_of(module)
    return [call for called, call in calls if re.search(r"\bstorage\.(execute|write)$", called)]


def test_sql_is_executed_only_in_books() -> None:
    found = {module for module in KEPT if module not in STORES and sql_calls_of(module)}
    assert found == SQL_MODULES


@pytest.mark.parametrize("module", ["ledger", "operations"])
def test_every_update_of_a_book_names_the_state_that_it_leaves_and_looks_whether_it_did(
    module: str,
) -> None:
    """An UPDATE by place alone would let a late writer through."""
    results_dropped = {
        node.value for node in ast.walk(tree_of(module)) if isinstance(node, ast.Expr)
    }
    for call in sql_calls_of(module):
        texts = [part.value for part in ast.walk(call.args[0]) if isinstance(part, ast.Constant)]
        sql = "".join(map(str, texts))
        if sql.startswith("UPDATE"):
            assert "state = " in sql.partition("WHERE")[2]
            assert call not in results_dropped


PURGE = "UPDATE records SET payload = NULL WHERE "


def test_the_log_is_only_ever_appended_to_but_for_payloads_that_are_purged() -> None:
    for node in ast.walk(tree_of("conversation_log")):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            said = node.value.lstrip()
            assert said.startswith(PURGE) or not said.startswith(("UPDATE", "DELETE", "REPLACE"))
