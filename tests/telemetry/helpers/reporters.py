"""Reporters of tests: one that keeps what it is told, and one each part of which may be broken."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from operations.ground import Handler, deployed
from quiesce import Agent
from quiesce.telemetry import Facts, Line, OpenSpan
from quiesce.testing import Conversation, Deployment


@dataclass
class KeptSpan:
    """A span as it was started, noted and ended."""

    name: str
    recorder: "Recorder"
    parent: "KeptSpan | None" = None
    facts: dict[str, Any] = field(default_factory=dict)
    ends: int = 0

    def note(self, facts: Facts) -> None:
        self.recorder.may_fail("note")
        self.facts.update(facts)

    def start(self, name: str) -> OpenSpan | None:
        self.recorder.may_fail("start")
        return self.recorder.started(name, self)

    def end(self) -> None:
        self.ends += 1
        self.recorder.may_fail("end")


class Recorder:
    """Whoever is told everything, and raises in the parts that are broken."""

    def __init__(self, *broken: str, is_tracing: bool = True) -> None:
        self.lines: list[Line] = []
        self.spans: list[KeptSpan] = []
        self.broken = broken
        self.failures = 0
        self.is_tracing = is_tracing

    def may_fail(self, part: str) -> None:
        if part in self.broken:
            self.failures += 1
            raise RuntimeError(f"{part} is broken")

    def hear(self, line: Line) -> None:
        self.may_fail("hear")
        self.lines.append(line)

    def start_span(self, name: str) -> OpenSpan | None:
        self.may_fail("start_span")
        return self.started(name, None) if self.is_tracing else None

    def started(self, name: str, parent: KeptSpan | None) -> KeptSpan:
        span = KeptSpan(name, self, parent)
        self.spans.append(span)
        return span

    def of(self, event: str) -> list[Line]:
        """Return the lines of one event, in order."""
        return [each for each in self.lines if each.event == event]

    def events(self) -> list[str]:
        """Return what has happened, in order."""
        return [each.event for each in self.lines]


@contextmanager
def heard(
    *agents: Agent | Handler, **settings: Any
) -> Iterator[tuple[Recorder, Deployment, Conversation]]:
    """Deploy agents or handlers, and listen to the first conversation and all others."""
    with deployed(*agents, **settings) as (deployment, lane):
        recorder = Recorder()
        deployment.reporter = recorder
        yield recorder, deployment, lane
