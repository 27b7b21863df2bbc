"""The contract of the books, on the standard `sqlite3`.

Not tested here: the same contract inside workerd.
"""

import ast
import asyncio
import sys
from pathlib import Path

import pytest

from contract.books import CONTRACT
from contract.ground import Check
from quiesce.storage import Storage
from quiesce.testing.sqlite_storage import Disk, SqliteStorage


def _name(check: Check) -> str:
    return check.__name__.removeprefix("check_")


@pytest.mark.parametrize("check", CONTRACT, ids=_name)
def test_the_books_keep_their_contract(check: Check) -> None:
    opened: list[Disk] = []

    async def open_storage() -> Storage:
        opened.append(Disk())
        return SqliteStorage(opened[-1])

    try:
        asyncio.run(check(open_storage))
    finally:
        for disk in opened:
            disk.close()
    assert len(opened) == 1, "a check opens one storage"


def test_every_check_is_in_the_contract_once() -> None:
    """CF-4: and no two have one name."""
    folder = Path(__file__).parent
    written = [
        node.name
        for path in folder.glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("check_")
    ]
    assert sorted(written) == sorted(check.__name__ for check in CONTRACT)
    assert len(set(written)) == len(written)


def test_the_contract_can_be_shipped_into_a_worker() -> None:
    """It imports nothing but itself, `quiesce` without its testing kit, and the standard library."""
    for path in Path(__file__).parent.glob("*.py"):
        if path == Path(__file__):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                root = name.partition(".")[0]
                assert root in {"contract", "quiesce"} | sys.stdlib_module_names
                assert not name.startswith("quiesce.testing")
