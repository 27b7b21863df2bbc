"""Limits and cadences of a deployment, parsed and cross-checked once.

1. Every setting is an environment variable of the Worker, `QUIESCE_` and the field's name in capitals.
2. A value out of bounds, or two values that cannot hold together, is an error before storage opens.
3. An unknown `QUIESCE_` variable is an error too where the environment can be listed: a misspelt limit would be
   no limit.

Milliseconds end in `_ms`, bytes in `_bytes_max`, counts in `_max`.
"""

import difflib
import math
import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from quiesce.ids import canonical_json, digest, parse_json

PREFIX = "QUIESCE_"
HANDLER_MS_MAX = 900_000
"""The platform ends an alarm handler after 15 minutes of wall time."""
STORED_VALUE_BYTES_MAX = 2_000_000
"""The platform's limit for one stored value or row."""

CALLBACK_SECRET_MIN = 16
_JSON_FIELDS = frozenset({"tokens", "callback_origins", "access_audiences", "access_callers"})
_NAMING = frozenset({"tokens", "access_callers"})
"""The settings whose keys are callers: digests of tokens, and names."""

Positive = Annotated[int, Field(gt=0)]
Roles = Annotated[
    tuple[Literal["submit", "observe", "decide", "operate"], ...], Field(strict=False)
]

SAFE_ORIGIN = r"(https://[A-Za-z0-9.-]+|http://(localhost|127\.0\.0\.1|\[::1\]))(:[0-9]{1,5})?"
"""https, or http to this very machine."""
DOMAIN_MARK = "*@"
"""How the name of everyone in a domain begins: `*@example.com`."""
CALLER_NAME = re.compile(r"[^\s@*]+@[^\s@*]+|\*@[^\s@*]+|[^\x00-\x1f@*]+")
"""An e-mail address, everyone in a domain, or the common name of a service token."""
CALLER_NAME_MAX = 255


class Token(BaseModel):
    """Who a bearer token speaks for: a principal and its roles."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    principal: Annotated[str, Field(min_length=1, max_length=255)]
    roles: Roles = ()
    prefix: str = ""


class AccessCaller(BaseModel):
    """What one whom Cloudflare Access knows may do, and under which principal: by default its own name."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    principal: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    roles: Roles = ()
    prefix: str = ""


def _named_in_lower_case(callers: Mapping[str, AccessCaller]) -> Mapping[str, AccessCaller]:
    """Check each name, and write e-mail addresses in the one way in which they are looked up."""
    named: dict[str, AccessCaller] = {}
    for place, (name, caller) in enumerate(callers.items(), start=1):
        if len(name) > CALLER_NAME_MAX or not CALLER_NAME.fullmatch(name):
            message = f"name {place} is no e-mail address, no domain as in '*@example.com', and no common name"
            raise ValueError(message)
        key = name.lower() if "@" in name else name
        if key in named:
            message = f"name {place} stands there twice"
            raise ValueError(message)
        named[key] = caller
    return named


class Settings(BaseModel):
    """Every limit and cadence, with the defaults of a production deployment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    backoff_base_ms: Annotated[int, Field(ge=1, le=3_600_000)] = 100
    backoff_cap_ms: Annotated[int, Field(ge=1, le=3_600_000)] = 60_000
    alarm_delay_min_ms: Annotated[int, Field(ge=1)] | None = None
    pass_submissions_max: Positive = 64
    pass_ms_max: Positive = 60_000
    attempt_ms_max: Positive = 300_000
    attempts_max: Annotated[int, Field(ge=1, le=100)] = 8
    interruptions_max: Annotated[int, Field(ge=1, le=100)] = 8
    interruption_window_ms: Annotated[int, Field(ge=0)] = 600_000
    idle_wakes_max: Annotated[int, Field(ge=8)] = 64
    parked_wake_ms: Positive = 3_600_000
    queue_depth_max: Annotated[int, Field(ge=1, le=100_000)] = 256
    input_bytes_max: Positive = 1_000_000
    value_bytes_max: Positive = 1_900_000
    database_bytes_max: Annotated[int, Field(gt=0, le=10_000_000_000)] = 9_000_000_000
    operations_max: Positive = 10_000
    children_max: Positive = 64
    signals_pending_max: Positive = 64
    waiters_max: Positive = 256
    wait_seconds_max: Annotated[int, Field(ge=0, le=55)] = 25
    events_seconds_max: Annotated[int, Field(ge=1, le=300)] = 55
    """How long an event stream goes on before its reader has to come back."""
    export_seconds_max: Annotated[int, Field(ge=1, le=86_400)] = 3_600
    """How long a reader may take to read a whole bundle."""
    streams_max: Positive = 64
    """How many event streams may follow one conversation at once."""
    retention_ms: Annotated[int, Field(ge=1_000, le=3_660 * 86_400_000)] | None = None
    """How long what a settled submission has said is kept before it is purged. None: for ever."""
    rate_per_second: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000
    """How many requests each principal may make to one conversation, in the long run: as many as the platform means
    one Object to serve."""
    rate_burst: Annotated[int, Field(ge=1, le=1_000_000)] = 2_000
    """How many of them it may make at once after a pause."""
    tokens: Mapping[str, Token] = Field(default_factory=dict)
    """The SHA-256 of each accepted bearer token, in hexadecimal, and who it speaks for. None: closed."""

    callback_origins: tuple[str, ...] = ()
    """The origins that a `callback_url` may have, such as `https://example.com`. None: no callbacks."""
    callback_secret: str = ""
    """What settlement callbacks are signed with; needed with origins."""
    callback_private: bool = False
    """Whether a callback may go to a loopback, private or link-local address."""

    access_keys_url: Annotated[
        str, Field(max_length=2_000, pattern=f"^{SAFE_ORIGIN}(/[!-~]*)?$")
    ] = ""
    """Where Cloudflare Access publishes the keys that it signs with. It and the next three: all or none."""
    access_issuer: Annotated[str, Field(max_length=2_000, pattern=f"^{SAFE_ORIGIN}$")] = ""
    """The team's own address, such as `https://team.cloudflareaccess.com`."""
    access_audiences: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=255)], ...], Field(max_length=100)
    ] = ()
    """The audience tags of the Access applications in front of this deployment."""
    access_callers: Annotated[
        Mapping[str, AccessCaller],
        Field(max_length=10_000),
        AfterValidator(_named_in_lower_case),
    ] = Field(default_factory=dict)
    """Who is let in: by e-mail address, by domain as in `*@example.com`, or by a service token's common name."""

    @property
    def takes_access(self) -> bool:
        """Whether callers may come through Cloudflare Access."""
        return bool(self.access_keys_url)

    @property
    def port_key(self) -> bytes:
        """The key of the capability that this deployment's Objects show each other."""
        tokens = {name: token.model_dump() for name, token in self.tokens.items()}
        return digest(canonical_json([tokens, self.callback_secret])).encode()

    @property
    def alarm_delay_ms(self) -> int:
        """The nearest successor that a pass arms for itself, in milliseconds."""
        return self.alarm_delay_min_ms or math.ceil(self.backoff_base_ms / 2)

    def _access(self) -> tuple[object, ...]:
        return (
            self.access_keys_url,
            self.access_issuer,
            self.access_audiences,
            self.access_callers,
        )

    @model_validator(mode="after")
    def check_relations(self) -> Self:
        """Refuse values that are each lawful and cannot hold together."""
        relations = (
            (self.backoff_base_ms <= self.backoff_cap_ms, "BACKOFF_BASE_MS <= BACKOFF_CAP_MS"),
            (
                self.alarm_delay_ms <= math.ceil(self.backoff_base_ms / 2),
                "ALARM_DELAY_MIN_MS <= ceil(BACKOFF_BASE_MS / 2)",
            ),
            (
                self.pass_ms_max + self.attempt_ms_max + 60_000 <= HANDLER_MS_MAX,
                "PASS_MS_MAX + ATTEMPT_MS_MAX + 60000 <= 900000",
            ),
            (self.parked_wake_ms >= self.backoff_cap_ms, "PARKED_WAKE_MS >= BACKOFF_CAP_MS"),
            (
                not self.callback_origins or len(self.callback_secret) >= CALLBACK_SECRET_MIN,
                f"CALLBACK_ORIGINS needs a CALLBACK_SECRET of {CALLBACK_SECRET_MIN} characters or more",
            ),
            (
                len({bool(each) for each in self._access()}) == 1,
                "ACCESS_KEYS_URL, ACCESS_ISSUER, ACCESS_AUDIENCES and ACCESS_CALLERS: all of them or none",
            ),
            (self.input_bytes_max <= self.value_bytes_max, "INPUT_BYTES_MAX <= VALUE_BYTES_MAX"),
            (
                self.value_bytes_max + 65_536 <= STORED_VALUE_BYTES_MAX,
                "VALUE_BYTES_MAX + 65536 <= 2000000",
            ),
        )
        for holds, relation in relations:
            if not holds:
                message = f"these settings must hold together: {relation}"
                raise ValueError(message)
        return self


def parse_settings(environment: Mapping[str, str]) -> Settings:
    """Parse the `QUIESCE_` variables of an environment.

    Raises ValueError whose message names every variable that is wrong and why, and no caller: anybody may read it.
    """
    values: dict[str, object] = {}
    for name, text in environment.items():
        if name.startswith(PREFIX) and text != "":
            field = name.removeprefix(PREFIX).lower()
            values[field] = _parse_json_field(field, text) if field in _JSON_FIELDS else text
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        problems = "; ".join(
            f"{PREFIX}{str(found['loc'][0]).upper()}{_path(found['loc'], values)}: {_problem(found)}"
            if found["loc"]
            else found["msg"]
            for found in error.errors(include_url=False)
        )
        message = f"the settings of this deployment are wrong: {problems}"
        raise ValueError(message) from None


def _parse_json_field(field: str, text: str) -> object:
    try:
        return parse_json(text)
    except ValueError as error:
        raise ValueError(
            f"the settings of this deployment are wrong: {PREFIX}{field.upper()} is not JSON: {error}"
        ) from None


def _problem(found: ErrorDetails) -> str:
    """Say what is wrong; of a name that does not exist, which one may have been meant."""
    if found["type"] != "extra_forbidden" or len(found["loc"]) > 1:
        return found["msg"]
    near = difflib.get_close_matches(str(found["loc"][0]), Settings.model_fields, n=1)
    meant = f" ({PREFIX}{near[0].upper()} may be meant)" if near else ""
    return f"there is no such setting{meant}"


def _path(loc: tuple[int | str, ...], values: Mapping[str, object]) -> str:
    """Write where in a setting something is wrong: a caller by its place, because anybody may read this."""
    field, *inner = loc
    named = values.get(str(field))
    if field in _NAMING and isinstance(named, dict) and inner and inner[0] in named:
        inner[0] = list(named).index(inner[0]) + 1
    return "".join(f".{part}" for part in inner)
