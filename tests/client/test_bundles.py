"""Bundles and checks through both clients and the command: what is not whole is never taken for whole.

Against the Worker itself: the end of this module. What a bundle says is told in tests/bundles.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic_core import from_json, to_json
from typer.testing import CliRunner, Result

import verify_bundle
from client.helpers.deployment import (
    Told,
    call_awaiting,
    call_blocking,
    ok,
    problem,
    status,
    verification,
)
from quiesce.cli import session
from quiesce.cli.main import app
from quiesce.cli.session import Options
from quiesce.client import Client, Refused, Unreachable
from workshop.serving import Server

type Make = Callable[..., Any]
type Quiesce = Callable[..., Result]

both = pytest.mark.parametrize("make", [call_blocking, call_awaiting], ids=["blocking", "asyncio"])
TAIL = {"sequence": 1, "digest": "d" * 64}
LINES = [
    to_json(line) + b"\n"
    for line in (
        {"type": "header", "conversation": "c", "tail": TAIL},
        {"type": "submission", "submission": "sub_1", "input": "é \\n"},
        {"type": "record", "sequence": 1, "payload": '{"type":"end"}'},
        {"type": "end", "records": 1, "submissions": 1, "tail": TAIL},
    )
]
WHOLE = b"".join(LINES)
BROKEN = httpx.ReadError("the connection broke")


def bundle(content: bytes, *, breaks: bool = False) -> Callable[[httpx.Request], httpx.Response]:
    """Answer with a bundle in small pieces, which may break off at the end of what is given."""

    class Pieces(httpx.SyncByteStream, httpx.AsyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield from (content[place : place + 7] for place in range(0, len(content), 7))
            if breaks:
                raise BROKEN

        async def __aiter__(self) -> Any:
            for each in self:
                yield each

    return lambda _: httpx.Response(200, stream=Pieces())


@both
def test_a_bundle_is_read_line_by_line(make: Make) -> None:
    told = Told(bundle(WHOLE))
    assert make(told, "export", "c") == LINES
    (sent,) = told.requests
    assert f"{sent.method} {sent.url.path}" == "GET /v1/conversations/c/export"
    assert sent.headers["accept"] == "application/x-ndjson"


@both
@pytest.mark.parametrize("size", [len(LINES[0]), 100, len(WHOLE) - len(LINES[-1]), len(WHOLE) - 1])
@pytest.mark.parametrize("breaks", [True, False])
def test_what_stops_before_its_end_is_not_whole_and_is_not_begun_again(
    make: Make, size: int, *, breaks: bool
) -> None:
    told = Told(bundle(WHOLE[:size], breaks=breaks))
    with pytest.raises(Unreachable, match="before its end"):
        make(told, "export", "c")
    assert len(told.requests) == 1


@both
def test_what_has_not_begun_is_tried_again(make: Make) -> None:
    refused = problem(429, "rate-limited", retry_after="2")
    told = Told(httpx.ConnectError("nobody there"), refused, bundle(b""), bundle(WHOLE))
    assert make(told, "export", "c") == LINES
    assert len(told.requests) == 4
    assert told.pauses[1] >= 2


@both
def test_what_is_refused_for_good_is_refused(make: Make) -> None:
    with pytest.raises(Refused) as refused:
        make(Told(problem(404, "not-found")), "export", "c")
    assert refused.value.code == "not-found"


@both
def test_a_check_says_what_is_broken(make: Make) -> None:
    broken = {"law": "chain", "found": "the chain is broken at record 3", "sequence": 3}
    found = make(Told(ok(verification(broken, later="field"))), "verify", "c")
    assert not found.ok
    assert [(each.law, each.sequence, each.submission) for each in found.problems] == [
        ("chain", 3, None)
    ]
    assert (found.checked.records, found.tail.sequence) == (12, 12)
    assert found.document["later"] == "field"


@pytest.fixture
def quiesce(monkeypatch: pytest.MonkeyPatch) -> Quiesce:
    """Run the command against a list of answers."""
    for name in ("QUIESCE_URL", "QUIESCE_TOKEN", "QUIESCE_CONVERSATION"):
        monkeypatch.delenv(name, raising=False)

    def run(told: Told, *arguments: str) -> Result:
        def open_client(options: Options) -> Client:
            Client(options.url, options.token).close()
            return told.client()

        monkeypatch.setattr(session, "open_client", open_client)
        return CliRunner().invoke(app, arguments, env={"COLUMNS": "80"})

    return run


def test_verify_says_in_a_sentence_that_all_is_well(quiesce: Quiesce) -> None:
    told = Told(ok(verification()))
    result = quiesce(told, "verify", "c")
    assert result.exit_code == 0
    said = " ".join(result.stdout.split())
    assert said.startswith("c is sound: 12 records and 3 submissions checked, tail 12 dddd")
    assert told.requests[0].url.path == "/v1/conversations/c/verify"
    assert quiesce(told, "verify", "-c", "c").stdout == result.stdout


def test_verify_lists_what_is_broken_and_ends_with_1(quiesce: Quiesce) -> None:
    broken = [
        {"law": "digest", "found": "record 3 \x1b[2J does not", "sequence": 3},
        {"law": "settlement", "found": "[red]none[/red]", "submission": "sub_1"},
        {"law": "alarm", "found": "no alarm is set"},
    ]
    answer = ok(verification(*broken, truncated=True))
    result = quiesce(Told(answer), "verify", "c")
    assert result.exit_code == 1
    for said in (
        "c breaks its laws",
        "record 3",
        "\\u001b",
        "sub_1",
        "[red]none",
        "there are more",
    ):
        assert said in result.stdout
    assert "\x1b[2J" not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    in_json = quiesce(Told(answer), "verify", "c", "--json")
    assert in_json.exit_code == 1
    assert from_json(in_json.stdout)["problems"] == broken


def test_export_writes_to_stdout_and_tells_of_it_on_stderr(quiesce: Quiesce) -> None:
    result = quiesce(Told(bundle(WHOLE)), "export", "c")
    assert result.exit_code == 0
    assert result.stdout_bytes == WHOLE
    assert "records: 1, submissions: 1, tail 1 dddd" in " ".join(result.stderr.split())
    quiet = quiesce(Told(bundle(WHOLE)), "export", "c", "--json")
    assert (quiet.stdout_bytes, quiet.stderr) == (WHOLE, "")


def test_export_replaces_a_file_when_all_of_it_is_there(quiesce: Quiesce, tmp_path: Path) -> None:
    file = tmp_path / "c.ndjson"
    for _ in range(2):
        result = quiesce(Told(bundle(WHOLE)), "export", "c", "-o", str(file))
        assert result.exit_code == 0
        assert result.stdout == ""
        assert file.read_bytes() == WHOLE
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("answer", "exit_code"),
    [
        (bundle(WHOLE[:100]), 3),
        (bundle(WHOLE[:100], breaks=True), 3),
        (problem(404, "not-found"), 1),
    ],
)
def test_what_does_not_become_whole_leaves_the_file_as_it_was(
    quiesce: Quiesce, tmp_path: Path, answer: Any, exit_code: int
) -> None:
    file = tmp_path / "c.ndjson"
    assert quiesce(Told(answer), "export", "c", "-o", str(file)).exit_code == exit_code
    assert list(tmp_path.iterdir()) == []
    file.write_text("of yesterday")
    assert quiesce(Told(answer), "export", "c", "-o", str(file)).exit_code == exit_code
    assert file.read_text() == "of yesterday"
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_that_cannot_be_written_is_wrong_usage(quiesce: Quiesce, tmp_path: Path) -> None:
    told = Told(bundle(WHOLE))
    for output in (tmp_path, tmp_path / "no-folder" / "c.ndjson"):
        result = quiesce(told, "export", "c", "-o", str(output))
        assert result.exit_code == 2
        assert "cannot be written" in " ".join(result.stderr.split())
    assert list(tmp_path.iterdir()) == []
    assert list(tmp_path.parent.glob(f".{tmp_path.name}*")) == []
    assert told.requests == []


def test_skip_sends_its_reason_and_shows_where_the_submission_stands(quiesce: Quiesce) -> None:
    told = Told(ok(status(), 202))
    result = quiesce(told, "skip", "-c", "c", "sub_1", "--reason", "nobody answers")
    assert result.exit_code == 0
    assert told.requests[0].url.path.endswith("/submissions/sub_1/skip")
    assert from_json(told.requests[0].content) == {"reason": "nobody answers"}
    assert "sub_1" in result.stdout
    refused = quiesce(Told(problem(409, "not-waiting")), "skip", "-c", "c", "sub_1")
    assert refused.exit_code == 1


@pytest.mark.worker
def test_a_conversation_is_verified_exported_skipped_and_checked(
    server: Server, conversation: str, tmp_path: Path
) -> None:
    environment = {"QUIESCE_URL": server.url, "QUIESCE_TOKEN": "dev", "COLUMNS": "100"}

    def run(*arguments: str) -> Result:
        result = CliRunner().invoke(app, arguments, env={**os.environ, **environment})
        assert result.exit_code == 0, result.output
        return result

    with Client(server.url, "dev") as client:
        asked = client.submit(conversation, "approval", {"question": "?"}).submission
        behind = client.submit(conversation, "echo", "é").submission
        run("skip", "-c", conversation, asked, "-r", "nobody answers")
        assert client.wait(conversation, asked, timeout_s=20).outcome == "aborted"
        assert client.wait(conversation, behind, timeout_s=20).is_completed
        found = client.verify(conversation)
        assert found.ok
        lines = list(client.export(conversation))
    file = tmp_path / "c.ndjson"
    run("export", conversation, "-o", str(file))
    assert file.read_bytes().split(b"\n", 1)[1] == b"".join(lines).split(b"\n", 1)[1]
    with file.open("rb") as stream:
        checked = verify_bundle.verify(stream)
    assert checked.problems == []
    assert checked.chain == found.tail.digest
    assert "is sound" in run("verify", conversation).stdout
