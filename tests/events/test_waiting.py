"""Waiting for news of a conversation: what is told at once, to whom, and what is left behind when a waiter goes.

PW-1 to PW-6. Two kinds of waiter are tried: a question of an event stream, and a read of a settlement with a wait.
Not tested here: that the host tells of every write (test_streams.py), and who is refused (test_following.py).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from operations.ground import agent
from quiesce import Run, inspection, verbs, watching
from quiesce.ids import SubmissionId
from quiesce.settings import Settings
from quiesce.testing import Conversation, Deployment

WAIT_MS = 5_000

type Wait = Callable[[Conversation, SubmissionId, str], "asyncio.Task[Any]"]


async def ask(run: Run, _value: Any) -> bool:
    return (await run.approval("ask")).approved


@dataclass
class Two:
    """Two conversations, each with a submission that waits for an approval."""

    deployment: Deployment
    one: Conversation
    other: Conversation
    asked: SubmissionId
    elsewhere: SubmissionId


@pytest.fixture
def two() -> Iterator[Two]:
    settings = Settings(streams_max=3, waiters_max=3)
    with Deployment([agent(ask)], settings) as deployment:
        one, other = deployment.conversation("one"), deployment.conversation("other")
        asked, elsewhere = (each.submit("work").submission for each in (one, other))
        deployment.run_until_quiet()
        yield Two(deployment, one, other, asked, elsewhere)


def question(lane: Conversation, submission: SubmissionId, stream: str) -> "asyncio.Task[Any]":
    """Ask what stands behind the end of the log, as a stream does."""
    return following(lane, submission, stream, lane.records()[-1].sequence)


def following(
    lane: Conversation, submission: SubmissionId, stream: str, place: int
) -> "asyncio.Task[Any]":
    wanted = verbs.Watch(
        conversation=lane.name,
        stream=stream,
        submission=submission,
        place=place,
        wait_ms=WAIT_MS,
        is_first=False,
    )
    return lane.start(lambda: watching.watch(lane.lane, wanted))


def settlement(lane: Conversation, submission: SubmissionId, _stream: str) -> "asyncio.Task[Any]":
    def work() -> Awaitable[Any]:
        return inspection.await_settlement(lane.lane, lane.name, submission, WAIT_MS / 1_000)

    return lane.start(work)


kinds = pytest.mark.parametrize("wait", [question, settlement])


def waiters(lane: Conversation) -> int:
    """Count who is in a conversation's memory."""
    watching_ = sum(map(len, lane.lane.watchers.values()))
    return watching_ + len(lane.lane.audience.listeners)


def decide(two: Two) -> None:
    two.one.approve(two.asked, "ask")
    two.deployment.run_until_quiet()


def end(lane: Conversation, submission: SubmissionId) -> None:
    """Settle a submission in one commit, and say that rows were written, as the host does after each write."""
    lane.abort(submission)
    lane.lane.audience.tell()
    lane.deployment.run_until_idle()


def test_what_stands_in_the_log_already_is_answered_without_waiting(two: Two) -> None:
    """PW-1."""
    began_ms = two.deployment.now_ms
    waiting = following(two.one, two.asked, "s", 0)
    assert waiting.done()
    assert waiting.result().body.count("event: record\n") == 2
    decide(two)
    assert settlement(two.one, two.asked, "s").done()
    assert two.deployment.now_ms - began_ms < 100


@kinds
def test_who_waits_is_told_in_the_turn_of_the_commit(two: Two, wait: Wait) -> None:
    """PW-2: no time passes between what settles it and the answer."""
    waiting = wait(two.one, two.asked, "s")
    assert not waiting.done()
    now_ms = two.deployment.now_ms
    end(two.one, two.asked)
    assert waiting.done()
    assert two.deployment.now_ms == now_ms
    assert waiting.result() is not None


@kinds
def test_everybody_who_waits_for_the_same_is_told(two: Two, wait: Wait) -> None:
    """PW-3."""
    waiting = [wait(two.one, two.asked, stream) for stream in "abc"]
    assert waiters(two.one) == 3
    end(two.one, two.asked)
    assert [each.done() for each in waiting] == [True] * 3
    assert len({repr(each.result()) for each in waiting}) == 1
    assert two.one.lane.watchers == {}


@kinds
def test_what_happens_in_another_conversation_wakes_nobody_here(two: Two, wait: Wait) -> None:
    """PW-4."""
    waiting = wait(two.one, two.asked, "s")
    end(two.other, two.elsewhere)
    assert not waiting.done()
    end(two.one, two.asked)
    assert waiting.done()


@kinds
def test_a_wait_without_news_ends_with_its_time(two: Two, wait: Wait) -> None:
    waiting = wait(two.one, two.asked, "s")
    began_ms = two.deployment.now_ms
    found = two.deployment.run(asyncio.wait_for(waiting, None))
    assert two.deployment.now_ms - began_ms == WAIT_MS
    assert found is None or found.body == ""


@pytest.mark.parametrize("times", [1, 2])
def test_a_waiter_that_goes_away_leaves_nothing_behind(two: Two, times: int) -> None:
    """PW-5, PW-6: its going is told once or twice, and the others who wait are told as ever."""
    stays, goes = (settlement(two.one, two.asked, "s") for _ in range(2))
    assert waiters(two.one) == 2
    for _ in range(times):
        goes.cancel()
        two.deployment.run_until_idle()
    assert goes.cancelled()
    assert waiters(two.one) == 1
    decide(two)
    two.deployment.run_until_idle()
    assert stays.result() is not None
    assert waiters(two.one) == 0
    goes.cancel()
    assert settlement(two.one, two.asked, "s").done()


@pytest.mark.parametrize("times", [1, 2])
def test_a_stream_that_is_stopped_frees_its_place_and_no_other(two: Two, times: int) -> None:
    """PW-5, PW-6: stopped while it waits, stopped again, and stopped when it had ended long ago."""
    stays, goes = (question(two.one, two.asked, stream) for stream in "ab")
    stop = verbs.StopWatching(conversation=two.one.name, stream="b")
    for _ in range(times):
        two.one.event(lambda: watching.watch(two.one.lane, stop))
    two.deployment.run_until_idle()
    assert goes.done()
    assert not stays.done()
    assert set(two.one.lane.audience.listeners) == {"a"}
    end(two.one, two.asked)
    assert stays.done()
    two.one.event(lambda: watching.watch(two.one.lane, stop))
    assert two.one.lane.audience.listeners == {}


@kinds
def test_waiting_writes_nothing_and_wakes_nobody(two: Two, wait: Wait) -> None:
    before = (two.one.records(), two.one.generation(), two.one.alarm_at_ms, two.one.wakes)
    waiting = wait(two.one, two.asked, "s")
    two.deployment.run(asyncio.wait_for(waiting, None))
    assert before == (two.one.records(), two.one.generation(), two.one.alarm_at_ms, two.one.wakes)
