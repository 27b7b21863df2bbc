"""verify and export over HTTP, on the Worker as it is deployed: who may, what is refused, how it is read.

Parity: AD-2, EV-58. Not tested here: which laws there are and what a bundle says, which needs no runtime.
"""

import io
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

import verify_bundle
from quiesce import answers, exporting
from worker.helpers import disk
from worker.helpers.client import Client, assert_problem
from workshop.serving import Server

pytestmark = pytest.mark.worker

VARIABLES = {"QUIESCE_EXPORT_SECONDS_MAX": "12"}
NOBODY_THERE = "http://127.0.0.1:9/"
NDJSON = "application/x-ndjson"


def path_of(conversation: str, what: str) -> str:
    return f"/v1/conversations/{conversation}/{what}"


def exported(client: Client, conversation: str) -> str:
    response = client.http.get(path_of(conversation, "export"))
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == NDJSON
    assert response.headers["cache-control"] == "no-store"
    return response.text


def checked(text: str) -> verify_bundle.Bundle:
    return verify_bundle.verify(io.BytesIO(text.encode()))


def verified(client: Client, conversation: str) -> answers.Verification:
    response = client.http.get(path_of(conversation, "verify"))
    assert response.status_code == 200, response.text
    return answers.Verification.model_validate_json(response.content)


def test_a_conversation_of_every_agent_is_sound_and_its_bundle_says_the_same(
    client: Client, conversation: str
) -> None:
    for agent, value in (
        ("echo", {"text": "é \x01 \u2028 \U0001f600", "great": 2**70, "tiny": 5e-324, "one": 1.0}),
        ("steps", {"count": 2}),
        ("fail", {"kind": "final"}),
        ("fail", {"kind": "retryable", "times": 1}),
        ("fail", {"kind": "oversize"}),
        ("sleep", {"ms": 5}),
        ("signal", {"name": "news", "timeout_ms": 5}),
        ("refunds", {"order": "7", "cents": 100}),
        ("parent", {"child": "echo", "input": [1]}),
    ):
        client.settled(conversation, client.accepted(conversation, agent, value), timeout_s=60)
    charged = client.accepted(conversation, "charge", {"url": NOBODY_THERE, "amount": 5})
    client.waits(conversation, charged, "resolution")
    found_out = {"resolution": "completed", "result": {"reference": "r"}, "reason": "asked them"}
    client.act(conversation, charged, "resolutions/charge", found_out)
    client.settled(conversation, charged)
    asked = client.accepted(conversation, "approval", {"question": "?"})
    client.waits(conversation, asked, "approval")
    client.accepted(conversation, "echo", "behind")
    found = verified(client, conversation)
    assert (found.ok, found.problems, found.truncated) == (True, [], False)
    assert found.checked.submissions == 12
    assert found.checked.records == len(client.records(conversation))
    bundle = checked(exported(client, conversation))
    assert bundle.problems == []
    assert (bundle.sequence, bundle.chain) == (found.tail.sequence, found.tail.digest)
    assert (bundle.records, len(bundle.rows)) == (found.checked.records, 12)


@pytest.mark.usefixtures("nothing_written")
@pytest.mark.parametrize("what", ["verify", "export"])
def test_what_is_refused_is_refused_with_a_status_and_writes_nothing(
    client: Client, caller_with: Any, conversation: str, what: str
) -> None:
    path = path_of(conversation, what)
    assert_problem(client.http.get(path), 404, "not-found")
    assert client.http.head(path).status_code == 404
    assert_problem(client.http.get(path, params={"after": "1"}), 400, "invalid-request")
    assert_problem(client.http.post(path), 405, "method-not-allowed")
    assert_problem(client.http.get(path_of("-a", what)), 400, "invalid-request")
    assert_problem(caller_with(None).http.get(path), 401, "unauthenticated")
    for role in ("submit", "decide", "operate"):
        problem = assert_problem(caller_with(f"only-{role}").http.get(path), 403, "forbidden")
        assert problem["role"] == "observe"
    assert_problem(caller_with("only-observe").http.get(path), 404, "not-found")
    assert_problem(caller_with("kept").http.get(path), 403, "forbidden")


def test_a_head_has_the_headers_and_no_body(client: Client, conversation: str) -> None:
    client.settled(conversation, client.accepted(conversation, "echo", 1))
    for what, media_type in (("verify", "application/json"), ("export", NDJSON)):
        response = client.http.head(path_of(conversation, what))
        assert response.status_code == 200
        assert response.headers["content-type"] == media_type
        assert response.content == b""


def test_neither_writes_anything(server: Server, client: Client, conversation: str) -> None:
    """EV-58: no row, no generation and no alarm."""
    client.settled(conversation, client.accepted(conversation, "echo", 1))
    before = client.maintenance(conversation)
    rows = {file: disk.rows_by_table(file) for file in disk.object_files(server)}
    assert verified(client, conversation).ok
    assert exported(client, conversation)
    assert client.maintenance(conversation) == before
    assert {file: disk.rows_by_table(file) for file in disk.object_files(server)} == rows


@pytest.fixture(scope="module")
def long_one(server: Server) -> str:
    """A conversation of more than five thousand records."""
    with Client(server.url) as client:
        submission = client.accepted("long-one", "steps", {"count": 5_000})
        assert client.settled("long-one", submission, timeout_s=180)["outcome"] == "completed"
    return "long-one"


@pytest.mark.slow
def test_five_thousand_records_are_streamed_and_sound(client: Client, long_one: str) -> None:
    largest = count = 0
    whole = bytearray()
    with client.http.stream("GET", path_of(long_one, "export")) as response:
        assert "content-length" not in response.headers
        for chunk in response.iter_raw():
            count += 1
            largest = max(largest, len(chunk))
            whole += chunk
    bundle = checked(whole.decode())
    assert bundle.problems == []
    assert bundle.records == 5_003
    # It came in parts, none of which was more than a part may hold.
    assert count >= 5_003 // exporting.LINES_MIN
    assert largest < exporting.BYTES_MIN
    found = verified(client, long_one)
    assert found.ok
    assert (found.tail.sequence, found.tail.digest) == (bundle.sequence, bundle.chain)


@pytest.mark.slow
def test_a_connection_that_was_cut_is_no_harm_and_the_next_bundle_is_whole(
    client: Client, long_one: str
) -> None:
    for size in (1, 100_000, 700_000):
        read = bytearray()
        with client.http.stream("GET", path_of(long_one, "export")) as response:
            for chunk in response.iter_raw():
                read += chunk
                if len(read) >= size:
                    break
        cut = bytes(read[:size])
        if size > 1:
            assert "without its end" in verify_bundle.verify(io.BytesIO(cut)).problems[-1]
    assert checked(exported(client, long_one)).problems == []


@pytest.mark.slow
def test_a_reader_who_does_not_read_is_cut_off(
    server: Server, client: Client, conversation: str
) -> None:
    """Its time is bounded, whatever the buffers on the way hold; what it has is not whole."""
    for number in range(20):
        client.accepted(conversation, "echo", f"{number}" * 400_000)
    last = client.accepted(conversation, "echo", "the last")
    client.settled(conversation, last, timeout_s=60)
    read = bytearray()

    def read_slowly() -> None:
        with (
            Client(server.url) as other,
            other.http.stream("GET", path_of(conversation, "export")) as response,
        ):
            for chunk in response.iter_raw():
                if not read:
                    time.sleep(14)
                read.extend(chunk)

    with pytest.raises(httpx.RemoteProtocolError):
        read_slowly()
    assert 0 < len(read) < 20_000_000
    assert b'"type":"end"' not in read
    assert verified(client, conversation).ok


@pytest.mark.slow
def test_work_goes_on_while_a_long_conversation_is_checked_and_exported(
    server: Server, client: Client, long_one: str
) -> None:
    def check() -> bool:
        with Client(server.url) as other:
            return verified(other, long_one).ok

    def bundle() -> list[str]:
        with Client(server.url) as other:
            return list(checked(exported(other, long_one)).problems)

    settled = 0
    with ThreadPoolExecutor(2) as pool:
        checks = pool.submit(check), pool.submit(bundle)
        while not checks[0].done():
            client.settled(long_one, client.accepted(long_one, "echo", settled))
            settled += 1
    assert [each.result() for each in checks] == [True, []]
    # Were the Object held, one would settle, and that when all is over.
    assert settled >= 3


@pytest.mark.slow
def test_one_check_runs_at_a_time(server: Server, client: Client, long_one: str) -> None:
    def check() -> httpx.Response:
        with Client(server.url) as other:
            return other.http.get(path_of(long_one, "verify"))

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: check(), range(4)))
    statuses = sorted(each.status_code for each in found)
    assert statuses[0] == 200
    assert statuses[-1] == 429
    refused = next(each for each in found if each.status_code == 429)
    assert_problem(refused, 429, "rate-limited")
    assert int(refused.headers["retry-after"]) >= 1
    assert verified(client, long_one).ok


def test_a_bundle_has_its_lines_in_order(client: Client, conversation: str) -> None:
    client.settled(conversation, client.accepted(conversation, "echo", 1))
    told = [json.loads(line) for line in exported(client, conversation).splitlines()]
    assert [each["type"] for each in told] == ["header", "submission", *["record"] * 3, "end"]
