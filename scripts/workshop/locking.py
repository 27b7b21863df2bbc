"""`scripts/lock`: resolves every dependency anew and writes the lock files.

The files hold versions and hashes and no address: which registry serves them is each machine's
business.
"""

import argparse
import subprocess
from pathlib import Path

from workshop import machine, places, setup
from workshop.steps import Trouble, perform_all, say

GROUPS = ("bootstrap", "host", "deploy", "worker")


def main() -> int:
    """Writes requirements/*.lock from pyproject.toml, and package-lock.json from package.json."""
    parser = argparse.ArgumentParser(prog="scripts/lock", description="Write the lock files anew.")
    parser.add_argument("--upgrade", action="store_true", help="take newer versions where allowed")
    options = parser.parse_args()
    upgrade = ["--upgrade"] if options.upgrade else []
    try:
        perform_all([setup.UV_STEP])
        for group in GROUPS:
            _run(str(places.UV), "pip", "compile", "--quiet", *upgrade, "--group", group,
                 "--universal", "--python-version", ".".join(map(str, machine.PYTHON_OLDEST)),
                 "--generate-hashes", "--no-header", "--no-annotate",
                 "--output-file", f"requirements/{group}.lock")  # fmt: skip
        _run(str(machine.find_npm()), "install", "--package-lock-only", "--ignore-scripts")
        _refuse_addresses()
    except Trouble as trouble:
        say(f"scripts/lock: {trouble}")
        return trouble.exit_code
    return 0


def _run(*command: str) -> None:
    say(f"{Path(command[0]).name} {command[1]}: {command[-1]}")
    done = subprocess.run(command, cwd=places.ROOT, check=False)
    if done.returncode != 0:
        raise Trouble(f"`{command[0]}` ended with exit code {done.returncode}")


def _refuse_addresses() -> None:
    for file in sorted(places.REQUIREMENTS.glob("*.lock")):
        if "://" in file.read_text("utf-8"):
            raise Trouble(f"{file.name} names an address: look for an index in uv's configuration.")
    if '"resolved"' in (places.ROOT / "package-lock.json").read_text("utf-8"):
        raise Trouble("package-lock.json names an address: npm must read this folder's .npmrc.")
