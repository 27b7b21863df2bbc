"""The commands that look at a whole conversation: whether it keeps its laws, and all of it as a bundle.

A bundle that is written to a file stands under its name only when it is whole: until then it has another name, and
what ends early leaves nothing.
"""

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from pydantic_core import from_json
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from quiesce.cli import screens
from quiesce.cli.session import Named, Session, command
from quiesce.cli.troubles import ExitCode
from quiesce.client import BadArgument

PANEL = "Operation"
HEADER, RECORD, END = (b'{"type":"%b"' % kind for kind in (b"header", b"record", b"end"))
app = typer.Typer()


@command(
    app,
    "verify",
    panel=PANEL,
    examples=["quiesce verify chat-1", "quiesce verify chat-1 --json | jq .problems"],
)
def verify(session: Session, name: Named = None) -> None:
    """Hold a whole conversation against its laws.

    Every digest, the chain, the order of its work, the ledger against the log. Nothing is written. Ends with 1 if
    a law is broken.
    """
    found = session.client.verify(session.named(name))
    if session.is_json:
        session.emit(found.document)
    else:
        session.show(screens.verification(found))
    if not found.ok:
        raise typer.Exit(ExitCode.REFUSED)


@command(
    app,
    "export",
    panel=PANEL,
    examples=["quiesce export chat-1 -o chat-1.ndjson", "quiesce export chat-1 | gzip > c.gz"],
)
def export(
    session: Session,
    name: Named = None,
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to; to stdout without it."),
    ] = None,
) -> None:
    """Export a whole conversation as a bundle: one JSON document a line.

    `scripts/verify_bundle.py FILE` checks it without the deployment. A file of that name is replaced once the
    bundle is whole, and left alone if it does not become so.
    """
    bundle = session.client.export(session.named(name))
    lines = _shown(session, bundle, is_read_here=output is None and session.out.is_terminal)
    if output is None:
        for line in lines:
            sys.stdout.buffer.write(line)
        sys.stdout.flush()
        return
    with _replacing(output) as file:
        file.writelines(lines)


@contextmanager
def _replacing(output: Path) -> Iterator[BinaryIO]:
    """Open a file under another name beside the one that is meant, which it takes when all is written."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{output.name}.", dir=output.parent)
        if output.is_dir():
            Path(name).unlink()
            raise IsADirectoryError(None, "it is a folder")
    except OSError as error:
        raise BadArgument(f"{output} cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(output)
    except BaseException:
        Path(name).unlink()
        raise


def _shown(session: Session, lines: Iterable[bytes], *, is_read_here: bool) -> Iterator[bytes]:
    """Pass on the lines of a bundle, and show on stderr how far it has come, but where they are read themselves."""
    bar = Progress(
        TextColumn("exporting"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("records"),
        console=session.err,
        transient=True,
        disable=session.is_json or not session.err.is_terminal or is_read_here,
    )
    end: Any = None
    with bar:
        task = bar.add_task("export", total=None)
        for line in lines:
            if line.startswith(HEADER):
                bar.update(task, total=from_json(line)["tail"]["sequence"])
            elif line.startswith(RECORD):
                bar.advance(task)
            elif line.startswith(END):
                end = from_json(line)
            yield line
    tail = end["tail"]
    session.hint(
        f"records: {end['records']}, submissions: {end['submissions']},"
        f" tail {tail['sequence']} {tail['digest']}"
    )
