"""A response that is made while it is read, over the runtime's readable streams.

1. Nothing is made ahead of its reader: each piece is asked for when the one before it has been taken.
2. A reader who goes away is noticed at once, because the stream is one that the runtime can cancel. One who stays
   and does not read is cut off when the time is over.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import js
from pyodide.ffi import create_proxy, to_js


def streamed_response(
    headers: Mapping[str, str],
    texts: AsyncIterator[str],
    seconds_max: float,
    stopped: Callable[[], Awaitable[None]],
) -> Any:
    """Build a response that is made while it is read: each text when the one before it has been taken.

    `stopped` is awaited when the reader has gone before the end, or has not read to it in time.
    """
    stream = _Stream(texts, stopped)
    options = {"status": 200, "headers": dict(headers)}
    return js.Response.new(
        stream.open(seconds_max), to_js(options, dict_converter=js.Object.fromEntries)
    )


class _Stream:
    """One readable stream of the runtime's, which asks for each piece and says when nobody reads any more."""

    def __init__(self, texts: AsyncIterator[str], stopped: Callable[[], Awaitable[None]]) -> None:
        self._texts = texts
        self._stopped = stopped
        self._controller: Any = None
        self._timer: asyncio.Handle | None = None
        self._is_over = False

    def open(self, seconds_max: float) -> Any:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds_max, self._cut)
        self._proxies = [create_proxy(each) for each in (self._start, self._pull, self._cancel)]
        source = dict(zip(("start", "pull", "cancel"), self._proxies, strict=True))
        return js.ReadableStream.new(
            to_js(source, dict_converter=js.Object.fromEntries),
            # Nothing is made ahead of its reader.
            to_js({"highWaterMark": 0}, dict_converter=js.Object.fromEntries),
        )

    def _start(self, controller: Any) -> None:
        self._controller = controller

    async def _pull(self, controller: Any) -> None:
        try:
            text = await anext(self._texts, None)
        except BaseException:
            # What is raised here ends the stream for its reader; nothing of it may stay behind.
            if not self._is_over:
                self._end()
            raise
        if self._is_over:
            return
        if text is None:
            self._end()
            await self._stopped()
            controller.close()
        else:
            controller.enqueue(to_js(text.encode()))

    async def _cancel(self, _reason: Any = None) -> None:
        if not self._is_over:
            self._end()
            await self._stopped()

    def _cut(self) -> None:
        if not self._is_over:
            self._end()
            self._controller.error("the stream was not read to its end in time")
            self._leaving = asyncio.ensure_future(self._stopped())

    def _end(self) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        for proxy in self._proxies:
            asyncio.get_running_loop().call_soon(proxy.destroy)
