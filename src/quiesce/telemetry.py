"""What a conversation tells about its work: lines, and the spans of a pass.

1. Something is told only after the commit that it speaks of. What dies between the two is not told.
2. Nothing here decides anything. Whatever the reporter raises is dropped, in one place, so that no answer, no row
   and no alarm depends on it.
3. A line holds ids, the names of agents and operations, counts and codes: no input, no result, no reason that a
   person gave, no principal and no token.
4. A pass has five spans at most: its own, and one for each of its first four attempts. Where nobody traces, it has
   none.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from quiesce.generation_record import Cost
from quiesce.ledger import Submission
from quiesce.states import OutcomeKind

PASS_SPAN = "quiesce.pass"  # noqa: S105 - a pass of the lane, and no password
ATTEMPT_SPAN = "quiesce.attempt"
ATTEMPT_SPANS_MAX = 4

type Fact = str | int | bool | None
type Facts = Mapping[str, Fact]


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that has happened."""

    event: str
    at_ms: int
    conversation: str | None
    trace_id: str | None
    facts: Facts


@dataclass(frozen=True, slots=True)
class Settled:
    """One submission that a commit has settled, as that commit knew it."""

    submission: Submission
    outcome: OutcomeKind
    error_type: str | None
    settled_at_ms: int
    cost: Cost

    def facts(self) -> dict[str, Fact]:
        """Return what its line says."""
        return {
            "submission": self.submission.id,
            "agent": self.submission.agent,
            "outcome": self.outcome.value,
            "error_type": self.error_type,
            "elapsed_ms": self.settled_at_ms - self.submission.accepted_at_ms,
            "attempts": self.submission.attempts,
            **self.cost.fields(),
        }


class OpenSpan(Protocol):
    """A span that somebody traces and that has not ended."""

    def note(self, facts: Facts) -> None:
        """Give it attributes."""
        ...

    def start(self, name: str) -> "OpenSpan | None":
        """Start a span inside it."""
        ...

    def end(self) -> None:
        """End it."""
        ...


class Reporter(Protocol):
    """Whoever is told."""

    def hear(self, line: Line) -> None:
        """Take one line."""
        ...

    def start_span(self, name: str) -> OpenSpan | None:
        """Start a span, or return None where nobody traces."""
        ...


def harmless[T](act: Callable[[], T]) -> T | None:
    """Do what only tells. Whatever it raises is dropped here, and only here."""
    try:
        return act()
    except Exception:  # noqa: BLE001 - the work must not depend on who listens to it
        return None


class Span:
    """A span around some work; nothing at all where nobody traces it."""

    def __init__(self, opened: OpenSpan | None = None, inner_max: int = 0) -> None:
        self._opened = opened
        self._inner_left = inner_max

    def note(self, facts: Facts) -> None:
        """Give the span attributes."""
        opened = self._opened
        if opened is not None:
            harmless(lambda: opened.note(facts))

    def inner(self, name: str) -> "Span":
        """Start a span inside this one, if it may have another."""
        opened = self._opened
        if opened is None or self._inner_left == 0:
            return UNTRACED
        self._inner_left -= 1
        return Span(harmless(lambda: opened.start(name)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.note({"error": kind.__name__})
        if self._opened is not None:
            harmless(self._opened.end)


UNTRACED = Span()
"""The span of what nobody traces."""


def span_of(reporter: Reporter | None, name: str, inner_max: int = 0) -> Span:
    """Start a span by whoever is told, if anybody is."""
    if reporter is None:
        return UNTRACED
    opened = harmless(lambda: reporter.start_span(name))
    return UNTRACED if opened is None else Span(opened, inner_max)
