"""What a deployment answers, as values: the shapes of `shapes.py`, read from the other side.

1. A result is frozen, and so is what it is made of.
2. A field that this version does not know is no error: `document` keeps it, the whole JSON as it came.
3. States, kinds and codes are plain strings, because a later deployment may have more of them.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    model_validator,
)

SETTLED = "settled"
COMPLETED = "completed"


class Document(BaseModel):
    """One JSON document of an answer."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    _document: Any = PrivateAttr(default=None)

    @model_validator(mode="wrap")
    @classmethod
    def _keep(cls, value: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        found = validate(value)
        found._document = value  # noqa: SLF001 - it is of this class
        return found

    @property
    def document(self) -> Any:
        """The JSON that this was read from, with the fields that this version does not know."""
        return self._document


class Cost(Document):
    """What something has cost so far, and the dollars that it comes to at the published prices."""

    wakes: int
    rows_read: int
    rows_written: int
    active_ms: int
    usd: float


class Failure(Document):
    """Why a submission failed."""

    error_type: str
    message: str


class Wait(Document):
    """What a submission waits for; `url` takes the decision, where somebody has to make one."""

    kind: str
    since: datetime
    operation: str | None = None
    name: str | None = None
    behind: str | None = None
    until: datetime | None = None
    url: str | None = None


class Settlement(Document):
    """The one terminal outcome of a submission."""

    conversation: str
    submission: str
    outcome: str
    result: Any = None
    failure: Failure | None = None
    settled_at: datetime
    cost: Cost
    effects_may_have_happened: bool = False
    completed_operations: tuple[str, ...] = ()

    @property
    def is_completed(self) -> bool:
        """Whether the work was done, and `result` is what came of it."""
        return self.outcome == COMPLETED


class Receipt(Document):
    """What admission returns: the work is owed from now on."""

    conversation: str
    submission: str
    sequence: int
    accepted_at: datetime
    settlement: Settlement | None = None
    is_replayed: Annotated[bool, Field(exclude=True)] = False
    """Whether the same key had been accepted before; a header says it, not the document."""


class Tombstone(Document):
    """What is left of a submission whose payloads were purged: its key stays used."""

    conversation: str
    submission: str
    sequence: int
    accepted_at: datetime
    outcome: str
    settled_at: datetime
    purged_at: datetime


class Status(Document):
    """One submission: where it stands, what it waits for, and what it has cost."""

    conversation: str
    submission: str
    sequence: int
    agent: str
    state: str
    attempts: int
    interruptions: int
    waiting_for: Wait | None = None
    next_attempt_at: datetime | None = None
    settlement: Settlement | None = None
    cost: Cost
    tombstone: Tombstone | None = None
    """What is left of it, in a list; asked for by itself it is `gone`."""

    @property
    def is_settled(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state == SETTLED


class Generation(Document):
    """The two counters of a lane, which have no bound; it is owed a pass while `dirty` is ahead."""

    dirty: int
    processed: int

    @property
    def is_owed(self) -> bool:
        """Whether the lane is owed a pass."""
        return self.dirty > self.processed


class Lane(Document):
    """The whole lane of a conversation."""

    conversation: str
    counts: Mapping[str, int]
    head: str | None = None
    blocked_on: Wait | None = None
    generation: Generation
    alarm_at: datetime | None = None
    due_at: datetime | None = None
    parked: bool
    last_pass: Mapping[str, Any] | None = None
    cost: Cost


class Maintenance(Document):
    """The generation record of a conversation, and its alarm."""

    generation: Generation
    nonterminal: int
    due_at: datetime | None = None
    alarm_at: datetime | None = None
    failures: int
    idle_wakes: int
    parked: bool
    alarm_repaired: int
    last_pass: Mapping[str, Any] | None = None


class Record(Document):
    """One fact of a conversation's log."""

    sequence: int
    record_id: str
    kind: str
    submission: str | None = None
    epoch: int
    created_at: datetime
    payload: Any
    digest: str


class Progress(Document):
    """What a Run shows while it works; it stands in no log, and may be lost."""

    submission: str
    value: Any = None


class OpenOperation(Document):
    """An operation of a submission that is undecided, or whose outcome is unproven."""

    operation: str
    name: str
    kind: str
    state: str
    since: datetime
    until: datetime | None = None


class Explanation(Document):
    """Why one open submission is where it is, what would move it, and how old that is."""

    conversation: str
    submission: str
    sequence: int
    agent: str
    state: str
    waiting_for: Wait | None = None
    why: str
    moved_by: str
    age_ms: int
    freshness: str
    open_operations: tuple[OpenOperation, ...] = ()


class Checked(Document):
    """How much of a conversation was read for a check."""

    records: int
    submissions: int


class Tail(Document):
    """Where a log ends: its last record, and the chain up to and with it."""

    sequence: int
    digest: str


class BrokenLaw(Document):
    """A law that a conversation breaks, what was found, and at which record or submission."""

    law: str
    found: str
    sequence: int | None = None
    submission: str | None = None


class Verification(Document):
    """What a check of a whole conversation has found; `truncated` where more is broken than is told."""

    conversation: str
    ok: bool
    checked: Checked
    tail: Tail
    problems: tuple[BrokenLaw, ...] = ()
    truncated: bool = False


class AgentDescription(Document):
    """An agent that a deployment serves, with the JSON Schemas of what it takes and returns."""

    name: str
    version: str
    input_schema: Mapping[str, Any] | None = None
    output_schema: Mapping[str, Any] | None = None


class Health(Document):
    """That a deployment answers, and is set up so that it can work."""

    status: str
    served_at: Annotated[datetime | None, Field(exclude=True)] = None
    """The deployment's clock, to the second, where it sends one; a header says it, not the document."""


class Page[T](Document):
    """A part of a list; `next` is where the next part begins, or None at the end."""

    items: tuple[T, ...]
    next: str | None = None
