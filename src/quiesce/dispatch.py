"""One command to one answer: the only caller of the stages on behalf of a request.

1. What is refused becomes a problem document; what is broken says so without a stack or a stored value.
2. An Object that cannot serve refuses mutations with `unavailable`, and reads what it can.
3. Every request repairs a lost alarm: admission inside its own transaction, a refused one after its refusal, any
   other before it is answered. Only what shows a conversation as it stands, verify and export, leaves it alone.
"""

from dataclasses import replace

from quiesce import (
    admission,
    commands,
    deciding,
    explain,
    exporting,
    inspection,
    maintenance,
    shapes,
    verbs,
    verifying,
    watching,
    wire,
)
from quiesce.commands import Address, Author
from quiesce.errors import Corruption, NewerStorage, Refusal, RefusalCode, StorageUnavailable
from quiesce.ids import ConversationId, OperationId, SubmissionId, digest
from quiesce.lane import Lane
from quiesce.ledger import Submission
from quiesce.settlement import Settlement
from quiesce.settlement_shape import settlement_body
from quiesce.states import State
from quiesce.verbs import Command
from quiesce.wire import Answer, answer

RETRY_AFTER_SETTLEMENT_S = "1"


async def dispatch(lane: Lane, text: str) -> Answer:
    """Parse one command, carry it out, and answer."""
    command = verbs.COMMANDS.validate_json(text)
    try:
        if not isinstance(command, verbs.Submit | verbs.Verify | verbs.Export):
            await maintenance.on_request(lane)
        if command.caller and not isinstance(command, verbs.Submit | verbs.DeliverSignal):
            # Those two have a key, and what is found again by its key counts against no limit.
            lane.rates.take(command.caller, lane.settings, lane.clock())
        return await _carry_out(lane, command)
    except Refusal as refusal:
        if isinstance(command, verbs.Submit):
            await maintenance.on_request(lane)
        return wire.refuse(_shown(command.conversation, refusal))
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
        case verbs.Submit():
            return await _submit(lane, command)
        case verbs.ReadStatus():
            return _status(lane, command)
        case verbs.ReadSettlement():
            return await _settlement(lane, command)
        case verbs.ListSubmissions(after=after, limit=limit, state=state):
            wanted = None if state is None else State(state)
            listed, is_full = inspection.page(lane, conversation, after, limit, wanted)
            last = listed[-1].submission.sequence if is_full else None
            return answer(
                200, shapes.page_body([shapes.status_body(each) for each in listed], last)
            )
        case verbs.ReadLane():
            return answer(200, shapes.lane_body(await inspection.lane_state(lane, conversation)))
        case verbs.ReadMaintenance():
            view = await inspection.maintenance(lane, conversation)
            return answer(200, shapes.maintenance_body(view))
        case verbs.ReadRecords():
            return _records_page(lane, command)
        case verbs.Explain():
            return _explain(lane, command)
        case verbs.Verify() | verbs.Export() | verbs.Watch() | verbs.StopWatching():
            return await _read_whole(lane, command)
        case _:
            _require_health(lane)
            return await _change(lane, command)


async def _read_whole(
    lane: Lane, command: verbs.Verify | verbs.Export | verbs.Watch | verbs.StopWatching
) -> Answer:
    match command:
        case verbs.Verify(conversation=conversation):
            found = await verifying.verify(lane, ConversationId(conversation))
            return answer(200, shapes.verification_body(found))
        case verbs.Export():
            return await exporting.export(lane, command)
        case _:
            return await watching.watch(lane, command)


type Change = (
    verbs.ForcePass | verbs.Retry | verbs.Abort | verbs.Decide | verbs.Resolve | verbs.DeliverSignal
)


async def _change(lane: Lane, command: Change) -> Answer:
    conversation = ConversationId(command.conversation)
    if isinstance(command, verbs.ForcePass):
        author = Author(command.principal, command.reason)
        await commands.force_pass(lane, conversation, author)
        view = await inspection.maintenance(lane, conversation)
        return answer(202, shapes.maintenance_body(view))
    submission = SubmissionId(command.submission)
    address = Address(conversation, submission)
    status, headers = 202, {}
    match command:
        case verbs.Retry(principal=principal, reason=reason):
            await commands.retry(lane, address, Author(principal, reason))
        case verbs.Abort(principal=principal, reason=reason, detaches=detaches, skips=skips):
            author = Author(principal, reason)
            accepted = await commands.abort(lane, address, author, detaches=detaches, skips=skips)
            if accepted.is_replayed and accepted.settlement is not None:
                return answer(200, settlement_body(conversation, accepted.settlement))
        case verbs.Decide(operation=operation, choice=choice, principal=principal, reason=reason):
            address = replace(address, operation=OperationId(operation))
            await deciding.decide(lane, address, choice, Author(principal, reason))
            status = 200
        case verbs.Resolve(operation=operation, body=body, principal=principal):
            address = replace(address, operation=OperationId(operation))
            author = Author(principal, body.reason)
            await deciding.resolve(
                lane, address, body.resolution, body.result, author, number=body.call
            )
            status = 200
        case verbs.DeliverSignal(signal=signal, key=key, payload=payload, principal=principal):
            author = Author(principal, "")
            accepted = await deciding.deliver_signal(
                lane, address, (signal, key), payload, author, is_rated=bool(command.caller)
            )
            headers = {"idempotent_replayed": "true"} if accepted.is_replayed else {}
    found = inspection.status(lane, conversation, submission)
    return answer(status, shapes.status_body(found), **headers)


def _explain(lane: Lane, command: verbs.Explain) -> Answer:
    conversation = ConversationId(command.conversation)
    if command.submission is not None:
        found = explain.explain_one(lane, conversation, SubmissionId(command.submission))
        if found is None:
            message = f"{command.submission} is settled; nothing of it is open"
            raise Refusal(RefusalCode.ALREADY_SETTLED, message)
        return answer(200, shapes.explanation_body(conversation, found))
    page = explain.explain(lane, conversation, command.after, command.limit)
    last = page[-1].submission.sequence if len(page) == command.limit else None
    items = [shapes.explanation_body(conversation, each) for each in page]
    whole = shapes.lane_explanation_body(conversation, explain.explain_lane(lane, conversation))
    return answer(200, {**shapes.page_body(items, last), "lane": whole})


def _shown(conversation: str, refusal: Refusal) -> Refusal:
    """Write the facts of a refusal as JSON: each in its own shape."""
    facts = dict(refusal.facts)
    settled = facts.get("settlement")
    if isinstance(settled, Settlement):
        facts["settlement"] = settlement_body(conversation, settled)
    purged = facts.get("tombstone")
    if isinstance(purged, Submission):
        facts["tombstone"] = shapes.tombstone_body(conversation, purged)
    if "recorded" in facts:
        facts["recorded"] = shapes.recorded_body(facts["recorded"])
    return Refusal(refusal.code, refusal.detail, facts)


def _require_health(lane: Lane) -> None:
    if lane.hurt is not None:
        raise Refusal(RefusalCode.UNAVAILABLE, f"this conversation is read-only: {lane.hurt}")


async def _submit(lane: Lane, command: verbs.Submit) -> Answer:
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
        traceparent=command.traceparent,
        is_rated=bool(command.caller),
    )
    receipt = await admission.admit(lane, request)
    location = f"/v1/conversations/{conversation}/submissions/{receipt.submission}"
    if receipt.is_replayed:
        return answer(200, shapes.receipt_body(receipt), idempotent_replayed="true")
    return answer(202, shapes.receipt_body(receipt), location=location)


def _status(lane: Lane, command: verbs.ReadStatus) -> Answer:
    conversation = ConversationId(command.conversation)
    found = inspection.status(lane, conversation, SubmissionId(command.submission))
    body = shapes.status_body(found)
    etag = f'"{digest(wire.dump(body))[:32]}"'
    known = command.if_none_match or ""
    if known == "*" or etag in [tag.strip().removeprefix("W/") for tag in known.split(",")]:
        return answer(304, None, etag=etag)
    return answer(200, body, etag=etag)


async def _settlement(lane: Lane, command: verbs.ReadSettlement) -> Answer:
    conversation, submission = (
        ConversationId(command.conversation),
        SubmissionId(command.submission),
    )
    settled = await inspection.await_settlement(
        lane, conversation, submission, command.wait_ms / 1_000
    )
    if settled is not None:
        return answer(200, settlement_body(conversation, settled))
    body = shapes.status_body(inspection.status(lane, conversation, submission))
    return answer(202, body, retry_after=RETRY_AFTER_SETTLEMENT_S)


def _records_page(lane: Lane, command: verbs.ReadRecords) -> Answer:
    conversation = ConversationId(command.conversation)
    records, end = inspection.records(lane, conversation, command.after, command.limit)
    last = records[-1].sequence if records else end
    items = [shapes.record_body(record) for record in records]
    return answer(200, shapes.page_body(items, last if last < end else None))
