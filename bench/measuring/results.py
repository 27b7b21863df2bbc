"""Results and how they are shown: a table for people, one for docs/evidence.md, JSON for programs."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Result:
    """One number, what it may be, and whether it is."""

    name: str
    measured: str
    budget: str
    """Empty where there is none: the number is told and proves nothing."""
    is_kept: bool = True

    @property
    def verdict(self) -> str:
        """What stands in the last column."""
        if not self.budget:
            return "-"
        return "ok" if self.is_kept else "OVER"


def at_most(name: str, measured: float, budget: float, *, shown: str = "") -> Result:
    """Build the result of a number that has an upper bound."""
    return Result(name, shown or f"{measured:g}", f"≤ {budget:g}", measured <= budget)


def exactly(name: str, measured: object, budget: object) -> Result:
    """Build the result of a number that can only be one."""
    return Result(name, str(measured), str(budget), measured == budget)


def same(name: str, measured: Sequence[object]) -> Result:
    """Build the result of a number that must not depend on what was varied."""
    is_kept = all(each == measured[0] for each in measured)
    return Result(name, ", ".join(map(str, measured)), "all the same", is_kept)


_HEADINGS = ("what", "measured", "budget", "verdict")


def table(results: Sequence[Result]) -> str:
    """Write the results as columns."""
    rows = [_HEADINGS, *_cells(results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def markdown(results: Sequence[Result]) -> str:
    """Write the results as the table of docs/evidence.md."""
    rows = [_HEADINGS, ("---",) * len(_HEADINGS), *_cells(results)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cells(results: Sequence[Result]) -> list[tuple[str, ...]]:
    return [(each.name, each.measured, each.budget or "-", each.verdict) for each in results]


def write_json(results: Iterable[Result], file: Path) -> None:
    """Write the results for programs."""
    file.write_text(json.dumps([asdict(each) for each in results], indent=2) + "\n", "utf-8")
