"""A server outside, which the agents call: it counts, and answers as it is told."""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


@dataclass
class Outside:
    """The server: where it is, how often each step was asked for, and which fail how often."""

    url: str = ""
    calls: Counter[str] = field(default_factory=Counter)
    failures_left: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def status_for(self, step: str) -> int:
        """Count a call and say with which status it is answered."""
        with self.lock:
            self.calls[step] += 1
            if self.failures_left[step] > 0:
                self.failures_left[step] -= 1
                return 503
            return 200


@contextlib.contextmanager
def serve() -> Iterator[Outside]:
    """Serve on a free port of this machine."""
    outside = Outside()

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            step = parse_qs(urlsplit(self.path).query).get("step", ["none"])[0]
            body = b"done"
            self.send_response(outside.status_for(step))
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        outside.url = f"http://127.0.0.1:{server.server_address[1]}/"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield outside
        finally:
            server.shutdown()
            thread.join()
