"""The program that checks bundles: a sound one passes, and whatever was done to one is told by its line.

Parity: AO-3. Agrees with `verify` of the deployment where both can see. Not tested here: that a bundle which was
written anew from beginning to end is found out, which no program can do.
"""

import ast
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import verify_bundle
from bundles.helpers.asking import export, laws, lines
from bundles.helpers.scenes import deployed, put_back, talked, tamper

pytestmark = pytest.mark.slow

SCRIPT = Path(verify_bundle.__file__)
HEADER, SUBMISSIONS, FIRST = 1, 2, 9
"""The lines of the header, of the first submission and of the first record."""
END = FIRST + 16

type Line = dict[str, Any]
type Deed = Callable[[list[Line]], object]


@pytest.fixture(scope="module")
def bundle() -> str:
    with deployed() as deployment:
        return export(talked(deployment))


def text_of(told: list[Line]) -> str:
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in told)


def checked(text: str | bytes) -> verify_bundle.Bundle:
    raw = text.encode() if isinstance(text, str) else text
    return verify_bundle.verify(io.BytesIO(raw))


def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-I", str(SCRIPT), *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, check=False)


def test_a_sound_bundle_passes_however_its_json_is_written(bundle: str) -> None:
    """Names in another order, white space and escapes change nothing: a payload is a string."""
    told = lines(bundle)
    for text in (
        bundle,
        text_of(told),
        "".join(json.dumps(dict(reversed(line.items()))) + "\n" for line in told),
        bundle.replace("\n", "\r\n"),
        bundle.removesuffix("\n"),
    ):
        assert checked(text).problems == []


def change(place: int, **fields: Any) -> Deed:
    return lambda told: told[place - 1].update(fields)


def drop(place: int) -> Deed:
    return lambda told: told.pop(place - 1)


def double(place: int) -> Deed:
    return lambda told: told.insert(place, dict(told[place - 1]))


def swap(place: int) -> Deed:
    """Exchange a line and the one behind it."""

    def deed(told: list[Line]) -> None:
        told[place - 1], told[place] = told[place], told[place - 1]

    return deed


def reason(record: int, before: str, after: str) -> Deed:
    """Change a part of a record's payload."""

    def deed(told: list[Line]) -> None:
        line = told[FIRST + record - 2]
        assert before in line["payload"]
        line["payload"] = line["payload"].replace(before, after)

    return deed


def record(number: int) -> int:
    """Return the line of a record."""
    return FIRST + number - 1


DEEDS = {
    "a-byte-of-a-payload": (reason(9, "2", "3"), record(9), "digest of its content"),
    "a-payload-told-otherwise": (reason(9, "{", "{ "), record(9), "digest of its content"),
    "a-payload-taken-out": (change(record(9), payload=None), record(9), "has no payload"),
    "a-payload-purged-too-early": (
        change(record(9), payload=None, purged_at_ms=1),
        record(9),
        "was not purged when",
    ),
    "a-digest": (change(record(9), digest="0" * 64), record(9), "chain is broken at record 9"),
    "a-link": (change(record(9), chain="0" * 64), record(9), "chain is broken at record 9"),
    "a-time": (change(record(9), created_at_ms=1), record(9), "chain is broken at record 9"),
    "an-epoch": (change(record(9), epoch=99), record(9), "digest of its content"),
    "a-version": (change(record(9), version=2), record(9), "digest of its content"),
    "a-kind": (change(record(9), kind="step-failed"), record(9), "digest of its content"),
    "an-owner": (change(record(9), submission=None), record(9), "digest of its content"),
    "an-id": (change(record(9), record_id="sub_0/x"), record(9), "is named sub_0/x"),
    "a-record-is-missing": (drop(record(9)), record(9), "record 10 stands behind record 8"),
    "the-first-is-missing": (drop(record(1)), record(1), "record 2 stands behind record 0"),
    "the-last-is-missing": (drop(record(16)), END - 1, "it counts 16 records, there are 15"),
    "a-record-comes-twice": (double(record(9)), record(10), "stands twice"),
    "records-are-exchanged": (swap(record(9)), record(9), "record 10 stands behind record 8"),
    "records-exchange-their-numbers": (
        lambda told: (change(record(9), sequence=10)(told), change(record(10), sequence=9)(told)),
        record(9),
        "chain is broken",
    ),
    "a-settlement-is-dropped": (drop(record(3)), SUBMISSIONS, "has 0 settlement records"),
    "an-outcome": (
        change(SUBMISSIONS, outcome="failed"),
        SUBMISSIONS,
        "its settlement record says completed",
    ),
    "a-submission-is-open-again": (
        change(SUBMISSIONS, state="ready", outcome=None),
        SUBMISSIONS,
        f"is ready, and line {record(3)} settles it",
    ),
    "a-submission-is-settled-by-nobody": (
        change(SUBMISSIONS + 5, state="settled", outcome="completed"),
        SUBMISSIONS + 5,
        "has 0 settlement records",
    ),
    "a-submission-is-missing": (drop(SUBMISSIONS), END - 1, "it counts 7 submissions, there are 6"),
    "a-submission-comes-twice": (double(SUBMISSIONS), SUBMISSIONS + 1, "stands twice"),
    "submissions-are-exchanged": (swap(SUBMISSIONS), SUBMISSIONS + 1, "submission 1 stands behind"),
    "an-input-that-waits": (
        change(SUBMISSIONS + 6, input='"another"'),
        SUBMISSIONS + 6,
        "does not have its digest",
    ),
    "the-conversation": (
        change(HEADER, conversation="two"),
        record(1),
        "does not name the conversation",
    ),
    "the-header-s-tail": (
        change(HEADER, tail={"sequence": 16, "digest": "0" * 64}),
        record(16),
        "header names another digest",
    ),
    "the-header-promises-more": (
        change(HEADER, tail={"sequence": 17, "digest": "0" * 64}),
        END,
        "promises 17 records or more",
    ),
    "the-end-s-tail": (
        change(END, tail={"sequence": 16, "digest": "0" * 64}),
        END,
        "another digest",
    ),
    "the-end-is-missing": (drop(END), END - 1, "without its end"),
    "something-behind-the-end": (swap(record(16)), END, "something follows the end"),
    "another-header": (double(HEADER), HEADER + 1, "another header"),
    "a-field-is-missing": (lambda told: told[8].pop("epoch"), FIRST, "its epoch is not what"),
    "a-field-of-another-type": (change(FIRST, epoch=True), FIRST, "its epoch is not what"),
    "a-line-of-no-type": (change(FIRST, type="dream"), FIRST, "no line of a bundle"),
}


@pytest.mark.parametrize("name", DEEDS)
def test_what_was_done_to_a_bundle_is_told_by_its_line(bundle: str, name: str) -> None:
    deed, place, sentence = DEEDS[name]
    told = lines(bundle)
    deed(told)
    problems = checked(text_of(told)).problems
    assert [each for each in problems if each.startswith(f"line {place}: ") and sentence in each], (
        problems
    )


def test_a_bundle_that_is_cut_anywhere_is_not_whole(bundle: str) -> None:
    raw = bundle.encode()
    header = raw.index(b"\n")
    for size in range(header + 1, len(raw) - 1, 97):
        assert "without its end" in checked(raw[:size]).problems[-1]


def test_a_byte_that_is_changed_anywhere_in_the_log_is_found(bundle: str) -> None:
    raw = bundle.encode()
    records = raw.index(b'{"type":"record"')
    for place in range(records, len(raw) - 1, 53):
        found = raw[place : place + 1]
        other = b"7" if found != b"7" else b"8"
        changed = raw[:place] + other + raw[place + 1 :]
        assert checked(changed).problems, changed[place - 40 : place + 40]


@pytest.mark.parametrize(
    "line",
    [b"{", b"\xff\xfe", b"[1]", b'{"type":["record"]}', b"[" * 100_000, b'{"a":1,"a":2}', b""],
    ids=range(7),
)
def test_a_line_that_is_none_is_told_and_the_rest_is_read(bundle: str, line: bytes) -> None:
    first, _, rest = bundle.encode().partition(b"\n")
    found = checked(first + b"\n" + line + b"\n" + rest)
    assert len(found.problems) == 1
    assert found.problems[0].startswith("line 2: ")
    assert found.records == 16


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"hello\n",
        b'{"type":"record"}\n',
        (
            b'{"type":"header","format":"zip","version":1,"conversation":"c",'
            b'"exported_at":"2026-01-01T00:00:00.000Z","tail":{"sequence":1,"digest":"d"}}\n'
        ),
        (
            b'{"type":"header","format":"quiesce-bundle","version":2,"conversation":"c",'
            b'"exported_at":"2026-01-01T00:00:00.000Z","tail":{"sequence":1,"digest":"d"}}\n'
        ),
        (
            b'{"type":"header","format":"quiesce-bundle","version":1,"conversation":"c",'
            b'"exported_at":"yesterday","tail":{"sequence":1,"digest":"d"}}\n'
        ),
    ],
)
def test_what_is_no_bundle_at_all_is_said_so(text: bytes) -> None:
    ended = run("-", stdin=text)
    assert ended.returncode == 2
    assert ended.stdout == b""
    assert ended.stderr.startswith(b"no bundle: ")


def test_the_command_says_what_is_wrong_and_ends_accordingly(bundle: str, tmp_path: Path) -> None:
    file = tmp_path / "one.ndjson"
    file.write_text(bundle, encoding="utf-8")
    sound = run(str(file))
    assert sound.returncode == 0
    assert b"conversation one: 16 records, 7 submissions, tail 16 " in sound.stdout
    assert b"it is whole and sound" in sound.stdout
    file.write_text(bundle.replace("completed", "aborted", 1), encoding="utf-8")
    unsound = run(str(file))
    assert unsound.returncode == 1
    assert unsound.stdout.startswith(b"line 2: ")
    assert run("-", stdin=bundle.encode()).stdout == sound.stdout
    assert run(str(tmp_path / "nothing")).returncode == 2
    assert run().returncode == 2
    assert run("--help").returncode == 0


def test_a_thousand_problems_are_not_all_printed(bundle: str) -> None:
    head, *_ = bundle.split("\n")
    ended = run("-", stdin=(head + "\n" + "{}\n" * 1_000).encode())
    assert ended.returncode == 1
    assert ended.stdout.count(b"\n") == verify_bundle.SHOWN_MAX + 3
    assert b"and 901 more" in ended.stdout


def test_purged_payloads_are_counted_and_said() -> None:
    with deployed(retention_ms=1_000) as deployment:
        lane = talked(deployment)
        deployment.advance(10_000)
        ended = run("-", stdin=export(lane).encode())
    assert ended.returncode == 0
    assert b"13 payloads were purged, and their digests could not be recomputed" in ended.stdout


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE records SET payload = replace(payload, '2', '3') WHERE sequence = 9",
        "UPDATE records SET payload = NULL WHERE sequence = 9",
        "UPDATE records SET created_at_ms = 1 WHERE sequence = 9",
        "UPDATE records SET chain = substr(chain, 2) || '0' WHERE sequence = 9",
        "DELETE FROM records WHERE sequence = 10",
        "DELETE FROM records WHERE sequence = 3",
        "UPDATE submissions SET outcome = 'failed' WHERE sequence = 1",
        "DELETE FROM submissions WHERE sequence = 2",
    ],
)
def test_the_deployment_s_own_check_and_the_bundle_s_agree(sql: str) -> None:
    with deployed() as deployment:
        lane = talked(deployment)
        assert (laws(lane), checked(export(lane)).problems) == ([], [])
        with put_back(lane):
            tamper(lane, sql)
            assert laws(lane)
            assert checked(export(lane)).problems


def test_the_program_stands_alone_and_is_no_newer_than_python_3_9() -> None:
    tree = ast.parse(SCRIPT.read_text("utf-8"), feature_version=(3, 9))
    imported = {
        (node.module or "").partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
    } | {
        name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    }
    assert imported <= set(sys.stdlib_module_names)
    assert "quiesce" not in imported
