"""A bundle as its reader has it: whole lines, from one connection, and a word on whether it was whole.

1. What had no answer, or was refused with what may be tried again, is tried again; what has begun to come is not,
   because a bundle is begun anew from its header.
2. A bundle that stopped before its `end` is no bundle: its reader is told at the end, with `Unreachable`.
"""

from quiesce.client.errors import Unreachable
from quiesce.client.exchange import Lost, Reply, Request, Terms, error_of, pause_before_next

END = b'{"type":"end"'
"""How the last line begins."""


class Bundle:
    """One bundle under way."""

    def __init__(self, terms: Terms, path: str) -> None:
        self._terms = terms
        self._request = Request("GET", path, headers={"accept": "application/x-ndjson"})
        self._tries = 0
        self._unread = b""
        self._has_begun = False
        self._has_ended = False

    @property
    def request(self) -> Request:
        """What to send."""
        return self._request

    def take(self, chunk: bytes) -> list[bytes]:
        """Take in what has come, and return the lines that are whole with it, each with its line feed."""
        self._has_begun = True
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        self._has_ended = self._has_ended or any(line.startswith(END) for line in lines)
        return [line + b"\n" for line in lines]

    def pause_after(self, heard: Reply | Lost | None) -> float | None:
        """Return how long to pause before another try, after a connection that is over; None when it was the last.

        Raises QuiesceError when the bundle is not whole and it is not worth another try.
        """
        if heard is None and self._has_ended:
            return None
        if self._has_begun:
            why = f": {heard.reason}" if isinstance(heard, Lost) else ""
            reason = f"the bundle stopped before its end{why}"
            raise Unreachable(reason, may_have_arrived=True)
        heard = heard or Lost("the bundle was empty", was_sent=True)
        self._tries += 1
        pause_s = pause_before_next(self._request, heard, self._tries, self._terms)
        if pause_s is None:
            raise error_of(heard)
        return pause_s
