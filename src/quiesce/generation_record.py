"""The generation record: the small document that says whether a lane is owed a pass.

1. It lives in the Object's key-value store, so that an alarm with nothing to do reads it and touches no SQL.
2. Its two counters are decimal strings, because they only ever grow and JavaScript's numbers end.
3. Its `schema_version` is the version of the whole storage. A newer one is refused; one that cannot be read is
   Corruption.
"""

from functools import lru_cache
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
)

from quiesce.errors import Corruption, NewerStorage

SCHEMA_VERSION = 1


def _read_decimal(value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    message = "a generation is a string of decimal digits"
    raise ValueError(message)


type Counter = Annotated[int, BeforeValidator(_read_decimal), PlainSerializer(str)]
type Count = Annotated[int, Field(ge=0)]


class Cost(BaseModel):
    """What some work has cost: wake-ups, rows read, rows written, and milliseconds of activity."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    wakes: Count = 0
    rows_read: Count = 0
    rows_written: Count = 0
    active_ms: Count = 0

    def fields(self) -> dict[str, int]:
        """Return the four counts as a document or as columns."""
        return {
            "wakes": self.wakes,
            "rows_read": self.rows_read,
            "rows_written": self.rows_written,
            "active_ms": self.active_ms,
        }

    def plus(self, other: Self) -> "Cost":
        """Add two costs."""
        return Cost.model_construct(
            wakes=self.wakes + other.wakes,
            rows_read=self.rows_read + other.rows_read,
            rows_written=self.rows_written + other.rows_written,
            active_ms=self.active_ms + other.active_ms,
        )


class Swept(BaseModel):
    """How far the purge of settled payloads has come, where a retention is set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    through: Count = 0
    """Every submission up to this place is purged."""
    settled: Count = 0
    """How many were settled when the ledger was asked last."""
    oldest_ms: int | None = None
    """The earliest settlement that can be purged, or None while there is none."""


class GenerationRecord(BaseModel):
    """The small document that says whether a lane is owed a pass; it lives in the Object's key-value store."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1]
    dirty: Counter
    processed: Counter
    nonterminal: Count = 0
    due_at_ms: int | None = None
    idle_wakes: Count = 0
    failures: Count = 0
    deployment: str = ""
    alarm_repaired: Count = 0
    cost: Cost = Cost()
    last_pass: dict[str, Any] | None = None
    swept: Swept | None = None

    @property
    def is_owed(self) -> bool:
        """Whether some mutation has not been seen by a finished pass."""
        return self.dirty > self.processed

    def changed(self, **values: Any) -> "GenerationRecord":
        """Return this record with some values replaced; a pass does that so often that it is not pydantic's own."""
        changed = self.__copy__()
        changed.__dict__.update(values)
        return changed


class _Version(BaseModel):
    model_config = ConfigDict(extra="ignore")

    schema_version: int


FIRST = GenerationRecord(schema_version=1, dirty="0", processed="0")
"""What a virgin Object is about to have: nothing owed."""
RECOVERED = GenerationRecord(schema_version=1, dirty="1", processed="0")
"""What an Object starts from that has tables and no readable record: one useful pass."""


@lru_cache(maxsize=4)
def parse_record(text: str) -> GenerationRecord:
    """Parse the stored record; an echo reads the same text five times, and what it says is frozen.

    Raises NewerStorage when newer code wrote it, Corruption when it cannot be read.
    """
    try:
        return GenerationRecord.model_validate_json(text)
    except ValidationError as error:
        _refuse_newer(text)
        raise Corruption("the generation record is readable", str(error)[:300]) from None


def _refuse_newer(text: str) -> None:
    try:
        version = _Version.model_validate_json(text).schema_version
    except ValidationError:
        return
    if version > SCHEMA_VERSION:
        message = f"this Object's storage has version {version}, this code knows {SCHEMA_VERSION}"
        raise NewerStorage(message)
