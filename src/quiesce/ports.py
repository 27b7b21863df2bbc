"""What Objects say to each other: admit this child, let it run, abort it, it has settled.

1. A call is one JSON text each way, and carries a capability: a keyed digest that only this deployment's own
   Objects can make. A call without it is refused, whatever else it says.
2. Every call may come twice, late, or out of order, and changes something at most once.
3. A refusal is an answer. No answer is *indeterminate*: the call may have arrived, and is made again.
"""

import hmac
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from quiesce import admission, commands, conversation_log, ledger, operations, waits
from quiesce.admission import Parent, Request
from quiesce.commands import Address, Author
from quiesce.conversation_log import Entry
from quiesce.errors import Refusal, RefusalCode
from quiesce.generation_record import Cost
from quiesce.ids import ConversationId, OperationId, SubmissionId, record_id
from quiesce.lane import Lane, mutate
from quiesce.records import ChildJoined, ChildLate
from quiesce.settings import Settings
from quiesce.states import OutcomeKind, State
from quiesce.wake import Wake


class _Call(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    conversation: str
    """The conversation of the Object that is called."""
    submission: str
    """The submission there that the call is about."""


class AdmitChild(_Call):
    """Admit this child, and let it wait until its parent has recorded that."""

    kind: Literal["admit-child"] = "admit-child"
    principal: str
    key: str
    agent: str
    input: Any
    deadline_ms: int | None
    parent_conversation: str
    parent_submission: str
    operation: str
    ancestors: list[tuple[str, str]]
    traceparent: str | None = None
    """A child belongs to its parent's trace, and so does whatever is said about it later."""


class EstablishChild(_Call):
    """The parent has recorded the child: it may run."""

    kind: Literal["establish-child"] = "establish-child"


class AbortChild(_Call):
    """The parent ends: so must the child."""

    kind: Literal["abort-child"] = "abort-child"
    reason: str


class ChildSettled(_Call):
    """A child tells its parent, `submission`, how it has settled."""

    kind: Literal["child-settled"] = "child-settled"
    operation: str
    child: str
    outcome: OutcomeKind
    result: Any
    failure: dict[str, Any] | None


type Call = AdmitChild | EstablishChild | AbortChild | ChildSettled


class _Sealed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    capability: str
    call: str


class Reply(BaseModel):
    """The answer to a call: done, or refused with a code and a sentence."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    refused: RefusalCode | None = None
    detail: str = ""


_CALLS: TypeAdapter[Call] = TypeAdapter(
    Annotated[Call, Field(discriminator="kind")], config=ConfigDict(defer_build=True)
)


def seal(settings: Settings, call: Call) -> str:
    """Write a call with its capability."""
    text = call.model_dump_json()
    sealed = _Sealed(capability=_capability(settings, text), call=text)
    return sealed.model_dump_json()


def _capability(settings: Settings, text: str) -> str:
    return hmac.new(settings.port_key, text.encode(), "sha256").hexdigest()


async def receive(lane: Lane, text: str) -> str:
    """Carry out one call of another Object of this deployment, and write the reply."""
    try:
        sealed = _Sealed.model_validate_json(text)
    except ValidationError:
        return Reply(refused=RefusalCode.INVALID_REQUEST, detail="no call").model_dump_json()
    try:
        _check_capability(lane, sealed)
        await _carry_out(lane, _CALLS.validate_json(sealed.call))
    except ValidationError:
        # It comes from another version of this deployment: that proves nothing about the call.
        detail = "this version cannot read the call"
        return Reply(refused=RefusalCode.UNAVAILABLE, detail=detail).model_dump_json()
    except Refusal as refusal:
        return Reply(refused=refusal.code, detail=refusal.detail[:500]).model_dump_json()
    return Reply().model_dump_json()


def _check_capability(lane: Lane, sealed: _Sealed) -> None:
    if not hmac.compare_digest(sealed.capability, _capability(lane.settings, sealed.call)):
        raise Refusal(RefusalCode.FORBIDDEN, "this call was not made by this deployment")


async def _carry_out(lane: Lane, call: Call) -> None:
    match call:
        case AdmitChild():
            await admission.admit(lane, _child_request(call))
        case EstablishChild():
            await mutate(lane, lambda wake, now_ms: _establish(lane, wake, call, now_ms))
        case AbortChild():
            await _abort(lane, call)
        case ChildSettled():
            await mutate(lane, lambda wake, now_ms: _join(lane, wake, call, now_ms))


def _child_request(call: AdmitChild) -> Request:
    return Request(
        conversation=ConversationId(call.conversation),
        principal=call.principal,
        key=call.key,
        agent=call.agent,
        input=call.input,
        deadline_ms=call.deadline_ms,
        traceparent=call.traceparent,
        parent=Parent(
            conversation=call.parent_conversation,
            submission=call.parent_submission,
            operation=call.operation,
            ancestors=tuple(call.ancestors),
        ),
    )


def _address(call: Call) -> Address:
    return Address(ConversationId(call.conversation), SubmissionId(call.submission))


def _establish(lane: Lane, wake: Wake, call: EstablishChild, now_ms: int) -> None:
    address = _address(call)
    found = lane.require_row(address.conversation, address.submission)
    if found.state is State.ADMITTED:
        mark = lane.storage.counts()
        ledger.move(lane.storage, found, State.READY, now_ms)
        wake.count_mutation(mark)
    else:
        wake.repair()


async def _abort(lane: Lane, call: AbortChild) -> None:
    try:
        await commands.abort(lane, _address(call), Author("parent", call.reason))
    except Refusal as refusal:
        # It has settled otherwise: its parent is being told, or has been.
        if refusal.code not in {RefusalCode.ALREADY_SETTLED, RefusalCode.GONE}:
            raise


def _join(lane: Lane, wake: Wake, call: ChildSettled, now_ms: int) -> None:
    """Give a child's settlement to the parent that waits for it; once, however often it comes."""
    address = _address(call)
    found = lane.require_row(address.conversation, address.submission)
    operation = OperationId(call.operation)
    wait = operations.find(lane.storage, found.sequence, operation)
    mark = lane.storage.counts()
    if wait is None:
        _note_late(lane, call, now_ms)
        wake.repair()
        return
    joined = ChildJoined(
        operation=operation,
        submission=call.child,
        outcome=call.outcome,
        result=call.result,
        failure=call.failure,
    )
    waits.end_wait(lane.storage, found.id, wait, joined, now_ms)
    spent = lane.storage.counts().since(mark)
    cost = Cost(rows_read=spent.rows_read, rows_written=spent.rows_written)
    waits.resume_if_decided(lane.storage, found, now_ms, cost)
    wake.count_mutation(mark)


def _note_late(lane: Lane, call: ChildSettled, now_ms: int) -> None:
    """Remember a child that settles after its parent has let it go; a message that comes twice changes nothing."""
    storage = lane.storage
    joined = record_id(SubmissionId(call.submission), call.operation, "joined")
    late = record_id("late", call.child)
    for known in (joined, late):
        if conversation_log.read(storage, known) is not None:
            return
    record = ChildLate(
        parent=call.submission,
        operation=call.operation,
        submission=call.child,
        outcome=call.outcome,
    )
    conversation_log.append(
        storage, conversation_log.tail(storage), Entry(late, None, None, record), now_ms
    )


def unsealed(text: str) -> Reply:
    """Parse a reply; what cannot be parsed is no answer."""
    return Reply.model_validate_json(text)
