#!/usr/bin/env python3
"""Checks a bundle of a conversation, as docs/bundle.md describes it, without the deployment that made it.

    verify_bundle.py FILE      or, from standard input,      verify_bundle.py -

It needs Python 3.9 or newer and nothing else. It reads line by line; what it keeps is one name for each record and
each submission. It says what is wrong with which line, and ends with 0 where all is well, 1 where something is
wrong, and 2 where what it was given is no bundle at all.

What it cannot see: a bundle that somebody has written anew from its first record to its end. Compare the digest of
the tail with one that you have from elsewhere, such as an earlier bundle or an answer of `verify`.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

Line = dict[str, Any]

FORMAT = "quiesce-bundle"
VERSION = 1
CHAIN_START = "0" * 64
SHOWN_MAX = 100
OK, WRONG, NO_BUNDLE = 0, 1, 2
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)  # noqa: UP017 - older Pythons have no other name

TEXT, NUMBER, OBJECT = str, int, dict
NOTHING = type(None)
FIELDS: dict[str, dict[str, tuple[type, ...]]] = {
    "header": {"conversation": (TEXT,), "exported_at": (TEXT,), "tail": (OBJECT,)},
    "submission": {
        "sequence": (NUMBER,),
        "submission": (TEXT,),
        "state": (TEXT,),
        "outcome": (TEXT, NOTHING),
        "purged_at_ms": (NUMBER, NOTHING),
        "input_digest": (TEXT,),
        "input": (TEXT, NOTHING),
    },
    "record": {
        "sequence": (NUMBER,),
        "record_id": (TEXT,),
        "kind": (TEXT,),
        "submission": (TEXT, NOTHING),
        "epoch": (NUMBER,),
        "created_at_ms": (NUMBER,),
        "version": (NUMBER,),
        "payload": (TEXT, NOTHING),
        "digest": (TEXT,),
        "chain": (TEXT,),
    },
    "end": {"records": (NUMBER,), "submissions": (NUMBER,), "tail": (OBJECT,)},
}
"""What a line of each type must have; `tail` has `sequence` and `digest`."""


class NoBundle(Exception):
    """What was given is no bundle that this program knows."""


class Row(NamedTuple):
    """What the line of a submission has told."""

    number: int
    state: str
    outcome: str | None
    purged_at_ms: int | None


class Settled(NamedTuple):
    """What one settlement record has told."""

    number: int
    sequence: int
    is_purged: bool
    outcome: object


class Story:
    """What the records of one submission have told."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.is_applied = False
        self.settlements: list[Settled] = []


class Bundle:
    """A bundle, as far as it has been read, and what is wrong with it."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.header: Line = {}
        self.exported_at_ms = 0
        self.has_ended = False
        self.records = 0
        self.purged = 0
        self.sequence = 0
        self.chain = CHAIN_START
        self.link = CHAIN_START
        self.rows: dict[str, Row] = {}
        self.place = 0
        self.ids: set[str] = set()
        self.stories: dict[str, Story] = {}

    def _wrong(self, number: int, sentence: str) -> None:
        self.problems.append(f"line {number}: {sentence}")

    def read(self, number: int, raw: bytes) -> None:
        """Take in one line of bytes."""
        line = self._parsed(number, raw)
        if number == 1:
            self._open(line)
        elif line is not None:
            if self.has_ended:
                self._wrong(number, "something follows the end")
            elif line["type"] == "submission":
                self._submission(number, line)
            elif line["type"] == "record":
                self._record(number, line)
            elif line["type"] == "end":
                self._end(number, line)
            else:
                self._wrong(number, "another header")

    def _parsed(self, number: int, raw: bytes) -> Line | None:
        line: Any
        try:
            line = json.loads(raw.decode(), object_pairs_hook=_without_doubles)
        except (ValueError, RecursionError) as error:
            self._wrong(number, f"it is no JSON: {error}")
            return None
        kind = line.get("type") if isinstance(line, dict) else None
        if not isinstance(kind, str) or kind not in FIELDS:
            self._wrong(number, "it is no line of a bundle")
            return None
        for name, types in FIELDS[kind].items():
            # An absent field and a boolean are of no type that is asked for here.
            if type(line.get(name, False)) not in types:
                self._wrong(
                    number, f"its {name} is not what a {kind} has: {line.get(name)!r}"[:200]
                )
                return None
        if "tail" in FIELDS[kind] and not _is_tail(line["tail"]):
            self._wrong(number, "its tail has no sequence and digest")
            return None
        return dict(line)

    def _open(self, line: Line | None) -> None:
        if line is None or line["type"] != "header":
            raise NoBundle("the first line is no header of a bundle")
        if line.get("format") != FORMAT or line.get("version") != VERSION:
            shown = f"{line.get('format')!r} version {line.get('version')!r}"
            raise NoBundle(f"it is {shown}, and this program knows {FORMAT!r} version {VERSION}")
        try:
            exported_at = datetime.strptime(
                line["exported_at"] + "+0000", "%Y-%m-%dT%H:%M:%S.%fZ%z"
            )
        except ValueError:
            raise NoBundle("the header does not say when it was written") from None
        self.exported_at_ms = (exported_at - EPOCH) // timedelta(milliseconds=1)
        self.header = line

    def _submission(self, number: int, line: Line) -> None:
        name = line["submission"]
        if self.records:
            self._wrong(number, "a submission stands behind the first record")
        if line["sequence"] <= self.place:
            self._wrong(number, f"submission {line['sequence']} stands behind {self.place}")
        self.place = line["sequence"]
        if name in self.rows:
            self._wrong(number, f"{name} stands twice")
        self.rows[name] = Row(number, line["state"], line["outcome"], line["purged_at_ms"])
        if line["input"] is not None and _sha256(line["input"]) != line["input_digest"]:
            self._wrong(number, f"the input of {name} does not have its digest")

    def _record(self, number: int, line: Line) -> None:
        self.records += 1
        self._place_of(number, line)
        self._content(number, line)
        if line["record_id"] in self.ids:
            self._wrong(number, f"record id {line['record_id']} stands twice")
        self.ids.add(line["record_id"])
        if line["sequence"] == 1:
            self._first(number, line)
        if line["submission"] is not None:
            self._owned(number, line, line["submission"])

    def _place_of(self, number: int, line: Line) -> None:
        if line["sequence"] != self.sequence + 1:
            self._wrong(number, f"record {line['sequence']} stands behind record {self.sequence}")
        self.sequence = line["sequence"]
        rest = f"{line['sequence']}{line['digest']}{line['created_at_ms']}"
        link = _sha256(self.chain + rest)
        if line["chain"] == link:
            self.link = link
        # Behind a broken link, what should have stood there is as good: each break is _told once.
        elif self.link != self.chain and line["chain"] == _sha256(self.link + rest):
            self.link = line["chain"]
        else:
            self._wrong(number, f"the chain is broken at record {line['sequence']}")
            self.link = link
        self.chain = line["chain"]
        tail = self.header["tail"]
        if line["sequence"] == tail["sequence"] and line["chain"] != tail["digest"]:
            self._wrong(number, "the header names another digest for this record")

    def _content(self, number: int, line: Line) -> None:
        if line["payload"] is not None:
            names = ("record_id", "kind", "submission", "epoch", "version", "payload")
            said = [line[name] for name in names]
            text = json.dumps(said, ensure_ascii=False, separators=(",", ":"))
            if _sha256(text) != line["digest"]:
                found = f"record {line['sequence']} does not have the digest of its content"
                self._wrong(number, found)
            return
        self.purged += 1
        purged_at_ms = line.get("purged_at_ms")
        row = self.rows.get(line["submission"])
        if type(purged_at_ms) is not int:
            self._wrong(number, f"record {line['sequence']} has no payload, and nothing was purged")
        elif row is not None and row.purged_at_ms not in {purged_at_ms, None}:
            self._wrong(number, "its submission was purged at another time")
        elif row is not None and row.purged_at_ms is None and purged_at_ms < self.exported_at_ms:
            self._wrong(number, "its submission was not purged when the bundle was begun")

    def _first(self, number: int, line: Line) -> None:
        if line["payload"] is None:
            return
        named = _payload_of(line).get("conversation")
        if line["kind"] != "conversation-created" or named != self.header["conversation"]:
            self._wrong(number, "the first record does not name the conversation of the header")

    def _owned(self, number: int, line: Line, owner: str) -> None:
        story = self.stories.setdefault(owner, Story(line["sequence"]))
        if not line["record_id"].startswith(owner + "/"):
            self._wrong(number, f"a record of {owner} is named {line['record_id']}")
        if story.settlements:
            self._wrong(number, f"record {line['sequence']} follows the settlement of {owner}")
        if line["kind"] == "input-applied":
            if story.is_applied:
                self._wrong(number, f"the input of {owner} is applied twice")
            story.is_applied = True
        if line["kind"] == "settlement":
            is_purged = line["payload"] is None
            outcome = None if is_purged else _payload_of(line).get("outcome")
            story.settlements.append(Settled(number, line["sequence"], is_purged, outcome))

    def _end(self, number: int, line: Line) -> None:
        self.has_ended = True
        if line["records"] != self.records:
            self._wrong(number, f"it counts {line['records']} records, there are {self.records}")
        if line["submissions"] != len(self.rows):
            found = f"it counts {line['submissions']} submissions, there are {len(self.rows)}"
            self._wrong(number, found)
        tail = line["tail"]
        if tail["sequence"] != self.sequence:
            found = f"it names record {tail['sequence']} as the last, which is {self.sequence}"
            self._wrong(number, found)
        if tail["digest"] != self.chain:
            self._wrong(number, "it names another digest than the last record's")
        if self.sequence < self.header["tail"]["sequence"]:
            found = f"the header promises {self.header['tail']['sequence']} records or more"
            self._wrong(number, found)

    def close(self, lines: int) -> None:
        """Hold the submissions against the log, once everything is read."""
        if not self.has_ended:
            # What else would be missing is behind the cut.
            self._wrong(lines, "the bundle ends here without its end: it is not whole")
            return
        for name, row in self.rows.items():
            self._settled(name, row)
        until = self.header["tail"]["sequence"]
        for name, story in self.stories.items():
            if name not in self.rows and story.first <= until:
                self.problems.append(f"record {story.first} is of {name}, which has no line")

    def _settled(self, name: str, row: Row) -> None:
        story = self.stories.get(name)
        found = story.settlements if story is not None else []
        if row.state == "settled":
            if len(found) != 1:
                count = len(found)
                self._wrong(row.number, f"{name} is settled and has {count} settlement records")
            elif not found[0].is_purged and found[0].outcome != row.outcome:
                said = found[0].outcome
                self._wrong(
                    row.number, f"{name} is {row.outcome}, its settlement record says {said}"
                )
        # It was open when its line was written; it may have been settled by what came later.
        elif found and found[0].sequence <= self.header["tail"]["sequence"]:
            self._wrong(row.number, f"{name} is {row.state}, and line {found[0].number} settles it")


def _is_tail(value: Line) -> bool:
    return type(value.get("sequence")) is int and type(value.get("digest")) is str


def _payload_of(line: Line) -> Line:
    """The payload of a record; what is no JSON object says nothing."""
    try:
        payload = json.loads(line["payload"])
    except (ValueError, RecursionError):
        return {}
    return payload if isinstance(payload, dict) else {}


def _without_doubles(pairs: list[tuple[str, Any]]) -> Line:
    names = dict(pairs)
    if len(names) != len(pairs):
        raise ValueError("a name stands twice in it")
    return names


def _sha256(text: str) -> str:
    # What is no text at all, such as half of a surrogate pair, has no digest.
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def verify(stream: Iterable[bytes]) -> Bundle:
    """Read a bundle of bytes to its end; raises NoBundle."""
    bundle = Bundle()
    number = 0
    for number, raw in enumerate(stream, start=1):
        bundle.read(number, raw)
    if number == 0:
        raise NoBundle("it is empty")
    bundle.close(number)
    return bundle


def main(arguments: list[str]) -> int:
    """Be the command, and return its exit code."""
    if len(arguments) != 1 or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return OK if arguments and arguments[0] in ("-h", "--help") else NO_BUNDLE
    try:
        if arguments[0] == "-":
            bundle = verify(sys.stdin.buffer)
        else:
            with Path(arguments[0]).open("rb") as file:
                bundle = verify(file)
    except (NoBundle, OSError) as error:
        print(f"no bundle: {error}", file=sys.stderr)
        return NO_BUNDLE
    return _told(bundle)


def _told(bundle: Bundle) -> int:
    for problem in bundle.problems[:SHOWN_MAX]:
        print(problem)
    if len(bundle.problems) > SHOWN_MAX:
        print(f"and {len(bundle.problems) - SHOWN_MAX} more")
    conversation = bundle.header["conversation"]
    counted = f"{bundle.records} records, {len(bundle.rows)} submissions"
    print(f"conversation {conversation}: {counted}, tail {bundle.sequence} {bundle.chain}")
    if bundle.purged:
        print(f"{bundle.purged} payloads were purged, and their digests could not be recomputed")
    print("it is whole and sound" if not bundle.problems else "it is NOT sound")
    return WRONG if bundle.problems else OK


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read what this says has heard enough; Python would say so once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = WRONG
    sys.exit(code)
