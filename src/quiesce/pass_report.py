"""What one pass did, and why the lane is quiet after it or not.

The report is a pass's line in the log, its last word in the generation record, and what tests assert.
"""

from dataclasses import dataclass
from typing import Any

from quiesce.generation import CaughtUp, SetAt


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one pass did, and why the lane is now quiet or not."""

    phase: str
    """`caught-up` or `actionable`."""
    recovered: int
    settled: int
    purged: int
    nonterminal: int
    alarm: str
    """`rearmed` or `cleared`."""
    reason: str
    generation_lag: int
    next_due_ms: int | None
    rows_read: int
    rows_written: int
    """Without the two rows of finish itself, which stores this report."""
    duration_ms: int
    at_ms: int

    def fields(self) -> dict[str, Any]:
        """Return the report as a flat document; it is stored with every pass, so this is quick."""
        return {name: getattr(self, name) for name in self.__slots__}

    def facts(self) -> dict[str, Any]:
        """Return what the pass's line and its span say."""
        facts = self.fields()
        del facts["at_ms"]
        return facts


def caught_up_report(caught_up: CaughtUp, now_ms: int) -> PassReport:
    """Return the report of a pass that found nothing owed."""
    return PassReport(
        phase="caught-up",
        recovered=0,
        settled=0,
        purged=0,
        nonterminal=0,
        alarm="rearmed" if isinstance(caught_up.alarm, SetAt) else "cleared",
        reason="nothing is owed",
        generation_lag=0,
        next_due_ms=caught_up.alarm.at_ms if isinstance(caught_up.alarm, SetAt) else None,
        rows_read=0,
        rows_written=0,
        duration_ms=0,
        at_ms=now_ms,
    )
