"""What a command says when it has no result: what happened, which limit, what to do; and its exit code.

1. It goes to stderr, as sentences or, with --json, as the problem document on one line.
2. The exit codes are the ones of `ExitCode`, and no other error of a deployment has another.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from rich.console import Console
from rich.text import Text

from quiesce.cli.wording import json_line, plain
from quiesce.client.errors import QuiesceError, Refused, StillOpen, Unreachable, Unreadable


class ExitCode(IntEnum):
    """What a command ends with."""

    OK = 0
    REFUSED = 1
    """The deployment refused, or the submission settled without being completed."""
    USAGE = 2
    UNREACHABLE = 3
    STILL_OPEN = 4
    """The time to wait is over; the submission goes on."""
    INTERRUPTED = 130


ADVICE: Mapping[str, str] = {
    "invalid-request": "Correct what is named above; `quiesce agents` shows what each agent takes.",
    "unauthenticated": "Set QUIESCE_TOKEN, or --token, to a token whose SHA-256 stands in the deployment's"
    " QUIESCE_TOKENS.",
    "forbidden": "Use a token that may; `quiesce doctor` shows the roles of this one.",
    "not-found": "Check the id (`quiesce ls` lists those of a conversation), the name of the conversation, which"
    " begins with its first submission, and where this was sent (`quiesce doctor`).",
    "method-not-allowed": "This deployment is older or newer than this command: bring both to one version.",
    "idempotency-conflict": "Give new work a new --key, or repeat exactly what the key was used for.",
    "already-settled": "Nothing more can be done to it; `quiesce show` shows how it ended.",
    "decision-conflict": "It was decided before, as recorded above, and stays so.",
    "not-waiting": "`quiesce explain` shows what it waits for now.",
    "joined-to-host": "Act on the submission that it has joined.",
    "gone": "The submission was purged; only what is shown above is left of it.",
    "input-too-large": "Keep large data elsewhere, and submit a reference to it.",
    "unsupported-media-type": "Something between here and the deployment changed the request: look for a proxy.",
    "unknown-agent": "`quiesce agents` lists the agents of this deployment.",
    "queue-full": "See what the queue waits for (`quiesce lane`), and try again once it has moved;"
    " or use another conversation.",
    "rate-limited": "Try again later.",
    "corruption": "Stored state breaks a law: tell whoever runs the deployment; repeating this does not help.",
    "unavailable": "Try again in a moment; if it stays so, `quiesce doctor` says more.",
    "database-full": "The conversation has used up its storage: go on in a new one.",
}
LIMIT_FACTS = ("limit", "actual", "maximum")


def exit_code_of(error: QuiesceError) -> ExitCode:
    """Choose the exit code for an error."""
    match error:
        case Unreachable() | Unreadable():
            return ExitCode.UNREACHABLE
        case StillOpen():
            return ExitCode.STILL_OPEN
        case _:
            return ExitCode.REFUSED


def tell(error: QuiesceError, console: Console, url: str) -> None:
    """Say on a terminal what happened and what to do."""
    match error:
        case Refused():
            _say(console, "refused", f"{error.detail} ({error.code}, HTTP {error.status})")
            for line in _fact_lines(error.facts):
                console.print(Text(f"  {line}"), soft_wrap=True)
            advice = ADVICE.get(error.code, "")
        case Unreachable(reason=reason, may_have_arrived=may_have_arrived):
            _say(console, "unreachable", f"no answer from {url}: {reason}")
            advice = "Check --url or QUIESCE_URL; `scripts/dev` serves on this machine."
            if may_have_arrived:
                advice = f"The request may have arrived: look before you repeat it. {advice}"
        case Unreadable(reason=reason, status=status):
            _say(
                console,
                "unreadable",
                f"{url} answers HTTP {status}, but not as Quiesce does: {reason}",
            )
            advice = "Check --url or QUIESCE_URL: something else seems to answer there."
        case StillOpen():
            _say(console, "still open", str(error))
            advice = "The work is still owed: `quiesce explain` says what it waits for."
        case _:
            _say(console, "error", str(error))
            advice = ""
    if advice:
        console.print(Text(f"  What to do: {advice}"), soft_wrap=True)


def _say(console: Console, what: str, sentence: str) -> None:
    console.print(Text.assemble((f"{what}: ", "bold red"), plain(sentence)), soft_wrap=True)


def _fact_lines(facts: Mapping[str, Any]) -> list[str]:
    lines = []
    if all(name in facts for name in LIMIT_FACTS):
        limit, actual, maximum = (facts[name] for name in LIMIT_FACTS)
        lines.append(f"limit {plain(str(limit))}: {actual} of {maximum}")
    lines += [
        f"{plain(str(each.get('field') or 'the body'))}: {plain(str(each.get('problem')))}"
        for each in facts.get("errors", ())
    ]
    told = {*LIMIT_FACTS, "errors"}
    lines += [f"{plain(name)}: {_fact(value)}" for name, value in facts.items() if name not in told]
    return lines


def _fact(value: Any) -> str:
    """Say a fact in a few words: a settlement or what is left of one by its end, everything else as it stands."""
    if isinstance(value, dict) and "outcome" in value and "settled_at" in value:
        ends = (
            f"{each.removesuffix('_at')} at {value[each]}"
            for each in ("settled_at", "purged_at")
            if value.get(each)
        )
        return plain(f"{value['outcome']}, {', '.join(ends)}")
    return plain(value) if isinstance(value, str) else json_line(value)


def document_of(error: QuiesceError) -> dict[str, Any]:
    """Write an error for programs: the problem document, or one in its likeness."""
    match error:
        case Refused(problem=problem):
            return dict(problem)
        case StillOpen(status=status):
            return {"code": "still-open", "detail": str(error), "submission": status.document}
        case _:
            kind = "unreadable" if isinstance(error, Unreadable) else "unreachable"
            return {"code": kind, "detail": str(error)}
