"""Submissions: the operational rows that say what is owed.

1. One row is one submission, in the order of admission; it is inserted once and never deleted here.
2. Every UPDATE names the state that it leaves and the epoch that it holds, and checks that one row moved.
3. Every move out of `running` or `input-applied` ends ownership in the same statement.
4. No scan selects the input: it leaves the row for the log in the commit that applies it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from quiesce.errors import Corruption, IllegalMove
from quiesce.generation_record import Cost
from quiesce.ids import SubmissionId, digest, parse_json, plain_json
from quiesce.states import OWNED, State, is_lawful
from quiesce.storage import Row, SqlValue, Storage

_COLUMNS = (
    "sequence, id, principal, idempotency_key, agent, agent_version, mode, input_digest, terms,"
    " accepted_at_ms, deadline_at_ms, state, state_since_ms, owner, epoch, attempts, interruptions,"
    " interrupted_since_ms, claimed_tail, not_before_ms, last_failure, abort, host_sequence, parent,"
    " traceparent, outcome, settled_at_ms, purged_at_ms, wakes, rows_read, rows_written, active_ms"
)
_HISTORY = (
    "EXISTS (SELECT 1 FROM records WHERE record_id = submissions.id || '/settlement'),"
    " EXISTS (SELECT 1 FROM records WHERE records.sequence > submissions.claimed_tail"
    " AND records.submission = submissions.id AND submissions.owner IS NOT NULL)"
)
_CHANGEABLE = frozenset(
    {
        "input",
        "owner",
        "epoch",
        "attempts",
        "interruptions",
        "interrupted_since_ms",
        "claimed_tail",
        "not_before_ms",
        "last_failure",
        "abort",
        "host_sequence",
        "parent",
        "outcome",
        "settled_at_ms",
    }
)


@dataclass(frozen=True, slots=True)
class Submission:
    """One row of the ledger, without its input."""

    sequence: int
    id: SubmissionId
    principal: str
    idempotency_key: str
    agent: str
    agent_version: str
    mode: str
    input_digest: str
    terms: str
    """Canonical JSON of what was agreed beside the input: deadline, callback."""
    accepted_at_ms: int
    deadline_at_ms: int | None
    state: State
    state_since_ms: int
    owner: str | None
    epoch: int
    attempts: int
    interruptions: int
    interrupted_since_ms: int | None
    claimed_tail: int
    """The tail of the log when the attempt was claimed: an own record after it is progress."""
    not_before_ms: int | None
    last_failure: str | None
    abort: str | None
    host_sequence: int | None
    parent: str | None
    traceparent: str | None
    """The trace that its admission belongs to, as `trace_context` writes it."""
    outcome: str | None
    settled_at_ms: int | None
    purged_at_ms: int | None
    """When its payloads were purged: what is left is its tombstone."""
    cost: Cost
    is_settled_in_log: bool
    """A settlement of it stands in the log; then the row must follow, whatever it says."""
    has_progressed: bool
    """The attempt that owns it has appended a record."""
    is_entangled: bool = True
    """It may have open operations, or signals that nobody has received."""

    @property
    def is_open(self) -> bool:
        """Whether a settlement is still owed."""
        return self.state is not State.SETTLED


def _submission(row: Row) -> Submission:
    try:
        state = State(row[11])
    except ValueError:
        law = f"submission {row[1]} stands in a known state"
        raise Corruption(law, str(row[11])) from None
    *facts, wakes, rows_read, rows_written, active_ms, is_settled_in_log, has_progressed = row
    facts[11] = state
    cost = Cost.model_construct(
        wakes=wakes, rows_read=rows_read, rows_written=rows_written, active_ms=active_ms
    )
    flags = (bool(is_settled_in_log), bool(has_progressed))
    return Submission(*(*facts, cost, *flags))


@dataclass(frozen=True, slots=True)
class AbortWish:
    """Why somebody wants a submission to end, and whether its children are let go instead of aborted."""

    reason: str
    detaches: bool


def abort_wish(submission: Submission) -> AbortWish | None:
    """Return the recorded wish for the submission's abort, or None."""
    if submission.abort is None:
        return None
    wish = parse_json(submission.abort)
    return AbortWish(str(wish["reason"]), bool(wish["detaches"]))


def insert(storage: Storage, columns: Mapping[str, SqlValue]) -> None:
    """Insert one submission; the table's constraints are its last guard."""
    names = ", ".join(columns)
    marks = ", ".join("?" for _ in columns)
    storage.write(f"INSERT INTO submissions ({names}) VALUES ({marks})", *columns.values())


def find(storage: Storage, submission: SubmissionId) -> Submission | None:
    """Read one submission by its id."""
    rows = storage.execute(
        f"SELECT {_COLUMNS}, {_HISTORY} FROM submissions WHERE id = ?", submission
    )
    return _submission(rows[0]) if rows else None


def at(storage: Storage, sequence: int) -> Submission | None:
    """Read one submission by its place in the queue."""
    rows = storage.execute(
        f"SELECT {_COLUMNS}, {_HISTORY} FROM submissions WHERE sequence = ?", sequence
    )
    return _submission(rows[0]) if rows else None


def input_of(storage: Storage, sequence: int) -> str | None:
    """Read the input of one submission, or None once it stands in the log."""
    rows = storage.execute("SELECT input FROM submissions WHERE sequence = ?", sequence)
    return rows[0][0] if rows else None


def refreshed(storage: Storage, claimed: Submission) -> Submission | None:
    """Read again what an attempt may have changed: an abort's intent, joined rows, whether anything is open.

    Returns None when the attempt does not own it any more.
    """
    rows = storage.execute(
        "SELECT abort, host_sequence,"
        " EXISTS (SELECT 1 FROM operations WHERE submission_sequence = submissions.sequence)"
        " OR EXISTS (SELECT 1 FROM signals WHERE submission_sequence = submissions.sequence)"
        " FROM submissions WHERE sequence = ? AND epoch = ? AND owner = ?",
        claimed.sequence,
        claimed.epoch,
        claimed.owner,
    )
    if not rows:
        return None
    abort, host_sequence, is_entangled = rows[0]
    return replace(
        claimed, abort=abort, host_sequence=host_sequence, is_entangled=bool(is_entangled)
    )


def head(storage: Storage) -> Submission | None:
    """Read the first open submission of the queue, which the tail of the log names."""
    rows = storage.execute(
        f"SELECT {_COLUMNS}, {_HISTORY} FROM submissions WHERE sequence ="
        " (SELECT head FROM records ORDER BY sequence DESC LIMIT 1)"
    )
    return _submission(rows[0]) if rows else None


def head_behind(storage: Storage, after: int) -> int:
    """Return the place of the first open submission behind another, or the place of the next admission.

    What is passed over was settled out of order, and is passed over only once: the log remembers the head.
    """
    rows = storage.execute(
        "SELECT coalesce((SELECT sequence FROM submissions WHERE sequence > ? AND settled_at_ms IS NULL"
        " ORDER BY sequence LIMIT 1), (SELECT max(sequence) + 1 FROM submissions))",
        after,
    )
    place: int = rows[0][0]
    return place


def open_page(storage: Storage, after: int, limit: int) -> list[Submission]:
    """Read a bounded page of open submissions in the order of the queue."""
    rows = storage.execute(
        f"SELECT {_COLUMNS}, {_HISTORY} FROM submissions WHERE sequence > ? AND settled_at_ms IS NULL"
        " ORDER BY sequence LIMIT ?",
        after,
        limit,
    )
    return [_submission(row) for row in rows]


def page(storage: Storage, after: int, limit: int, state: State | None) -> list[Submission]:
    """Read a bounded page of submissions in the order of the queue, of one state or of all."""
    by_state = "" if state is None else " AND state = ?"
    params: list[SqlValue] = [after, *([] if state is None else [state.value]), limit]
    rows = storage.execute(
        f"SELECT {_COLUMNS}, {_HISTORY} FROM submissions WHERE sequence > ?{by_state} ORDER BY sequence LIMIT ?",
        *params,
    )
    return [_submission(row) for row in rows]


_OWED = (
    "SELECT coalesce(owed.host_sequence, owed.sequence) FROM submissions AS owed WHERE owed.id IN"
    " (SELECT substr(subject, 1, instr(subject, '/') - 1) FROM agenda WHERE kind = 'message')"
)
"""The places of what is still owed to others, or has been joined by what is."""


def unpurged(storage: Storage, after: int) -> tuple[int | None, int | None]:
    """Find the first submission behind a place that is not purged, and the earliest settlement that can be.

    What this reads grows with what was admitted since then, and with what is owed to others.
    """
    rows = storage.execute(
        "SELECT min(sequence), min(settled_at_ms)"
        f" FILTER (WHERE coalesce(host_sequence, sequence) NOT IN ({_OWED}))"
        " FROM submissions WHERE sequence > ? AND purged_at_ms IS NULL",
        after,
    )
    place, settled_at_ms = rows[0]
    return place, settled_at_ms


def purgeable(storage: Storage, after: int, until_ms: int, limit: int) -> list[Submission]:
    """Read a bounded page of what was settled by an instant, is not purged, and is owed to nobody.

    What has joined a host is not among it: it is purged with its host.
    """
    rows = storage.execute(
        f"SELECT {_COLUMNS}, {_HISTORY} FROM submissions WHERE sequence > ? AND purged_at_ms IS NULL"
        " AND settled_at_ms <= ? AND coalesce(host_sequence, sequence) = sequence"
        f" AND sequence NOT IN ({_OWED}) ORDER BY sequence LIMIT ?",
        after,
        until_ms,
        limit,
    )
    return [_submission(row) for row in rows]


def joined_behind(storage: Storage, host_sequence: int, limit: int) -> list[Submission]:
    """Read what has joined a host, settled or not: it stands directly behind it, and is no more than `limit`."""
    rows = storage.execute(
        f"SELECT {_COLUMNS}, {_HISTORY} FROM submissions WHERE sequence > ? AND sequence <= ?"
        " AND host_sequence = ? ORDER BY sequence",
        host_sequence,
        host_sequence + limit,
        host_sequence,
    )
    return [_submission(row) for row in rows]


def forgotten(terms: str) -> str:
    """Say what is kept of a purged submission's terms: of a callback URL, which may hold a secret, a digest."""
    agreed = parse_json(terms)
    url = agreed["callback_url"]
    return plain_json({**agreed, "callback_url": None if url is None else digest(url)})


def bury(storage: Storage, submission: Submission, now_ms: int) -> None:
    """Leave of a settled submission what its key, its place and its outcome are."""
    moved = storage.write(
        "UPDATE submissions SET purged_at_ms = ?, terms = ?, input = NULL, last_failure = NULL,"
        " abort = NULL, parent = NULL, traceparent = NULL"
        " WHERE sequence = ? AND state = 'settled' AND purged_at_ms IS NULL",
        now_ms,
        forgotten(submission.terms),
        submission.sequence,
    )
    if not moved:
        message = f"{submission.id} is not settled, or is purged already"
        raise IllegalMove(message)


def counts_by_state(storage: Storage, head: int) -> dict[State, int]:
    """Count the open submissions by state; the settled ones are known without reading them."""
    rows = storage.execute(
        "SELECT state, count(*) FROM submissions WHERE sequence >= ? AND settled_at_ms IS NULL"
        " GROUP BY state",
        head,
    )
    return {State(state): count for state, count in rows}


def move(
    storage: Storage,
    submission: Submission,
    enters: State,
    now_ms: int,
    cost: Cost | None = None,
    **changes: Any,
) -> None:
    """Move a submission from the state and epoch that were read to another state.

    `cost` is all that it has cost so far, if that has grown; `changes` are further columns of the same
    statement. Ownership ends unless `owner` is among them.
    Raises IllegalMove, and changes nothing, when the move is not in the table or the row has moved on.
    """
    assert changes.keys() <= _CHANGEABLE, changes.keys()
    stays = enters is submission.state and submission.is_open
    if not is_lawful(submission.state, enters) and not stays:
        message = f"{submission.id} cannot move from {submission.state} to {enters}"
        raise IllegalMove(message)
    columns: dict[str, SqlValue] = {"state": enters.value, **changes}
    if not stays:
        columns["state_since_ms"] = now_ms
    if cost is not None:
        columns |= cost.fields()
    if submission.state in OWNED:
        columns.setdefault("owner", None)
    assigned = ", ".join(f"{name} = ?" for name in columns)
    moved = storage.write(
        f"UPDATE submissions SET {assigned} WHERE sequence = ? AND state = ? AND epoch = ?",
        *columns.values(),
        submission.sequence,
        submission.state.value,
        submission.epoch,
    )
    if not moved:
        message = f"{submission.id} is no longer {submission.state} at epoch {submission.epoch}"
        raise IllegalMove(message)
