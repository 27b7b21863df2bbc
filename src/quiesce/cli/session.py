"""What every command has: a client, a way to speak, the conversation, and the options that all of them take.

1. `--url`, `--token`, `--conversation` and `--json` may stand before the command or behind it; behind it wins.
2. Results go to stdout, everything else to stderr. With --json, stdout holds the API's JSON and nothing else: one
   document, or one a line.
3. A command ends with an exit code of `troubles.ExitCode`, whatever happens.
"""

import inspect
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, Concatenate, Self

import typer
from pydantic_core import to_json
from rich.console import Console, RenderableType
from rich.text import Text

from quiesce.cli.troubles import ExitCode, document_of, exit_code_of, tell
from quiesce.cli.wording import duration
from quiesce.client import BadArgument, Client, QuiesceError

PANEL = "Options of every command"
CONVERSATION_VARIABLE = "QUIESCE_CONVERSATION"
TOLD_S_MIN = 1.0
"""A pause that is shorter is not told."""

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="Where the deployment is; without it, QUIESCE_URL, or http://127.0.0.1:8787.",
        rich_help_panel=PANEL,
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        help="The bearer token; better kept in QUIESCE_TOKEN. On this machine, `dev` is tried.",
        rich_help_panel=PANEL,
    ),
]
Conversation = Annotated[
    str | None,
    typer.Option(
        "--conversation",
        "-c",
        metavar="NAME",
        help="The conversation that is meant; without it, QUIESCE_CONVERSATION.",
        rich_help_panel=PANEL,
    ),
]
Named = Annotated[
    str | None,
    typer.Argument(metavar="CONVERSATION", help="Which one; -c's without it."),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print the API's JSON, for programs.", rich_help_panel=PANEL),
]


@dataclass(frozen=True, slots=True)
class Options:
    """The options that every command takes, as far as they were given."""

    url: str | None = None
    token: str | None = None
    conversation: str | None = None
    is_json: bool = False

    def over(self, earlier: Self) -> Self:
        """Return these, completed by those that stood before the command."""
        return replace(
            self,
            url=self.url or earlier.url,
            token=self.token or earlier.token,
            conversation=self.conversation or earlier.conversation,
            is_json=self.is_json or earlier.is_json,
        )


class Session:
    """One command that runs."""

    def __init__(self, options: Options, client: Client) -> None:
        self.options = options
        self.client = client
        self.out = Console(highlight=False, markup=False)
        self.err = Console(stderr=True, highlight=False, markup=False)
        self.time_s: Callable[[], float] = time.time

    @property
    def is_json(self) -> bool:
        """Whether a program reads stdout."""
        return self.options.is_json

    @property
    def conversation(self) -> str:
        """The conversation that is meant."""
        if not self.options.conversation:
            message = f"name the conversation: -c NAME, or {CONVERSATION_VARIABLE}"
            raise BadArgument(message)
        return self.options.conversation

    def named(self, name: str | None) -> str:
        """Return the conversation that stands behind the command, or the one that is meant without any."""
        return name or self.conversation

    def age_s(self, at: datetime) -> float:
        """Return how long ago something was."""
        return max(0.0, self.time_s() - at.timestamp())

    def show(self, *parts: RenderableType) -> None:
        """Print for a person, wrapped to the terminal."""
        for part in parts:
            self.out.print(part)

    def show_line(self, line: Text) -> None:
        """Print one line: cut off at the edge of a terminal, and whole for a pipe."""
        if self.out.is_terminal:
            self.out.print(line, no_wrap=True, overflow="ellipsis")
        else:
            self.out.print(line, soft_wrap=True)

    def emit(self, *documents: Any) -> None:
        """Print documents for a program, one a line, each at once."""
        for document in documents:
            sys.stdout.write(to_json(document, inf_nan_mode="constants").decode() + "\n")
        sys.stdout.flush()

    def hint(self, text: str) -> None:
        """Say something to a person that is not part of the result."""
        if not self.is_json:
            self.err.print(text, style="dim", soft_wrap=True)


def open_client(options: Options) -> Client:
    """Make the client of a command; tests put another in its place."""
    return Client(options.url, options.token)


def command(
    app: typer.Typer, name: str, *, panel: str, examples: Iterable[str] = ()
) -> Callable[[Callable[Concatenate[Session, ...], None]], None]:
    """Register a function as a command that also takes the options of every command."""

    def register(function: Callable[Concatenate[Session, ...], None]) -> None:
        def entry(context: typer.Context, **given: Any) -> None:
            own_given = {each.name: given[each.name] for each in own}
            behind = Options(given["url"], given["token"], given["conversation"], given["is_json"])
            before = context.obj if isinstance(context.obj, Options) else Options()
            run_command(behind.over(before), lambda session: function(session, **own_given))

        first, *rest = inspect.signature(function).parameters.values()
        assert first.name == "session"
        own = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in rest]
        parameters = [_parameter("context", typer.Context), *own, *COMMON_PARAMETERS]
        # Typer reads what a command takes from the signature and from the annotations.
        entry.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # as inspect reads it
        entry.__annotations__ = {each.name: each.annotation for each in parameters}
        entry.__name__ = function.__name__
        app.command(name, help=_help(function.__doc__ or "", examples), rich_help_panel=panel)(
            entry
        )

    return register


def _parameter(name: str, annotation: Any, **default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, **default)


COMMON_PARAMETERS = (
    _parameter("conversation", Conversation, default=None),
    _parameter("url", Url, default=None),
    _parameter("token", Token, default=None),
    _parameter("is_json", Json, default=False),
)


def _help(text: str, examples: Iterable[str]) -> str:
    shown = "\n".join(f"  {each}" for each in examples)
    return (
        f"{inspect.cleandoc(text)}\n\n\b\nExamples:\n{shown}" if shown else inspect.cleandoc(text)
    )


def _told(session: Session, sleep: Callable[[float], object]) -> Callable[[float], object]:
    """Sleep as before, and say so to a person where it takes long."""

    def sleep_and_tell(seconds: float) -> None:
        if seconds >= TOLD_S_MIN:
            session.hint(f"not now; trying again in {duration(seconds)}, Ctrl-C gives up")
        sleep(seconds)

    return sleep_and_tell


def run_command(options: Options, act: Callable[[Session], None]) -> None:
    """Run a command, and turn what goes wrong into words and an exit code."""
    err = Console(stderr=True, highlight=False, markup=False)
    try:
        with open_client(options) as client:
            try:
                session = Session(options, client)
                client.sleep = _told(session, client.sleep)
                act(session)
            except QuiesceError as error:
                if options.is_json:
                    sys.stderr.write(to_json(document_of(error)).decode() + "\n")
                else:
                    tell(error, err, client.address.url)
                raise typer.Exit(exit_code_of(error)) from None
    except BadArgument as error:
        err.print(f"usage: {error}", style="red", soft_wrap=True)
        raise typer.Exit(ExitCode.USAGE) from None
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
