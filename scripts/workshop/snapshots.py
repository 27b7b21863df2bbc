"""Snapshots: a Python that has already started and imported the Worker, as a file.

workerd can save one and start from it, in a fifth of the time. It holds the imported modules
themselves, so changed sources would be ignored: each is named by a digest of all that it holds.

Production makes its snapshot when a Worker is deployed. Making one here therefore also proves that
nothing at module level is of a kind that a snapshot cannot hold.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workshop import places
from workshop.steps import digest, exclusive

if TYPE_CHECKING:
    from workshop.serving import Worker

KEPT = 16


def arguments_for(workers: Sequence["Worker"]) -> list[str]:
    """The arguments that make workerd start from the snapshot of this Worker."""
    python = [worker for worker in workers if worker["main"].endswith(".py")]
    assert len(python) == 1, (
        "a snapshot holds one Python Worker, and would be loaded into every one"
    )
    places.SNAPSHOTS.mkdir(parents=True, exist_ok=True)
    file = places.SNAPSHOTS / f"{_key(python[0])}.bin"
    with exclusive(places.SNAPSHOTS / "lock"):
        if not file.exists():
            _make(python[0], file)
    os.utime(file)
    return [f"--python-load-snapshot={file.name}", f"--python-snapshot-dir={places.SNAPSHOTS}"]


def _make(worker: "Worker", file: Path) -> None:
    from workshop.serving import CannotServe, Server  # noqa: PLC0415 -- it imports this module.

    with tempfile.TemporaryDirectory(dir=places.WORKSHOP) as folder:
        log = Path(folder, "log")
        saving = ["--python-save-snapshot", f"--python-snapshot-dir={folder}"]
        Server.start(
            [worker], persist=Path(folder, "state"), log=log, workerd_arguments=saving
        ).stop()
        saved = Path(folder, "snapshot.bin")
        if not saved.exists():
            message = f"workerd made no snapshot of this Worker:\n{log.read_text('utf-8')}"
            raise CannotServe(message)
        saved.rename(file)
    for old in sorted(places.SNAPSHOTS.glob("*.bin"), key=os.path.getmtime)[:-KEPT]:
        old.unlink()


def _key(worker: "Worker") -> str:
    parts: list[str | Path] = [repr(worker["compatibilityFlags"]), worker["main"]]
    parts.append(places.ROOT / "package-lock.json")
    for folder in [root["folder"] for root in worker["roots"]]:
        for file in _sources(Path(folder)):
            parts += [str(file.relative_to(folder)), file]
    # The vendored packages are what their lock says.
    parts.append(places.REQUIREMENTS / "worker.lock")
    return digest(*parts)[:32]


def _sources(folder: Path) -> Iterator[Path]:
    for file in sorted(folder.rglob("*.py")):
        if "__pycache__" not in file.parts:
            yield file
