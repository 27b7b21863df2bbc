"""The log as one reads it who follows it: what stands behind a place, all of it or one submission's.

1. A place is a sequence of the log. What is read from it moves it forward, past what was left out too, so that
   nothing is read twice.
2. Where a submission's records begin is found in the index of record ids: following one submission does not cost
   the history of its conversation.
"""

from dataclasses import dataclass

from quiesce import conversation_log
from quiesce.ids import SubmissionId
from quiesce.records import Record
from quiesce.storage import Storage

RECORDS_MAX = 200
BYTES_MAX = 250_000
"""One glimpse reads at most so many records, and so many bytes of payload or one record."""


@dataclass(frozen=True, slots=True)
class Glimpse:
    """What stands behind a place, as far as one read goes."""

    records: tuple[Record, ...]
    at: int
    """The place to go on from."""
    is_whole: bool
    """Whether the log ended there when it was read."""


def behind(storage: Storage, place: int, submission: SubmissionId | None) -> Glimpse:
    """Read what stands behind a place."""
    end = conversation_log.tail(storage).sequence
    if place >= end:
        return Glimpse((), place, is_whole=True)
    page = conversation_log.page(storage, place, RECORDS_MAX, BYTES_MAX)
    wanted = (each for each in page if submission is None or each.submission == submission)
    at = page[-1].sequence
    return Glimpse(tuple(wanted), at, is_whole=at >= end)


def place_before(storage: Storage, submission: SubmissionId, place: int) -> int:
    """Return the last place, at or behind `place`, that misses no record of a submission.

    Its record ids start with its own id and a slash; the next character is a zero.
    """
    rows = storage.execute(
        "SELECT min(sequence) FROM records WHERE record_id >= ? AND record_id < ? AND sequence > ?",
        f"{submission}/",
        f"{submission}0",
        place,
    )
    first = rows[0][0]
    return conversation_log.tail(storage).sequence if first is None else int(first) - 1
