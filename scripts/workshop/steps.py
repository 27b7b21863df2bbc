"""Set-up steps: each is performed once, and again only when what it depends on has changed.

1. A step is stamped with a digest of its inputs after it succeeded, never before, so a step that
   was interrupted is performed again.
2. The steps of one repository are performed by one script at a time; a second one waits.
3. Progress goes to stderr. A failure says which step, why, and what to do.
"""

import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from workshop.places import LOGS, STAMPS, WORKSHOP

PROGRESS_SECONDS = 5
TAIL_LINES = 15


class Trouble(Exception):
    """What a person has to put right before the script can go on: one sentence, exit code 2."""

    exit_code = 2


class StepFailed(Trouble):
    """A set-up step ended in an error: the step, its last words, and what to do."""

    exit_code = 1


@dataclass(frozen=True)
class Step:
    """One piece of set-up. `inputs` are texts and files; `outputs` must exist once it is done.

    `require` refuses a machine that lacks what the step cannot bring. It is asked before any step
    begins, so that nobody waits half a minute to read that something is missing.
    """

    name: str
    purpose: str
    inputs: Callable[[], Iterable[str | Path]]
    perform: Callable[["Recorder"], None]
    outputs: tuple[Path, ...]
    remedy: str
    require: Callable[[], object] = lambda: None


class Recorder:
    """Runs the commands of one step, keeps what they print, and shows that time passes."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.log = LOGS / f"{step.name}.log"
        self.started = time.monotonic()
        self.log.write_text("", "utf-8")

    def run(self, command: Sequence[str | Path], *, env: dict[str, str] | None = None) -> None:
        """Runs a command to its end; an error of it is the step's failure."""
        with self.log.open("a", encoding="utf-8") as log:
            log.write("$ " + " ".join(map(str, command)) + "\n")
            log.flush()
            process = subprocess.Popen(
                list(map(str, command)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=env,
            )
            try:
                code = self._wait(process)
            except BaseException:
                process.kill()
                raise
        if code != 0:
            raise self.failure(f"`{command[0]}` ended with exit code {code}")

    def failure(self, reason: str) -> StepFailed:
        """The error to raise for this step, with the last lines that its commands printed."""
        lines = self.log.read_text("utf-8", errors="replace").splitlines()[-TAIL_LINES:]
        told = "".join(f"\n  | {line}" for line in lines)
        return StepFailed(
            f"set-up step '{self.step.name}' ({self.step.purpose}) failed: {reason}{told}\n"
            f"What to do: {self.step.remedy}\nThe whole output: {self.log}"
        )

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        while True:
            try:
                return process.wait(PROGRESS_SECONDS)
            except subprocess.TimeoutExpired:
                say(f"  {self.step.name}: {time.monotonic() - self.started:.0f} s so far")


def say(line: str) -> None:
    """Tells a person something. Stdout stays free for what programs read."""
    print(line, file=sys.stderr, flush=True)


def perform_all(steps: Iterable[Step]) -> None:
    """Performs every step that is not done yet, in order."""
    try:
        for folder in (STAMPS, LOGS):
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Trouble(f"cannot write to {WORKSHOP}: {error.strerror}") from None
    with exclusive(WORKSHOP / "lock"):
        pending = [step for step in steps if not _is_done(step)]
        for step in pending:
            step.require()
        for step in pending:
            _perform(step)


def _is_done(step: Step) -> bool:
    stamp = STAMPS / step.name
    stamped = stamp.read_text("utf-8") if stamp.exists() else None
    return stamped == _digest_of(step) and all(output.exists() for output in step.outputs)


def _digest_of(step: Step) -> str:
    return digest(step.name, *step.inputs())


def _perform(step: Step) -> None:
    stamp, wanted = STAMPS / step.name, _digest_of(step)
    say(f"set-up: {step.name}: {step.purpose}")
    stamp.unlink(missing_ok=True)
    recorder = Recorder(step)
    try:
        step.perform(recorder)
    except OSError as error:
        raise recorder.failure(str(error)) from error
    for output in step.outputs:
        if not output.exists():
            raise recorder.failure(f"it ended well but made no {output}")
    stamp.write_text(wanted, "utf-8")
    say(f"  {step.name}: done in {time.monotonic() - recorder.started:.1f} s")


def digest(*parts: str | Path) -> str:
    """One digest over texts and over the contents of files."""
    sha = hashlib.sha256()
    for part in parts:
        content = part.read_bytes() if isinstance(part, Path) else part.encode()
        sha.update(len(content).to_bytes(8, "big") + content)
    return sha.hexdigest()


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Holds a lock that ends with the process, however it ends."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another script of this repository to finish its set-up")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
