"""The Object's side of an export: one part of a bundle, answered from rows that are on disk. It writes nothing.

1. Submissions come first, as many as there were, then the log, to where it ended when the last of them was read.
   So what a submission's line says has its record in the bundle, and an input that is no record yet is in the line.
2. A line tells what stood there when its page was read. Work goes on meanwhile: behind the record that the header
   names as the tail, records may say more than the submissions' lines do, and be of submissions that have none.
3. A payload goes out as the text that its digest was taken over, and so does everything else that a digest covers.
4. Rows go out as they stand, sound or not: what is wrong with them is for a verifier to say.
5. A part is bounded by lines and by bytes. Of a large conversation it is larger, so that one request holds it all.
"""

from collections.abc import Callable, Mapping
from typing import Any

from quiesce import bundle, conversation_log, ledger, ledger_facts, verbs
from quiesce.ids import ConversationId, SubmissionId
from quiesce.lane import Lane
from quiesce.records import Record
from quiesce.settlement_shape import timestamp
from quiesce.wire import Answer, answer, dump

SHARES = 200
"""Into how many parts a conversation is cut that is too large for the least ones."""
LINES_MIN, LINES_MAX = 256, 4_096
BYTES_MIN, BYTES_MAX = 1_000_000, 8_000_000
"""How much a part may hold, or one line: between the least of a small conversation and the most of any."""


async def export(lane: Lane, question: verbs.Export) -> Answer:
    """Answer with one part, as the text of its lines; the header `next` has the question for the one after it.

    Raises Refusal: `not-found`.
    """
    conversation = ConversationId(question.conversation)
    lane.require_conversation(conversation)
    lines, after = PARTS[question.part](lane, question)
    # What was told must outlive a crash: another bundle would contradict this one else.
    await lane.storage.sync()
    text = "".join(f"{dump(line)}\n" for line in lines)
    following = {} if after is None else {bundle.NEXT: after.model_dump_json()}
    return answer(200, text, **following)


type _Part = tuple[list[dict[str, Any]], verbs.Export | None]


def _header(lane: Lane, question: verbs.Export) -> _Part:
    end = conversation_log.tail(lane.storage)
    line = {
        "type": "header",
        "format": bundle.FORMAT,
        "version": bundle.VERSION,
        "conversation": question.conversation,
        "exported_at": timestamp(lane.clock()),
        "tail": {"sequence": end.sequence, "digest": end.chain},
    }
    return [line], verbs.Export(
        conversation=question.conversation, part="submissions", until=end.last
    )


def _submissions(lane: Lane, question: verbs.Export) -> _Part:
    storage = lane.storage
    lines: list[dict[str, Any]] = []
    bytes_left, place = _bytes_max(lane), question.place
    for facts, has_input in ledger_facts.told(storage, place, _lines_max(question.until)):
        if facts["sequence"] > question.until:
            break
        text = ledger.input_of(storage, facts["sequence"]) if has_input else None
        bytes_left -= 0 if text is None else len(text.encode())
        if lines and bytes_left < 0:
            break
        lines.append({"type": "submission", **facts, "input": text})
        place = facts["sequence"]
    counted = question.submissions + len(lines)
    if lines and place < question.until:
        following = question.model_copy(update={"place": place, "submissions": counted})
        return lines, following
    end = conversation_log.tail(storage)
    return lines, verbs.Export(
        conversation=question.conversation,
        part="records",
        until=end.sequence,
        digest=end.chain,
        submissions=counted,
    )


def _records(lane: Lane, question: verbs.Export) -> _Part:
    storage = lane.storage
    limit = _lines_max(question.until)
    page = conversation_log.page(storage, question.place, limit, _bytes_max(lane))
    page = [each for each in page if each.sequence <= question.until]
    silent = {each.submission for each in page if each.payload is None and each.submission}
    purged = ledger_facts.purged_at(storage, silent)
    lines = [_record(each, purged) for each in page]
    counted = question.records + len(lines)
    if page and page[-1].sequence < question.until:
        place = page[-1].sequence
        return lines, question.model_copy(update={"place": place, "records": counted})
    end = {
        "type": "end",
        "records": counted,
        "submissions": question.submissions,
        "tail": {"sequence": question.until, "digest": question.digest},
    }
    return [*lines, end], None


def _record(record: Record, purged: dict[SubmissionId, int]) -> dict[str, Any]:
    line = {
        "type": "record",
        "sequence": record.sequence,
        "record_id": record.record_id,
        "kind": record.kind,
        "submission": record.submission,
        "epoch": record.epoch,
        "created_at_ms": record.created_at_ms,
        "version": record.version,
        "payload": record.payload,
        "digest": record.digest,
        "chain": record.chain,
    }
    if record.payload is None and record.submission in purged:
        line["purged_at_ms"] = purged[record.submission]
    return line


PARTS: Mapping[str, Callable[[Lane, verbs.Export], _Part]] = {
    "header": _header,
    "submissions": _submissions,
    "records": _records,
}
"""How each part is made."""


def _lines_max(total: int) -> int:
    return min(LINES_MAX, max(LINES_MIN, total // SHARES))


def _bytes_max(lane: Lane) -> int:
    return min(BYTES_MAX, max(BYTES_MIN, lane.storage.database_bytes() // SHARES))
