"""One request and its answer, with the retries between them; no input and no output.

A *flow* is a generator that yields what it wants done, a request to send or a time to pause, is sent what came of
it, and returns a result. `Client` and `AsyncClient` only carry out what flows want.

1. Retried is only what the deployment said to try again, 429 and 503, and what had no answer.
2. What is not safe to repeat is retried only where it cannot have been done: a 429 wrote nothing, and a connection
   that was never made carried nothing.
3. The number of tries is bounded, each pause is at least what Retry-After asks for, and jitter keeps many clients
   from coming back together.
"""

import random
import time
import uuid
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ValidationError
from pydantic_core import from_json

from quiesce.client.errors import QuiesceError, Refused, Unreachable, Unreadable
from quiesce.client.results import Document

TOO_MANY_REQUESTS = 429
UNAVAILABLE = 503
SUCCESSES = range(200, 300)
SHOWN_MAX = 200


@dataclass(frozen=True, slots=True)
class Request:
    """What to send."""

    method: Literal["GET", "POST"]
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    wait_s: int = 0
    """How much longer than usual the answer may take."""
    is_repeatable: bool = True
    """Whether sending it twice does what sending it once does."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A time to let pass."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, whatever it says; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def retry_after_s(self) -> float | None:
        """When to try again, if the answer says so in seconds; the form with a date is not read."""
        text = self.headers.get("retry-after", "")
        return float(text) if text.isdecimal() and text.isascii() else None


@dataclass(frozen=True, slots=True)
class Lost:
    """There was no answer, and why; `was_sent` unless the request cannot have left this machine."""

    reason: str
    was_sent: bool


type Heard = Reply | Lost | None
"""What came of the step before; None after a pause."""
type Flow[T] = Generator[Request | Pause, Heard, T]


@dataclass(frozen=True, slots=True)
class Terms:
    """How patient a client is, and where it takes time and chance from."""

    tries_max: int = 5
    backoff_base_s: float = 0.2
    backoff_cap_s: float = 10.0
    retry_after_s_max: float = 60.0
    """A deployment that asks for a longer pause is not waited for."""
    poll_s: int = 25
    """How long one request waits for a settlement; a deployment may shorten it."""
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random
    new_key: Callable[[], str] = lambda: uuid.uuid4().hex

    def __post_init__(self) -> None:
        if self.tries_max < 1 or self.poll_s < 1:
            raise ValueError("tries_max and poll_s are at least 1")


def ask(request: Request, terms: Terms, deadline_s: float | None = None) -> Flow[Reply]:
    """Send a request until it is answered well, refused for good, or not worth another try.

    `deadline_s` is an instant of the terms' clock; no pause reaches it. Raises QuiesceError.
    """
    tries = 0
    while True:
        heard = yield request
        assert heard is not None, "a request is answered or lost"
        if isinstance(heard, Reply) and heard.status in SUCCESSES:
            return heard
        tries += 1
        pause_s = pause_before_next(request, heard, tries, terms)
        is_in_time = deadline_s is None or (
            pause_s is not None and terms.clock() + pause_s < deadline_s
        )
        if pause_s is None or not is_in_time:
            raise error_of(heard)
        yield Pause(pause_s)


def pause_before_next(
    request: Request, heard: Reply | Lost, tries: int, terms: Terms
) -> float | None:
    """Decide how long to pause after `tries` tries without success, or None to give up."""
    if tries >= terms.tries_max or not _may_go_again(request, heard):
        return None
    backoff_s = min(terms.backoff_cap_s, terms.backoff_base_s * 2.0 ** min(tries - 1, 30))
    asked_s = heard.retry_after_s if isinstance(heard, Reply) else None
    if asked_s is None:
        return backoff_s / 2 + terms.jitter() * backoff_s / 2
    if asked_s > terms.retry_after_s_max:
        return None
    return asked_s + terms.jitter() * backoff_s


def _may_go_again(request: Request, heard: Reply | Lost) -> bool:
    if isinstance(heard, Lost):
        return request.is_repeatable or not heard.was_sent
    if heard.status == TOO_MANY_REQUESTS:
        return True
    return heard.status == UNAVAILABLE and request.is_repeatable


def error_of(heard: Reply | Lost) -> QuiesceError:
    """Say why a request had no success."""
    if isinstance(heard, Lost):
        return Unreachable(heard.reason, may_have_arrived=heard.was_sent)
    try:
        problem = parse(heard)
    except Unreadable as error:
        return error
    if not isinstance(problem, dict) or "code" not in problem:
        return Unreadable(heard.status, f"it is no problem document: {_shown(heard)}")
    return Refused(problem, heard.status, heard.retry_after_s)


def parse(reply: Reply) -> Any:
    """Parse the JSON of an answer; raises Unreadable."""
    try:
        return from_json(reply.content, allow_inf_nan=False, cache_strings="none")
    except ValueError:
        message = f"the answer is no JSON: {_shown(reply)}"
        raise Unreadable(reply.status, message) from None


def read[D: Document](model: type[D], reply: Reply, **from_headers: Any) -> D:
    """Read an answer as one of the results; raises Unreadable."""
    try:
        found = model.model_validate(parse(reply))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the document"
        message = f"the answer is no {model.__name__}: {where}: {first['msg']}"
        raise Unreadable(reply.status, message) from None
    return found.model_copy(update=from_headers) if from_headers else found


def _shown(reply: Reply) -> str:
    text = reply.content[: SHOWN_MAX * 4].decode(errors="replace").strip()
    return repr(text[:SHOWN_MAX]) if text else "it is empty"
