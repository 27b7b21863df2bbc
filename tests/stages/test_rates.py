"""The rate of each principal: a burst, then so many a second; who is refused is told when to come back."""

import pytest

from quiesce.errors import Refusal, RefusalCode
from quiesce.rates import BUCKETS_MAX, Rates
from quiesce.settings import Settings

SETTINGS = Settings(rate_per_second=10, rate_burst=5)
NOW_MS = 1_767_225_600_000


def take(rates: Rates, times: int, now_ms: int = NOW_MS, principal: str = "ann") -> int:
    """Take tokens until one is refused; returns how many were had."""
    for taken in range(times):
        try:
            rates.take(principal, SETTINGS, now_ms)
        except Refusal:
            return taken
    return times


def test_a_burst_is_let_through_and_no_more() -> None:
    assert take(Rates(), 100) == SETTINGS.rate_burst


def test_a_bucket_fills_again_with_time_up_to_its_burst() -> None:
    rates = Rates()
    take(rates, 100)
    assert take(rates, 100, NOW_MS + 100) == 1
    assert take(rates, 100, NOW_MS + 400) == 3
    assert take(rates, 100, NOW_MS + 3_600_000) == SETTINGS.rate_burst


def test_what_is_refused_takes_nothing() -> None:
    rates = Rates()
    take(rates, 100)
    for _ in range(50):
        assert take(rates, 1) == 0
    assert take(rates, 100, NOW_MS + 100) == 1


def test_one_principal_takes_nothing_from_another() -> None:
    rates = Rates()
    take(rates, 100)
    assert take(rates, 100, principal="bob") == SETTINGS.rate_burst


def test_a_clock_that_steps_back_gives_nothing_and_takes_nothing() -> None:
    rates = Rates()
    assert take(rates, 3) == 3
    assert take(rates, 100, NOW_MS - 3_600_000) == 2
    assert take(rates, 100, NOW_MS - 3_600_000 + 100) == 1


def test_the_refusal_says_when_there_will_be_a_token() -> None:
    slow = Settings(rate_per_second=1, rate_burst=1)
    rates = Rates()
    rates.take("ann", slow, NOW_MS)
    with pytest.raises(Refusal) as refused:
        rates.take("ann", slow, NOW_MS)
    assert refused.value.code is RefusalCode.RATE_LIMITED
    facts = refused.value.facts
    assert (facts["limit"], facts["actual"], facts["maximum"]) == ("RATE_BURST", 2, 1)
    assert refused.value.facts["retry_after_s"] == 1
    rates.take("ann", slow, NOW_MS + 1_000)


def test_so_many_buckets_are_kept_and_the_emptiest_are_not_forgotten() -> None:
    """Inventing principals is no way around a rate."""
    rates = Rates()
    take(rates, 100)
    for place in range(2 * BUCKETS_MAX):
        take(rates, 1, principal=f"other-{place}")
    assert len(rates.buckets) <= BUCKETS_MAX
    assert take(rates, 1) == 0
