"""A bundle: a whole conversation as JSON documents, one a line, which can be checked without the deployment.

1. It is made while it is read: the stateless Worker asks the Object for the next part when its reader has taken the
   one before it, so that nothing but that part is ever kept, and nothing of a bundle is kept in the Object.
2. Its last line is its `end`. A part that cannot be had ends the bundle without one: what has no end is not whole,
   and is asked for again from the beginning.
3. A part that was lost is asked for again; what is below a place of the log never changes, but for what is purged.

What the lines hold, and how each digest is computed from them, is in docs/bundle.md.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from quiesce import events, verbs
from quiesce.errors import Refusal
from quiesce.events import Answered
from quiesce.ids import parse_json

MEDIA_TYPE = "application/x-ndjson"
FORMAT = "quiesce-bundle"
VERSION = 1
TRIES_MAX = 20
"""A part is asked for so often before the bundle is given up."""
NEXT = "next"
"""The header of a part that holds the question for the next one, as JSON; the last part has none."""

type Ask = Callable[[verbs.Export], Awaitable[Answered]]


async def read(first: Answered, ask: Ask) -> AsyncGenerator[str]:
    """Yield the lines of a bundle, part by part.

    `first` is the first part, which was had before the bundle was opened, so that what is refused is refused with a
    status.
    """
    answered: Answered | None = first
    for _ in range(events.QUESTIONS_MAX):
        if answered is None:
            return
        _, headers, body = answered
        yield parse_json(body)
        if NEXT not in headers:
            return
        answered = await _part(verbs.Export.model_validate_json(headers[NEXT]), ask)


async def _part(question: verbs.Export, ask: Ask) -> Answered | None:
    for _ in range(TRIES_MAX):
        try:
            answered = await ask(question)
        except Refusal:
            answered = (events.UNAVAILABLE, {}, "")
        if answered[0] == events.OK:
            return answered
        if answered[0] != events.UNAVAILABLE:
            return None
        await asyncio.sleep(events.UNREACHED_S)
    return None
