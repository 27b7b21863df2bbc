"""The commands for whoever runs a deployment: why things are where they are, what is owed, and the lever."""

import shlex
from typing import Annotated

import typer

from quiesce.cli import screens
from quiesce.cli.deciding import WithReason
from quiesce.cli.session import Named, Session, command
from quiesce.cli.troubles import ExitCode, tell
from quiesce.client import Explanation, Refused

PANEL = "Operation"
NOT_FOUND = "not-found"
app = typer.Typer()


@command(
    app,
    "explain",
    panel=PANEL,
    examples=["quiesce explain -c chat-1", "quiesce explain -c chat-1 sub_…"],
)
def explain(
    session: Session,
    submission: Annotated[
        str | None,
        typer.Argument(metavar="SUBMISSION", help="Only this one; all that are open without it."),
    ] = None,
) -> None:
    """Say why each open submission is where it is.

    What it waits for, what would move it, and how old that is: ok, aging after an hour, overdue after a day.
    """
    if submission is not None:
        found = [session.client.explain_one(session.conversation, submission)]
    else:
        found = list(session.client.explain(session.conversation))
    if session.is_json:
        return session.emit(*(each.document for each in found))
    if not found:
        return session.hint("nothing is open")
    return session.show(*(screens.explanation(each) for each in found))


@command(
    app,
    "owed",
    panel=PANEL,
    examples=["quiesce owed chat-1 chat-2", "quiesce owed chat-1 --json | jq .age_ms"],
)
def owed(
    session: Session,
    conversations: Annotated[
        list[str] | None,
        typer.Argument(metavar="CONVERSATION", help="Which ones; -c's without any."),
    ] = None,
) -> None:
    """List what is open in several conversations, the oldest first."""
    found: list[Explanation] = []
    missing: Refused | None = None
    for conversation in conversations or [session.conversation]:
        try:
            found += session.client.explain(conversation)
        except Refused as refused:
            if refused.code != NOT_FOUND:
                raise
            missing = refused
            tell(refused, session.err, session.client.address.url)
    found.sort(key=lambda each: -each.age_ms)
    if session.is_json:
        session.emit(*(each.document for each in found))
    elif found:
        session.show(screens.owed(found))
    elif missing is None:
        session.hint("nothing is owed")
    if missing is not None:
        raise typer.Exit(ExitCode.REFUSED)


@command(app, "lane", panel=PANEL, examples=["quiesce lane chat-1"])
def lane(session: Session, name: Named = None) -> None:
    """Show a conversation: its queue, what blocks it, its alarm."""
    found = session.client.lane(session.named(name))
    if session.is_json:
        session.emit(found.document)
    else:
        session.show(screens.lane(found, session.age_s))


@command(app, "pass", panel=PANEL, examples=["quiesce pass -c chat-1 -r 'provider is back'"])
def force_pass(session: Session, *, reason: WithReason = "") -> None:
    """Make a conversation look at its work now.

    It is never needed where all is well; it is recorded with your name and reason.
    """
    found = session.client.force_pass(session.conversation, reason=reason)
    if session.is_json:
        session.emit(found.document)
        return
    session.show(screens.maintenance(found))
    session.hint(f"see what it did: quiesce lane -c {shlex.quote(session.conversation)}")


@command(app, "agents", panel=PANEL, examples=["quiesce agents", "quiesce agents --json"])
def agents(session: Session) -> None:
    """List the agents of the deployment, and what each takes.

    With --json, each with the JSON Schemas of its input and output.
    """
    found = session.client.agents()
    if session.is_json:
        session.emit(*(each.document for each in found))
    else:
        session.show(screens.agents(found))
