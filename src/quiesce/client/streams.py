"""An event stream as its reader has it: parsed from bytes, taken up again where it was left; no input, no output.

1. What has been read is remembered by the id of its last event, and the next connection begins behind that. What a
   connection has not brought whole counts as not read.
2. A connection whose time was over is followed by the next one at once; one that broke, or was refused with what
   may be tried again, after a pause that grows. Whatever is read forgives the failures before it.
3. The stream of one submission is over with its settlement. Others go on until nobody reads them, or until a time
   that their reader has set.
"""

import math
from collections.abc import Callable

from pydantic import ValidationError
from pydantic_core import from_json

from quiesce.client.errors import Unreadable
from quiesce.client.exchange import Lost, Reply, Request, Terms, error_of, pause_before_next
from quiesce.client.results import Progress, Record, Settlement
from quiesce.client.transport import ANSWER_S

type Event = Record | Progress | Settlement
"""What a stream brings: facts of the log, what Runs show meanwhile, and the settlement that ends it."""

OK = 200
KINDS: dict[str, Callable[[object], Event]] = {
    "record": Record.model_validate,
    "progress": Progress.model_validate,
    "settlement": Settlement.model_validate,
}


class Course:
    """One stream over all the connections that it takes."""

    def __init__(
        self,
        terms: Terms,
        path: str,
        *,
        submission: str | None,
        after: int,
        timeout_s: float | None,
    ) -> None:
        self._is_settled = False
        self._terms = terms
        self._path = path
        self._query = {} if submission is None else {"submission": submission}
        self._place = str(after)
        self._until_s = math.inf if timeout_s is None else terms.clock() + timeout_s
        self._tries = 0
        self._unread = b""
        self._fields: dict[bytes, bytes] = {}
        self._has_ended = False

    def is_over(self) -> bool:
        """Say whether nothing more is to be read."""
        return self._is_settled or self._terms.clock() >= self._until_s

    def request(self) -> Request:
        """Build the request of the next connection."""
        self._unread, self._fields, self._has_ended = b"", {}, False
        left_s = self._until_s - self._terms.clock()
        # A connection on which nothing comes is given up when the time is over.
        wait_s = 0 if left_s >= ANSWER_S else math.ceil(max(0.0, left_s) - ANSWER_S) + 1
        headers = {"accept": "text/event-stream", "last-event-id": self._place}
        return Request("GET", self._path, self._query, headers, wait_s=wait_s)

    def take(self, chunk: bytes) -> list[Event]:
        """Take in what a connection has brought, and return the events that are whole with it.

        Raises Unreadable. The lines of a stream end in line feeds; what else splits lines is text of a value.
        """
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        found: list[Event] = []
        for line in lines:
            if line.startswith(b":"):
                self._tries = 0
            elif line:
                name, _, value = line.partition(b":")
                self._fields[name] = value.removeprefix(b" ")
            elif (event := self._event()) is not None:
                found.append(event)
        return found

    def _event(self) -> Event | None:
        fields, self._fields = self._fields, {}
        kind = fields.get(b"event", b"").decode()
        self._has_ended = self._has_ended or kind == "end"
        if kind not in KINDS:
            return None
        self._tries = 0
        try:
            found = KINDS[kind](from_json(fields.get(b"data", b""), allow_inf_nan=False))
        except (ValidationError, ValueError) as error:
            raise Unreadable(OK, f"an event is no {kind}: {str(error)[:200]}") from None
        if b"id" in fields:
            self._place = fields[b"id"].decode()
        self._is_settled = self._is_settled or isinstance(found, Settlement)
        return found

    def pause_after(self, heard: Reply | Lost | None) -> float:
        """Return how long to pause before the next connection, after one that came to its end or to none.

        Raises QuiesceError when it is not worth another try.
        """
        if self.is_over() or self._has_ended:
            return 0.0
        if heard is None:
            heard = Lost("the stream ended before it was whole", was_sent=True)
        self._tries += 1
        pause_s = pause_before_next(Request("GET", self._path), heard, self._tries, self._terms)
        if pause_s is None:
            raise error_of(heard)
        return min(pause_s, max(0.0, self._until_s - self._terms.clock()))
