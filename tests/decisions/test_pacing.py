"""Backoff, interruption delays, and the one function that may compute an alarm time.

Not tested: that the jitter is drawn evenly; it comes in as an argument.
"""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiesce.pacing import alarm_time_ms, backoff_ms, interruption_delay_ms

BASE_MS = 100
CAP_MS = 60_000
HALVES_AND_WHOLES = [
    # exponent: the delay at jitter 0, and at jitter 0.999
    (50, 100),
    (100, 200),
    (200, 400),
    (400, 800),
    (800, 1_600),
    (1_600, 3_199),
    (3_200, 6_397),
    (6_400, 12_794),
    (12_800, 25_588),
    (25_600, 51_175),
    *[(30_000, 59_970)] * 22,  # The cap decides, from 100 << 10 on.
]
MINUTE_MS = 60_000


@pytest.mark.parametrize(("exponent", "delays"), list(enumerate(HALVES_AND_WHOLES)))
def test_the_paced_delay_doubles_with_the_exponent_up_to_the_cap(
    exponent: int, delays: tuple[int, int]
) -> None:
    least, most = delays
    assert backoff_ms(BASE_MS, CAP_MS, exponent, 0.0) == least
    assert backoff_ms(BASE_MS, CAP_MS, exponent, 0.999) == most


@pytest.mark.parametrize("exponent", [30, 31, 64, 10**9])
def test_the_exponent_counts_up_to_thirty(exponent: int) -> None:
    """Beyond it the number would only grow; a lane may have woken any number of times."""
    assert backoff_ms(1, 2**40, exponent, 0.0) == 2**29


def test_an_odd_delay_is_rounded_up() -> None:
    assert backoff_ms(1, 1, 0, 0.0) == 1
    assert backoff_ms(3, 3, 0, 0.0) == 2
    assert backoff_ms(3, 3, 0, 0.5) == 3


@pytest.mark.parametrize("jitter", [1.0, -0.001, 1.5])
def test_jitter_lies_from_nought_up_to_one(jitter: float) -> None:
    with pytest.raises(AssertionError):
        backoff_ms(BASE_MS, CAP_MS, 0, jitter)


@settings(deadline=None)
@given(
    st.integers(1, 3_600_000),
    st.integers(1, 3_600_000),
    st.integers(0, 100),
    st.floats(0, 1, exclude_max=True),
)
def test_the_paced_delay_lies_between_half_and_the_whole(
    base_ms: int, cap_ms: int, exponent: int, jitter: float
) -> None:
    whole = min(cap_ms, base_ms * 2 ** min(exponent, 30))
    assert math.ceil(whole / 2) <= backoff_ms(base_ms, cap_ms, exponent, jitter) <= whole


@pytest.mark.parametrize(
    ("interruptions", "delay_ms"),
    [
        (0, 0),
        (1, 0),  # The first costs nothing: an innocent dies with its neighbour's crash.
        (2, 2_000),
        (3, 4_000),
        (4, 8_000),
        (5, 16_000),
        (6, 32_000),
        (7, 64_000),
        (8, 128_000),
        (9, 256_000),
        (10, 512_000),
        (11, 15 * MINUTE_MS),
        (12, 15 * MINUTE_MS),
        (100, 15 * MINUTE_MS),
        (10**9, 15 * MINUTE_MS),
    ],
)
def test_the_next_claim_waits_longer_after_each_interruption_in_a_row(
    interruptions: int, delay_ms: int
) -> None:
    assert interruption_delay_ms(interruptions) == delay_ms


@pytest.mark.parametrize(
    ("wanted_ms", "now_ms", "armed_at_ms", "expected_ms"),
    [
        pytest.param(1_500, 1_000, None, 1_500, id="M8-what-is-wanted"),
        pytest.param(1_001, 1_000, None, 1_001, id="M8-one-ahead-is-enough"),
        pytest.param(1_000, 1_000, None, 1_001, id="M8-now-is-too-early"),
        pytest.param(0, 1_000, None, 1_001, id="M8-the-past-is-too-early"),
        pytest.param(1_500, 1_000, 1_200, 1_500, id="M8-later-than-the-armed-slot"),
        pytest.param(1_200, 1_000, 1_200, 1_200, id="M8-the-armed-slot-itself"),
        pytest.param(1_199, 1_000, 1_200, 1_200, id="M8-not-before-the-armed-slot"),
        pytest.param(1_000, 1_000, 1_001, 1_001, id="M8-an-armed-slot-just-ahead"),
        pytest.param(1_100, 1_000, 1_000, 1_100, id="M8-an-armed-slot-that-is-due"),
        pytest.param(1_000, 1_000, 1_000, 1_001, id="M8-due-and-wanted-now"),
        pytest.param(900, 1_000, 400, 1_001, id="M8-an-armed-slot-past-due"),
    ],
)
def test_an_alarm_is_ahead_of_now_and_of_the_slot_that_begin_armed(
    wanted_ms: int, now_ms: int, armed_at_ms: int | None, expected_ms: int
) -> None:
    assert alarm_time_ms(wanted_ms, now_ms, armed_at_ms) == expected_ms
