"""What verify and export read of the ledger, whatever stands in its rows: nothing is refused for being unsound."""

from collections.abc import Collection
from typing import Any

from quiesce.ids import SubmissionId, plain_json
from quiesce.laws import SubmissionFacts
from quiesce.storage import SqlValue, Storage

_TOLD = {
    "sequence": "sequence",
    "submission": "id",
    "agent": "agent",
    "agent_version": "agent_version",
    "mode": "mode",
    "state": "state",
    "outcome": "outcome",
    "attempts": "attempts",
    "accepted_at_ms": "accepted_at_ms",
    "deadline_at_ms": "deadline_at_ms",
    "settled_at_ms": "settled_at_ms",
    "purged_at_ms": "purged_at_ms",
    "input_digest": "input_digest",
}
"""What a row says to whoever may read its conversation, and the column that says it."""


def told(storage: Storage, after: int, limit: int) -> list[tuple[dict[str, Any], bool]]:
    """Read what may be told of a bounded page of rows, sound or not, and whether each holds its input."""
    rows = storage.execute(
        f"SELECT input IS NOT NULL, {', '.join(_TOLD.values())} FROM submissions WHERE sequence > ?"
        " ORDER BY sequence LIMIT ?",
        after,
        limit,
    )
    return [(dict(zip(_TOLD, told, strict=True)), bool(has_input)) for has_input, *told in rows]


def purged_at(storage: Storage, submissions: Collection[SubmissionId]) -> dict[SubmissionId, int]:
    """Read when these submissions were purged, as far as they were."""
    if not submissions:
        return {}
    rows = storage.execute(
        "SELECT id, purged_at_ms FROM submissions"
        " WHERE id IN (SELECT value FROM json_each(?)) AND purged_at_ms IS NOT NULL",
        plain_json(sorted(submissions)),
    )
    return {SubmissionId(name): at_ms for name, at_ms in rows}


def facts(storage: Storage, after: int, limit: int) -> list[SubmissionFacts]:
    """Read what the laws need to know of a bounded page of rows, whatever stands in them."""
    return _facts(storage, "sequence > ? ORDER BY sequence LIMIT ?", after, limit)


def facts_at(storage: Storage, places: Collection[int]) -> list[SubmissionFacts]:
    """Read what the laws need to know of the rows at these places in the queue."""
    among = "sequence IN (SELECT value FROM json_each(?))"
    return _facts(storage, among, plain_json(sorted(places))) if places else []


def facts_of(storage: Storage, submissions: Collection[str]) -> list[SubmissionFacts]:
    """Read what the laws need to know of these submissions, as far as they have rows."""
    among = "id IN (SELECT value FROM json_each(?))"
    return _facts(storage, among, plain_json(sorted(submissions))) if submissions else []


def _facts(storage: Storage, which: str, *params: SqlValue) -> list[SubmissionFacts]:
    rows = storage.execute(
        "SELECT sequence, id, state, outcome, owner IS NOT NULL, purged_at_ms IS NOT NULL"
        f" FROM submissions WHERE {which}",
        *params,
    )
    return [
        SubmissionFacts(place, name, state, outcome, bool(is_owned), bool(is_purged))
        for place, name, state, outcome, is_owned, is_purged in rows
    ]
