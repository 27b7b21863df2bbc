"""How fast each principal may ask: a bucket of tokens for each, in the memory of one incarnation.

1. A bucket holds RATE_BURST tokens and gains RATE_PER_SECOND of them a second; each counted request takes one.
2. It is memory and nothing else: an Object that was evicted had nothing to do, and begins with full buckets.
3. A full bucket is as good as none, so only so many are kept; the fullest is forgotten first.
"""

import math
from dataclasses import dataclass, field

from quiesce.errors import Refusal, RefusalCode
from quiesce.settings import Settings

BUCKETS_MAX = 256


@dataclass(slots=True)
class Bucket:
    """What one principal has left, and when that was true."""

    tokens: float
    at_ms: int

    def refill(self, settings: Settings, now_ms: int) -> None:
        """Add what the time since the last request is worth; a clock that stepped back is worth nothing."""
        gained = max(0, now_ms - self.at_ms) * settings.rate_per_second / 1_000
        self.tokens = min(settings.rate_burst, self.tokens + gained)
        self.at_ms = now_ms


@dataclass(slots=True)
class Rates:
    """Every principal's bucket in one incarnation."""

    buckets: dict[str, Bucket] = field(default_factory=dict)

    def take(self, principal: str, settings: Settings, now_ms: int) -> None:
        """Take one token of a principal's.

        Raises Refusal: `rate-limited`, with the seconds until there is one.
        """
        bucket = self.buckets.get(principal)
        if bucket is None:
            self._make_room(settings, now_ms)
            bucket = self.buckets[principal] = Bucket(settings.rate_burst, now_ms)
        bucket.refill(settings, now_ms)
        if bucket.tokens < 1:
            raise _too_fast(bucket, settings)
        bucket.tokens -= 1

    def _make_room(self, settings: Settings, now_ms: int) -> None:
        if len(self.buckets) < BUCKETS_MAX:
            return
        for bucket in self.buckets.values():
            bucket.refill(settings, now_ms)
        fullest = max(self.buckets, key=lambda principal: self.buckets[principal].tokens)
        del self.buckets[fullest]


def _too_fast(bucket: Bucket, settings: Settings) -> Refusal:
    rate, burst = settings.rate_per_second, settings.rate_burst
    return Refusal(
        RefusalCode.RATE_LIMITED,
        f"this principal has asked this conversation more than {burst} times at once, which is RATE_BURST, and may"
        f" go on with {rate} a second, which is RATE_PER_SECOND; try again later",
        {
            "limit": "RATE_BURST",
            "actual": burst + 1,
            "maximum": burst,
            "retry_after_s": max(1, math.ceil((1 - bucket.tokens) / rate)),
        },
    )
