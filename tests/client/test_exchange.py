"""One request with its retries, as a flow that nobody carries out: what is asked again, when, and when no more.

Not tested here: sending.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from quiesce.client.errors import QuiesceError, Refused, Unreachable, Unreadable
from quiesce.client.exchange import (
    Heard,
    Lost,
    Pause,
    Reply,
    Request,
    Terms,
    ask,
    pause_before_next,
)

SAFE = Request("GET", "/x")
UNSAFE = Request("POST", "/x", is_repeatable=False)
TERMS = Terms(clock=lambda: 0.0, jitter=lambda: 0.0)
GOOD = Reply(200, {}, b"{}")


def answer(status: int, retry_after: str | None = None) -> Reply:
    headers = {} if retry_after is None else {"retry-after": retry_after}
    return Reply(status, headers, b'{"code":"it","detail":"why"}')


def play(heard: Sequence[Heard], request: Request = SAFE, **more: Any) -> tuple[list[Any], Any]:
    """Carry out `ask` with what is heard, and return every step that it wanted and how it ended."""
    flow = ask(request, more.pop("terms", TERMS), **more)
    steps: list[Any] = [next(flow)]
    answers = list(heard)
    try:
        while True:
            is_pause = isinstance(steps[-1], Pause)
            steps.append(flow.send(None if is_pause else answers.pop(0)))
    except StopIteration as ended:
        return steps, ended.value
    except QuiesceError as error:
        return steps, error


RETRIES = {
    "a-busy-deployment-says-when": (SAFE, answer(429, "3"), 3.0),
    "an-unavailable-one-says-when": (SAFE, answer(503, "1"), 1.0),
    "it-does-not-say-when": (SAFE, answer(503), 0.1),
    "it-says-when-by-a-date": (SAFE, answer(503, "Wed, 02 Jan 2030 03:04:05 GMT"), 0.1),
    "it-asks-for-no-pause": (SAFE, answer(429, "0"), 0.0),
    "it-asks-for-more-than-is-waited-for": (SAFE, answer(429, "61"), None),
    "there-was-no-answer": (SAFE, Lost("gone", was_sent=True), 0.1),
    "a-limit-wrote-nothing": (UNSAFE, answer(429, "2"), 2.0),
    "an-unavailable-one-may-have-done-it": (UNSAFE, answer(503, "2"), None),
    "what-was-lost-may-have-been-done": (UNSAFE, Lost("gone", was_sent=True), None),
    "what-never-left-was-not-done": (UNSAFE, Lost("refused", was_sent=False), 0.1),
    "a-refusal-stays-one": (SAFE, answer(409), None),
    "a-fault-stays-one": (SAFE, answer(500), None),
    "full-stays-full": (SAFE, answer(507), None),
    "a-redirect-is-not-followed": (SAFE, answer(307), None),
}


@pytest.mark.parametrize(("request_", "heard", "pause_s"), RETRIES.values(), ids=RETRIES)
def test_a_pause_before_the_next_try(
    request_: Request, heard: Reply | Lost, pause_s: float | None
) -> None:
    assert pause_before_next(request_, heard, 1, TERMS) == pause_s


def test_pauses_grow_to_their_cap_and_jitter_only_lengthens_what_was_asked_for() -> None:
    lost = Lost("gone", was_sent=True)
    terms = replace(TERMS, tries_max=99)
    grown = [pause_before_next(SAFE, lost, tries, terms) for tries in (1, 2, 3, 50)]
    assert grown == [0.1, 0.2, 0.4, 5.0]
    jittered = replace(terms, jitter=lambda: 1.0)
    assert pause_before_next(SAFE, lost, 1, jittered) == 0.2
    assert pause_before_next(SAFE, answer(429, "3"), 1, jittered) == 3.2


def test_the_first_good_answer_is_the_result() -> None:
    assert play([GOOD]) == ([SAFE], GOOD)


def test_the_same_request_goes_again_after_each_pause() -> None:
    steps, result = play([answer(503, "1"), Lost("gone", was_sent=True), GOOD])
    assert steps == [SAFE, Pause(1.0), SAFE, Pause(0.2), SAFE]
    assert result == GOOD


def test_tries_are_bounded_and_the_last_refusal_is_what_is_raised() -> None:
    steps, error = play([answer(503, "1")] * 9)
    assert steps.count(SAFE) == TERMS.tries_max
    assert isinstance(error, Refused)
    assert (error.code, error.status, error.retry_after_s) == ("it", 503, 1.0)


def test_no_pause_reaches_the_deadline() -> None:
    steps, error = play([answer(429, "5"), GOOD], deadline_s=5.0)
    assert steps == [SAFE]
    assert isinstance(error, Refused)
    assert play([answer(429, "5"), GOOD], deadline_s=5.1)[1] == GOOD


def test_no_answer_at_all_says_whether_it_may_have_arrived() -> None:
    for was_sent in (True, False):
        _, error = play([Lost("gone", was_sent=was_sent)] * 9)
        assert isinstance(error, Unreachable)
        assert error.may_have_arrived is was_sent


@pytest.mark.parametrize(
    "content", [b"", b"<html>bad gateway</html>", b"[]", b'{"error":"x"}', b"[" * 5_000, b"\xff"]
)
def test_an_answer_that_is_no_problem_document_is_unreadable(content: bytes) -> None:
    _, error = play([Reply(502, {}, content)])
    assert isinstance(error, Unreadable)
    assert error.status == 502


def test_a_refusal_keeps_its_facts_apart_from_its_sentence() -> None:
    content = b'{"code":"queue-full","detail":"full","limit":"Q","actual":257,"maximum":256}'
    _, error = play([Reply(400, {}, content)])
    assert isinstance(error, Refused)
    assert error.facts == {"limit": "Q", "actual": 257, "maximum": 256}
    assert str(error) == "queue-full (400): full"


def test_terms_that_allow_no_try_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Terms(tries_max=0)
