"""Backoff with its jitter given, and the one function that may compute an alarm time.

1. An exponent is durable; a delay is never remembered in memory, since an idle Object is evicted in seconds.
2. Every alarm is at least one millisecond ahead: an alarm at "now", set inside the handler of an alarm,
   is dropped by some hosts and late by minutes on others.
3. Inside a pass no alarm is moved before the slot that begin armed, unless that slot is already past due.
"""

import math

EXPONENT_MAX = 30
INTERRUPTION_DELAY_MS = 1_000
INTERRUPTION_DELAY_MAX_MS = 900_000


def backoff_ms(base_ms: int, cap_ms: int, exponent: int, jitter: float) -> int:
    """Return the paced delay of `exponent`: between half of the doubled base and the whole, capped.

    `jitter` lies in [0, 1).
    """
    assert 0 <= jitter < 1, jitter
    whole = min(cap_ms, base_ms << min(exponent, EXPONENT_MAX))
    return math.ceil(whole / 2 + jitter * whole / 2)


def interruption_delay_ms(interruptions: int) -> int:
    """Return how long the next claim waits after that many interruptions in a row.

    The first costs nothing: an innocent dies with its neighbour's crash, and deploys come in bursts.
    """
    if interruptions <= 1:
        return 0
    return min(INTERRUPTION_DELAY_MAX_MS, INTERRUPTION_DELAY_MS << min(interruptions - 1, 20))


def alarm_time_ms(wanted_ms: int, now_ms: int, armed_at_ms: int | None = None) -> int:
    """Return the lawful alarm time nearest to the wanted one, in milliseconds since the epoch.

    `armed_at_ms` is the slot that begin armed when the write comes from inside a pass, else None.
    """
    floor_ms = now_ms + 1
    if armed_at_ms is not None and armed_at_ms > now_ms:
        floor_ms = armed_at_ms
    return max(wanted_ms, floor_ms)
