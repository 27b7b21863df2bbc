"""The reporter of one Object under workerd: its log, its dataset and its tracer.

1. What is not there is not used: a deployment without the binding ANALYTICS writes no point, a runtime without a
   tracer has no spans, and a pass that nobody traces pays for one span that is ended at once.
2. A span is started and ended by itself, without a callback around the work: entering one around an asynchronous
   function takes the runtime a millisecond, and this takes some microseconds.
3. Each of the three is used by itself: one that is broken leaves the others.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import js
from pyodide.ffi import to_js
from workers import import_from_javascript

from quiesce import reporting
from quiesce.telemetry import Facts, Line, OpenSpan, harmless

DATASET = "ANALYTICS"


class _PlatformSpan:
    """A span of the platform's that is traced."""

    def __init__(self, tracing: Any, span: Any) -> None:
        self._tracing = tracing
        self._span = span

    def note(self, facts: Facts) -> None:
        """Give it attributes; what has no value is left out."""
        known = {name: value for name, value in facts.items() if value is not None}
        self._span.setAttributes(_object(known))

    def start(self, name: str) -> OpenSpan | None:
        """Start a span inside it."""
        tracing = self._tracing
        span = tracing.withActiveSpan(self._span, lambda: tracing.startSpan(name))
        return _PlatformSpan(tracing, span)

    def end(self) -> None:
        """End it."""
        self._span.end()


class Observer:
    """Whoever watches this deployment, by what the platform gives for it."""

    def __init__(self, env: Any) -> None:
        self._env = getattr(env, "_env", env)

    def hear(self, line: Line) -> None:
        """Write a line, and its data point."""
        harmless(lambda: self._log(reporting.text_of(line)))
        if line.event in reporting.POINTS:
            harmless(lambda: self._write_point(line))

    def _write_point(self, line: Line) -> None:
        if self._dataset is not None:
            self._dataset.writeDataPoint(_object(reporting.point_of(line)))

    def start_span(self, name: str) -> OpenSpan | None:
        """Start a span of the platform's, unless nobody traces this event."""
        tracing = self._tracing
        if tracing is None:
            return None
        span = tracing.startSpan(name)
        if not span.isTraced:
            span.end()
            return None
        return _PlatformSpan(tracing, span)

    @cached_property
    def _log(self) -> Callable[[str], None]:
        log: Callable[[str], None] = js.console.log
        return log

    @cached_property
    def _dataset(self) -> Any:
        return getattr(self._env, DATASET, None)

    @cached_property
    def _tracing(self) -> Any:
        return getattr(import_from_javascript("cloudflare:workers"), "tracing", None)


def _object(value: Any) -> Any:
    return to_js(value, dict_converter=js.Object.fromEntries)
