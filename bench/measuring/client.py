"""A caller that costs next to nothing: one socket, requests written out by hand, answers read by their length.

Every deployment is called by this same client, so what it costs is in every time alike.
"""

import json
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

TIMEOUT_S = 60
CHUNK_BYTES = 65_536


class CallFailed(Exception):
    """An answer was not what a benchmark can go on with."""


class Connection:
    """One kept connection to one deployment."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        parts = urlsplit(url)
        self._address = (str(parts.hostname), int(parts.port or 80))
        named = {"host": parts.netloc, **(headers or {})}
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in named.items())
        self._socket: socket.socket | None = None

    def close(self) -> None:
        """Close the connection; the next call opens another one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def call(self, method: str, path: str, body: Any = None, headers: str = "") -> tuple[int, Any]:
        """Make one call; returns the status, and the body parsed as JSON.

        `headers` are further header lines, each with its line end.
        """
        text = b"" if body is None else json.dumps(body).encode()
        if body is not None:
            headers += f"content-type: application/json\r\ncontent-length: {len(text)}\r\n"
        head = f"{method} {path} HTTP/1.1\r\n{self._headers}{headers}\r\n"
        status, answer = self._exchange(head.encode() + text)
        try:
            return status, json.loads(answer) if answer else None
        except ValueError:
            return status, answer.decode(errors="replace")

    def expect(
        self, status: int, method: str, path: str, body: Any = None, headers: str = ""
    ) -> Any:
        """Make one call that must be answered with this status; returns the body."""
        found, answer = self.call(method, path, body, headers)
        if found != status:
            raise CallFailed(f"{method} {path} was answered {found} instead of {status}: {answer}")
        return answer

    def _exchange(self, request: bytes) -> tuple[int, bytes]:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, TIMEOUT_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(request)
        read = b""
        while b"\r\n\r\n" not in read:
            read += self._more()
        head, _, body = read.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        length = int(headers["content-length"])
        while len(body) < length:
            body += self._more()
        return int(first.split()[1]), body

    def _more(self) -> bytes:
        assert self._socket is not None
        more = self._socket.recv(CHUNK_BYTES)
        if not more:
            self.close()
            raise CallFailed("the connection ended before the answer did")
        return more
