"""`scripts/check` and `scripts/test`: every check by name, with the time it took.

A check that fails does not stop the next, so that one run tells everything. What a passing check
prints is kept out of the way; tests print as they run.
"""

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workshop import places, setup
from workshop.steps import Trouble, exclusive, say

# Cloudflare takes 3 MiB compressed on its free plan. Two thirds of ours are pydantic's core, which
# nobody here can shrink; the rest of the budget keeps what we add in view.
UPLOAD_KIB_MAX = 2_500

FAST_TESTS = "not worker and not slow"
HOST_TESTS = "not worker"
WORKER_TESTS = "worker"
# Tests on the host share nothing; those of the Worker share a server with the others of their file.
ON_EVERY_CORE = ("-n", "auto", "--dist", "worksteal")
A_FILE_A_CORE = ("-n", "auto", "--dist", "loadfile", "--tb=short")


class CheckFailed(Exception):
    """A check found something; the message says what."""


@dataclass
class Report:
    """The checks that ran, in order: what each is called, how long it took, whether it passed."""

    lines: list[str] = field(default_factory=list)
    failed: bool = False
    tests: list[str] = field(default_factory=list)

    def run(self, name: str, check: Callable[[], str]) -> None:
        """Runs one check, and tells its name, its result and its time."""
        say(f"== {name}")
        started = time.monotonic()
        try:
            told = check()
            result = f"ok      {name}"
        except CheckFailed as failure:
            told = str(failure)
            result = f"FAILED  {name}"
            self.failed = True
        if told:
            say(told)
        line = f"{result} ({time.monotonic() - started:.1f} s)"
        say(line)
        self.lines.append(line)

    def finish(self) -> int:
        """Tells every result once more, the tests' own summary last; returns the exit code."""
        say("\n" + "\n".join(self.lines))
        for summary in self.tests:
            say(summary)
        return 1 if self.failed else 0


def check() -> int:
    """What has to hold before every commit, in under a minute."""
    argparse.ArgumentParser(
        prog="scripts/check", description="Format, lint, types and the fast tests."
    ).parse_args()
    try:
        setup.prepare()
    except Trouble as trouble:
        say(f"scripts/check: {trouble}")
        return trouble.exit_code
    report = Report()
    _run_static_checks(report)
    report.run("fast tests", lambda: _tests(report, ["-q", "-m", FAST_TESTS, *ON_EVERY_CORE]))
    return report.finish()


def test() -> int:
    """Everything that can be proven on this machine."""
    parser = argparse.ArgumentParser(
        prog="scripts/test",
        description="All set-up, then every check, every test, a trial deployment, the benchmarks.",
        epilog="What follows `--` is given to pytest.",
    )
    parser.add_argument("--fast", action="store_true", help="only what scripts/check runs")
    parser.add_argument("pytest", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    try:
        setup.prepare(tests=True)
    except Trouble as trouble:
        say(f"scripts/test: {trouble}")
        return trouble.exit_code
    report = Report()
    _run_static_checks(report)
    if options.fast:
        fast = ["-m", FAST_TESTS, *ON_EVERY_CORE, *options.pytest]
        report.run("fast tests", lambda: _tests(report, fast))
        return report.finish()
    host = ["-m", HOST_TESTS, *ON_EVERY_CORE, *options.pytest]
    report.run("tests on the host", lambda: _tests(report, host))
    worker = ["-m", WORKER_TESTS, *A_FILE_A_CORE, *options.pytest]
    report.run("tests of the Worker under workerd", lambda: _tests(report, worker))
    report.run("trial deployment", _trial_deployment)
    if (places.ROOT / "bench" / "run").exists():
        report.run("benchmarks", _benchmarks)
    return report.finish()


def _run_static_checks(report: Report) -> None:
    tools = places.VENV / "bin"
    report.run("format", lambda: _quiet([tools / "ruff", "format", "--check"]))
    report.run("lint", lambda: _quiet([tools / "ruff", "check", "--quiet"]))
    report.run("types", lambda: _quiet([tools / "mypy"]))


def _quiet(command: Sequence[str | Path]) -> str:
    """Runs a command that has something to say only when it fails."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=places.ROOT,
        env=places.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise CheckFailed(done.stdout.rstrip())
    return ""


def _shown(command: Sequence[str | Path]) -> tuple[int, str]:
    """Runs a command whose output is worth reading as it comes; its exit code and last line."""
    last = ""
    with subprocess.Popen(
        list(map(str, command)),
        cwd=places.ROOT,
        env=places.environment(PYTHONUNBUFFERED="1"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    return process.returncode, last


def _tests(report: Report, arguments: Sequence[str]) -> str:
    """Runs pytest; its last line, which counts the tests, is kept for the end of the report."""
    colour = ["--color=yes"] if sys.stdout.isatty() else []
    code, summary = _shown([places.PYTHON, "-m", "pytest", *colour, *arguments])
    report.tests.append(summary)
    if code != 0:
        raise CheckFailed(f"pytest ended with exit code {code}")
    return ""


def _benchmarks() -> str:
    code, _ = _shown([places.ROOT / "bench" / "run"])
    if code != 0:
        raise CheckFailed(f"bench/run ended with exit code {code}")
    return ""


def _trial_deployment() -> str:
    """Deploys without uploading, and looks at what would have been uploaded."""
    target = places.WORKSHOP / "deployment"
    pywrangler = places.WORKSHOP / "pywrangler" / "bin" / "pywrangler"
    with exclusive(places.WORKSHOP / "deployment.lock"):
        done = subprocess.run(
            [str(pywrangler), "deploy", "--dry-run", "--outdir", str(target)],
            cwd=places.ROOT,
            env=places.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        size = re.search(r"gzip: ([\d.]+) KiB", done.stdout)
        if done.returncode != 0 or size is None:
            raise CheckFailed(done.stdout.rstrip())
    if float(size.group(1)) > UPLOAD_KIB_MAX:
        raise CheckFailed(f"the upload takes {size.group(1)} KiB of {UPLOAD_KIB_MAX} KiB")
    return f"{size.group(1)} KiB compressed, of {UPLOAD_KIB_MAX} KiB"
