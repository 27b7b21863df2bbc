"""The fetch router: one request to at most two calls of an Object, and the answer to its response.

1. Nothing is decided here: `routes` says what a request asks for, the Object answers, `wire` knows the statuses.
2. An Object that cannot be reached is `unavailable`, whatever the platform calls it. Every route may be repeated.
3. A wait is a call of its own. Admission is answered before the wait begins, so a wait that is cut off, by a
   reset of the Object or by its limit of waiters, costs the settlement in the answer and never the Receipt.
4. Every response is without a stack, a secret or a path, and is stored by no cache. All are JSON, but for event
   streams and bundles, which are opened only after the Object has answered their first question, and the page of
   `/docs`.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from workers import WorkerEntrypoint

from quiesce import (
    asks,
    assertions,
    bundle,
    events,
    publications,
    reporting,
    routes,
    trace_context,
    verbs,
    wire,
    workerd,
)
from quiesce.agent import Registry
from quiesce.asks import Call, Publication
from quiesce.errors import Refusal, RefusalCode, StorageUnavailable
from quiesce.ids import ConversationId, submission_id
from quiesce.settings import Settings, Token
from quiesce.signatures import Keys
from quiesce.streaming import streamed_response
from quiesce.telemetry import Line, harmless
from quiesce.timers import use_cancellable_timers
from quiesce.verbs import Command
from quiesce.wire import Answer

SECURITY_HEADERS: Mapping[str, str] = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
}
NOT_MODIFIED = 304
RETRY_PAUSE_MS = 200
"""Between a wait that was cut off and the next try."""

type Encoded = tuple[int, dict[str, str], str]
"""A status, headers, and a body that is text already."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An answer that is made while it is read, whose first question has been answered."""

    media_type: str
    texts: AsyncGenerator[str]
    seconds_max: int
    """How long it may take to be read."""
    leave: verbs.StopWatching | None = None
    """What to tell the Object when the reader has gone."""


class Worker(WorkerEntrypoint):
    """The fetch handler. A deployment subclasses it and names its agents."""

    agents: ClassVar[Registry]

    async def fetch(self, request: Any) -> Any:
        """Answer one HTTP request."""
        incoming = workerd.HttpRequest(request)
        try:
            answered = await self._answer(incoming)
            if isinstance(answered, Opened):
                return self._stream(answered)
            status, headers, body = answered
        except Refusal as refusal:
            status, headers, body = _encoded(wire.refuse(refusal))
        except Exception as error:  # noqa: BLE001 - the host's edge: a bug must not cross the border as a stack
            bug = reporting.bug(error)
            _tell(lambda: Line("bug", workerd.now_ms(), None, None, bug))
            message = (
                "the request met a fault of this service; it may be repeated with the same key"
            )
            status, headers, body = _encoded(wire.refuse(Refusal(RefusalCode.UNAVAILABLE, message)))
        if status >= wire.REFUSED_FROM:
            _tell(lambda: _refused(incoming, status, body))
        if status in wire.TRY_AGAIN:
            wire.spread(headers, workerd.jitter())
        has_body = status != NOT_MODIFIED and incoming.method != "HEAD"
        return workerd.http_response(
            status, {**headers, **SECURITY_HEADERS}, body if has_body else None
        )

    async def _answer(self, incoming: workerd.HttpRequest) -> Encoded | Opened:
        try:
            settings = workerd.Deployment.settings(self.env)
        except ValueError as error:
            raise Refusal(RefusalCode.UNAVAILABLE, str(error)) from None
        route = routes.find(incoming.method, incoming.path)
        request = asks.Request(incoming.method, incoming.path, incoming.query, incoming.header)
        vouched = None if route.role is None else await _vouched(request, settings)
        call = routes.open_call(route, request, settings, self.agents, vouched=vouched)
        if route.body is not None:
            raw, is_whole = await incoming.body(routes.body_bytes_max(settings))
            if not is_whole:
                raise routes.body_too_large(len(raw), settings)
            call = routes.with_body(call, raw)
        wanted = route.build(call)
        if isinstance(wanted, Answer):
            return _encoded(wanted)
        if isinstance(wanted, Publication):
            media_type, headers, text = publications.read(wanted)
            return 200, {"content-type": media_type, **headers}, text
        wanted = wanted.model_copy(update={"caller": call.principal})
        is_head = incoming.method == "HEAD"
        if isinstance(wanted, verbs.Watch):
            return await self._open_events(call, wanted, is_head=is_head)
        if isinstance(wanted, verbs.Export):
            return await self._open_bundle(call, wanted, is_head=is_head)
        return await self._carry_out(call, wanted)

    async def _open_events(
        self, call: Call, watch: verbs.Watch, *, is_head: bool
    ) -> Encoded | Opened:
        """Ask a stream's first question, which is refused like any other; only then is it opened."""
        if not is_head:
            watch = watch.model_copy(update={"stream": workerd.drawn_name()})
        first = await self._ask(watch)
        if first[0] != events.OK:
            return first
        if is_head:
            return 200, {"content-type": events.MEDIA_TYPE}, ""
        seconds_max = call.settings.events_seconds_max
        texts = events.follow(watch, first, self._ask, workerd.now_ms, seconds_max)
        leave = verbs.StopWatching(conversation=watch.conversation, stream=watch.stream)
        return Opened(events.MEDIA_TYPE, texts, seconds_max + events.SLOW_SECONDS, leave)

    async def _open_bundle(
        self, call: Call, export: verbs.Export, *, is_head: bool
    ) -> Encoded | Opened:
        """Ask for a bundle's first part, which is refused like any other question; only then is it opened."""
        first = await self._ask(export)
        if first[0] != events.OK:
            return first
        if is_head:
            return 200, {"content-type": bundle.MEDIA_TYPE}, ""
        texts = bundle.read(first, self._ask)
        return Opened(bundle.MEDIA_TYPE, texts, call.settings.export_seconds_max)

    def _stream(self, opened: Opened) -> Any:
        use_cancellable_timers()

        async def stopped() -> None:
            # Where this is lost, the place is free after a while all the same.
            if opened.leave is not None:
                with contextlib.suppress(Refusal):
                    await self._ask(opened.leave)

        headers = {"content-type": opened.media_type, **SECURITY_HEADERS}
        return streamed_response(headers, opened.texts, opened.seconds_max, stopped)

    async def _carry_out(self, call: Call, command: Command) -> Encoded:
        wait_s = call.wait_s
        if wait_s is None:
            return await self._ask(command)
        if isinstance(command, verbs.Submit):
            status, headers, body, was_applied = await self._submit_and_wait(command, wait_s)
        else:
            assert isinstance(command, verbs.ReadSettlement)
            status, headers, body = await self._read_settlement(command)
            was_applied = status in {200, 202}
        if was_applied:
            headers["preference-applied"] = f"wait={wait_s}"
        return status, headers, body

    async def _submit_and_wait(
        self, command: verbs.Submit, wait_s: int
    ) -> tuple[int, dict[str, str], str, bool]:
        status, headers, receipt = await self._ask(command)
        if status not in {200, 202}:
            return status, headers, receipt, False
        if not receipt.endswith(wire.UNSETTLED):
            return status, headers, receipt, True
        conversation = ConversationId(command.conversation)
        wait = verbs.ReadSettlement(
            conversation=conversation,
            submission=submission_id(conversation, command.principal, command.key),
            wait_ms=wait_s * 1_000,
        )
        try:
            found, _, settlement = await self._read_settlement(wait)
        except Refusal:
            return status, headers, receipt, False
        if found == 200:  # noqa: PLR2004 - the status of a settlement that is there
            receipt = wire.settled_receipt(receipt, settlement)
        return status, headers, receipt, found in {200, 202}

    async def _read_settlement(self, command: verbs.ReadSettlement) -> Encoded:
        """Read a settlement, and go on waiting where an Object was reset while it was asked."""
        deadline_ms = workerd.now_ms() + command.wait_ms
        while True:
            try:
                return await self._ask(command)
            except Refusal:
                left_ms = deadline_ms - workerd.now_ms() - RETRY_PAUSE_MS
                if left_ms <= 0:
                    raise
            await asyncio.sleep(RETRY_PAUSE_MS / 1_000)
            command = command.model_copy(update={"wait_ms": left_ms})

    async def _ask(self, command: Command) -> Encoded:
        try:
            text = await workerd.ask_object(
                self.env, command.conversation, command.model_dump_json()
            )
        except StorageUnavailable as error:
            said = str(error)
            _tell(lambda: reporting.unreachable(said, command.conversation, workerd.now_ms()))
            message = "the conversation could not be reached; the request may be repeated"
            raise Refusal(RefusalCode.UNAVAILABLE, message) from None
        return wire.decode_answer(text)


async def _vouched(request: asks.Request, settings: Settings) -> Token | None:
    """Find the token of one for whom Cloudflare Access vouches; None where nobody claims that.

    Raises Refusal: `unauthenticated`, `forbidden`, `unavailable`.
    """
    text = assertions.presented(request.header, settings)
    if text is None:
        return None
    assertion = assertions.read(text, settings, workerd.now_ms())
    await Keys.require(assertion, settings.access_keys_url, workerd.now_ms)
    assertions.require_own_site(request.method, request.header("sec-fetch-site"))
    return assertions.token_of(assertion.claims, settings)


def _encoded(answer: Answer) -> Encoded:
    return answer.status, dict(answer.headers), wire.dump(answer.body)


def _refused(incoming: workerd.HttpRequest, status: int, body: str) -> Line:
    trace = trace_context.read(incoming.header(trace_context.HEADER))
    request, answered = (incoming.method, incoming.path), (status, body)
    return reporting.refused(request, answered, trace, workerd.now_ms())


def _tell(make: Callable[[], Line]) -> None:
    """Make and write one line of the log; no answer depends on it."""
    harmless(lambda: workerd.log(reporting.text_of(make())))
