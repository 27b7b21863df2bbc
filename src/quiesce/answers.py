"""What answers look like, as closed models: the schemas of the API, and what tests hold the Worker's answers to.

`shapes.py` writes the documents, this says what they may be; neither reads the other, so that a test of one
against the other proves something. No answer is checked while it is given: only `openapi` imports this.
"""

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from quiesce import records
from quiesce.errors import RefusalCode
from quiesce.explain import Freshness
from quiesce.laws import Law
from quiesce.operations import OperationKind, OperationState
from quiesce.recovery import WaitKind
from quiesce.states import OutcomeKind, State

type Instant = Annotated[
    str,
    Field(
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$",
        description="An instant: RFC 3339 in UTC, with milliseconds.",
        examples=["2026-11-29T18:47:38.102Z"],
    ),
]
type Counter = Annotated[
    str, Field(pattern="^[0-9]+$", description="A decimal number without a bound.", examples=["3"])
]
type Count = Annotated[int, Field(ge=0)]
type Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
type SubmissionText = Annotated[
    str, Field(pattern="^sub_[0-9a-f]{32}$", examples=["sub_cc3dd1e48e6ee29671147bb2e93386b4"])
]
KINDS = tuple(each.model_fields["kind"].default for each in get_args(records.Payload.__value__))
"""The kind of every record that a log can hold."""


class Document(BaseModel):
    """One JSON document of an answer."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_enum_values=True)


class Cost(Document):
    """What something has cost, and the dollars that it comes to at the published prices."""

    wakes: Count
    rows_read: Count
    rows_written: Count
    active_ms: Count
    usd: Annotated[float, Field(ge=0, strict=False)]


class Failure(Document):
    """Why a submission failed."""

    error_type: str
    message: str


class Settlement(Document):
    """The one terminal outcome of a submission."""

    conversation: str
    submission: SubmissionText
    outcome: Annotated[OutcomeKind, Field(strict=False)]
    result: Any
    failure: Failure | None
    settled_at: Instant
    cost: Cost
    effects_may_have_happened: bool = False
    completed_operations: list[str] = []


class Receipt(Document):
    """What admission returns: the work is owed from now on."""

    conversation: str
    submission: SubmissionText
    sequence: Annotated[int, Field(ge=1)]
    accepted_at: Instant
    settlement: Settlement | None


class Wait(Document):
    """What a submission waits for; `url` takes the decision, where somebody has to make one."""

    kind: Annotated[WaitKind, Field(strict=False)]
    since: Instant
    operation: str | None = None
    name: str | None = None
    behind: SubmissionText | None = None
    until: Instant | None = None
    url: str | None = None


class Tombstone(Document):
    """What is left of a submission whose payloads were purged: its key stays used."""

    conversation: str
    submission: SubmissionText
    sequence: Annotated[int, Field(ge=1)]
    accepted_at: Instant
    outcome: Annotated[OutcomeKind, Field(strict=False)]
    settled_at: Instant
    purged_at: Instant


class Status(Document):
    """One submission: where it stands, what it waits for, and what it has cost."""

    conversation: str
    submission: SubmissionText
    sequence: Annotated[int, Field(ge=1)]
    agent: str
    state: Annotated[State, Field(strict=False)]
    attempts: Count
    interruptions: Count
    waiting_for: Wait | None
    next_attempt_at: Instant | None
    settlement: Settlement | None
    cost: Cost
    tombstone: Tombstone | None = None


class Generation(Document):
    """The two counters of a lane: it is owed a pass while `dirty` is ahead of `processed`."""

    dirty: Counter
    processed: Counter


class LastPass(Document):
    """The report of the last pass that finished."""

    at: Instant
    next_due: Instant | None
    phase: Literal["caught-up", "actionable"]
    recovered: Count
    settled: Count
    purged: Count
    nonterminal: Count
    alarm: Literal["rearmed", "cleared"]
    reason: str
    generation_lag: int
    rows_read: Count
    rows_written: Count
    duration_ms: int


class Lane(Document):
    """The whole lane of a conversation: what is open, what heads its queue, what blocks it, its alarm, its cost."""

    conversation: str
    counts: dict[Annotated[State, Field(strict=False)], Count]
    head: SubmissionText | None
    blocked_on: Wait | None
    generation: Generation
    alarm_at: Instant | None
    due_at: Instant | None
    parked: bool
    last_pass: LastPass | None
    cost: Cost


class Maintenance(Document):
    """The generation record of a conversation, and its alarm."""

    generation: Generation
    nonterminal: Count
    due_at: Instant | None
    alarm_at: Instant | None
    failures: Count
    idle_wakes: Count
    parked: bool
    alarm_repaired: Count
    last_pass: LastPass | None


class Record(Document):
    """One fact of a conversation's log; what `payload` holds depends on the kind."""

    sequence: Annotated[int, Field(ge=1)]
    record_id: str
    kind: Annotated[str, Field(json_schema_extra={"enum": list(KINDS)})]
    submission: SubmissionText | None = None
    epoch: Count
    created_at: Instant
    payload: dict[str, Any] | None
    """Null once the submission was purged."""
    digest: Digest


class OpenOperation(Document):
    """An operation of a submission that is undecided, or whose outcome is unproven."""

    operation: str
    name: str
    kind: Annotated[OperationKind, Field(strict=False)]
    state: Annotated[OperationState, Field(strict=False)]
    since: Instant
    until: Instant | None


class Explanation(Document):
    """Why one open submission is where it is, what would move it, and how old that is."""

    conversation: str
    submission: SubmissionText
    sequence: Annotated[int, Field(ge=1)]
    agent: str
    state: Annotated[State, Field(strict=False)]
    waiting_for: Wait | None
    why: str
    moved_by: str
    age_ms: int
    freshness: Annotated[Freshness, Field(strict=False)]
    open_operations: list[OpenOperation]


class Checked(Document):
    """How much of a conversation was read for a check."""

    records: Count
    submissions: Count


class TailDigest(Document):
    """Where a log ends: its last record, and the chain up to and with it."""

    sequence: Count
    digest: Digest


class BrokenLaw(Document):
    """A law that a conversation breaks, what was found, and at which record or submission."""

    law: Annotated[Law, Field(strict=False)]
    found: str
    sequence: int | None = None
    submission: str | None = None


class Verification(Document):
    """What a check of a whole conversation has found; `truncated` where more is broken than is told."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "conversation": "chat-1",
                    "ok": False,
                    "checked": {"records": 12, "submissions": 3},
                    "tail": {"sequence": 12, "digest": "9f86d081" * 8},
                    "problems": [
                        {
                            "law": "digest",
                            "found": "record 7 does not have the digest of its content",
                            "sequence": 7,
                            "submission": "sub_cc3dd1e48e6ee29671147bb2e93386b4",
                        }
                    ],
                    "truncated": False,
                }
            ]
        }
    )

    conversation: str
    ok: bool
    checked: Checked
    tail: TailDigest
    problems: list[BrokenLaw]
    truncated: bool


class AgentDescription(Document):
    """An agent that the deployment serves, with the JSON Schemas of what it takes and returns."""

    name: str
    version: str
    input_schema: dict[str, Any] | None
    output_schema: dict[str, Any] | None


class Health(Document):
    """That the deployment answers, and is set up so that it can work."""

    status: Literal["ok"]


class Page[T](Document):
    """A part of a list; `next` is the cursor of the next part, to be sent as `after`, or null at the end."""

    items: list[T]
    next: Annotated[str, Field(pattern="^[0-9]+$")] | None


class StatusPage(Page[Status]):
    """A part of a conversation's submissions, in the order of its queue."""


class RecordPage(Page[Record]):
    """A part of a conversation's log."""


class Undecided(Document):
    """How many waits of each kind are open in a lane."""

    approval: Count
    signal: Count
    timer: Count
    child: Count


class LaneExplanation(Document):
    """Why a lane is where it is: what is open, what heads it, how old that is, and what nobody has decided."""

    nonterminal: Count
    owed: bool
    head: SubmissionText | None
    blocked_on: Wait | None
    freshness: Annotated[Freshness, Field(strict=False)]
    age_ms: Count
    undecided: Undecided
    unknown_calls: Count


class ExplanationPage(Page[Explanation]):
    """A part of the open submissions, each explained, and the lane as a whole."""

    lane: LaneExplanation


class AgentPage(Page[AgentDescription]):
    """Every agent of the deployment."""


class Progress(Document):
    """What a Run shows while it works; it is not recorded."""

    submission: SubmissionText
    value: Any


class FieldProblem(Document):
    """What is wrong with one field of a body."""

    field: str
    problem: str


class Problem(BaseModel):
    """What was refused, as RFC 9457 has it; `code` is of a closed set. A refusal has written nothing.

    `limit`, `actual` and `maximum` stand where a limit was reached, `errors` where fields are wrong, `recorded` or
    `settlement` where something else stands already, `tombstone` where it was purged; there may be more.
    """

    model_config = ConfigDict(extra="allow")

    type: Annotated[str, Field(pattern="^urn:quiesce:problem:[a-z-]+$")]
    title: str
    status: Annotated[int, Field(ge=400, le=599)]
    detail: str
    code: Annotated[RefusalCode, Field(strict=False)]
    limit: str | None = None
    actual: int | None = None
    maximum: int | None = None
    errors: list[FieldProblem] | None = None
    differing: list[str] | None = None
    tombstone: Tombstone | None = None
    recorded: dict[str, Any] | None = None
    settlement: Settlement | None = None
