"""The Object's side of an event stream: one question answered from rows, as soon as there is something to say.

1. Every record and every settlement is read from rows that are on disk. What was told in memory only ends the wait.
2. A question waits for a bounded time, and holds one of a bounded number of places while its stream goes on.
3. A place in the log that lies behind its end names nothing here: it is another conversation's, and refused.
"""

import asyncio

from quiesce import events, following, ledger, settlement, shapes
from quiesce.audience import Listener
from quiesce.conversation_log import tail
from quiesce.errors import Refusal, RefusalCode
from quiesce.ids import ConversationId, SubmissionId
from quiesce.lane import Lane
from quiesce.settlement import Settlement
from quiesce.settlement_shape import settlement_body
from quiesce.verbs import StopWatching, Watch
from quiesce.wire import Answer, answer, dump

RETRY_AFTER_S = 5
HEAD = ""
"""The stream of a request that only wants to know whether there could be one: it takes no place."""


async def watch(lane: Lane, question: Watch | StopWatching) -> Answer:
    """Answer a stream's question, or free its place."""
    if isinstance(question, StopWatching):
        lane.audience.leave(question.stream)
        return answer(200, None)
    return await _answer(lane, question)


async def _answer(lane: Lane, question: Watch) -> Answer:
    """Answer with the text of the events behind a place, waiting for some until the question's time is over.

    The headers say where to go on, and what the answer has reached: `part` of the log, the `whole` of it, or the
    submission's settlement, `settled`, behind which there is nothing.
    """
    conversation = ConversationId(question.conversation)
    wanted = None if question.submission is None else SubmissionId(question.submission)
    place = _checked_place(lane, conversation, wanted, question)
    listener = _listener(lane, question)
    until_ms = lane.clock() + question.wait_ms
    is_over = question.wait_ms <= 0
    while True:
        listener.news.clear()
        glimpse = following.behind(lane.storage, place, wanted)
        place = glimpse.at
        settled = _settlement(lane, wanted) if glimpse.is_whole else None
        progress = lane.audience.unheard(listener, wanted)
        has_news = glimpse.records or settled is not None or progress
        if has_news or not glimpse.is_whole or is_over or listener.has_left:
            break
        # The timer says when it is over, not the clock: a clock that has not moved would be asked for ever.
        is_over = not await _has_been_told(listener, until_ms - lane.clock())
    # What a reader was shown must outlive a crash: its place would name other records else.
    await lane.storage.sync()
    text = [events.event("progress", _progress(each.submission, each.value)) for each in progress]
    for record in glimpse.records:
        document = dump(shapes.record_body(record))
        text.append(events.event("record", document, place=record.sequence))
    if settled is not None:
        document = dump(settlement_body(conversation, settled))
        text.append(events.event("settlement", document, retry_ms=events.SETTLED_RETRY_MS))
        lane.audience.leave(question.stream)
    reached = "settled" if settled is not None else "whole" if glimpse.is_whole else "part"
    return answer(200, "".join(text), place=str(place), state=reached)


def _checked_place(
    lane: Lane, conversation: ConversationId, wanted: SubmissionId | None, question: Watch
) -> int:
    lane.require_conversation(conversation)
    if wanted is not None:
        lane.require_submission(conversation, wanted)
    end = tail(lane.storage).sequence
    if question.place > end:
        message = (
            f"this conversation has no record {question.place}, its last is {end}: a place in its"
            " log is the id of one of its own events"
        )
        facts = {"limit": "the last record", "actual": question.place, "maximum": end}
        raise Refusal(RefusalCode.INVALID_REQUEST, message, facts)
    if question.is_first and wanted is not None:
        return following.place_before(lane.storage, wanted, question.place)
    return question.place


def _listener(lane: Lane, question: Watch) -> Listener:
    if question.stream == HEAD:
        return Listener(0, 0)
    places = lane.settings.streams_max
    found = lane.audience.join(question.stream, lane.clock(), question.wait_ms, places)
    if found is None:
        raise Refusal(
            RefusalCode.RATE_LIMITED,
            f"{places} event streams follow this conversation already, which is STREAMS_MAX",
            {
                "limit": "STREAMS_MAX",
                "actual": places + 1,
                "maximum": places,
                "retry_after_s": RETRY_AFTER_S,
            },
        )
    return found


def _settlement(lane: Lane, wanted: SubmissionId | None) -> Settlement | None:
    found = None if wanted is None else ledger.find(lane.storage, wanted)
    if found is None or found.is_open or found.purged_at_ms is not None:
        return None
    return settlement.read(lane.storage, found)


async def _has_been_told(listener: Listener, left_ms: int) -> bool:
    """Wait until a listener is told that rows were written; False when it was not told in time."""
    try:
        return await asyncio.wait_for(listener.news.wait(), left_ms / 1_000)
    except TimeoutError:
        return False


def _progress(submission: SubmissionId, value: str) -> str:
    """Write what a Run has shown; its value is JSON already."""
    return f'{{"submission":{dump(submission)},"value":{value}}}'
