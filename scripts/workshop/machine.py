"""What the machine brings: a Python, a Node, a C compiler, free ports.

Nothing here installs anything. What is missing is told in one sentence.
"""

import functools
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from workshop.places import NODE_MODULES
from workshop.steps import Trouble

# The package runs on 3.12 and newer. Beyond the newest one named here its dependencies have no
# wheels yet, and building them would need more than a Python.
PYTHON_OLDEST = (3, 12)
PYTHON_NEWEST = (3, 14)

# npm of the oldest one still reads our lock file; wrangler itself needs the newer one, and npm
# brings a Node that is new enough where the machine's is not.
NODE_OLDEST_FOR_NPM = (18, 0)
NODE_OLDEST_FOR_WRANGLER = (22, 12)


def version_of(command: list[str]) -> tuple[int, ...] | None:
    """The version that a command prints, or None when it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    digits = done.stdout.strip().removeprefix("v").removeprefix("Python ").split(".")
    return tuple(int(part) for part in digits[:3] if part.isdigit())


def find_python() -> Path | None:
    """The newest interpreter on this machine that the package supports."""
    best: tuple[tuple[int, ...], Path] | None = None
    for candidate in dict.fromkeys(_python_candidates()):
        version = version_of([str(candidate), "--version"])
        if version is None or not PYTHON_OLDEST <= version[:2] <= PYTHON_NEWEST:
            continue
        if best is None or version > best[0]:
            best = (version, candidate)
    return best[1] if best else None


def _python_candidates() -> Iterator[Path]:
    """The one UV_PYTHON asks for, this one, those on PATH, and those that pyenv keeps aside."""
    names = [f"python3.{minor}" for minor in range(PYTHON_NEWEST[1], PYTHON_OLDEST[1] - 1, -1)]
    for name in (os.environ.get("UV_PYTHON"), sys.executable, "python3", *names):
        if found := shutil.which(name or ""):
            yield Path(found)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob("versions/3.*/bin/python3"))


def find_npm() -> Path:
    """npm, with a Node that can run it."""
    version = version_of(["node", "--version"]) if shutil.which("node") else None
    npm = shutil.which("npm")
    if version is None or npm is None:
        raise Trouble("Node.js with npm is missing: install Node.js 22 or newer and try again.")
    if version < NODE_OLDEST_FOR_NPM:
        found = ".".join(map(str, version))
        raise Trouble(f"Node.js {found} is too old: install Node.js 22 or newer and try again.")
    return Path(npm)


@functools.cache
def find_node() -> Path:
    """A Node that wrangler and Miniflare accept: the machine's, or the one among our packages."""
    bundled = sorted(NODE_MODULES.glob("node-*-*/bin/node"))
    on_path = shutil.which("node")
    for candidate in ([Path(on_path)] if on_path else []) + bundled:
        if (version_of([str(candidate), "--version"]) or (0,)) >= NODE_OLDEST_FOR_WRANGLER:
            return candidate
    wanted = ".".join(map(str, NODE_OLDEST_FOR_WRANGLER))
    raise Trouble(f"Node.js {wanted} or newer is needed and none was found: install one.")


def find_compiler() -> Path:
    """A C compiler, for the clock that the tests turn."""
    if found := shutil.which("gcc") or shutil.which("cc"):
        return Path(found)
    raise Trouble(
        "A C compiler is needed for the tests' clock: install gcc "
        "(Debian: apt-get install gcc libc6-dev)."
    )


def check_port(port: int) -> None:
    """Refuses a port that another process holds, before anything is started for nothing."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise Trouble(f"Port {port} of 127.0.0.1 cannot be used: {reason}.") from None
