"""An asyncio event loop whose clock moves only when everything waits.

A handler that sleeps an hour takes no time at all, and a test never sleeps: when no callback is ready, the loop
jumps to the next timer. When there is no timer either, nothing could ever happen again, and it says so.
"""

import asyncio
import selectors
from typing import Any


class Deadlock(Exception):
    """Everything waits, and no timer would end it."""


class _JumpingSelector(selectors.SelectSelector):
    """Instead of waiting for files, moves its loop's clock by as long as it was told to wait."""

    loop: "VirtualTimeLoop"

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if ready:
            return ready
        is_idle = timeout is None or timeout > 0
        if is_idle and self.loop.stops_when_idle:
            self.loop.stop()
        elif timeout is None:
            raise Deadlock("every task waits, and no timer is set")
        elif timeout > 0:
            self.loop.jump(timeout)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time, which starts at zero seconds."""

    def __init__(self) -> None:
        self.stops_when_idle = False
        self._virtual_s = 0.0
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)
        # Beside a time of months a nanosecond is nothing to a double, and the loop would wait for it for ever.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._virtual_s

    def jump(self, seconds: float) -> None:
        """Move the virtual clock."""
        self._virtual_s += seconds

    def run_until_idle(self) -> None:
        """Run whatever is ready until everything waits, without moving the clock."""
        self.stops_when_idle = True
        try:
            self.run_forever()
        finally:
            self.stops_when_idle = False
