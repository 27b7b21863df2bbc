"""Records: the append-only, gap-free, chained history of a conversation.

1. Sequences start at 1 and have no gap. Nothing is ever updated, but that a purge takes payloads out: identity,
   digest and chain of what was said stay.
2. Appending a record whose id stands in the log already is a replay if it says the same, at any tail, and
   Corruption if it says something else.
3. The tail carries two totals, how many submissions the log has settled and which one heads the queue, so that
   depth and head cost one row, however long the history is.
"""

from dataclasses import dataclass

from quiesce.errors import Corruption
from quiesce.ids import ConversationId, OperationId, RecordId, SubmissionId
from quiesce.records import (
    CHAIN_START,
    RECORD_VERSION,
    ConversationCreated,
    Payload,
    Record,
    chain_digest,
    content_digest,
    payload_json,
)
from quiesce.storage import Row, Storage

_COLUMNS = (
    "sequence, record_id, kind, submission, epoch, created_at_ms, version, payload, digest, chain"
)


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of the log: where the next record goes, and the lane's totals."""

    sequence: int = 0
    chain: str = CHAIN_START
    epoch: int = 0
    settled: int = 0
    head: int = 1
    """The queue sequence of the first open submission, or of the next one to be admitted."""
    last: int = 0
    """The queue sequence of the newest submission."""

    @property
    def nonterminal(self) -> int:
        """How many submissions are open."""
        return self.last - self.settled


@dataclass(frozen=True, slots=True)
class Entry:
    """What is about to be appended: an id, its owner, the fence that it carries and what it says."""

    record_id: RecordId
    submission: SubmissionId | None
    epoch: int | None
    """The epoch of the attempt that writes; None for what is no attempt's, which takes the tail's."""
    payload: Payload


def _record(row: Row) -> Record:
    return Record(*row)


def tail(storage: Storage) -> Tail:
    """Read the end of the log."""
    rows = storage.execute(
        "SELECT sequence, chain, epoch, settled, head,"
        " coalesce((SELECT max(sequence) FROM submissions), 0)"
        " FROM records ORDER BY sequence DESC LIMIT 1"
    )
    return Tail(*rows[0]) if rows else Tail()


def append(storage: Storage, end: Tail, entry: Entry, now_ms: int, *, settles: int = 0) -> Tail:
    """Append one record behind `end`, which this same step has read, and return the new tail.

    `settles` adds to the total of settled submissions; the head is the one that `end` names. A replay returns the
    tail as it stands. Raises Corruption when the id is taken by a record that says something else.
    """
    payload = payload_json(entry.payload)
    kind = entry.payload.kind
    epoch = end.epoch if entry.epoch is None else entry.epoch
    content = content_digest(entry.record_id, kind, entry.submission, epoch, payload)
    new = Tail(
        sequence=end.sequence + 1,
        chain=chain_digest(end.chain, end.sequence + 1, content, now_ms),
        epoch=epoch,
        settled=end.settled + settles,
        head=end.head,
        last=end.last,
    )
    inserted = storage.write(
        "INSERT INTO records (sequence, record_id, kind, submission, epoch, created_at_ms, version,"
        " payload, digest, chain, settled, head) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (record_id) DO NOTHING",
        new.sequence,
        entry.record_id,
        kind,
        entry.submission,
        epoch,
        now_ms,
        RECORD_VERSION,
        payload,
        content,
        new.chain,
        new.settled,
        new.head,
    )
    if inserted:
        return new
    _check_replay(storage, entry, payload)
    return end


def _check_replay(storage: Storage, entry: Entry, payload: str) -> None:
    stored = read(storage, entry.record_id)
    assert stored is not None
    # What was purged cannot be compared; its id can.
    said = stored.payload or payload
    if (stored.kind, stored.submission, said) != (entry.payload.kind, entry.submission, payload):
        law = f"record {entry.record_id} is appended once"
        raise Corruption(law, f"a {stored.kind} that says something else at {stored.sequence}")


def conversation(storage: Storage) -> ConversationId:
    """Return which conversation this is: the first record says so, and nothing else does."""
    rows = storage.execute(f"SELECT {_COLUMNS} FROM records WHERE sequence = 1")
    payload = _record(rows[0]).parsed() if rows else None
    if not isinstance(payload, ConversationCreated):
        raise Corruption("the first record of a log names its conversation", str(payload)[:100])
    return ConversationId(payload.conversation)


def read(storage: Storage, record_id: RecordId) -> Record | None:
    """Read one record by its id."""
    rows = storage.execute(f"SELECT {_COLUMNS} FROM records WHERE record_id = ?", record_id)
    return _record(rows[0]) if rows else None


def of_submission(storage: Storage, submission: SubmissionId) -> list[Record]:
    """Read every record of one submission in the order of the log."""
    return _under(storage, submission)


def ids_of(
    storage: Storage, submission: SubmissionId, kinds: tuple[str, str], limit: int
) -> list[str]:
    """Read the ids of a submission's first records of two kinds, in the order of the log; no payload is read."""
    rows = storage.execute(
        "SELECT record_id FROM records WHERE record_id >= ? AND record_id < ?"
        " AND (kind = ? OR kind = ?) ORDER BY sequence LIMIT ?",
        f"{submission}/",
        f"{submission}0",
        *kinds,
        limit,
    )
    return [record_id for (record_id,) in rows]


def of_operation(
    storage: Storage, submission: SubmissionId, operation: OperationId
) -> list[Record]:
    """Read every record of one operation in the order of the log."""
    return _under(storage, f"{submission}/{operation}")


def _under(storage: Storage, owner: str) -> list[Record]:
    """Read the records whose ids start with an owner and a slash, through the index of record ids.

    The next character after a slash is a zero.
    """
    rows = storage.execute(
        f"SELECT {_COLUMNS} FROM records WHERE record_id >= ? AND record_id < ?",
        f"{owner}/",
        f"{owner}0",
    )
    return sorted((_record(row) for row in rows), key=_by_sequence)


def _by_sequence(record: Record) -> int:
    return record.sequence


def purge(storage: Storage, submission: SubmissionId) -> None:
    """Take the payloads of a submission's records out of the log."""
    storage.write(
        "UPDATE records SET payload = NULL WHERE record_id >= ? AND record_id < ? AND payload IS NOT NULL",
        f"{submission}/",
        f"{submission}0",
    )


def has_progressed(storage: Storage, submission: SubmissionId, after: int) -> bool:
    """Say whether a record of this submission stands behind a place in the log."""
    rows = storage.execute(
        "SELECT 1 FROM records WHERE sequence > ? AND submission = ? LIMIT 1", after, submission
    )
    return len(rows) == 1


def page(storage: Storage, after: int, limit: int, bytes_max: int) -> list[Record]:
    """Read a page of the log, bounded by count and by the bytes of its payloads; never empty before the end."""
    rows = storage.execute(
        "SELECT sequence, total(length(CAST(payload AS BLOB))) OVER (ORDER BY sequence) FROM"
        " (SELECT sequence, payload FROM records WHERE sequence > ? ORDER BY sequence LIMIT ?)",
        after,
        limit,
    )
    fitting = [sequence for sequence, total in rows if total <= bytes_max]
    last = fitting[-1] if fitting else (rows[0][0] if rows else after)
    found = storage.execute(
        f"SELECT {_COLUMNS} FROM records WHERE sequence > ? AND sequence <= ? ORDER BY sequence",
        after,
        last,
    )
    return [_record(row) for row in found]
