"""The commands for work: have it accepted, watch it, list and show it, read its log."""

from itertools import islice
from typing import Annotated, Literal

import typer

from quiesce.cli import screens
from quiesce.cli.inputs import JSON, json_value
from quiesce.cli.session import Named, Session, command
from quiesce.cli.troubles import ExitCode
from quiesce.cli.watching import watch
from quiesce.client import Settlement
from quiesce.states import State

PANEL = "Work"
PAGE_MAX = 200
app = typer.Typer()

SubmissionId = Annotated[
    str, typer.Argument(metavar="SUBMISSION", help="The id of the submission, sub_….")
]


def end_with(settlement: Settlement) -> None:
    """End the command as its submission ended."""
    if not settlement.is_completed:
        raise typer.Exit(ExitCode.REFUSED)


Agent = Annotated[
    str, typer.Argument(metavar="AGENT", help="Who does the work; `quiesce agents` lists them.")
]
Work = Annotated[
    JSON,
    typer.Argument(
        metavar="INPUT", parser=json_value, help="JSON, @FILE, or - for standard input."
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help="Idempotency key: the same key finds the same submission. Without it, this is new work.",
    ),
]
Mode = Annotated[
    Literal["queue", "join"],
    typer.Option(help="Wait in the queue, or join the submission that runs."),
]
Deadline = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", min=0.001, help="Fail if it is not settled by then."),
]
Callback = Annotated[str | None, typer.Option(metavar="URL", help="Where its settlement is sent.")]
Wait = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", min=0, help="Wait so long for its settlement, and end as it ends."
    ),
]
IsWatched = Annotated[
    bool, typer.Option("--watch", help="Watch it until it is settled, and end as it ends.")
]


@command(
    app,
    "submit",
    panel=PANEL,
    examples=[
        """quiesce submit -c chat-1 echo '"hello"' --wait 30""",
        """quiesce submit -c chat-1 steps '{"count": 3}' --watch""",
        "quiesce submit -c chat-1 refunds @refund.json --key order-7",
        "generate | quiesce submit -c chat-1 echo - --json",
    ],
)
def submit(  # noqa: PLR0913 - each is an option of the command
    session: Session,
    agent: Agent,
    work: Work,
    *,
    key: Key = None,
    mode: Mode = "queue",
    deadline: Deadline = None,
    callback: Callback = None,
    wait: Wait = None,
    is_watched: IsWatched = False,
) -> None:
    """Have work accepted, and print its receipt.

    From then on the work is owed, and is done whether anybody waits for it or not.
    """
    conversation = session.conversation
    receipt = session.client.submit(
        conversation,
        agent,
        work.value,
        key=key,
        mode=mode,
        deadline_ms=None if deadline is None else round(deadline * 1_000),
        callback_url=callback,
    )
    said = "had been accepted before" if receipt.is_replayed else "accepted"
    if is_watched:
        session.hint(f"{receipt.submission} {said}")
        return end_with(watch(session, receipt.submission, wait))
    if wait is not None:
        session.hint(f"{receipt.submission} {said}")
        settlement = session.client.wait(conversation, receipt.submission, timeout_s=wait)
        _print_settlement(session, settlement)
        return end_with(settlement)
    if session.is_json:
        return session.emit(receipt.document)
    session.show(f"{receipt.submission} {said}, #{receipt.sequence} of {conversation}")
    return session.hint(f"follow it: quiesce watch -c {conversation} {receipt.submission}")


def _print_settlement(session: Session, settlement: Settlement) -> None:
    if session.is_json:
        session.emit(settlement.document)
    else:
        session.show(screens.settlement(settlement))


@command(
    app,
    "watch",
    panel=PANEL,
    examples=["quiesce watch -c chat-1 sub_…", "quiesce watch -c chat-1 sub_… --timeout 60 --json"],
)
def watch_submission(
    session: Session,
    submission: SubmissionId,
    *,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, help="Stop watching after so long; exit code 4."),
    ] = None,
) -> None:
    """Watch a submission live, until it is settled.

    It shows the state, what is waited for, and the records as they come. It ends with 0 if the
    submission was completed, with 1 if it failed or was aborted.
    """
    end_with(watch(session, submission, timeout))


@command(
    app,
    "ls",
    panel=PANEL,
    examples=["quiesce ls chat-1", "quiesce ls chat-1 --state suspended --json"],
)
def list_submissions(
    session: Session,
    name: Named = None,
    *,
    state: Annotated[
        State | None, typer.Option(help="Only those in this state.", show_choices=True)
    ] = None,
    limit: Annotated[int, typer.Option(metavar="COUNT", min=1, help="At most so many.")] = 100,
) -> None:
    """List the submissions of a conversation, in its order."""
    found = session.client.submissions(
        session.named(name), state=state, page_size=min(limit, PAGE_MAX)
    )
    shown = list(islice(found, limit))
    if session.is_json:
        return session.emit(*(each.document for each in shown))
    if not shown:
        return session.hint("there is none")
    session.show(screens.submissions(shown))
    return None


@command(app, "show", panel=PANEL, examples=["quiesce show -c chat-1 sub_…"])
def show(session: Session, submission: SubmissionId) -> None:
    """Show where one submission stands, and how it ended."""
    found = session.client.status(session.conversation, submission)
    if session.is_json:
        session.emit(found.document)
    else:
        session.show(screens.status(found, session.age_s))


@command(
    app,
    "records",
    panel=PANEL,
    examples=["quiesce records chat-1", "quiesce records chat-1 --after 120 --json"],
)
def records(
    session: Session,
    name: Named = None,
    *,
    after: Annotated[
        int, typer.Option(metavar="SEQUENCE", min=0, help="Begin behind this record.")
    ] = 0,
    limit: Annotated[
        int | None, typer.Option(metavar="COUNT", min=1, help="At most so many; all without it.")
    ] = None,
    submission: Annotated[
        str | None, typer.Option(metavar="SUBMISSION", help="Only those of this submission.")
    ] = None,
) -> None:
    """Print the log of a conversation.

    It is every fact that was recorded, in order; with --json each with its whole payload and digest.
    """
    conversation = session.named(name)
    found = (
        record
        for record in session.client.records(conversation, after=after, page_size=PAGE_MAX)
        if submission is None or record.submission == submission
    )
    for record in islice(found, limit):
        if session.is_json:
            session.emit(record.document)
        else:
            session.show_line(screens.record_line(record))
