"""Settlement callbacks from a real Object to a real server: signed, tried again, and told once when all is well."""

import contextlib
import hashlib
import hmac
import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from runtime.helpers.ondisk import until
from worker.conftest import worker_with
from worker.helpers.client import Client, assert_problem
from workshop import serving

pytestmark = pytest.mark.worker
SECRET = "0123456789abcdef"
PROMPT_S, HELD_S_MAX = 5, 20
"""How soon an answer that goes on for ever is let go, and how long it waits for that."""


@dataclass
class Receiver:
    """A server that takes callbacks, and answers as it is told."""

    url: str = ""
    answers: dict[str, list[int]] = field(default_factory=dict)
    """By path: what each next call is answered; 200 when there is no more."""
    taken: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    endless: set[str] = field(default_factory=set)
    """The paths whose answers begin well and never end."""
    held_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """By path: how long the caller held on to each answer that never ended."""

    def at(self, path: str) -> list[tuple[dict[str, str], bytes]]:
        return [(headers, body) for where, headers, body in list(self.taken) if where == path]


@contextmanager
def serve() -> Iterator[Receiver]:
    receiver = Receiver()

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.taken.append((self.path, headers, body))
            if self.path in receiver.endless:
                self._answer_without_end()
                return
            left = receiver.answers.get(self.path, [])
            self.send_response(left.pop(0) if left else 200)
            self.send_header("location", "/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()

        def _answer_without_end(self) -> None:
            begun = time.monotonic()
            head = (
                b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n"
            )
            self.connection.settimeout(HELD_S_MAX)
            with contextlib.suppress(OSError):
                self.connection.sendall(head + b"5\r\nhello\r\n")
                while self.connection.recv(65_536):
                    pass
            receiver.held_s[self.path].append(time.monotonic() - begun)
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Taking) as server:
        receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with serve() as running:
        yield running


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, receiver: Receiver
) -> Iterator[serving.Server]:
    """The deployment's own Worker, which may call the receiver."""
    folder = tmp_path_factory.mktemp("callbacks")
    worker = worker_with(
        {
            "QUIESCE_CALLBACK_ORIGINS": json.dumps([receiver.url]),
            "QUIESCE_CALLBACK_SECRET": SECRET,
            "QUIESCE_CALLBACK_PRIVATE": "true",
        }
    )
    with serving.Server.start(
        [worker], persist=folder / "state", log=folder / "log", snapshot=True
    ) as running:
        yield running


def verify(headers: dict[str, str], body: bytes) -> None:
    """Check a signature over the very bytes that arrived."""
    parts = dict(part.split("=", 1) for part in headers["quiesce-signature"].split(","))
    signed = parts["t"].encode() + b"." + body
    assert hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest() == parts["v1"]


def test_a_settlement_arrives_signed(client: Client, receiver: Receiver, tmp_path: Path) -> None:
    name = tmp_path.name
    submission = client.accepted(name, "echo", {"ü": 1}, callback_url=f"{receiver.url}/{name}")
    ((headers, body),) = until(lambda: receiver.at(f"/{name}"), bool)
    verify(headers, body)
    told = json.loads(body)
    assert (told["submission"], told["result"]) == (submission, {"ü": 1})
    assert headers["idempotency-key"] == f"{submission}/callback"
    ended = until(
        lambda: [each for each in client.records(name) if each["kind"] == "callback-ended"], bool
    )
    assert ended[0]["payload"]["is_delivered"] is True


def test_a_callback_is_tried_again_and_redirects_are_not_followed(
    client: Client, receiver: Receiver, tmp_path: Path
) -> None:
    name = tmp_path.name
    receiver.answers[f"/{name}"] = [500, 302]
    client.accepted(name, "echo", 1, callback_url=f"{receiver.url}/{name}")
    taken = until(lambda: receiver.at(f"/{name}"), lambda taken: len(taken) == 3)
    for headers, body in taken:
        verify(headers, body)
    assert len({headers["idempotency-key"] for headers, _ in taken}) == 1
    assert receiver.at("/elsewhere") == []
    ended = until(
        lambda: [each for each in client.records(name) if each["kind"] == "callback-ended"], bool
    )
    assert ended[0]["payload"]["tries"] == 3


def test_answers_that_never_end_count_and_their_connections_are_closed_at_once(
    client: Client, receiver: Receiver, tmp_path: Path
) -> None:
    """The status says all. What nobody reads would hold the few connections that an invocation may have."""
    name = tmp_path.name
    path = f"/{name}"
    times = 8
    receiver.endless.add(path)
    for place in range(times):
        client.accepted(name, "echo", place, callback_url=f"{receiver.url}{path}")
    ended = until(
        lambda: [each for each in client.records(name) if each["kind"] == "callback-ended"],
        lambda ended: len(ended) == times,
    )
    assert {(each["payload"]["is_delivered"], each["payload"]["tries"]) for each in ended} == {
        (True, 1)
    }
    held_s = until(lambda: receiver.held_s[path], lambda held_s: len(held_s) == times)
    assert max(held_s) < PROMPT_S
    assert len(receiver.at(path)) == times


def test_a_callback_owed_when_the_process_is_killed_is_made(
    server: serving.Server, client: Client, receiver: Receiver, tmp_path: Path
) -> None:
    name = tmp_path.name
    receiver.answers[f"/{name}"] = [500] * 4
    client.accepted(name, "echo", 1, callback_url=f"{receiver.url}/{name}")
    until(lambda: receiver.at(f"/{name}"), bool)
    server.kill_runtime()
    taken = until(lambda: receiver.at(f"/{name}"), lambda taken: len(taken) >= 5)
    assert len({headers["idempotency-key"] for headers, _ in taken}) == 1


def test_another_origin_is_refused(client: Client, receiver: Receiver, tmp_path: Path) -> None:
    for url in ("https://example.com/x", receiver.url.replace("127.0.0.1", "localhost")):
        response = client.submit(tmp_path.name, "echo", 1, callback_url=url)
        problem = assert_problem(response, 422, "invalid-request")
        assert problem["errors"][0]["field"] == "callback_url"
