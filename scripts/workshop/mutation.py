"""`scripts/mutate`: take one guard of the engine away in a copy of the sources, and see that some test fails.

1. The guards stand in `tests/mutations/guards.py`: a name, a file, the text that is the guard, what replaces it,
   and the fast tests that must see it.
2. A guard whose text is not found exactly once is an error: the list has to follow the sources.
3. The repository's own sources are never touched; each mutant is a folder of its own, and gone afterwards.
4. First the selected tests run without a mutation: what fails there proves nothing about a guard.
"""

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from workshop import places, setup
from workshop.steps import Trouble, say

GUARDS = places.ROOT / "tests" / "mutations" / "guards.py"
PACKAGE = Path("src") / "quiesce"
TESTS_SECONDS_MAX = 300
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Guard:
    """One guard of the engine: where it stands, what takes its place, and who has to see that."""

    name: str
    file: str
    """Relative to the package."""
    text: str
    replacement: str
    tests: tuple[str, ...]
    """Arguments of pytest: paths relative to the folder of tests, or `-k` and an expression."""


class GuardNotFound(Exception):
    """The text of a guard does not stand in its file exactly once."""


@dataclass(frozen=True)
class Verdict:
    """What became of one mutant."""

    guard: Guard
    killed_by: str | None
    """The first test that failed, or None: the mutant survived."""
    output: str


def load_guards() -> list[Guard]:
    """Read the list of guards, which the tests use too."""
    spec = importlib.util.spec_from_file_location("quiesce_guards", GUARDS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [Guard(*each) for each in module.GUARDS]


def mutated_text(guard: Guard) -> str:
    """Return the source of the guard's file without the guard."""
    source = (places.ROOT / PACKAGE / guard.file).read_text()
    found = source.count(guard.text)
    if found != 1:
        message = f"guard {guard.name!r}: its text stands {found} times in {guard.file}"
        raise GuardNotFound(message)
    return source.replace(guard.text, guard.replacement)


@contextmanager
def copied_sources(guard: Guard | None) -> Iterator[Path]:
    """A folder with a copy of the package, without the guard if one is given, and the repository's tests."""
    with tempfile.TemporaryDirectory(prefix="quiesce-mutant-") as name:
        folder = Path(name)
        shutil.copytree(
            places.ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__")
        )
        shutil.copy(places.ROOT / "pyproject.toml", folder)
        for each in ("tests", "scripts"):
            (folder / each).symlink_to(places.ROOT / each, target_is_directory=True)
        if guard is not None:
            (folder / PACKAGE / guard.file).write_text(mutated_text(guard))
        yield folder


def run_tests(folder: Path, tests: Sequence[str]) -> tuple[int | None, str]:
    """Run some tests against a copy of the sources, up to the first failure; None when they did not end."""
    arguments = [each if each.startswith("-") else _path(each) for each in tests]
    command = [
        places.PYTHON,
        *("-m", "pytest", "-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider"),
        *("-m", "not worker and not slow", "--rootdir", folder, *arguments),
    ]
    environment = places.environment(
        PYTHONPATH=os.pathsep.join((str(folder / "src"), str(folder / "scripts"))),
        PYTHONDONTWRITEBYTECODE="1",
        HYPOTHESIS_STORAGE_DIRECTORY=str(folder / "hypothesis"),
    )
    try:
        done = subprocess.run(
            list(map(str, command)),
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=TESTS_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired as expired:
        output = expired.stdout or ""
        return None, output.decode() if isinstance(output, bytes) else output
    return done.returncode, done.stdout


def _path(test: str) -> str:
    is_expression = " " in test or "." not in test
    return test if is_expression else f"tests/{test}"


def judge(guard: Guard) -> Verdict:
    """Take one guard away, and see whether its tests notice."""
    with copied_sources(guard) as folder:
        code, output = run_tests(folder, guard.tests)
    failed = _FAILED.search(output)
    if code == 1 and failed is not None:
        return Verdict(guard, failed.group(1), output)
    if code is None:
        return Verdict(guard, "no test: the tests did not end", output)
    return Verdict(guard, None, output)


def check_control(guards: Iterable[Guard]) -> str:
    """Run the files that the guards select without any mutation; returns what failed, or nothing."""
    files = sorted({guard.tests[0] for guard in guards})
    with copied_sources(None) as folder:
        code, output = run_tests(folder, files)
    return "" if code == 0 else f"pytest ended with exit code {code}\n{output[-2_000:]}"


def mutate() -> int:
    """The script: judge every guard, or those whose names contain a word."""
    parser = argparse.ArgumentParser(
        prog="scripts/mutate",
        description="Takes away one guard of the engine at a time, in a copy, and shows which test sees it.",
    )
    parser.add_argument("word", nargs="*", help="only guards whose names contain one of these")
    parser.add_argument("--list", action="store_true", help="only name the guards")
    parser.add_argument("--skip-control", action="store_true", help="without the run before it")
    options = parser.parse_args()
    guards = [
        guard
        for guard in load_guards()
        if not options.word or any(word in guard.name for word in options.word)
    ]
    if options.list:
        say("\n".join(f"{guard.name}  ({guard.file})" for guard in guards))
        return 0
    try:
        setup.prepare(tests=True)
    except Trouble as trouble:
        say(f"scripts/mutate: {trouble}")
        return trouble.exit_code
    return _judge_all(guards, is_controlled=not options.skip_control)


def _judge_all(guards: Sequence[Guard], *, is_controlled: bool) -> int:
    started = time.monotonic()
    if is_controlled and (failures := check_control(guards)):
        say(f"These fail without any mutation, and so prove nothing:\n{failures}")
        return 1
    bad = 0
    for guard in guards:
        try:
            verdict = judge(guard)
        except GuardNotFound as missing:
            bad += 1
            say(f"MISSING   {missing}")
            continue
        bad += verdict.killed_by is None
        word = "SURVIVED" if verdict.killed_by is None else "seen     "
        say(f"{word} {guard.name}: {verdict.killed_by or 'no test of ' + ' '.join(guard.tests)}")
    seconds = time.monotonic() - started
    say(f"{len(guards) - bad} of {len(guards)} guards are seen by a test ({seconds:.0f} s)")
    return 1 if bad else 0
