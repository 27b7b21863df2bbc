"""deliver: send what is owed to other Objects and to callback URLs, bounded, and write down what became of it.

1. A delegation is owed to the child's Object until the child is established: admitted there, recorded here, and
   only then allowed to run. A parent that ends owes an abort instead, after the admission that it asked for.
2. A settlement is owed to the parent's Object, and to a callback URL, until it is acknowledged.
3. No answer is indeterminate: the message is owed again, at a durable time that grows, and in the end hourly. It is
   never taken for a refusal. A child that is refused for good has failed; one that finds no room is asked for again
   until its parent ends, or for a day.
4. While a call is under way its delegation may be joined, let go, or told to abort. So whatever is written about it
   is decided in a commit that reads it again.
5. Eight at once, ten seconds each. What is told to others is on disk here first.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from quiesce import (
    agenda,
    callbacks,
    children,
    conversation_log,
    ledger,
    operations,
    outbox,
    ports,
    settlement,
    trace_context,
    waits,
)
from quiesce.conversation_log import Entry
from quiesce.errors import RefusalCode, StorageUnavailable
from quiesce.generation import Autonomous, DueAt, Quiescence
from quiesce.generation_record import Cost
from quiesce.ids import parse_json, plain_json, record_id
from quiesce.lane import Lane, Pass
from quiesce.ledger import Submission
from quiesce.operations import OpenOperation, OperationKind
from quiesce.outbox import Message, MessageKind
from quiesce.pacing import backoff_ms
from quiesce.records import CallbackEnded, ChildJoined, ChildRequested, ChildStarted
from quiesce.settlement_shape import settlement_body
from quiesce.states import OutcomeKind

AT_ONCE_MAX = 8
TRY_S = 10.0
GIVE_UP_MS = 86_400_000
CALLBACK_TRIES_MAX = 16
UNDER_WAY_MS = 60_000
"""A call that its caller has given up may still arrive for so long; an orphan that is not there then never was."""
SUCCESS = range(200, 300)
_NO_ROOM = frozenset({RefusalCode.QUEUE_FULL, RefusalCode.RATE_LIMITED, RefusalCode.DATABASE_FULL})
"""Refusals that prove the child not to be admitted, since a child that is there is found before its room is looked
at; another try may not meet them."""
_PROVES_NOTHING = frozenset({RefusalCode.UNAVAILABLE, RefusalCode.FORBIDDEN})
"""Refusals as good as no answer: an Object that cannot serve, or a deploy that has reached only one of the two."""


async def deliver(lane: Lane, work: Pass) -> None:
    """Send what is due: for the head's children, and of the outbox what recovery has found."""
    sending: list[Callable[[], Coroutine[Any, Any, None]]] = []
    head = ledger.head(lane.storage)
    if head is not None:
        owed = owed_children(lane, head, lane.clock())
        sending += [partial(_child, lane, work, head, each) for each in owed]
    messages = work.messages or _owed_messages(lane)
    work.messages = []
    work.has_sent = work.has_sent or bool(messages)
    sending += [partial(_message, lane, work, each) for each in messages]
    if sending:
        # The settlement or the request that is told was committed a moment ago, and perhaps not synced.
        await lane.storage.sync()
    for start in range(0, len(sending), AT_ONCE_MAX):
        calls = [send() for send in sending[start : start + AT_ONCE_MAX]]
        # Every call comes to its end before an error of one is let out: nothing runs on behind the pass.
        for ended in await asyncio.gather(*calls, return_exceptions=True):
            if ended is not None:
                raise ended


def _owed_messages(lane: Lane) -> list[Message]:
    due = agenda.due(lane.storage, lane.clock(), AT_ONCE_MAX)
    return [outbox.message_of(each) for each in due if each.kind == "message"]


def owed_children(lane: Lane, head: Submission, now_ms: int) -> list[OpenOperation]:
    """Return the head's delegations whose message is due."""
    return [
        each
        for each in operations.of_submission(lane.storage, head.sequence)
        if each.kind is OperationKind.CHILD
        and each.detail["is_owed"]
        and each.detail["next_try_ms"] <= now_ms
    ]


def owed_by(open_operations: list[OpenOperation]) -> list[Quiescence]:
    """Say when the lane moves by itself for its undelivered delegations."""
    owed = [
        each
        for each in open_operations
        if each.kind is OperationKind.CHILD and each.detail["is_owed"]
    ]
    return [
        DueAt(each.detail["next_try_ms"], f"the child {each.name!r} is asked again")
        if each.detail["tries"] > 0
        else Autonomous(f"the child {each.name!r} has not been asked", is_runnable=True)
        for each in owed
    ]


async def _ask(lane: Lane, call: ports.Call) -> ports.Reply | None:
    """Make one call; None is no answer, and means that nobody knows whether it arrived."""
    try:
        text = ports.seal(lane.settings, call)
        return ports.unsealed(
            await asyncio.wait_for(lane.outside.ask(call.conversation, text), TRY_S)
        )
    except (StorageUnavailable, TimeoutError, ValueError):
        return None


async def _child(lane: Lane, work: Pass, parent: Submission, child: OpenOperation) -> None:
    """Bring one delegation as far as it goes now."""
    started = record_id(parent.id, child.operation, "started")
    if conversation_log.read(lane.storage, started) is None:
        reply = await _ask(lane, _admission(lane, parent, child))
        if reply is None or reply.refused in _PROVES_NOTHING:
            _again(lane, child)
            return
        if reply.refused is not None:
            _refused(lane, work, parent, child, reply)
            return
        await lane.failpoints.reach("deliver:before")
        lane.storage.commit(lambda: _start(lane, parent, child))
        await lane.storage.sync()
        await lane.failpoints.reach("deliver:after")
        work.delivered += 1
    owed = operations.find(lane.storage, parent.sequence, child.operation)
    if owed is None:
        # It has been joined or let go meanwhile; then an orphan's end is owed, too.
        return
    address: dict[str, Any] = {
        "conversation": owed.detail["conversation"],
        "submission": owed.detail["submission"],
    }
    call: ports.Call = ports.EstablishChild(**address)
    if owed.detail["is_aborting"]:
        call = ports.AbortChild(**address, reason="its parent has ended")
    reply = await _ask(lane, call)
    if reply is None or reply.refused is not None:
        _again(lane, owed)
        return
    await lane.failpoints.reach("deliver:before")
    lane.storage.commit(lambda: _told(lane, owed))
    await lane.failpoints.reach_after("deliver:after", lane.storage)
    work.delivered += 1


def _admission(lane: Lane, parent: Submission, child: OpenOperation) -> ports.AdmitChild:
    identity = record_id(parent.id, child.operation, "requested")
    record = conversation_log.read(lane.storage, identity)
    requested = None if record is None else record.parsed()
    assert isinstance(requested, ChildRequested), identity
    deadline_ms = None
    if parent.deadline_at_ms is not None:
        deadline_ms = max(1, parent.deadline_at_ms - child.opened_at_ms)
    return ports.AdmitChild(
        conversation=requested.conversation,
        submission=requested.submission,
        principal=parent.principal,
        key=children.child_key(parent.id, child.operation),
        agent=requested.agent,
        input=requested.input,
        deadline_ms=deadline_ms,
        parent_conversation=lane.own_conversation(),
        parent_submission=parent.id,
        operation=child.operation,
        ancestors=list(children.lineage_of(parent).ancestors),
        traceparent=trace_context.onward(parent.traceparent, parent.id, child.operation),
    )


def _fresh(lane: Lane, child: OpenOperation) -> OpenOperation | None:
    """Read a delegation again, inside the commit that writes about it; None when it is not open any more."""
    return operations.find(lane.storage, child.submission_sequence, child.operation)


def _start(lane: Lane, parent: Submission, child: OpenOperation) -> None:
    """Record that the child is admitted, if it is still waited for."""
    if _fresh(lane, child) is None:
        return
    started = ChildStarted(operation=child.operation, submission=child.detail["submission"])
    identity = record_id(parent.id, child.operation, "started")
    end = conversation_log.tail(lane.storage)
    entry = Entry(identity, parent.id, None, started)
    conversation_log.append(lane.storage, end, entry, lane.clock())


def _told(lane: Lane, child: OpenOperation) -> None:
    """Owe a delegation nothing more, unless its abort has come to be owed since it was read."""
    owed = _fresh(lane, child)
    if owed is not None and owed.detail["is_aborting"] == child.detail["is_aborting"]:
        operations.update_detail(lane.storage, owed, {**owed.detail, "is_owed": False})


def _again(lane: Lane, child: OpenOperation) -> None:
    """Owe a delegation again at a later time: nobody knows whether the call has arrived."""

    def step() -> None:
        owed = _fresh(lane, child)
        if owed is None or owed.detail["is_aborting"] != child.detail["is_aborting"]:
            return
        tries = owed.detail["tries"]
        next_try_ms = _next_try_ms(lane, tries, lane.settings.backoff_cap_ms)
        detail = {**owed.detail, "tries": tries + 1, "next_try_ms": next_try_ms}
        operations.update_detail(lane.storage, owed, detail)

    lane.storage.commit(step)


def _refused(
    lane: Lane, work: Pass, parent: Submission, child: OpenOperation, reply: ports.Reply
) -> None:
    """Take a child's refusal as its failure; ask again for one that found no room, while its parent wants it."""
    is_wanted = not child.detail["is_aborting"]
    is_early = lane.clock() - child.opened_at_ms < GIVE_UP_MS
    if reply.refused in _NO_ROOM and is_wanted and is_early:
        _again(lane, child)
        return
    now_ms = lane.clock()
    joined = ChildJoined(
        operation=child.operation,
        submission=child.detail["submission"],
        outcome=OutcomeKind.FAILED,
        result=None,
        failure={"error_type": str(reply.refused), "message": reply.detail},
    )

    def step() -> None:
        owed = _fresh(lane, child)
        if owed is None:
            return
        waits.end_wait(lane.storage, parent.id, owed, joined, now_ms)
        fresh = ledger.at(lane.storage, parent.sequence)
        assert fresh is not None
        waits.resume_if_decided(lane.storage, fresh, now_ms, Cost())

    lane.storage.commit(step)
    work.delivered += 1


def _next_try_ms(lane: Lane, tries: int, cap_ms: int) -> int:
    """Return when to try again: paced, and like a parked lane after so many tries that nobody is likely there."""
    settings = lane.settings
    if tries >= settings.idle_wakes_max:
        return lane.clock() + settings.parked_wake_ms
    return lane.clock() + backoff_ms(settings.backoff_base_ms, cap_ms, tries, lane.jitter())


async def _message(lane: Lane, work: Pass, message: Message) -> None:
    error = await _send(lane, message)
    await lane.failpoints.reach("deliver:before")
    if error is None:
        lane.storage.commit(lambda: _delivered(lane, message))
        work.delivered += 1
    elif message.kind is MessageKind.CALLBACK and message.tries + 1 >= CALLBACK_TRIES_MAX:
        lane.storage.commit(lambda: _give_up(lane, message, error))
    else:
        is_callback = message.kind is MessageKind.CALLBACK
        # A receiver of callbacks may be down for an hour before its message is given up.
        cap_ms = lane.settings.parked_wake_ms if is_callback else lane.settings.backoff_cap_ms
        at_ms = _next_try_ms(lane, message.tries, cap_ms)
        lane.storage.commit(lambda: outbox.postpone(lane.storage, message, at_ms, error))
    await lane.failpoints.reach_after("deliver:after", lane.storage)


async def _send(lane: Lane, message: Message) -> str | None:
    """Send one message; returns why it did not arrive, if it did not."""
    if message.kind is MessageKind.ORPHAN:
        return await _end_orphan(lane, message)
    submission = ledger.find(lane.storage, message.submission)
    settled = None if submission is None else settlement.read(lane.storage, submission)
    assert submission is not None, message
    assert settled is not None, message
    if message.kind is MessageKind.PARENT:
        return await _tell_parent(lane, submission, settled)
    return await _call_back(lane, submission, settled)


async def _end_orphan(lane: Lane, message: Message) -> str | None:
    assert message.conversation is not None, message
    call = ports.AbortChild(
        conversation=message.conversation,
        submission=message.submission,
        reason="its parent has let it go before it could run",
    )
    reply = await _ask(lane, call)
    if reply is None:
        return "no answer"
    is_old = lane.clock() - message.since_ms >= UNDER_WAY_MS
    if reply.refused is None or (reply.refused is RefusalCode.NOT_FOUND and is_old):
        return None
    return f"{reply.refused}: {reply.detail}"


async def _tell_parent(
    lane: Lane, submission: Submission, settled: settlement.Settlement
) -> str | None:
    assert submission.parent is not None
    parent = parse_json(submission.parent)
    call = ports.ChildSettled(
        conversation=parent["conversation"],
        submission=parent["submission"],
        operation=parent["operation"],
        child=submission.id,
        outcome=settled.recorded.outcome,
        result=settled.recorded.result,
        failure=settled.recorded.failure,
    )
    reply = await _ask(lane, call)
    if reply is None:
        return "no answer"
    return None if reply.refused is None else f"{reply.refused}: {reply.detail}"


async def _call_back(
    lane: Lane, submission: Submission, settled: settlement.Settlement
) -> str | None:
    url = str(parse_json(submission.terms)["callback_url"])
    problem = callbacks.problem_with(url, lane.settings)
    if problem is not None:
        return problem
    body = plain_json({"type": "settlement", **settlement_body(lane.own_conversation(), settled)})
    headers = {
        "content-type": "application/json",
        "idempotency-key": f"{submission.id}/callback",
        callbacks.SIGNATURE_HEADER: callbacks.sign(
            lane.settings.callback_secret, body, lane.clock()
        ),
    }
    traceparent = trace_context.onward(submission.traceparent, submission.id, "/callback")
    if traceparent is not None:
        headers[trace_context.HEADER] = traceparent
    try:
        status = await asyncio.wait_for(lane.outside.post(url, body, headers), TRY_S)
    except (StorageUnavailable, TimeoutError) as error:
        return f"no answer: {error}"
    return None if status in SUCCESS else f"answered {status}"


def _delivered(lane: Lane, message: Message) -> None:
    is_first = outbox.delivered(lane.storage, message)
    if is_first and message.kind is MessageKind.CALLBACK:
        _note_callback(lane, message, is_delivered=True, error=None)


def _give_up(lane: Lane, message: Message, error: str) -> None:
    outbox.bury(lane.storage, message, error)
    _note_callback(lane, message, is_delivered=False, error=error)


def _note_callback(lane: Lane, message: Message, *, is_delivered: bool, error: str | None) -> None:
    end = conversation_log.tail(lane.storage)
    ended = CallbackEnded(
        submission=message.submission,
        is_delivered=is_delivered,
        tries=message.tries + 1,
        last_error=error,
    )
    identity = record_id("callback", message.submission, str(end.sequence + 1))
    conversation_log.append(lane.storage, end, Entry(identity, None, None, ended), lane.clock())
