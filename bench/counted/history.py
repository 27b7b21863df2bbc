"""A long history in no time: settled submissions written through the books, each as an `echo` leaves it.

1. Every row and record is what an `echo` leaves: derived ids, real digests, an unbroken chain, totals that add
   up. The laws of `invariants.py` hold over it, and `bench/run` checks that they do.
2. Only a lane without open submissions can be given a history, since a history lies before whatever is open.
"""

from quiesce import conversation_log, generation_record, ledger, schema, wake
from quiesce.conversation_log import Entry, Tail
from quiesce.generation_record import Cost
from quiesce.ids import ConversationId, canonical_json, digest, record_id, submission_id
from quiesce.lane import Lane
from quiesce.records import ConversationCreated, InputApplied, SettlementRecorded
from quiesce.settlement import settlement_id
from quiesce.states import OutcomeKind, State
from quiesce.storage import SqlValue, Storage

BATCH = 500
COST = Cost(wakes=1, rows_read=20, rows_written=10, active_ms=5)
TERMS = canonical_json(
    {"agent": "echo", "mode": "queue", "deadline_ms": None, "callback_url": None}
)


def grow(lane: Lane, conversation: str, count: int) -> None:
    """Add `count` settled submissions; the first call creates the conversation, also for none."""
    storage, now_ms = lane.storage, lane.clock()
    if not schema.exists(storage):
        storage.commit(lambda: _create(storage, ConversationId(conversation), now_ms))
    for first in range(0, count, BATCH):
        size = min(BATCH, count - first)
        storage.commit(lambda: _add(lane, ConversationId(conversation), size, now_ms))  # noqa: B023 - called at once


def _create(storage: Storage, conversation: ConversationId, now_ms: int) -> None:
    schema.create(storage)
    created = ConversationCreated(conversation=conversation)
    entry = Entry(record_id("conversation", "created"), None, None, created)
    conversation_log.append(storage, Tail(), entry, now_ms)
    wake.store(storage, generation_record.FIRST)


def _add(lane: Lane, conversation: ConversationId, count: int, now_ms: int) -> None:
    storage = lane.storage
    end = conversation_log.tail(storage)
    assert end.nonterminal == 0, "only a lane without open submissions can be given a history"
    agent = lane.agents.current("echo")
    assert agent is not None
    for sequence in range(end.last + 1, end.last + 1 + count):
        submission = submission_id(conversation, "bench", f"history-{sequence}")
        epoch = end.epoch + 1
        applied = InputApplied(agent="echo", agent_version=agent.version, input=sequence)
        entry = Entry(record_id(submission, "input"), submission, epoch, applied)
        end = conversation_log.append(storage, end, entry, now_ms)
        claimed_tail = end.sequence
        settled = SettlementRecorded(
            outcome=OutcomeKind.COMPLETED, result=sequence, cost=COST.model_dump()
        )
        end = Tail(end.sequence, end.chain, end.epoch, end.settled, sequence + 1, sequence)
        entry = Entry(settlement_id(submission), submission, epoch, settled)
        end = conversation_log.append(storage, end, entry, now_ms, settles=1)
        columns: dict[str, SqlValue] = {
            "sequence": sequence,
            "id": submission,
            "principal": "bench",
            "idempotency_key": f"history-{sequence}",
            "agent": "echo",
            "agent_version": agent.version,
            "mode": "queue",
            "input_digest": digest(canonical_json(sequence)),
            "terms": TERMS,
            "accepted_at_ms": now_ms,
            "state": State.SETTLED.value,
            "state_since_ms": now_ms,
            "epoch": epoch,
            "interrupted_since_ms": now_ms,
            "claimed_tail": claimed_tail,
            "outcome": OutcomeKind.COMPLETED.value,
            "settled_at_ms": now_ms,
        }
        ledger.insert(storage, {**columns, **COST.model_dump()})
