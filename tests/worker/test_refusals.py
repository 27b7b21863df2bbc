"""Every bad request is refused with its own typed problem, writes nothing, and leaves the lane working.

Here: what is sent. Who asks, and for what: test_callers. Limits that need small settings: test_limits.
"""

import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from worker.helpers.client import Client, assert_problem, submissions
from workshop.serving import Server

pytestmark = pytest.mark.worker

KEY = {"idempotency-key": "key"}
JSON = {"content-type": "application/json"}
BODY_BYTES_MAX = 3 * 1_000_000 + 65_536


def send_raw(server: Server, conversation: str, *headers: str) -> str:
    """POST headers exactly as they are given, which no client library does, and return what comes."""
    parts = urlsplit(server.url)
    lines = [
        f"POST {submissions(conversation)} HTTP/1.1",
        f"host: {parts.netloc}",
        "authorization: Bearer dev",
        "content-type: application/json",
        "connection: close",
        *headers,
        "\r\n",
    ]
    with socket.create_connection((parts.hostname, parts.port), timeout=20) as connection:
        connection.sendall("\r\n".join(lines).encode())
        received = b""
        while chunk := connection.recv(65_536):
            received += chunk
    return received.decode()


def nested(levels: int) -> bytes:
    return b'{"agent":"echo","input":' + b"[" * levels + b"]" * levels + b"}"


MALFORMED: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"agent=echo",
    "cut off": b'{"agent":"echo","input":',
    "two values": b'{"agent":"echo","input":1} 2',
    "NaN": b'{"agent":"echo","input":NaN}',
    "Infinity": b'{"agent":"echo","input":-Infinity}',
    "a number beyond every double": b'{"agent":"echo","input":[1e400]}',
    "a number of 5,000 digits": b'{"agent":"echo","input":' + b"1" * 5_000 + b"}",
    "lone surrogate": rb'{"agent":"echo","input":"\ud800"}',
    "lone surrogate as a name": rb'{"agent":"echo","input":{"\udc00":1}}',
    "no UTF-8": b'{"agent":"echo","input":"\xff"}',
    "UTF-16": '{"agent":"echo","input":1}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"agent":"echo","input":1}',
    "control character": b'{"agent":"echo","input":"\x01"}',
    "one name twice": b'{"agent":"echo","input":1,"input":2}',
    "one name twice in the input": b'{"agent":"echo","input":{"a":1,"a":2}}',
    "40 levels": nested(40),
    "200 levels": nested(200),
    "5,000 levels": nested(5_000),
    "100,000 levels": nested(100_000),
    "objects of 5,000 levels": b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    "5,000 levels never closed": b"[" * 5_000,
}


@pytest.mark.usefixtures("nothing_written")
@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_body_that_is_no_json_is_malformed(
    client: Client, conversation: str, body: bytes
) -> None:
    response = client.http.post(submissions(conversation), content=body, headers=KEY | JSON)
    assert_problem(response, 400, "invalid-request")


WRONG_FIELDS: dict[str, tuple[bytes, str]] = {
    "a list": (b"[]", ""),
    "null": (b"null", ""),
    "no agent": (b'{"input":1}', "agent"),
    "no input": (b'{"agent":"echo"}', "input"),
    "agent is a number": (b'{"agent":1,"input":1}', "agent"),
    "agent is empty": (b'{"agent":"","input":1}', "agent"),
    "unknown field": (b'{"agent":"echo","input":1,"priority":9}', "priority"),
    "unknown mode": (b'{"agent":"echo","input":1,"mode":"jump"}', "mode"),
    "deadline of no time": (b'{"agent":"echo","input":1,"deadline_ms":0}', "deadline_ms"),
    "deadline as text": (b'{"agent":"echo","input":1,"deadline_ms":"5"}', "deadline_ms"),
    "input of another shape": (b'{"agent":"steps","input":{"count":"two"}}', "input.count"),
    "input with an unknown field": (b'{"agent":"steps","input":{"count":1,"x":1}}', "input.x"),
}


@pytest.mark.usefixtures("nothing_written")
@pytest.mark.parametrize(("body", "field"), WRONG_FIELDS.values(), ids=WRONG_FIELDS.keys())
def test_json_with_wrong_fields_is_refused_field_by_field(
    client: Client, conversation: str, body: bytes, field: str
) -> None:
    response = client.http.post(submissions(conversation), content=body, headers=KEY | JSON)
    problem = assert_problem(response, 422, "invalid-request")
    assert [error["field"] for error in problem["errors"]] == [field]
    assert all(error["problem"] for error in problem["errors"])


@pytest.mark.usefixtures("nothing_written")
def test_an_unknown_agent_is_refused_and_the_known_ones_named(
    client: Client, conversation: str
) -> None:
    problem = assert_problem(client.submit(conversation, "ghost", 1), 422, "unknown-agent")
    assert "echo" in problem["agents"]


KEYS: dict[str, bytes | None] = {
    "missing": None,
    "empty": b"",
    "control character": b"a\tb",
    "not ASCII": "schlüssel".encode(),
    "256 characters": b"k" * 256,
}


@pytest.mark.usefixtures("nothing_written")
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())
def test_an_unusable_idempotency_key_is_refused_with_what_to_send(
    client: Client, conversation: str, key: bytes | None
) -> None:
    headers: dict[bytes, bytes] = {} if key is None else {b"idempotency-key": key}
    response = client.http.post(
        submissions(conversation), json={"agent": "echo", "input": 1}, headers=headers
    )
    problem = assert_problem(response, 400, "invalid-request")
    assert "Idempotency-Key" in problem["detail"]


@pytest.mark.usefixtures("nothing_written")
def test_a_blank_idempotency_key_is_refused(server: Server, conversation: str) -> None:
    body = ["content-length: 26", "", '{"agent":"echo","input":1}']
    answer = send_raw(server, conversation, "idempotency-key:    ", *body)
    assert answer.startswith("HTTP/1.1 400 ")
    assert "Idempotency-Key" in answer


def test_keys_up_to_255_printable_characters_are_taken(client: Client, conversation: str) -> None:
    for key in ("k" * 255, "a b", '"quoted"', "!~", "a, b"):
        response = client.submit(conversation, "echo", 1, key)
        assert response.status_code == 202, response.text


def test_a_repeated_key_header_is_the_joined_key(client: Client, conversation: str) -> None:
    def send() -> httpx.Response:
        return client.http.post(
            submissions(conversation),
            json={"agent": "echo", "input": 1},
            headers=[("idempotency-key", "a"), ("idempotency-key", "b")],
        )

    assert send().status_code == 202
    assert send().status_code == 200
    assert client.submit(conversation, "echo", 1, "a").status_code == 202


@pytest.mark.usefixtures("nothing_written")
@pytest.mark.parametrize(
    "media_type",
    [
        None,
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json-patch+json",
        "application/json; charset=latin-1",
        "application/json, text/plain",
    ],
)
def test_another_media_type_is_refused(
    client: Client, conversation: str, media_type: str | None
) -> None:
    headers = KEY if media_type is None else KEY | {"content-type": media_type}
    body = b'{"agent":"echo","input":1}'
    response = client.http.post(submissions(conversation), content=body, headers=headers)
    assert_problem(response, 415, "unsupported-media-type")


def test_parameters_of_the_media_type_are_allowed(client: Client, conversation: str) -> None:
    body = b'{"agent":"echo","input":1}'
    for number, media_type in enumerate(
        ['Application/JSON; charset="UTF-8"', "application/json;profile=x"]
    ):
        headers = {"idempotency-key": f"key-{number}", "content-type": media_type}
        response = client.http.post(submissions(conversation), content=body, headers=headers)
        assert response.status_code == 202, response.text


def huge_body(size: int) -> Iterator[bytes]:
    yield b'{"agent":"echo","input":"'
    for _ in range(size // 65_536):
        yield b"x" * 65_536
    yield b'"}'


@pytest.mark.usefixtures("nothing_written")
def test_a_body_announced_too_large_is_refused_before_it_is_read(
    server: Server, conversation: str
) -> None:
    # Not a byte of the body is sent, and the answer is there.
    answer = send_raw(server, conversation, "idempotency-key: key", "content-length: 5000000")
    assert answer.startswith("HTTP/1.1 413 ")
    assert '"input-too-large"' in answer


@pytest.mark.usefixtures("nothing_written")
@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_over_the_limit_is_refused(
    client: Client, conversation: str, *, is_chunked: bool
) -> None:
    body = huge_body(4_000_000)
    response = client.http.post(
        submissions(conversation),
        content=body if is_chunked else b"".join(body),
        headers=KEY | JSON,
    )
    problem = assert_problem(response, 413, "input-too-large")
    assert problem["maximum"] == BODY_BYTES_MAX
    assert problem["actual"] > BODY_BYTES_MAX
    assert problem["limit"] == "BODY_BYTES_MAX"


@pytest.mark.usefixtures("nothing_written")
def test_an_input_over_the_limit_in_a_body_within_it_is_refused(
    client: Client, conversation: str
) -> None:
    problem = assert_problem(
        client.submit(conversation, "echo", "x" * 1_000_000), 413, "input-too-large"
    )
    assert (problem["limit"], problem["maximum"]) == ("INPUT_BYTES_MAX", 1_000_000)
    assert problem["actual"] == 1_000_002


def test_an_input_of_exactly_the_limit_is_taken(client: Client, conversation: str) -> None:
    value = "x" * (1_000_000 - 2)
    submission = client.accepted(conversation, "echo", value)
    assert client.settled(conversation, submission)["result"] == value


def test_the_canonical_form_counts_and_not_how_it_was_escaped(
    client: Client, conversation: str
) -> None:
    value = "é" * 400_000
    body = json.dumps({"agent": "echo", "input": value}, ensure_ascii=True)
    assert len(body) > 2_400_000
    response = client.http.post(submissions(conversation), content=body, headers=KEY | JSON)
    assert response.status_code == 202, response.text
    assert client.settled(conversation, response.json()["submission"])["result"] == value


def test_wide_json_is_taken(client: Client, conversation: str) -> None:
    value: list[Any] = [[] for _ in range(100_000)]
    submission = client.accepted(conversation, "echo", value)
    assert client.settled(conversation, submission)["result"] == value
