"""What can be seen of a server from outside when a test on it has failed.

A runtime that answers nobody fails every test behind the one that has met it, each after its own patience. So it is
looked at while it still stands there, and ended: its successor answers the next test.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from workshop.serving import CannotServe, Server

PATIENCE_SECONDS = 10
OBJECT = "/v1/conversations/condition/maintenance"
HEADERS = {"authorization": "Bearer dev"}
"""A request that reaches an Object, where the Worker is ours and knows this token."""
LOOK_SECONDS = 0.5
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def told_of(server: Server) -> str:
    """Say whether the server and its Objects answer, what its processes do, and what they printed last.

    A runtime that does not answer is ended, and Miniflare starts another on the same port.
    """
    lines: list[str] = []
    answers = True
    for name, path in (("the Worker", "/healthz"), ("a new Object", OBJECT)):
        answers = server.answers(path, HEADERS, seconds=PATIENCE_SECONDS)
        told = "answers" if answers else f"did not answer within {PATIENCE_SECONDS} s"
        lines.append(f"{name} {told}")
        if not answers:
            break
    runtime: int | None = None
    try:
        runtime = server.runtime_pid()
    except (CannotServe, OSError) as error:
        lines.append(f"Node does not answer either: {error}")
    for name, pid in (("Node", server.process.pid), ("workerd", runtime)):
        lines.append(f"{name}: {_work_of(pid) if pid else 'not running'}")
    if not answers and runtime:
        lines += _threads_of(runtime)
        with contextlib.suppress(ProcessLookupError):
            os.kill(runtime, signal.SIGKILL)
        with contextlib.suppress(CannotServe, OSError):
            server.wait_for_restart(runtime)
    return "\n".join([*lines, server.last_words()])


def _work_of(pid: int) -> str:
    """Whether a process works or waits: its state, and the processor time that it takes in a short while."""
    try:
        _, before = _state_and_ticks(pid)
        time.sleep(LOOK_SECONDS)
        state, after = _state_and_ticks(pid)
    except OSError:
        return f"process {pid} is gone"
    share = (after - before) / TICKS_PER_SECOND / LOOK_SECONDS
    return f"process {pid}, state {state}, {share:.0%} of a core"


def _state_and_ticks(pid: int) -> tuple[str, int]:
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return fields[0], int(fields[11]) + int(fields[12])


def _threads_of(pid: int) -> Iterator[str]:
    """Where in the kernel each thread waits; 0 is one that does not."""
    for folder in sorted(Path(f"/proc/{pid}/task").glob("*")):
        with contextlib.suppress(OSError):
            name = (folder / "comm").read_text("utf-8").strip()
            yield f"  thread {folder.name} {name}: {(folder / 'wchan').read_text('utf-8')}"
