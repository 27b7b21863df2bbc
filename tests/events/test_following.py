"""How events are written, how a stream asks on, and who has a place: without a runtime.

What comes over HTTP is tested in test_streams.py.

Parity: PW-1, PW-7.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from quiesce import Agent, Run, asks, events, following, verbs, watching, wire
from quiesce.agent import Registry
from quiesce.audience import PROGRESS_BYTES_MAX, SILENCE_MS_MAX, Audience
from quiesce.errors import Refusal, RefusalCode
from quiesce.events import Answered
from quiesce.ids import SubmissionId
from quiesce.settings import Settings
from quiesce.testing import Conversation, Deployment

WATCH = verbs.Watch(conversation="c", stream="s")
ONE, OTHER = SubmissionId("sub_" + "1" * 32), SubmissionId("sub_" + "2" * 32)


def test_an_event_is_written_as_browsers_read_it() -> None:
    assert (
        events.event("record", '{"a":"b"}', place=7) == 'id: 7\nevent: record\ndata: {"a":"b"}\n\n'
    )
    assert events.end("lifetime") == 'event: end\ndata: {"reason":"lifetime"}\nretry: 1000\n\n'


@pytest.mark.parametrize("text", ["a\nb", "a\r\nb", "\u2028", "data: x\n\nevent: end"])
def test_no_value_can_break_out_of_its_event(text: str) -> None:
    written = events.event("record", wire.dump({"value": text}))
    assert written.count("\n") == 3
    assert "\r" not in written


def answered(text: str, place: int, state: str = "whole") -> Answered:
    return 200, {"place": str(place), "state": state}, wire.dump(text)


class Questioned:
    """Answers a stream's questions from a list, and moves the clock by what each waited for."""

    def __init__(self, answers: Iterable[Answered | Refusal]) -> None:
        self.answers = iter(answers)
        self.asked: list[verbs.Watch] = []
        self.now_ms = 0

    async def ask(self, question: verbs.Watch) -> Answered:
        self.asked.append(question)
        found = next(self.answers, None)
        if found is None:
            self.now_ms += question.wait_ms
            return answered("", question.place)
        if isinstance(found, Refusal):
            raise found
        return found

    def read(self, first: Answered, seconds_max: int = 55) -> list[str]:
        async def whole() -> list[str]:
            stream = events.follow(WATCH, first, self.ask, lambda: self.now_ms, seconds_max)
            return [each async for each in stream]

        return asyncio.run(whole())


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PAUSE_S", 0)
    monkeypatch.setattr(events, "UNREACHED_S", 0)


def test_each_question_begins_where_the_answer_before_it_ended() -> None:
    asked = Questioned([answered("b", 5), answered("c", 9, "settled")])
    assert asked.read(answered("a", 3)) == ["retry: 1000\n\na", "b", "c"]
    assert [each.place for each in asked.asked] == [3, 5]
    assert not any(each.is_first for each in asked.asked)


def test_what_was_settled_before_is_said_and_asked_no_more() -> None:
    asked = Questioned([])
    assert len(asked.read(answered("a", 3, "settled"))) == 1
    assert asked.asked == []


def test_nothing_new_is_a_heartbeat_and_the_end_of_the_time_an_event() -> None:
    asked = Questioned([])
    texts = asked.read(answered("", 3), seconds_max=12)
    assert texts[1:] == [events.HEARTBEAT] * 3 + [events.end("lifetime")]
    assert [each.wait_ms for each in asked.asked] == [5_000, 5_000, 2_000]


def test_a_question_whose_answer_was_lost_is_asked_again_from_the_same_place() -> None:
    lost = Refusal(RefusalCode.UNAVAILABLE, "lost")
    problem: Answered = (503, {}, "{}")
    asked = Questioned([lost, problem, answered("b", 4, "settled")])
    texts = asked.read(answered("a", 3))
    assert texts[1:] == [events.UNREACHED, events.UNREACHED, "b"]
    assert [each.place for each in asked.asked] == [3, 3, 3]


def test_a_refusal_in_mid_stream_ends_it_with_the_problem() -> None:
    asked = Questioned([(429, {}, '{"code":"rate-limited"}')])
    *_, last = asked.read(answered("a", 3))
    assert last == events.end("refused", problem={"code": "rate-limited"})


def test_a_stream_never_asks_more_often_than_the_platform_lets_it() -> None:
    asked = Questioned([answered("x", 4)] * 2_000)
    *_, last = asked.read(answered("a", 3))
    assert len(asked.asked) == events.QUESTIONS_MAX
    assert last == events.end("lifetime")


def test_there_are_so_many_places_and_one_is_free_when_its_listener_leaves() -> None:
    audience = Audience()
    assert audience.join("a", 0, 0, 2)
    assert audience.join("b", 0, 0, 2)
    assert audience.join("c", 0, 0, 2) is None
    assert audience.join("a", 0, 0, 2), "who has a place keeps it"
    audience.leave("b")
    assert audience.join("c", 0, 0, 2)


def test_a_listener_that_is_silent_loses_its_place_after_a_while() -> None:
    audience = Audience()
    assert audience.join("a", 0, 1_000, 1)
    assert audience.join("b", 999 + SILENCE_MS_MAX, 0, 1) is None
    assert audience.join("b", 1_000 + SILENCE_MS_MAX, 0, 1)


def test_progress_is_heard_once_by_those_who_listen_and_kept_in_bounds() -> None:
    audience = Audience()
    audience.show(ONE, "before anybody listened")
    first = audience.join("a", 0, 0, 2)
    assert first
    audience.show(ONE, 1)
    audience.show(OTHER, {"b": 2})
    assert first.news.is_set()
    assert [each.value for each in audience.unheard(first, None)] == ["1", '{"b":2}']
    assert audience.unheard(first, None) == []
    late = audience.join("b", 0, 0, 2)
    assert late
    audience.show(OTHER, 3)
    assert audience.unheard(late, ONE) == []
    for _ in range(40):
        audience.show(ONE, "x" * 10_000)
    kept = audience.unheard(first, None)
    assert 0 < len(kept) < 40
    assert sum(len(each.value) for each in audience.progress) <= PROGRESS_BYTES_MAX
    audience.leave("a")
    audience.leave("b")
    assert not audience.progress


def call(query: dict[str, str], headers: dict[str, str]) -> asks.Call:
    route = asks.Route("GET", "/v1/conversations/{conversation}/events", None, asks.watch)
    request = asks.Request("GET", "", "", headers.get)
    return asks.Call(route, request, Settings(), Registry([]), None, {"conversation": "c"}, query)


@pytest.mark.parametrize(
    ("query", "headers", "place"),
    [
        ({}, {}, 0),
        ({"after": "3"}, {}, 3),
        ({}, {"last-event-id": "5"}, 5),
        ({"after": "3"}, {"last-event-id": "5"}, 5),
        ({"after": "9"}, {"last-event-id": "0"}, 0),
    ],
)
def test_the_header_outdoes_the_query(
    query: dict[str, str], headers: dict[str, str], place: int
) -> None:
    made: Any = asks.watch(call(query, headers))
    assert made.place == place


@pytest.mark.parametrize("text", ["", " ", "-1", "1.5", "x", "1 ", "9" * 16, "\u0661"])
def test_an_id_that_no_event_has_is_refused(text: str) -> None:
    with pytest.raises(Refusal) as raised:
        asks.watch(call({}, {"last-event-id": text}))
    assert raised.value.code is RefusalCode.INVALID_REQUEST


def echo() -> Agent:
    made = Agent("echo", input=Any)

    @made.handler
    async def handle(_run: Run, value: Any) -> Any:
        return value

    return made


def watch(lane: Conversation, **terms: Any) -> wire.Answer:
    question = verbs.Watch(conversation=lane.name, **terms)
    return lane.event(lambda: watching.watch(lane.lane, question))


def test_following_one_submission_begins_at_its_first_record_and_misses_none() -> None:
    with Deployment([echo()]) as deployment:
        lane = deployment.conversation("c")
        made = [lane.submit("echo", number).submission for number in range(5)]
        deployment.run_until_quiet()
        own = [each.sequence for each in lane.records() if each.submission == made[3]]
        storage = lane.lane.storage
        assert following.place_before(storage, made[3], 0) == own[0] - 1
        assert following.place_before(storage, made[3], own[0]) == own[1] - 1
        assert following.place_before(storage, made[3], own[-1]) == lane.records()[-1].sequence
        before = storage.counts()
        glimpse = following.behind(storage, own[0] - 1, made[3])
        assert [each.sequence for each in glimpse.records] == own
        assert glimpse.is_whole
        assert storage.counts().since(before).rows_read < 20


def test_a_question_is_answered_from_rows_and_says_where_to_go_on() -> None:
    with Deployment([echo()]) as deployment:
        lane = deployment.conversation("c")
        first, second = (lane.submit("echo", each).submission for each in "ab")
        deployment.run_until_quiet()
        end = lane.records()[-1].sequence
        found = watch(lane, stream="s")
        assert found.headers["place"] == str(end)
        assert found.headers["state"] == "whole"
        assert found.body.count("event: record\n") == end
        kept = watch(lane, stream="t", submission=first)
        assert kept.headers["state"] == "settled"
        assert kept.body.count("event: record\n") == 2
        assert kept.body.count("event: settlement\n") == 1
        assert second not in kept.body
        assert watch(lane, stream="s", place=end).body == ""
        with pytest.raises(Refusal) as raised:
            watch(lane, stream="s", place=end + 1)
        assert raised.value.code is RefusalCode.INVALID_REQUEST
        with pytest.raises(Refusal) as raised:
            watch(lane, stream="u", submission=OTHER)
        assert raised.value.code is RefusalCode.NOT_FOUND


def test_every_place_taken_is_refused_with_its_numbers_and_a_head_takes_none() -> None:
    with Deployment([echo()], settings=Settings(streams_max=1)) as deployment:
        lane = deployment.conversation("c")
        lane.submit("echo", 1)
        watch(lane, stream="s")
        watch(lane, stream=watching.HEAD)
        with pytest.raises(Refusal) as raised:
            watch(lane, stream="t")
        assert raised.value.code is RefusalCode.RATE_LIMITED
        assert raised.value.facts["maximum"] == 1
        leave = verbs.StopWatching(conversation="c", stream="s")
        lane.event(lambda: watching.watch(lane.lane, leave))
        watch(lane, stream="t")


def test_a_virgin_object_has_no_events_and_stays_virgin() -> None:
    with Deployment([echo()]) as deployment:
        lane = deployment.conversation("c")
        with pytest.raises(Refusal) as raised:
            watch(lane, stream="s")
        assert raised.value.code is RefusalCode.NOT_FOUND
        assert lane.is_virgin


def test_a_question_ends_with_its_timer_when_the_clock_has_not_moved() -> None:
    """The platform's clock stands still between two inputs, and a timer may come a millisecond early."""
    with Deployment([echo()]) as deployment:
        lane = deployment.conversation("c")
        lane.submit("echo", 1)
        deployment.run_until_quiet()
        asked: list[int] = []

        def clock() -> int:
            asked.append(1)
            assert len(asked) < 50, "it asks the clock again and again"
            return 7

        lane.lane.clock = clock
        end = lane.records()[-1].sequence
        found = watch(lane, stream="s", place=end, wait_ms=5_000, is_first=False)
        assert (found.status, found.headers["state"]) == (200, "whole")
