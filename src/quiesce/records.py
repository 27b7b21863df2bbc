"""The records of the log, and the envelope that each is stored in.

1. A record is an immutable, versioned fact. Its id is derived, so the same fact can be appended only once.
2. Its *content digest* covers everything that it says; its *chain* covers the content digest and the chain
   of the record before it, so that no record can be changed, dropped or moved without being seen.
3. The payload of each kind is a closed model: a payload that does not parse is Corruption.
4. Times in payloads are integers, milliseconds since the epoch.

The envelope also carries two running totals of the lane, `settled` and `head`. They belong to the tail, not
to the fact, and are therefore outside the digest: with them a lane knows its depth and its head by reading
one row, however long its history is.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from quiesce.errors import Corruption
from quiesce.ids import (
    RecordId,
    SubmissionId,
    digest,
    parse_json,
    plain_json,
)
from quiesce.states import OutcomeKind

RECORD_VERSION = 1
CHAIN_START = "0" * 64


class _Payload(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ConversationCreated(_Payload):
    """The first record of every log."""

    kind: Literal["conversation-created"] = "conversation-created"
    conversation: str


class InputApplied(_Payload):
    """The submission's input entered the history; from here on its handler may run."""

    kind: Literal["input-applied"] = "input-applied"
    agent: str
    agent_version: str
    input: Any


class StepCompleted(_Payload):
    """A step returned; its value is never computed again."""

    kind: Literal["step-completed"] = "step-completed"
    operation: str
    arguments_digest: str
    value: Any


class ToolPrepared(_Payload):
    """A tool call that can have an effect is about to be made. Without its settled twin it is uncertain."""

    kind: Literal["tool-prepared"] = "tool-prepared"
    operation: str
    effect: Literal["uncertain", "idempotent"]
    call: Annotated[int, Field(ge=1)]
    """Counts the times that this operation was called; another call needs a resolution that allows it."""
    arguments_digest: str
    arguments: Any


class ToolSettled(_Payload):
    """A tool call ended with a value, or with a failure that its agent expects."""

    kind: Literal["tool-settled"] = "tool-settled"
    operation: str
    arguments_digest: str
    value: Any = None
    failure: dict[str, Any] | None = None
    proof: Literal["returned", "reconciled", "resolved"] = "returned"


class ToolUnknown(_Payload):
    """A tool call may have happened and nobody can prove it."""

    kind: Literal["tool-unknown"] = "tool-unknown"
    operation: str
    call: int
    reason: str


class CallResolved(_Payload):
    """A reconciler or a person said what became of a call that had left no result."""

    kind: Literal["call-resolved"] = "call-resolved"
    operation: str
    call: int
    resolution: Literal["completed", "failed", "never-happened", "safe-to-retry", "abort"]
    author: str
    reason: str


class ApprovalRequested(_Payload):
    """The Run asks a person to decide."""

    kind: Literal["approval-requested"] = "approval-requested"
    operation: str
    arguments_digest: str
    reason: str
    expires_at_ms: int | None


class ApprovalDecided(_Payload):
    """A person decided, or the time to decide ran out."""

    kind: Literal["approval-decided"] = "approval-decided"
    operation: str
    decision: Literal["approved", "denied", "expired"]
    author: str | None
    reason: str
    decided_at_ms: int


class SignalAwaited(_Payload):
    """The Run waits for a named signal."""

    kind: Literal["signal-awaited"] = "signal-awaited"
    operation: str
    arguments_digest: str
    signal: str
    expires_at_ms: int | None


class SignalReceived(_Payload):
    """A signal reached the Run that waits for it, or the time to wait ran out."""

    kind: Literal["signal-received"] = "signal-received"
    operation: str
    signal: str
    payload: Any
    timed_out: bool
    author: str | None


class TimerSet(_Payload):
    """The Run sleeps until an instant."""

    kind: Literal["timer-set"] = "timer-set"
    operation: str
    arguments_digest: str
    due_at_ms: int


class TimerFired(_Payload):
    """The instant that the Run slept for has come."""

    kind: Literal["timer-fired"] = "timer-fired"
    operation: str


class ChoiceOpened(_Payload):
    """The Run waits for the first of several; each is opened in this same commit."""

    kind: Literal["choice-opened"] = "choice-opened"
    operation: str
    arguments_digest: str
    branches: dict[str, str]
    """The operation of each branch."""


class ChoiceMade(_Payload):
    """One branch of a wait-any won; the others were closed in this same commit."""

    kind: Literal["choice-made"] = "choice-made"
    operation: str
    winner: str


class InboxRead(_Payload):
    """The Run looked for submissions that want to join it, and these are what it found."""

    kind: Literal["inbox-read"] = "inbox-read"
    operation: str
    arguments_digest: str
    joined: list[str]


class InputJoined(_Payload):
    """The input of a joined submission was handed to the Run that it joined."""

    kind: Literal["input-joined"] = "input-joined"
    host: str
    input: Any


class ChildRequested(_Payload):
    """The Run delegates: which child is wanted, under ids that can only ever name this one."""

    kind: Literal["child-requested"] = "child-requested"
    operation: str
    arguments_digest: str
    agent: str
    input: Any
    conversation: str
    submission: str


class ChildStarted(_Payload):
    """The child was admitted, and its parent knows; only after this may it be established."""

    kind: Literal["child-started"] = "child-started"
    operation: str
    submission: str


class ChildJoined(_Payload):
    """The child has settled, or could not be admitted; this is what the parent is given."""

    kind: Literal["child-joined"] = "child-joined"
    operation: str
    submission: str
    outcome: OutcomeKind
    result: Any
    failure: dict[str, Any] | None


class ChildLate(_Payload):
    """A child settled after its parent had; nothing is done about it, and it is not forgotten."""

    kind: Literal["child-late"] = "child-late"
    parent: str
    operation: str
    submission: str
    outcome: OutcomeKind


class SettlementReserved(_Payload):
    """How the submission will settle, once its children have; nothing can change that any more."""

    kind: Literal["settlement-reserved"] = "settlement-reserved"
    outcome: OutcomeKind
    result: Any = None
    failure: dict[str, Any] | None = None
    reason: str | None = None
    unknown_operations: list[str] = Field(default_factory=list)


class CallbackEnded(_Payload):
    """A settlement was delivered to its callback URL, or given up."""

    kind: Literal["callback-ended"] = "callback-ended"
    submission: str
    is_delivered: bool
    tries: int
    last_error: str | None


class AbortRequested(_Payload):
    """Somebody wants the submission to end; the wish is durable before anything acts on it."""

    kind: Literal["abort-requested"] = "abort-requested"
    author: str
    reason: str
    detaches: bool = False
    """Children are let go, whatever they still do, instead of being aborted and waited for."""


type OperatorAction = Literal[
    "pass-forced", "quarantine-released", "retry-hastened", "head-skipped", "callback-revived"
]


class OperatorActed(_Payload):
    """An operator pulled a lever."""

    kind: Literal["operator-acted"] = "operator-acted"
    action: OperatorAction
    author: str
    reason: str


class SettlementRecorded(_Payload):
    """The one terminal outcome of a submission."""

    kind: Literal["settlement"] = "settlement"
    outcome: OutcomeKind
    result: Any = None
    failure: dict[str, Any] | None = None
    reason: str | None = None
    host: str | None = None
    """The submission that this one had joined; its result is the answer to this one too."""
    effects_may_have_happened: bool = False
    completed_operations: list[str] = Field(default_factory=list)
    unknown_operations: list[str] = Field(default_factory=list)
    """Calls that may have happened; nobody has proven either."""
    cost: dict[str, int]


type Payload = (
    ConversationCreated
    | InputApplied
    | StepCompleted
    | ToolPrepared
    | ToolSettled
    | ToolUnknown
    | CallResolved
    | ApprovalRequested
    | ApprovalDecided
    | SignalAwaited
    | SignalReceived
    | TimerSet
    | TimerFired
    | ChoiceOpened
    | ChoiceMade
    | InboxRead
    | InputJoined
    | ChildRequested
    | ChildStarted
    | ChildJoined
    | ChildLate
    | SettlementReserved
    | CallbackEnded
    | AbortRequested
    | OperatorActed
    | SettlementRecorded
)

_PAYLOADS: TypeAdapter[Payload] = TypeAdapter(
    Annotated[Payload, Field(discriminator="kind")], config=ConfigDict(defer_build=True)
)


@dataclass(frozen=True, slots=True)
class Record:
    """One fact as it stands in the log."""

    sequence: int
    record_id: RecordId
    kind: str
    submission: SubmissionId | None
    epoch: int
    created_at_ms: int
    version: int
    payload: str | None
    """Canonical JSON, without the kind; None when its submission was purged."""
    digest: str
    chain: str

    def parsed(self) -> Payload:
        """Parse the payload; raises Corruption when it is not one of its kind, or was purged."""
        try:
            stored = parse_json(self.payload or "")
            return _PAYLOADS.validate_python({**stored, "kind": self.kind})
        except (ValidationError, ValueError, TypeError) as error:
            law = f"the payload of record {self.sequence} is a {self.kind}"
            raise Corruption(law, str(error)[:300]) from None


def payload_json(payload: Payload) -> str:
    """Return the canonical JSON of a payload without its kind, which has a column of its own."""
    # What a payload holds has its canonical JSON form already; only the fields around it are new.
    return plain_json(payload.model_dump(mode="json", exclude={"kind"}))


def content_digest(
    record_id: RecordId,
    kind: str,
    submission: str | None,
    epoch: int,
    payload: str,
    *,
    version: int = RECORD_VERSION,
) -> str:
    """Digest what a record says: identity, kind, owner, epoch, version and payload."""
    return digest(plain_json([record_id, kind, submission, epoch, version, payload]))


def chain_digest(previous: str, sequence: int, content: str, created_at_ms: int) -> str:
    """Extend the chain by one record."""
    return digest(f"{previous}{sequence}{content}{created_at_ms}")
