"""The commands by which a person moves what waits for one: decisions, resolutions, signals, aborts, retries.

An operation that is left out is looked up, and taken only if there is exactly one that it can be.
"""

from typing import Annotated

import typer

from quiesce.cli import screens
from quiesce.cli.inputs import JSON, json_value
from quiesce.cli.session import Session, command
from quiesce.cli.work import SubmissionId
from quiesce.client import BadArgument, OpenOperation, Status
from quiesce.client.calls import Resolution

PANEL = "Decisions"
app = typer.Typer()

OperationId = Annotated[
    str | None,
    typer.Argument(
        metavar="OPERATION",
        help="Which one, as `quiesce explain` names it; needed if several are open.",
    ),
]
WithReason = Annotated[
    str, typer.Option("--reason", "-r", metavar="TEXT", help="Why; it is recorded with your name.")
]


@command(
    app,
    "approve",
    panel=PANEL,
    examples=[
        "quiesce approve -c chat-1 sub_…",
        "quiesce approve -c chat-1 sub_… large-refund -r 'checked'",
    ],
)
def approve(
    session: Session,
    submission: SubmissionId,
    operation: OperationId = None,
    *,
    reason: WithReason = "",
) -> None:
    """Approve what a submission asks for."""
    chosen = operation or _only_one(session, submission, "approval")
    found = session.client.approve(session.conversation, submission, chosen, reason=reason)
    _done(session, found, f"approved {chosen}")


@command(app, "deny", panel=PANEL, examples=["quiesce deny -c chat-1 sub_… -r 'not this customer'"])
def deny(
    session: Session,
    submission: SubmissionId,
    operation: OperationId = None,
    *,
    reason: WithReason = "",
) -> None:
    """Deny what a submission asks for.

    Its agent is told, and goes on as it sees fit.
    """
    chosen = operation or _only_one(session, submission, "approval")
    found = session.client.deny(session.conversation, submission, chosen, reason=reason)
    _done(session, found, f"denied {chosen}")


@command(
    app,
    "resolve",
    panel=PANEL,
    examples=[
        """quiesce resolve -c chat-1 sub_… completed --result '{"reference": "r-1"}'""",
        "quiesce resolve -c chat-1 sub_… never-happened charge -r 'not in their books'",
    ],
)
def resolve(
    session: Session,
    submission: SubmissionId,
    resolution: Annotated[
        Resolution,
        typer.Argument(
            metavar="RESOLUTION", help="completed, failed, never-happened, safe-to-retry or abort."
        ),
    ],
    operation: OperationId = None,
    *,
    result: Annotated[
        JSON | None,
        typer.Option(
            metavar="JSON",
            parser=json_value,
            help="What the call returned, if it completed: JSON, @FILE or -.",
        ),
    ] = None,
    reason: WithReason = "",
) -> None:
    """Say what became of a call whose outcome is unknown.

    It may have happened, and left no result; so it is not made again until somebody who looked says this.
    completed: it happened, and returned --result. failed: it happened, and failed for --reason. never-happened,
    safe-to-retry: it is made once more. abort: the submission ends here.
    """
    if resolution == "completed" and result is None:
        raise BadArgument("say what the call returned: --result JSON, null if it returns nothing")
    chosen = operation or _only_one(session, submission, "unknown")
    found = session.client.resolve(
        session.conversation,
        submission,
        chosen,
        resolution,
        result=(result or JSON()).value,
        reason=reason,
    )
    _done(session, found, f"resolved {chosen} as {resolution}")


@command(
    app,
    "signal",
    panel=PANEL,
    examples=["""quiesce signal -c chat-1 sub_… paid '{"amount": 12}'"""],
)
def signal(
    session: Session,
    submission: SubmissionId,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name that its agent waits for.")],
    payload: Annotated[
        JSON | None,
        typer.Argument(
            metavar="PAYLOAD", parser=json_value, help="JSON, @FILE or -; null without it."
        ),
    ] = None,
    *,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", help="Idempotency key: the same signal with it is delivered once."
        ),
    ] = None,
) -> None:
    """Deliver a signal to a submission.

    One that comes before it is waited for is kept until then.
    """
    found = session.client.signal(
        session.conversation, submission, name, (payload or JSON()).value, key=key
    )
    _done(session, found, f"delivered {name}")


@command(app, "abort", panel=PANEL, examples=["quiesce abort -c chat-1 sub_… -r 'ordered twice'"])
def abort(session: Session, submission: SubmissionId, *, reason: WithReason = "") -> None:
    """Ask that a submission ends.

    What has happened outside is not undone.
    """
    found = session.client.abort(session.conversation, submission, reason=reason)
    _done(session, found, "abort recorded")


@command(
    app, "retry", panel=PANEL, examples=["quiesce retry -c chat-1 sub_… -r 'provider is back'"]
)
def retry(session: Session, submission: SubmissionId, *, reason: WithReason = "") -> None:
    """Let a submission go on at once that is quarantined, or waits for its next attempt.

    Its attempts are forgotten; what it has completed is kept.
    """
    found = session.client.retry(session.conversation, submission, reason=reason)
    _done(session, found, "released")


@command(
    app, "skip", panel=PANEL, examples=["quiesce skip -c chat-1 sub_… -r 'nobody will answer it'"]
)
def skip(session: Session, submission: SubmissionId, *, reason: WithReason = "") -> None:
    """End the head of the queue, so that what stands behind it can run.

    It is aborted, and its children are let go. Refused if it is not, or no longer, the head.
    """
    found = session.client.skip(session.conversation, submission, reason=reason)
    _done(session, found, "skip recorded")


def _done(session: Session, found: Status, what: str) -> None:
    if session.is_json:
        session.emit(found.document)
        return
    session.hint(what)
    session.show(screens.status(found, session.age_s))


NOUNS = {"approval": "undecided approval", "unknown": "call whose outcome is unknown"}


def _only_one(session: Session, submission: str, wanted: str) -> str:
    """Find the one operation that can be meant: an approval that is undecided, or a call that is unknown."""
    explained = session.client.explain_one(session.conversation, submission)
    found = [each for each in explained.open_operations if _is_wanted(each, wanted)]
    if len(found) == 1:
        return found[0].operation
    if not found:
        raise BadArgument(f"{submission} has no {NOUNS[wanted]}: {explained.why}")
    names = ", ".join(each.operation for each in found)
    raise BadArgument(f"{submission} has several: name one of {names}")


def _is_wanted(operation: OpenOperation, wanted: str) -> bool:
    return wanted in {operation.kind, operation.state}
