"""The fetch router: one request to at most two calls of an Object, and the answer to its response.

1. Nothing is decided here: `routes` says what a request asks for, the Object answers, `wire` knows the statuses.
2. An Object that cannot be reached is `unavailable`, whatever the platform calls it. Every route may be repeated.
3. A wait is a call of its own. Admission is answered before the wait begins, so a wait that is cut off, by a
   reset of the Object or by its limit of waiters, costs the settlement in the answer and never the Receipt.
4. Every response is without a stack, a secret or a path, and is stored by no cache. All are JSON, but for event
   streams, which are opened only after the Object has answered their first question, and the page of `/docs`.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from workers import WorkerEntrypoint

from quiesce import asks, events, publications, routes, verbs, wire, workerd
from quiesce.agent import Registry
from quiesce.asks import Call, Publication
from quiesce.errors import Refusal, RefusalCode, StorageUnavailable
from quiesce.ids import ConversationId, submission_id
from quiesce.streaming import streamed_response
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
    """An event stream whose first question has been answered."""

    watch: verbs.Watch
    events: AsyncGenerator[str]
    seconds_max: int


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
            _log({"event": "bug", "error": type(error).__name__, "message": str(error)[:2_000]})
            message = (
                "the request met a fault of this service; it may be repeated with the same key"
            )
            status, headers, body = _encoded(wire.refuse(Refusal(RefusalCode.UNAVAILABLE, message)))
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
        call = routes.open_call(route, request, settings, self.agents)
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
        if isinstance(wanted, verbs.Watch):
            return await self._open(call, wanted, is_head=incoming.method == "HEAD")
        return await self._carry_out(call, wanted)

    async def _open(self, call: Call, watch: verbs.Watch, *, is_head: bool) -> Encoded | Opened:
        """Ask a stream's first question, which is refused like any other; only then is it opened."""
        if not is_head:
            watch = watch.model_copy(update={"stream": workerd.drawn_name()})
        first = await self._ask(watch)
        if first[0] != events.OK:
            return first
        if is_head:
            return 200, {"content-type": events.MEDIA_TYPE}, ""
        seconds_max = call.settings.events_seconds_max
        stream = events.follow(watch, first, self._ask, workerd.now_ms, seconds_max)
        return Opened(watch, stream, seconds_max)

    def _stream(self, opened: Opened) -> Any:
        use_cancellable_timers()
        watch = opened.watch
        leave = verbs.StopWatching(conversation=watch.conversation, stream=watch.stream)

        async def stopped() -> None:
            # Where this is lost, the place is free after a while all the same.
            with contextlib.suppress(Refusal):
                await self._ask(leave)

        headers = {"content-type": events.MEDIA_TYPE, **SECURITY_HEADERS}
        seconds = opened.seconds_max + events.SLOW_SECONDS
        return streamed_response(headers, opened.events, seconds, stopped)

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
            _log(
                {
                    "event": "unreachable",
                    "conversation": command.conversation,
                    "message": str(error),
                }
            )
            message = "the conversation could not be reached; the request may be repeated"
            raise Refusal(RefusalCode.UNAVAILABLE, message) from None
        return wire.decode_answer(text)


def _encoded(answer: Answer) -> Encoded:
    return answer.status, dict(answer.headers), wire.dump(answer.body)


def _log(line: dict[str, Any]) -> None:
    workerd.log(json.dumps(line, ensure_ascii=False))
