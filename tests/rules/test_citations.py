"""What comments and documents cite is there, and what does not belong into a repository is not.

Not tested: web addresses.
"""

import re
from pathlib import Path

import pytest

from rules.sources import MODULES, PACKAGE, ROOT, path_of, prose_of, text_of

FOLDERS = (".ci", "bench", "docs", "requirements", "scripts", "src", "tests")
SUFFIXES = frozenset(
    {"", ".c", ".js", ".json", ".md", ".mjs", ".py", ".sh", ".sql", ".toml", ".txt", ".yml"}
)
MADE_BY_TOOLS = frozenset({"package-lock.json"})
URL = re.compile(r"https?://\S+")
CITATION = re.compile(
    r"(?<![\w./-])(?:(?:\.ci|bench|docs|requirements|scripts|src|tests)/[\w./-]*\w"
    r"|[\w./-]*\w\.(?:py|md|toml|json|mjs|sql|lock))(?!\w)"
)
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:home|root|Users|work|mnt|private|var/folders)/\w")
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")
TICKET = re.compile(r"(?<![\w&/])#\d+\b|\b[A-Z][A-Z0-9]{1,9}-\d+\b")
STANDARD = re.compile(r"^(?:SHA|UTF|ISO|RFC|HMAC|AES|ASCII)-\d+$")


def written_files() -> list[Path]:
    """Return the files that people write: all folders and the top level, without what tools make."""
    top = [path for path in ROOT.iterdir() if path.is_file()]
    inner = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    return sorted(
        path
        for path in (*top, *inner)
        if path.suffix in SUFFIXES
        and path.name not in MADE_BY_TOOLS
        and "__pycache__" not in path.parts
        and path != Path(__file__)
        and not (path.parent == ROOT and path.name.startswith(".dev"))
    )


def is_there(citation: str, beside: Path) -> bool:
    return any((place / citation).exists() for place in (ROOT, ROOT / "src", PACKAGE, beside))


def test_every_path_that_a_source_cites_is_there() -> None:
    missing = [
        (module, line, citation)
        for module in MODULES
        for line, prose in prose_of(text_of(module))
        for citation in CITATION.findall(URL.sub("", prose))
        if not is_there(citation, path_of(module).parent)
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("prose", "cited"),
    [
        ("Status codes stand in one table in `wire.py`.", ["wire.py"]),
        ("see docs/decisions.md", ["docs/decisions.md"]),
        ("(tests/rules/test_order.py)", ["tests/rules/test_order.py"]),
        ("`scripts/check` is what runs", ["scripts/check"]),
        ("an owner/name pair, 1.5 times, and/or", []),
    ],
)
def test_a_citation_is_a_file_name_or_a_path_of_this_repository(
    prose: str, cited: list[str]
) -> None:
    assert CITATION.findall(prose) == cited


def found_in_files(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {match.group()}"
        for path in paths
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        for match in pattern.finditer(URL.sub("", line))
    ]


def test_no_file_holds_a_path_of_one_machine() -> None:
    assert not found_in_files(MACHINE_PATH, written_files())


def test_no_file_holds_a_mark_of_unfinished_work() -> None:
    assert not found_in_files(UNFINISHED, written_files())


def test_no_file_holds_the_number_of_a_ticket() -> None:
    """But for tests, which say by their numbers which known cases they cover, and the list of these cases."""
    numbered = (ROOT / "tests", ROOT / "docs" / "parity.md")
    paths = [path for path in written_files() if not any(map(path.is_relative_to, numbered))]
    found = found_in_files(TICKET, paths)
    assert not [each for each in found if not STANDARD.match(each.rpartition(": ")[2])]


def test_the_files_that_people_write_are_found() -> None:
    """Were the walk empty, the rules above would hold for nothing."""
    found = {path.relative_to(ROOT).as_posix() for path in written_files()}
    assert {"pyproject.toml", "src/quiesce/ids.py", "scripts/check", "src/entry.py"} <= found
