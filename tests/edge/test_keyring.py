"""Which keys are held, and when they are asked for: one test for each rule of `keyring.py`, at its edges.

How they are fetched is tested in tests/worker/test_access.py.
"""

import json
from typing import Any

import pytest

from quiesce import keyring
from quiesce.keyring import Ring, Step, next_step, parse_keys

HELD = frozenset({"first"})
GIVEN_MS = 10_000_000
FRESH = Ring().asking(GIVEN_MS).given(HELD, GIVEN_MS)
DAY_MS, HOUR_MS, MINUTE_MS = 86_400_000, 3_600_000, 60_000
KEY = {"kid": "first", "kty": "RSA", "n": "A" * 342, "e": "AQAB", "alg": "RS256", "use": "sig"}


def step(ring: Ring, after_ms: int, key_id: str = "first") -> Step:
    return next_step(ring, key_id, GIVEN_MS + after_ms)


def test_1_a_key_that_is_held_and_fresh_is_used() -> None:
    assert step(FRESH, 0) is Step.USE
    assert step(FRESH, HOUR_MS - 1) is Step.USE
    assert step(FRESH, -5_000) is Step.USE


def test_1_it_is_used_while_somebody_asks_for_another() -> None:
    assert step(FRESH.asking(GIVEN_MS + MINUTE_MS), MINUTE_MS) is Step.USE


def test_2_while_somebody_asks_a_stale_key_is_used_and_others_wait() -> None:
    asking = FRESH.asking(GIVEN_MS + HOUR_MS)
    for after_ms in (HOUR_MS, HOUR_MS + keyring.ASKED_MS_MAX - 1):
        assert step(asking, after_ms) is Step.USE
        assert step(asking, after_ms, "new") is Step.WAIT
    assert step(Ring().asking(GIVEN_MS), 0) is Step.WAIT


def test_2_one_who_asked_and_is_gone_is_waited_for_no_longer() -> None:
    gone = keyring.ASKED_MS_MAX
    assert step(Ring().asking(GIVEN_MS), gone - 1) is Step.WAIT
    assert step(Ring().asking(GIVEN_MS), gone) is Step.ASK
    asking = FRESH.asking(GIVEN_MS + HOUR_MS)
    assert step(asking, HOUR_MS + gone) is Step.USE
    assert step(asking, HOUR_MS + gone, "new") is Step.FAIL
    assert step(asking, HOUR_MS + MINUTE_MS, "new") is Step.ASK


def test_3_stale_keys_are_asked_for_anew() -> None:
    assert step(FRESH, HOUR_MS) is Step.ASK


def test_3_a_key_that_is_not_held_is_asked_for_once_a_minute() -> None:
    assert step(FRESH, MINUTE_MS - 1, "new") is Step.REFUSE
    assert step(FRESH, MINUTE_MS, "new") is Step.ASK
    again = FRESH.asking(GIVEN_MS + MINUTE_MS).given(HELD, GIVEN_MS + MINUTE_MS)
    assert step(again, 2 * MINUTE_MS - 1, "invented") is Step.REFUSE
    assert step(again, 2 * MINUTE_MS, "invented") is Step.ASK


def test_3_without_keys_they_are_asked_for_at_once_and_then_every_five_seconds() -> None:
    assert step(Ring(), 0) is Step.ASK
    failed = Ring().asking(GIVEN_MS - 100_000).failed(GIVEN_MS)
    assert step(failed, 0) is Step.FAIL
    assert step(failed, 4_999) is Step.FAIL
    assert step(failed, 5_000) is Step.ASK


def test_3_a_clock_that_was_set_back_keeps_nobody_waiting() -> None:
    left_behind = FRESH.asking(GIVEN_MS)
    assert step(left_behind, -HOUR_MS, "new") is Step.ASK
    assert step(FRESH, -HOUR_MS) is Step.ASK
    assert step(FRESH, -DAY_MS, "new") is Step.ASK


def test_4_a_stale_key_is_used_between_two_askings_for_a_day() -> None:
    failed = FRESH.asking(GIVEN_MS + HOUR_MS - 5_000).failed(GIVEN_MS + HOUR_MS)
    assert step(failed, HOUR_MS + MINUTE_MS - 1) is Step.USE
    assert step(failed, HOUR_MS + MINUTE_MS) is Step.ASK
    late = FRESH.asking(GIVEN_MS + DAY_MS - 9_000).failed(GIVEN_MS + DAY_MS - 5_000)
    assert step(late, DAY_MS - 1) is Step.USE
    assert step(late, DAY_MS) is Step.ASK
    latest = FRESH.asking(GIVEN_MS + DAY_MS - 2_000).failed(GIVEN_MS + DAY_MS - 1_000)
    assert step(latest, DAY_MS) is Step.FAIL


def test_5_a_key_that_was_taken_back_refuses() -> None:
    rotated = FRESH.asking(GIVEN_MS + HOUR_MS).given(frozenset({"second"}), GIVEN_MS + HOUR_MS)
    assert step(rotated, HOUR_MS) is Step.REFUSE
    assert step(rotated, HOUR_MS, "second") is Step.USE


def test_6_after_an_asking_that_brought_nothing_a_key_that_is_not_held_says_nothing() -> None:
    failed = FRESH.asking(GIVEN_MS + MINUTE_MS - 5_000).failed(GIVEN_MS + MINUTE_MS)
    assert step(failed, MINUTE_MS, "new") is Step.FAIL
    assert step(failed, MINUTE_MS) is Step.USE


def published(*keys: Any) -> bytes:
    return json.dumps({"keys": keys, "public_certs": []}).encode()


def test_keys_are_found_by_their_ids() -> None:
    found = parse_keys(published(KEY, {**KEY, "kid": "second", "e": "Aw"}))
    assert list(found) == ["first", "second"]
    assert (found["second"].n, found["second"].e) == ("A" * 342, "Aw")


def test_a_key_need_not_say_what_it_is_for() -> None:
    bare = {name: text for name, text in KEY.items() if name not in {"alg", "use"}}
    assert "first" in parse_keys(published(bare))


@pytest.mark.parametrize(
    "changed",
    [
        {"kty": "oct"},
        {"kty": "EC"},
        {"alg": "HS256"},
        {"alg": "RS512"},
        {"use": "enc"},
        {"kid": None},
        {"kid": ""},
        {"n": "A" * 341},
        {"n": "A" * 1_367},
        {"n": "+" * 342},
        {"e": ""},
        {"e": "A" * 9},
    ],
    ids=str,
)
def test_what_is_no_key_for_our_algorithm_is_left_aside(changed: dict[str, Any]) -> None:
    other = {**KEY, "kid": "other", **changed}
    assert list(parse_keys(published(other, KEY))) == ["first"]
    with pytest.raises(ValueError, match="none of the keys"):
        parse_keys(published(other))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"keys":{}}',
        b'{"keys":[1]}',
        b'{"keys":[]}',
        b"[" * 100_000,
        published(*[KEY] * (keyring.KEYS_MAX + 1)),
    ],
    ids=lambda raw: raw[:20],
)
def test_what_is_no_set_of_keys_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each has the words of the parser that met it
        parse_keys(raw)


def test_a_set_has_a_greatest_number_of_keys() -> None:
    assert parse_keys(published(*[KEY] * keyring.KEYS_MAX))
