"""Which of the keys of Cloudflare Access an isolate holds, and whether it should ask for them: pure decisions.

For an assertion that names a key, in this order:

1. A key that is held and fresh is used.
2. While somebody asks, one whose key is held and stale uses it; anybody else waits.
3. Where nobody has asked for a while, the keys are asked for: because they are stale, or the one that is named is
   not among them. A while is a minute where keys are held, so that invented names cannot make us a burden to those
   who publish them, and five seconds where there are none.
4. In between, a key that is held is used although it is stale, for a day at most.
5. A key that is not among those we were given last refuses its assertion.
6. Where the last asking brought nothing, nothing can be said of a key that is not held: no one is let in.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from quiesce.ids import parse_json

FRESH_MS = 3_600_000
HELD_MS_MAX = 86_400_000
PAUSE_MS = 60_000
"""Between two askings while keys are held."""
RETRY_MS = 5_000
"""Between two askings while there are none."""
ASKING_MS_MAX = 5_000
"""How long an answer may take."""
ASKED_MS_MAX = ASKING_MS_MAX + 1_000
"""After this, whoever asked is gone: a request that is cut off cannot say so."""
KEYS_BYTES_MAX = 262_144
KEYS_MAX = 64


class Step(Enum):
    """What to do about the key that an assertion names."""

    USE = auto()
    ASK = auto()
    WAIT = auto()
    REFUSE = auto()
    FAIL = auto()


class _Parsed(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class Key(_Parsed):
    """A public key as it is published: RSA of 2,048 to 8,192 bits, for signatures by RS256 and nothing else."""

    kid: Annotated[str, Field(min_length=1, max_length=255)]
    kty: Literal["RSA"]
    n: Annotated[str, Field(min_length=342, max_length=1_366, pattern="^[A-Za-z0-9_-]+$")]
    e: Annotated[str, Field(min_length=2, max_length=8, pattern="^[A-Za-z0-9_-]+$")]
    alg: Literal["RS256"] | None = None
    use: Literal["sig"] | None = None


class _Published(_Parsed):
    keys: Annotated[list[dict[str, Any]], Field(max_length=KEYS_MAX)]


@dataclass(frozen=True, slots=True)
class Ring:
    """Which keys are held, since when, and when they were last asked for; all times in milliseconds."""

    key_ids: frozenset[str] = frozenset()
    given_at_ms: int | None = None
    asked_at_ms: int | None = None
    """When the last asking began, or failed."""
    is_asking: bool = False

    def asking(self, now_ms: int) -> "Ring":
        """Note that somebody has begun to ask."""
        return replace(self, asked_at_ms=now_ms, is_asking=True)

    def given(self, key_ids: frozenset[str], now_ms: int) -> "Ring":
        """Note what was given; a key that is not among it any more is held no longer."""
        return Ring(key_ids, given_at_ms=now_ms, asked_at_ms=self.asked_at_ms)

    def failed(self, now_ms: int) -> "Ring":
        """Note that the asking brought nothing; whoever asks next waits from here on, however long it took."""
        return replace(self, asked_at_ms=now_ms, is_asking=False)


def next_step(ring: Ring, key_id: str, now_ms: int) -> Step:
    """Decide, by the rules of this module."""
    age_ms = _since(ring.given_at_ms, now_ms)
    age_ms = HELD_MS_MAX if age_ms is None else age_ms
    is_any_held = age_ms < HELD_MS_MAX
    is_held = is_any_held and key_id in ring.key_ids
    if is_held and age_ms < FRESH_MS:
        return Step.USE
    since_ms = _since(ring.asked_at_ms, now_ms)
    if ring.is_asking and since_ms is not None and since_ms < ASKED_MS_MAX:
        return Step.USE if is_held else Step.WAIT
    if since_ms is None or since_ms >= (PAUSE_MS if is_any_held else RETRY_MS):
        return Step.ASK
    if is_held:
        return Step.USE
    return Step.REFUSE if is_any_held and _was_answered(ring) else Step.FAIL


def _since(at_ms: int | None, now_ms: int) -> int | None:
    """Return how long ago something was; a clock that was set back must not make it last."""
    return None if at_ms is None else abs(now_ms - at_ms)


def _was_answered(ring: Ring) -> bool:
    assert ring.given_at_ms is not None
    assert ring.asked_at_ms is not None
    return not ring.is_asking and ring.given_at_ms >= ring.asked_at_ms


def parse_keys(raw: bytes) -> Mapping[str, Key]:
    """Parse what is published, and keep the keys that can be used, by their ids.

    Raises ValueError: no JSON, not a set of keys, too many of them, or none that can be used.
    """
    published = _Published.model_validate(parse_json(raw))
    usable: dict[str, Key] = {}
    for each in published.keys:
        try:
            key = Key.model_validate(each)
        except ValidationError:
            continue
        usable[key.kid] = key
    if not usable:
        raise ValueError("none of the keys is one for RS256")
    return usable
