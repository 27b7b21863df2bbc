"""How values are said on a terminal: times, ages, JSON, and text that others wrote.

1. Text from a deployment is never markup, and what would steer a terminal is shown instead of obeyed.
2. Times are UTC, as in the API and in logs.
"""

from datetime import UTC, datetime
from typing import Any

from pydantic_core import to_json
from rich.highlighter import JSONHighlighter
from rich.text import Text

UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
STATE_STYLES = {
    "settled": "green",
    "suspended": "yellow",
    "unknown": "bold red",
    "quarantined": "bold red",
    "running": "cyan",
    "input-applied": "cyan",
}
OUTCOME_STYLES = {"completed": "bold green", "failed": "bold red", "aborted": "bold yellow"}
FRESHNESS_STYLES = {"ok": "green", "aging": "yellow", "overdue": "bold red"}


def plain(text: str) -> str:
    """Return the text with everything that would steer a terminal written out."""
    return "".join(each if each.isprintable() or each == "\n" else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return f"\\u{ord(character):04x}"


def styled(text: str, styles: dict[str, str]) -> Text:
    """Return a word in the colour that it has everywhere."""
    return Text(plain(text), style=styles.get(text, ""))


def duration(seconds: float) -> str:
    """Say how long something is, in its two greatest units."""
    left = max(0, round(seconds))
    said: list[str] = []
    for unit, size in UNITS:
        count, left = divmod(left, size)
        if count or (said and unit != "s"):
            said.append(f"{count} {unit}")
        if len(said) == 2:  # noqa: PLR2004 - two units
            break
    return " ".join(said) or "0 s"


def counted(count: int, noun: str) -> str:
    """Say how many there are of something."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def moment(at: datetime | None) -> str:
    """Say an instant to the second."""
    return "" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S Z")


def short_moment(at: datetime) -> str:
    """Say an instant without its year, for a list of many."""
    return at.astimezone(UTC).strftime("%m-%d %H:%M:%S")


def json_line(value: Any) -> str:
    """Write JSON on one line."""
    return plain(to_json(value, inf_nan_mode="constants").decode())


def json_block(value: Any) -> Text:
    """Write JSON over as many lines as it is readable on."""
    text = Text(plain(to_json(value, inf_nan_mode="constants", indent=2).decode()))
    JSONHighlighter().highlight(text)
    return text
