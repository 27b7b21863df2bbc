"""Timers whose cancellation reaches JavaScript.

The event loop of the runtime sets a JavaScript timer for every `call_later` and leaves it set when the call is
cancelled. A timer that is left keeps its Object in memory until it fires: after an attempt with a deadline of five
minutes that ended in five milliseconds, the Object would be billed for five minutes. So the loop's `call_later` is
replaced, once, by one that clears what it has set; an application's own timeouts gain by it too.

A delay of up to two milliseconds the loop does not time at all: it makes the call in the same turn of the isolate,
in which no input arrives and the platform's clock stands still. One who asks the clock again after each short sleep
would never see it move, and nothing else in the isolate would run. Here every delay above zero is a timer.

In the same breath the loop's futures lose a callback that is of no use here and costs a turn of the loop for each.
"""

import asyncio
import functools
import math
from collections.abc import Callable
from contextvars import Context
from typing import Any

import js
from pyodide.ffi import create_proxy
from pyodide.webloop import PyodideFuture

TIMER_MS_MAX = 2**31 - 1
"""JavaScript counts a timer's delay in 31 bits."""


class _Timer(asyncio.Handle):
    """One pending call, and the JavaScript timer that makes it."""

    def __init__(
        self,
        callback: Callable[..., object],
        arguments: tuple[Any, ...],
        loop: Any,
        context: Context | None,
    ) -> None:
        super().__init__(callback, arguments, loop, context)
        self._timers_loop = loop
        self._proxy: Any = None
        self._id: Any = None

    def start(self, delay_ms: float) -> None:
        """Set the JavaScript timer."""
        self._proxy = create_proxy(self._fire)
        self._id = js.setTimeout(self._proxy, delay_ms)

    def cancel(self) -> None:
        """Cancel the call, and clear its timer."""
        super().cancel()
        if self._proxy is not None:
            js.clearTimeout(self._id)
            self._release()

    def _release(self) -> None:
        proxy, self._proxy = self._proxy, None
        proxy.destroy()

    def _fire(self) -> None:
        self._release()
        if not self.cancelled():
            # Through the loop, which then is the running one.
            self._timers_loop.call_soon(self._run)


def use_cancellable_timers() -> None:
    """Replace the running loop's `call_later`, unless that has been done."""
    loop: Any = asyncio.get_running_loop()
    if getattr(loop, "has_cancellable_timers", False):
        return
    call_later_as_it_was = loop.call_later

    def call_later(
        delay_s: float,
        callback: Callable[..., object],
        *arguments: Any,
        context: Context | None = None,
    ) -> Any:
        if delay_s <= 0 or delay_s == math.inf:
            return call_later_as_it_was(delay_s, callback, *arguments, context=context)
        timer = _Timer(callback, arguments, loop, context)
        timer.start(min(delay_s * 1_000, TIMER_MS_MAX))
        return timer

    loop.call_later = call_later
    # The loop's own call_soon is a call_later of nothing; one call less on every turn is worth it.
    loop.call_soon = functools.partial(call_later_as_it_was, 0)
    # The loop's own counts every future by a callback, which is one turn more for each promise that is awaited.
    loop.create_future = functools.partial(PyodideFuture, loop=loop)
    loop.has_cancellable_timers = True
