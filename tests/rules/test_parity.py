"""`docs/parity.md` is true: every test that it names exists, no case stands in it twice, and its counts are right.

Not tested: whether a test proves what its case asks for.
"""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "docs" / "parity.md").read_text("utf-8")
ROW = re.compile(r"^\| ([A-Za-z][\w -]*?\d*) \| .* \| (.*) \|$", re.MULTILINE)
COUNTS = re.compile(
    r"^(\d+) cases name a test, (\d+) are ruled out .*; open: (\d+)\.$", re.MULTILINE
)
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


@cache
def functions(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


def test_every_test_that_the_table_names_exists() -> None:
    named = TEST.findall(TABLE)
    assert len(named) > 100
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).exists() or (name and name not in functions(path))
    ]
    assert missing == []


def test_every_case_stands_in_the_table_once_and_says_what_covers_it() -> None:
    rows = [(case, covered) for case, covered in ROW.findall(TABLE) if case != "id"]
    assert len(rows) > 500
    assert [case for case, count in Counter(case for case, _ in rows).items() if count > 1] == []
    assert [case for case, covered in rows if not covered.strip()] == []


def test_the_page_counts_its_rows_rightly() -> None:
    covers = [covered for case, covered in ROW.findall(TABLE) if case != "id"]
    is_open = sum(each.startswith("open") for each in covers)
    tested = sum(
        TEST.search(each) is not None and not each.startswith(("open", "ruled out"))
        for each in covers
    )
    assert COUNTS.findall(TABLE) == [
        tuple(map(str, (tested, len(covers) - tested - is_open, is_open)))
    ]
