"""The command itself: its options before the command, its help, and the commands in the order of the help."""

import os
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from quiesce.cli import auditing, deciding, doctor, operating, work
from quiesce.cli.session import (
    CONVERSATION_VARIABLE,
    Conversation,
    Json,
    Options,
    Token,
    Url,
)

HELP = """Talk to a deployment of Quiesce: submit work, watch it, decide, and see what is owed.

\b
Try it on this machine, while `scripts/dev` runs:
  quiesce doctor
  quiesce agents
  quiesce submit -c chat-1 echo '"hello"' --wait 30
  quiesce submit -c chat-1 approval '{"question": "May I?"}' --watch

Elsewhere, set QUIESCE_URL and QUIESCE_TOKEN first.

\b
Exit codes:
  0  done; where a settlement was waited for, it is completed
  1  refused, settled without being completed, or not sound
  2  wrong usage; nothing was sent
  3  no deployment answers there
  4  still open when the time to wait was over
"""

app = typer.Typer(
    name="quiesce",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for part in (work.app, deciding.app, operating.app, auditing.app, doctor.app):
    app.registered_commands += part.registered_commands


def _print_version(is_wanted: bool) -> None:  # noqa: FBT001 - Typer calls it so
    if is_wanted:
        try:
            typer.echo(f"quiesce {version('quiesce')}")
        except PackageNotFoundError:
            typer.echo("quiesce, from its sources")
        raise typer.Exit


@app.callback(help=HELP)
def main(
    context: typer.Context,
    *,
    conversation: Conversation = None,
    url: Url = None,
    token: Token = None,
    is_json: Json = False,
    is_version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Keep the options that stand before the command."""
    del is_version
    named = conversation or os.environ.get(CONVERSATION_VARIABLE)
    context.obj = Options(url, token, named, is_json)


def run() -> None:
    """Be the command `quiesce`."""
    app()
