"""A reader of event streams: it parses what comes, and can leave wherever it likes."""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True)
class Event:
    """One event, or a comment, whose kind is a colon."""

    kind: str
    data: Any = None
    id: str | None = None
    retry: int | None = None


def events_of(lines: Iterator[str]) -> Iterator[Event]:
    """Parse the lines of a stream as browsers do."""
    found: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            yield Event(":", line[1:].strip())
        elif line:
            name, _, value = line.partition(":")
            assert name in {"id", "event", "data", "retry"}, line
            assert name not in found, line
            found[name] = value.removeprefix(" ")
        elif found:
            retry = int(found["retry"]) if "retry" in found else None
            data = json.loads(found["data"]) if "data" in found else None
            yield Event(found.get("event", "message"), data, found.get("id"), retry)
            found = {}
    assert not found, "the stream ended within an event"


def path_of(conversation: str) -> str:
    return f"/v1/conversations/{conversation}/events"


def read_all(
    http: httpx.Client, conversation: str, *, after: str | None = None, **query: Any
) -> list[Event]:
    """Read one stream to its end."""
    headers = {} if after is None else {"last-event-id": after}
    with http.stream("GET", path_of(conversation), params=query, headers=headers) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        return list(events_of(response.iter_lines()))


def read_until(
    http: httpx.Client, conversation: str, count: int, *, after: str | None = None, **query: Any
) -> list[Event]:
    """Read so many records, and then hang up in the middle of the stream."""
    headers = {} if after is None else {"last-event-id": after}
    found: list[Event] = []
    with http.stream("GET", path_of(conversation), params=query, headers=headers) as response:
        assert response.status_code == 200, response.read()
        for event in events_of(response.iter_lines()):
            found.append(event)
            if sum(each.kind == "record" for each in found) >= count:
                break
    return found


def ids(events: list[Event]) -> list[int]:
    return [int(each.id) for each in events if each.id is not None]


def kinds(events: list[Event]) -> list[str]:
    """Return what was said, without comments and the opening hint."""
    return [each.kind for each in events if each.kind not in {":", "message"}]


class Following:
    """A stream that is read by a thread of its own."""

    def __init__(self, http: httpx.Client, conversation: str, **query: Any) -> None:
        self.events: list[Event] = []
        self.error: Exception | None = None
        self._opened = threading.Event()
        self._arguments = (http, conversation, query)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        assert self._opened.wait(20)

    def _read(self) -> None:
        http, conversation, query = self._arguments
        try:
            with http.stream("GET", path_of(conversation), params=query) as response:
                assert response.status_code == 200
                for event in events_of(response.iter_lines()):
                    self.events.append(event)
                    self._opened.set()
        except (httpx.HTTPError, AssertionError) as error:
            self.error = error
        finally:
            self._opened.set()

    def ended(self, timeout_s: float = 30) -> list[Event]:
        """Wait for the end of the stream, and return all of it."""
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), kinds(self.events)
        if self.error is not None:
            raise self.error
        return self.events

    def until_records(self, count: int, timeout_s: float = 20) -> None:
        """Return at once when so many records have come."""
        deadline = time.monotonic() + timeout_s
        while len(ids(self.events)) < count:
            assert time.monotonic() < deadline, kinds(self.events)
            self._thread.join(0.002)

    def until(self, kind: str, timeout_s: float = 20) -> Event:
        """Wait for the first event of a kind."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for event in list(self.events):
                if event.kind == kind:
                    return event
            self._thread.join(0.01)
        message = f"no {kind} in {kinds(self.events)}"
        raise AssertionError(message)
