"""Event streams through both clients: nothing is missed or doubled, whatever breaks, and patience has its bounds.

Against the Worker itself: the end of this module.
"""

import random
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from client.helpers.deployment import (
    Told,
    call_awaiting,
    call_blocking,
    happened,
    problem,
    record,
    settlement,
    stream,
)
from quiesce.client import Client, Progress, Record, Refused, Settlement, Unreachable, Unreadable
from quiesce.client.streams import Course
from workshop.serving import Server

type Make = Callable[..., Any]

both = pytest.mark.parametrize("make", [call_blocking, call_awaiting], ids=["blocking", "asyncio"])
END = happened("end", {"reason": "lifetime"})
LAST = happened("settlement", settlement())
BROKEN = httpx.RemoteProtocolError("the connection broke")


def records(*sequences: int) -> list[str]:
    return [happened("record", record(each), each) for each in sequences]


def places(told: Told) -> list[str]:
    return [sent.headers["last-event-id"] for sent in told.requests]


def sequences(found: list[Any]) -> list[int]:
    return [each.sequence for each in found if isinstance(each, Record)]


@both
def test_a_stream_is_taken_up_behind_the_last_id_until_its_settlement(make: Make) -> None:
    told = Told(stream(*records(4, 5), END), stream(*records(6)), BROKEN, stream(*records(9), LAST))
    found = make(told, "stream", "c", submission="sub_1", after=3)
    assert sequences(found) == [4, 5, 6, 9]
    assert isinstance(found[-1], Settlement)
    assert places(told) == ["3", "5", "6", "6"]
    assert {str(sent.url) for sent in told.requests} == {
        "http://127.0.0.1:9/v1/conversations/c/events?submission=sub_1"
    }
    # The end of its time is no failure; a connection that breaks is one.
    assert len(told.pauses) == 2


@both
def test_progress_comes_as_it_is_and_moves_no_place(make: Make) -> None:
    shown = happened("progress", {"submission": "sub_1", "value": {"done": 1}})
    told = Told(stream(*records(1), shown), stream(LAST))
    found = make(told, "stream", "c", submission="sub_1")
    assert isinstance(found[1], Progress)
    assert found[1].value == {"done": 1}
    assert places(told) == ["0", "1"]


@both
def test_what_may_be_tried_again_is_and_what_is_read_forgives_it(make: Make) -> None:
    busy = problem(429, "rate-limited", retry_after="5")
    told = Told(*[busy] * 4, stream(*records(1)), *[busy] * 3, stream(LAST))
    found = make(told, "stream", "c", submission="sub_1")
    assert sequences(found) == [1]
    assert told.pauses.count(5.0) == 7


@both
def test_what_has_no_hope_is_raised(make: Make) -> None:
    with pytest.raises(Refused) as refused:
        make(Told(problem(400, "invalid-request")), "stream", "c", after=99)
    assert refused.value.code == "invalid-request"
    told = Told(BROKEN)
    with pytest.raises(Unreachable):
        make(told, "stream", "c")
    assert len(told.requests) == 5
    with pytest.raises(Unreachable):
        make(Told(stream()), "stream", "c")
    with pytest.raises(Unreadable):
        make(Told(stream("event: record\ndata: {}\n\n")), "stream", "c")


@both
def test_the_time_of_a_stream_is_bounded(make: Make) -> None:
    told = Told(stream(END))
    told.answering_takes_s = 2.0
    assert make(told, "stream", "c", timeout_s=5) == []
    assert len(told.requests) == 3
    waits = [sent.extensions["timeout"]["read"] for sent in told.requests]
    assert waits == [6.0, 4.0, 2.0]
    assert make(told, "stream", "c", timeout_s=0) == []


def test_events_are_read_whole_wherever_the_bytes_are_cut() -> None:
    text = {"value": "two lines\u2028or one\u0085, \U0001f600"}
    whole = (
        ": a comment\n\n"
        + happened("record", record(1, payload=text), 1)
        + happened("unheard-of", {"a": 1})
        + LAST
    ).encode()
    chance = random.Random(7)
    for _ in range(200):
        course = Course(Told(stream()).terms(), "/", submission=None, after=0, timeout_s=None)
        found: list[Any] = []
        rest = whole
        while rest:
            size = chance.randint(1, 90)
            found += course.take(rest[:size])
            rest = rest[size:]
        assert [type(each) for each in found] == [Record, Settlement]
        assert found[0].payload == text
        assert course.is_over()


def test_half_an_event_is_forgotten_with_its_connection() -> None:
    course = Course(Told(stream()).terms(), "/", submission=None, after=0, timeout_s=None)
    (event,) = records(7)
    assert course.take(event.encode()[:-20]) == []
    assert course.request().headers["last-event-id"] == "0"
    assert sequences(course.take(event.encode())) == [7]
    assert course.request().headers["last-event-id"] == "7"


@pytest.mark.worker
def test_a_stream_of_the_worker_ends_with_the_settlement(server: Server, conversation: str) -> None:
    with Client(server.url, "dev") as quiesce:
        receipt = quiesce.submit(conversation, "steps", {"count": 30})
        found = list(quiesce.stream(conversation, submission=receipt.submission))
        assert found[-1] == quiesce.wait(conversation, receipt.submission)
        own = [
            each.sequence
            for each in quiesce.records(conversation)
            if each.submission == receipt.submission
        ]
        assert sequences(found) == own
        assert len(own) == 32
        rest = quiesce.stream(conversation, after=own[-3], timeout_s=2)
        assert sequences(list(rest)) == own[-2:]
