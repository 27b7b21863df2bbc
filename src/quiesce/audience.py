"""Who follows a conversation just now: the listeners of its event streams, and what a Run shows them.

1. It is memory and nothing else, and only makes things prompt: a listener that is not told of a record finds it in
   its row, a little later.
2. There are so many places for listeners and no more. A listener has its place until it leaves, or until it was
   not heard of for a while.
3. Of progress only the latest is kept, so many bytes of it for all listeners together; what is shown while nobody
   listens is dropped.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from quiesce.ids import SubmissionId, canonical_json

SILENCE_MS_MAX = 15_000
"""A listener that asks for nothing for so long has lost its place."""
PROGRESS_BYTES_MAX = 262_144


@dataclass(slots=True)
class Listener:
    """One event stream, as the Object knows it between two of its questions."""

    heard: int
    """The number of the last progress that it was told."""
    until_ms: int
    news: asyncio.Event = field(default_factory=asyncio.Event)
    has_left: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """What a Run has shown: the JSON text of a value."""

    number: int
    submission: SubmissionId
    value: str


@dataclass(slots=True)
class Audience:
    """Every listener of one incarnation."""

    listeners: dict[str, Listener] = field(default_factory=dict)
    progress: deque[Progress] = field(default_factory=deque)
    _shown: int = 0
    _bytes: int = 0

    def join(self, stream: str, now_ms: int, wait_ms: int, places: int) -> Listener | None:
        """Find a stream's listener or give it a place; None if every place is taken.

        It is going to wait for `wait_ms`; its silence counts from then on.
        """
        found = self.listeners.get(stream)
        if found is None:
            self.listeners = {
                name: each for name, each in self.listeners.items() if each.until_ms > now_ms
            }
            if len(self.listeners) >= places:
                return None
            found = self.listeners[stream] = Listener(self._shown, 0)
        found.until_ms = now_ms + wait_ms + SILENCE_MS_MAX
        return found

    def leave(self, stream: str) -> None:
        """Free a stream's place."""
        listener = self.listeners.pop(stream, None)
        if listener is not None:
            listener.has_left = True
            listener.news.set()
        if not self.listeners:
            self._forget()

    def tell(self) -> None:
        """Say that rows were written."""
        for listener in self.listeners.values():
            listener.news.set()

    def show(self, submission: SubmissionId, value: Any) -> None:
        """Show what a Run has come to."""
        if not self.listeners:
            return
        self._shown += 1
        shown = Progress(self._shown, submission, canonical_json(value))
        self.progress.append(shown)
        self._bytes += len(shown.value)
        while self._bytes > PROGRESS_BYTES_MAX:
            self._bytes -= len(self.progress.popleft().value)
        self.tell()

    def unheard(self, listener: Listener, submission: SubmissionId | None) -> list[Progress]:
        """Take what a listener has not heard yet of the progress that is still kept."""
        after, listener.heard = listener.heard, self._shown
        return [
            each
            for each in self.progress
            if each.number > after and (submission is None or each.submission == submission)
        ]

    def _forget(self) -> None:
        self.progress.clear()
        self._bytes = 0
