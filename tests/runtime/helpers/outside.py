"""A server outside that counts what it is asked, and answers, waits or fails as it is told.

Every caller has a path of its own, so one server serves all tests.
"""

import contextlib
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

HOLD_S_MAX = 120


@dataclass
class Path:
    """One path: what it was asked, when, and how it answers."""

    calls: Counter[str] = field(default_factory=Counter)
    """By step, and `POST` for posts."""
    arrived_at_s: dict[str, float] = field(default_factory=dict)
    status: dict[str, int] = field(default_factory=dict)
    """With what each step is answered, if not with 200."""
    bodies: dict[str, bytes] = field(default_factory=dict)
    held: dict[str, threading.Event] = field(default_factory=dict)
    """Whose answers wait until the event is set."""

    def hold(self, step: str) -> threading.Event:
        """Let no call of this step have its answer until the returned event is set."""
        self.held[step] = threading.Event()
        return self.held[step]


@dataclass
class Outside:
    """The server: where it is, and what its paths were asked."""

    url: str = ""
    paths: defaultdict[str, Path] = field(default_factory=lambda: defaultdict(Path))
    lock: Any = field(default_factory=threading.RLock)

    def url_of(self, name: str) -> str:
        """Return the URL of one path."""
        return f"{self.url}/{name}"

    def at(self, name: str) -> Path:
        """Return one path."""
        with self.lock:
            return self.paths[name]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    """After a restart every Object that was under way calls at once."""


@contextlib.contextmanager
def serve() -> Iterator[Outside]:
    """Serve on a free port of this machine."""
    outside = Outside()

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            step = parse_qs(urlsplit(self.path).query).get("step", ["none"])[0]
            self._answer(step, b"done")

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self._answer("POST", b'{"reference":"r-1"}')

        def _answer(self, step: str, usual: bytes) -> None:
            path = outside.at(urlsplit(self.path).path.strip("/"))
            with outside.lock:
                path.calls[step] += 1
                path.arrived_at_s[step] = time.monotonic()
            if step in path.held:
                path.held[step].wait(HOLD_S_MAX)
            body = path.bodies.get(step, usual)
            # The caller may have died while it waited.
            with contextlib.suppress(OSError):
                self.send_response(path.status.get(step, 200))
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with _Server(("127.0.0.1", 0), Answering) as server:
        outside.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield outside
        finally:
            for path in outside.paths.values():
                for event in path.held.values():
                    event.set()
            server.shutdown()
            thread.join()
