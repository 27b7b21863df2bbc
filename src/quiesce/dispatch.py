"""One command to one answer: the only caller of the stages on behalf of a request.

1. What is refused becomes a problem document; what is broken says so without a stack or a stored value.
2. An Object that cannot serve refuses mutations with `unavailable`, and reads what it can.
3. Every request repairs a lost alarm before it is answered; admission does so inside its own transaction.
"""

from quiesce import admission, commands, inspection, maintenance, shapes, wire
from quiesce.commands import Address, Author
from quiesce.errors import Corruption, NewerStorage, Refusal, RefusalCode, StorageUnavailable
from quiesce.ids import ConversationId, SubmissionId, digest
from quiesce.lane import Lane
from quiesce.states import State
from quiesce.wire import Answer, Command, answer

RETRY_AFTER_SETTLEMENT_S = "1"


async def dispatch(lane: Lane, text: str) -> Answer:
    """Parse one command, carry it out, and answer."""
    try:
        command = wire.COMMANDS.validate_json(text)
        if not isinstance(command, wire.Submit):
            await maintenance.on_request(lane)
        return await _carry_out(lane, command)
    except Refusal as refusal:
        return wire.refuse(refusal)
    except Corruption as corruption:
        return wire.refuse(Refusal(RefusalCode.CORRUPTION, f"broken law: {corruption.law}"))
    except NewerStorage as newer:
        return wire.refuse(Refusal(RefusalCode.UNAVAILABLE, str(newer)))
    except StorageUnavailable:
        message = "the conversation's storage did not answer; the request may be repeated"
        return wire.refuse(Refusal(RefusalCode.UNAVAILABLE, message))


async def _carry_out(lane: Lane, command: Command) -> Answer:
    conversation = ConversationId(command.conversation)
    match command:
        case wire.Submit():
            return await _submit(lane, command)
        case wire.ReadStatus():
            return _status(lane, command)
        case wire.ReadSettlement():
            return await _settlement(lane, command)
        case wire.ListSubmissions(after=after, limit=limit, state=state):
            wanted = None if state is None else State(state)
            listed = inspection.page(lane, conversation, after, limit, wanted)
            last = listed[-1].submission.sequence if len(listed) == limit else None
            return answer(
                200, shapes.page_body([shapes.status_body(each) for each in listed], last)
            )
        case wire.ReadLane():
            return answer(200, shapes.lane_body(await inspection.lane_state(lane, conversation)))
        case wire.ReadMaintenance():
            view = await inspection.maintenance(lane, conversation)
            return answer(200, shapes.maintenance_body(view))
        case wire.ReadRecords():
            return _records_page(lane, command)
        case wire.ForcePass(principal=principal, reason=reason):
            _require_health(lane)
            await commands.force_pass(lane, conversation, Author(principal, reason))
            view = await inspection.maintenance(lane, conversation)
            return answer(202, shapes.maintenance_body(view))
        case wire.Retry(submission=submission, principal=principal, reason=reason):
            _require_health(lane)
            released = SubmissionId(submission)
            address = Address(conversation, released)
            await commands.release_quarantined(lane, address, Author(principal, reason))
            found = inspection.status(lane, conversation, released)
            return answer(202, shapes.status_body(found))


def _require_health(lane: Lane) -> None:
    if lane.hurt is not None:
        raise Refusal(RefusalCode.UNAVAILABLE, f"this conversation is read-only: {lane.hurt}")


async def _submit(lane: Lane, command: wire.Submit) -> Answer:
    _require_health(lane)
    body, conversation = command.body, ConversationId(command.conversation)
    request = admission.Request(
        conversation=conversation,
        principal=command.principal,
        key=command.key,
        agent=body.agent,
        input=body.input,
        mode=body.mode,
        deadline_ms=body.deadline_ms,
        callback_url=body.callback_url,
    )
    receipt = await admission.admit(lane, request)
    location = f"/v1/conversations/{conversation}/submissions/{receipt.submission}"
    if receipt.is_replayed:
        return answer(200, shapes.receipt_body(receipt), idempotent_replayed="true")
    return answer(202, shapes.receipt_body(receipt), location=location)


def _status(lane: Lane, command: wire.ReadStatus) -> Answer:
    conversation = ConversationId(command.conversation)
    found = inspection.status(lane, conversation, SubmissionId(command.submission))
    body = shapes.status_body(found)
    etag = f'"{digest(wire.dump(body))[:32]}"'
    known = command.if_none_match or ""
    if known == "*" or etag in [tag.strip().removeprefix("W/") for tag in known.split(",")]:
        return answer(304, None, etag=etag)
    return answer(200, body, etag=etag)


async def _settlement(lane: Lane, command: wire.ReadSettlement) -> Answer:
    conversation, submission = (
        ConversationId(command.conversation),
        SubmissionId(command.submission),
    )
    settled = await inspection.await_settlement(
        lane, conversation, submission, command.wait_ms / 1_000
    )
    if settled is not None:
        return answer(200, shapes.settlement_body(conversation, settled))
    body = shapes.status_body(inspection.status(lane, conversation, submission))
    return answer(202, body, retry_after=RETRY_AFTER_SETTLEMENT_S)


def _records_page(lane: Lane, command: wire.ReadRecords) -> Answer:
    conversation = ConversationId(command.conversation)
    records, end = inspection.records(lane, conversation, command.after, command.limit)
    last = records[-1].sequence if records else end
    items = [shapes.record_body(record) for record in records]
    return answer(200, shapes.page_body(items, last if last < end else None))
