"""How submissions join a running host: their inputs enter its inbox, and they settle with it.

1. Only the unbroken run of open `mode: join` submissions directly behind the host joins it, in order, of the same
   agent and the same principal. One that becomes the head before that runs by itself.
2. The inbox's record, the inputs' records and the moves are one commit, so an input is delivered once or not at
   all.
"""

from dataclasses import dataclass
from typing import Any

from quiesce import agenda, conversation_log, ledger, settlement
from quiesce.conversation_log import Entry, Tail
from quiesce.fence import Fence
from quiesce.ids import RecordId, SubmissionId, parse_json, record_id
from quiesce.journal import Journal, Operation
from quiesce.ledger import Submission
from quiesce.records import InboxRead, InputJoined
from quiesce.states import State


@dataclass(frozen=True, slots=True)
class JoinedInput:
    """One submission that has joined this Run, and its input in JSON form."""

    submission: SubmissionId
    input: Any


def joined_id(submission: SubmissionId) -> RecordId:
    """Derive the id of the record that hands a submission's input to its host."""
    return record_id(submission, "joined")


def read_inbox(fence: Fence, journal: Journal, operation: Operation) -> list[JoinedInput]:
    """Return what an inbox has held, or take in what it holds now."""
    recorded = journal.find(operation.id, "read")
    if isinstance(recorded, InboxRead):
        return [_recorded_input(fence, SubmissionId(each)) for each in recorded.joined]
    return fence.commit(lambda end, now_ms: _take_in(fence, end, operation, now_ms))


def _recorded_input(fence: Fence, submission: SubmissionId) -> JoinedInput:
    record = conversation_log.read(fence.lane.storage, joined_id(submission))
    payload = None if record is None else record.parsed()
    assert isinstance(payload, InputJoined), submission
    return JoinedInput(submission, payload.input)


def _take_in(fence: Fence, end: Tail, operation: Operation, now_ms: int) -> list[JoinedInput]:
    storage = fence.lane.storage
    host = ledger.at(storage, fence.sequence)
    assert host is not None
    joining = _joinable(fence, host)
    read = InboxRead(
        operation=operation.id,
        arguments_digest=operation.arguments_digest,
        joined=[each.id for each in joining],
    )
    end = fence.append(end, (operation.id, "read"), read, now_ms)
    inputs: list[JoinedInput] = []
    for each in joining:
        text = ledger.input_of(storage, each.sequence)
        assert text is not None
        joined = InputJoined(host=host.id, input=parse_json(text))
        entry = Entry(joined_id(each.id), each.id, fence.epoch, joined)
        end = conversation_log.append(storage, end, entry, now_ms)
        if each.deadline_at_ms is not None:
            # It settles with its host now, whatever its own deadline was.
            agenda.remove(storage, agenda.deadline(each.sequence, each.deadline_at_ms))
        ledger.move(storage, each, State.JOINED, now_ms, input=None, host_sequence=host.sequence)
        inputs.append(JoinedInput(each.id, joined.input))
    if joining:
        ledger.move(
            storage, host, host.state, now_ms, owner=host.owner, host_sequence=host.sequence
        )
    return inputs


def _joinable(fence: Fence, host: Submission) -> list[Submission]:
    storage = fence.lane.storage
    already = settlement.joined_to(storage, host)
    behind = already[-1].sequence if already else host.sequence
    found: list[Submission] = []
    for each in ledger.open_page(storage, behind, settlement.JOINS_MAX - len(already)):
        fits = (each.agent, each.agent_version, each.principal) == (
            host.agent,
            host.agent_version,
            host.principal,
        )
        if each.mode != "join" or each.state is not State.READY or not fits:
            break
        found.append(each)
    return found
