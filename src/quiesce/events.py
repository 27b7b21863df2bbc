"""Server-Sent Events: how each is written, and the stream of them that one request is answered with.

1. The stream lives in the stateless Worker, which asks the Object for what is new, question by question; each
   question waits in the Object until something is. So a reset, an eviction or a deploy of the Object costs one
   question, which is asked again, and the reader sees nothing of it. Were the Object to stream by itself, every
   reset would end every stream, and a reader who stops reading would keep the Object in memory.
2. A question is asked only when the reader has taken what the one before it brought. One answer is all that is
   ever kept for a reader who is slow.
3. A record carries its sequence as its id. The next question, and the next connection, begin behind the last id
   that was sent: nothing is lost and nothing comes twice. Progress has no id, because it cannot be had again.
4. A stream ends after a bounded time with an `end` event, or with the settlement of the submission that it is
   kept to. Readers come back with `Last-Event-ID`, which browsers do by themselves.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from quiesce import verbs
from quiesce.errors import Refusal
from quiesce.ids import parse_json
from quiesce.wire import dump

MEDIA_TYPE = "text/event-stream; charset=utf-8"
HEARTBEAT_MS = 5_000
"""A question waits no longer; when it brings nothing, a comment shows both ends that the other is there."""
PAUSE_S = 0.05
"""Between two questions: what comes in a burst comes in one answer."""
UNREACHED_S = 0.25
"""Before a question is asked again whose answer was lost."""
QUESTIONS_MAX = 900
"""The platform lets one request ask a thousand times."""
RETRY_MS = 1_000
"""After how long a reader comes back."""
SETTLED_RETRY_MS = 3_600_000
"""A browser comes back even to a stream that has said everything; not soon, then."""
SLOW_SECONDS = 5
"""How much longer than it lasts a stream may take to be read; then it is cut off."""
HEARTBEAT = ": nothing new\n\n"
UNREACHED = ": the conversation is being reached again\n\n"
OK, UNAVAILABLE = 200, 503

type Answered = tuple[int, dict[str, str], str]
"""A status, headers and a body that is JSON already, as the Object answers a question."""
type Ask = Callable[[verbs.Watch], Awaitable[Answered]]


def event(kind: str, data: str, *, place: int | None = None, retry_ms: int | None = None) -> str:
    """Write one event; `data` is JSON, which has no line breaks."""
    assert "\n" not in data, data[:100]
    first = "" if place is None else f"id: {place}\n"
    last = "" if retry_ms is None else f"retry: {retry_ms}\n"
    return f"{first}event: {kind}\ndata: {data}\n{last}\n"


def end(reason: str, **facts: Any) -> str:
    """Write the event that ends a stream which may be taken up again."""
    return event("end", dump({"reason": reason, **facts}), retry_ms=RETRY_MS)


async def follow(
    watch: verbs.Watch, first: Answered, ask: Ask, clock: Callable[[], int], seconds_max: int
) -> AsyncGenerator[str]:
    """Yield a conversation's events until the time is over, or a settlement ends them.

    `first` is the answer to `watch`, given before the stream was opened, so that what is refused is refused with
    a status.
    """
    until_ms = clock() + seconds_max * 1_000
    _, headers, body = first
    yield f"retry: {RETRY_MS}\n\n" + parse_json(body)
    for _ in range(QUESTIONS_MAX):
        if headers["state"] == "settled":
            return
        if headers["state"] == "whole":
            await asyncio.sleep(PAUSE_S)
        left_ms = until_ms - clock()
        if left_ms <= 0:
            break
        place, wait_ms = int(headers["place"]), min(HEARTBEAT_MS, left_ms)
        update = {"place": place, "wait_ms": wait_ms, "is_first": False, "caller": ""}
        question = watch.model_copy(update=update)
        try:
            status, found, body = await ask(question)
        except Refusal:
            status, found, body = UNAVAILABLE, headers, ""
        if status == OK:
            headers = found
            yield parse_json(body) or HEARTBEAT
        elif status == UNAVAILABLE:
            yield UNREACHED
            await asyncio.sleep(UNREACHED_S)
        else:
            yield end("refused", problem=parse_json(body))
            return
    yield end("lifetime")
