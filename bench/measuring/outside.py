"""A server outside, which grants every charge."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

GRANTED = b'{"reference": "granted"}'


class _Granting(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """Grant it."""
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(GRANTED)))
        self.end_headers()
        self.wfile.write(GRANTED)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serve() -> Iterator[str]:
    """Serve on a free port of this machine; yields the address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Granting) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()
