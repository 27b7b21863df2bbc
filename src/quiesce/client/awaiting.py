"""The client for asyncio: it carries out flows with httpx and `asyncio.sleep`.

It has no law of its own. `calls.py` says what each call does; `blocking.py` is the same for programs that block.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Concatenate, Self

import httpx

from quiesce.client.address import resolve
from quiesce.client.calls import Calls, Listing
from quiesce.client.carrying import shown_as
from quiesce.client.exchange import Flow, Heard, Lost, Pause, Reply, Request, Terms
from quiesce.client.streams import OK, Course, Event
from quiesce.client.transport import answered, lost, outgoing


def call[**P, T](
    flow: Callable[Concatenate[Calls, P], Flow[T]],
) -> Callable[Concatenate["AsyncClient", P], Coroutine[Any, Any, T]]:
    """Make a coroutine method that carries out a flow."""

    async def method(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(flow(self.calls, *args, **kwargs))

    return shown_as(method, flow, "{}")


def iteration[**P, T](
    listing: Callable[Concatenate[Calls, P], Listing[T]],
) -> Callable[Concatenate["AsyncClient", P], AsyncIterator[T]]:
    """Make a method that iterates over a listing, a page at a time."""

    def method(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return self.iterate(listing(self.calls, *args, **kwargs))

    return shown_as(method, listing, "AsyncIterator[{}]")


class AsyncClient:
    """Talks to a deployment. Use it in an `async with`, and from as many tasks as you like."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        terms: Terms | None = None,
        http: httpx.AsyncClient | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Take the URL and the token given, or those of QUIESCE_URL and QUIESCE_TOKEN.

        An `http` client that is given stays open when this one is closed.
        """
        self.address = resolve(url, token)
        self.calls = Calls(terms or Terms())
        self.sleep = sleep
        self._http = http or httpx.AsyncClient()
        self._is_owner = http is None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._is_owner:
            await self._http.aclose()

    submit = call(Calls.submit)
    wait = call(Calls.wait)
    poll = call(Calls.poll)
    status = call(Calls.status)
    submissions = iteration(Calls.submissions)
    lane = call(Calls.lane)
    maintenance = call(Calls.maintenance)
    force_pass = call(Calls.force_pass)
    records = iteration(Calls.records)
    records_page = call(Calls.records_page)
    approve = call(Calls.approve)
    deny = call(Calls.deny)
    resolve = call(Calls.resolve)
    signal = call(Calls.signal)
    abort = call(Calls.abort)
    retry = call(Calls.retry)
    skip = call(Calls.skip)
    explain = iteration(Calls.explain)
    explain_one = call(Calls.explain_one)
    verify = call(Calls.verify)
    agents = call(Calls.agents)
    health = call(Calls.health)
    has_role = call(Calls.has_role)

    async def run[T](self, flow: Flow[T]) -> T:
        """Carry out a flow to its result."""
        heard: Heard = None
        while True:
            try:
                wanted = flow.send(heard)
            except StopIteration as ended:
                return ended.value  # type: ignore[no-any-return] # a generator's result has no type here
            match wanted:
                case Pause(seconds=seconds):
                    await self.sleep(seconds)
                    heard = None
                case Request():
                    heard = await self._exchange(wanted)

    async def iterate[T](self, listing: Listing[T]) -> AsyncIterator[T]:
        """Read a listing to its end, each page when the one before it is used up."""
        page = await self.run(listing.page())
        for item in page.items:
            yield item
        while page.next is not None:
            page = await self.run(listing.page(page.next))
            for item in page.items:
                yield item

    async def stream(
        self,
        conversation: str,
        *,
        submission: str | None = None,
        after: int = 0,
        timeout_s: float | None = None,
    ) -> AsyncIterator[Event]:
        """Follow the log of a conversation as it grows, behind the record with the sequence `after`.

        Kept to one submission, it ends with that submission's settlement. Connections that break or end are taken
        up where they were left, so that no record is missed and none comes twice.
        """
        course = self.calls.stream(
            conversation, submission=submission, after=after, timeout_s=timeout_s
        )
        async for burst in self.follow(course):
            for event in burst:
                yield event

    async def follow(self, course: Course) -> AsyncIterator[list[Event]]:
        """Read a stream in bursts: what came at once, and an empty one where the deployment only shows itself."""
        while not course.is_over():
            heard: Reply | Lost | None = None
            try:
                request = outgoing(self._http, self.address, course.request())
                response = await self._http.send(request, stream=True)
                async with contextlib.aclosing(response):
                    if response.status_code == OK:
                        async for chunk in response.aiter_bytes():
                            yield course.take(chunk)
                            if course.is_over():
                                return
                    else:
                        await response.aread()
                        heard = answered(response)
            except httpx.RequestError as error:
                heard = lost(error)
            pause_s = course.pause_after(heard)
            if pause_s > 0:
                await self.sleep(pause_s)

    async def export(self, conversation: str) -> AsyncIterator[bytes]:
        """Read a whole conversation as a bundle: its lines as bytes, which can be checked without the deployment.

        Raises Unreachable at the end of what was cut before its end: then what has come is not whole.
        """
        bundle = self.calls.export(conversation)
        pause_s: float | None = 0.0
        while pause_s is not None:
            if pause_s > 0:
                await self.sleep(pause_s)
            heard: Reply | Lost | None = None
            try:
                request = outgoing(self._http, self.address, bundle.request)
                response = await self._http.send(request, stream=True)
                async with contextlib.aclosing(response):
                    if response.status_code == OK:
                        async for chunk in response.aiter_bytes():
                            for line in bundle.take(chunk):
                                yield line
                    else:
                        await response.aread()
                        heard = answered(response)
            except httpx.RequestError as error:
                heard = lost(error)
            pause_s = bundle.pause_after(heard)

    async def _exchange(self, request: Request) -> Heard:
        try:
            return answered(await self._http.send(outgoing(self._http, self.address, request)))
        except httpx.RequestError as error:
            return lost(error)
