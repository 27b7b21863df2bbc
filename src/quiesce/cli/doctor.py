"""`quiesce doctor`: whether this machine and a deployment get on, and what to do where they do not.

1. It changes nothing: it asks for roles by requests that name a conversation that cannot exist.
2. It goes on after each finding for as long as the next question can be asked.
3. It ends with 0 if nothing is wrong, with 3 if nothing answers, and with 1 otherwise.
"""

import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import typer
from rich.table import Table
from rich.text import Text

from quiesce.cli.session import Session, command
from quiesce.cli.troubles import ExitCode
from quiesce.cli.wording import duration, plain
from quiesce.client import Health, QuiesceError, Refused, Unreachable, Unreadable
from quiesce.client.calls import ROLE_PROBES, Role

PANEL = "Operation"
SKEW_S_MAX = 5.0
LATENCY_S_MAX = 1.0
UNKNOWN = "unauthenticated"
app = typer.Typer()

NEEDS: dict[Role, str] = {
    "submit": "submit, signal, abort",
    "observe": "agents, watch, ls, show, explain, records, owed, lane, verify, export",
    "decide": "approve, deny, resolve",
    "operate": "retry, skip, pass",
}
MARKS = {"ok": ("ok  ", "green"), "note": ("note", "yellow"), "wrong": ("WRONG", "bold red")}


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, what was found, and what to do about it."""

    check: str
    level: Literal["ok", "note", "wrong"]
    found: str
    remedy: str | None = None
    exit_code: ExitCode = ExitCode.REFUSED

    def document(self) -> dict[str, Any]:
        """Write it for programs."""
        return {
            "check": self.check,
            "level": self.level,
            "found": self.found,
            "remedy": self.remedy,
        }


@command(app, "doctor", panel=PANEL, examples=["quiesce doctor", "quiesce doctor -c chat-1 --json"])
def doctor(session: Session) -> None:
    """Check the connection, the token, and the deployment.

    The URL, the health, the clocks, the token and its roles, the agents, and with -c the conversation; each
    finding says what to do about it. Nothing is changed.
    """
    worst = ExitCode.OK
    for finding in examine(session):
        if session.is_json:
            session.emit(finding.document())
        else:
            _print(session, finding)
        if finding.level == "wrong":
            worst = max(worst, finding.exit_code)
    if worst is not ExitCode.OK:
        raise typer.Exit(worst)


def _print(session: Session, finding: Finding) -> None:
    mark, style = MARKS[finding.level]
    said = Text(plain(finding.found))
    if finding.remedy is not None:
        said.append(f"\n{finding.remedy}", style="dim")
    if session.out.is_terminal:
        row = Table.grid()
        row.add_column(width=6)
        row.add_column(width=13)
        row.add_column(overflow="fold")
        row.add_row(Text(mark, style=style), Text(finding.check, style="bold"), said)
        session.out.print(row)
        return
    for begin, line in zip(
        (f"{mark:<6}{finding.check:<13}", " " * 19), said.split("\n"), strict=False
    ):
        session.out.print(Text.assemble(begin, line), soft_wrap=True)


def examine(session: Session) -> Iterator[Finding]:
    """Yield the findings, in the order in which one depends on another."""
    yield _url(session)
    began_s = session.client.calls.terms.clock()
    try:
        health = session.client.health()
    except QuiesceError as error:
        yield _unwell(error)
        return
    took_s = session.client.calls.terms.clock() - began_s
    slow = "It is far away or busy." if took_s > LATENCY_S_MAX else None
    yield Finding("health", "note" if slow else "ok", f"answers in {took_s * 1_000:.0f} ms", slow)
    yield _clock(session, health, took_s)
    roles = yield from _token(session)
    if "observe" in roles:
        yield _agents(session)
        if session.options.conversation:
            yield _conversation(session)


def _url(session: Session) -> Finding:
    address = session.client.address
    given = (
        "--url"
        if session.options.url
        else "QUIESCE_URL"
        if os.environ.get("QUIESCE_URL")
        else "the default"
    )
    found = f"{address.url}, from {given}"
    if address.is_encrypted or address.is_loopback:
        return Finding("url", "ok", found)
    return Finding(
        "url", "wrong", f"{found}: not encrypted", "Use https: this sends the token in the clear."
    )


def _unwell(error: QuiesceError) -> Finding:
    match error:
        case Unreachable():
            return Finding(
                "health",
                "wrong",
                f"no answer: {error}",
                "Start it (`scripts/dev` on this machine, `pywrangler deploy` elsewhere), or correct the URL.",
                ExitCode.UNREACHABLE,
            )
        case Refused(code="not-found"):
            return Finding(
                "health",
                "wrong",
                f"Quiesce answers, but not at this path: {error.detail}",
                "Correct the URL: it ends with the host and its port, where the deployment has no path of its own.",
            )
        case Refused():
            return Finding(
                "health",
                "wrong",
                f"it answers that it cannot work: {error.detail}",
                "Correct the variable that it names, and deploy again.",
            )
        case _:
            return Finding(
                "health",
                "wrong",
                f"something else answers: {error}",
                "Correct the URL: no deployment of Quiesce answers like that.",
                ExitCode.UNREACHABLE,
            )


def _clock(session: Session, health: Health, took_s: float) -> Finding:
    if health.served_at is None:
        return Finding("clock", "note", "not compared: this deployment sends no Date")
    ahead_s = session.time_s() - health.served_at.timestamp()
    # A Date is cut to the second, and is as old as the answer took at most.
    skew_s = max(0.0, abs(ahead_s) - 1.0 - took_s)
    if skew_s <= SKEW_S_MAX:
        return Finding("clock", "ok", "this machine and the deployment agree")
    side = "ahead of" if ahead_s > 0 else "behind"
    return Finding(
        "clock",
        "wrong",
        f"this machine is {duration(abs(ahead_s))} {side} the deployment",
        "Set this machine's clock (NTP): ages and times are shown wrong until then; the work itself is unharmed.",
    )


def _token(session: Session) -> Generator[Finding, None, list[Role]]:
    """Yield what the token is good for, and return its roles."""
    source = session.client.address.token_source
    given = {
        "given": "from --token",
        "environment": "from QUIESCE_TOKEN",
        "developer": "`dev`, which `scripts/dev` lets in",
        "none": "none",
    }[source]
    try:
        roles = [role for role in ROLE_PROBES if session.client.has_role(role)]
    except Refused as refused:
        yield Finding(
            "token",
            "wrong",
            f"{given}: this deployment knows no such token"
            if refused.code == UNKNOWN
            else f"{given}: {refused.detail}",
            "Put its SHA-256 into the deployment's QUIESCE_TOKENS (`printf %s TOKEN | sha256sum`), or set"
            " QUIESCE_TOKEN to one that is there.",
        )
        return []
    except (Unreachable, Unreadable) as error:
        yield Finding("token", "wrong", f"could not be tried: {error}", None, ExitCode.UNREACHABLE)
        return []
    yield Finding("token", "ok", given)
    lacking = [role for role in ROLE_PROBES if role not in roles]
    if not lacking:
        yield Finding("roles", "ok", ", ".join(roles))
    else:
        without = "; ".join(f"without {role}, no {NEEDS[role]}" for role in lacking)
        remedy = "Use another token for these, or add the role to this one in QUIESCE_TOKENS."
        yield Finding("roles", "note", f"{', '.join(roles) or 'none'} ({without})", remedy)
    return roles


def _agents(session: Session) -> Finding:
    try:
        names = [agent.name for agent in session.client.agents()]
    except QuiesceError as error:
        return Finding(
            "agents",
            "wrong",
            str(error),
            "Try again; if it stays so, look at the deployment's log.",
        )
    if names:
        return Finding("agents", "ok", ", ".join(names))
    return Finding(
        "agents", "wrong", "there is none", "Register agents in the deployment's registry."
    )


def _conversation(session: Session) -> Finding:
    name = session.conversation
    try:
        lane = session.client.lane(name)
    except QuiesceError as error:
        level: Literal["note", "wrong"] = "wrong"
        remedy = "`quiesce lane` says the same at length."
        if isinstance(error, Refused) and error.code == "not-found":
            level, remedy = "note", "It begins with the first submission."
        return Finding("conversation", level, f"{name}: {error}", remedy)
    if lane.parked:
        remedy = (
            f"See why with `quiesce explain -c {name}`; `quiesce pass -c {name}` tries again now."
        )
        return Finding(
            "conversation", "wrong", f"{name} is parked: it woke up often without progress", remedy
        )
    overdue = [each for each in session.client.explain(name) if each.freshness == "overdue"]
    if overdue:
        remedy = f"See what would move them: `quiesce explain -c {name}`."
        return Finding("conversation", "note", f"{name}: {len(overdue)} overdue", remedy)
    open_count = sum(count for state, count in lane.counts.items() if state != "settled")
    return Finding("conversation", "ok", f"{name}: {open_count} open, none overdue")
