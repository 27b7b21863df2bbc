"""retention: the payloads of what was settled long ago are purged, and its tombstone goes on answering its key.

1. A submission whose settlement is older than RETENTION_MS loses every payload: its input, its result, and all that
   its records say. Their ids, digests and chain stay, and so do its principal and key, its place, its outcome and
   its times.
2. A submission is purged in one commit, together with what had joined it and is answered with its result. Each
   commit may be repeated; what dies between two of them goes on with the alarm that the pass armed at its begin.
3. A sweep waits until a tenth of the time more has passed, so that one wake purges what a whole such span has
   settled. A lane holds one alarm for it, and none when nothing is left that can be purged.
4. What is still owed to a parent or a callback URL is kept until it was told or given up, and wakes nobody
   meanwhile.
5. How far the purge has come stands in the generation record, which every pass writes anyway: a lane that keeps
   everything pays nothing for it.
"""

from quiesce import agenda, conversation_log, ledger
from quiesce.conversation_log import Tail
from quiesce.generation_record import GenerationRecord, Swept
from quiesce.lane import Lane, Pass
from quiesce.ledger import Submission
from quiesce.outbox import MessageKind
from quiesce.settings import Settings
from quiesce.settlement import JOINS_MAX
from quiesce.storage import Storage

SWEEP_MAX = 32
"""So many submissions are purged by one pass, and what had joined them."""


def sweep(lane: Lane, work: Pass) -> None:
    """Purge what is due, up to the bound of a pass."""
    swept, retention_ms = work.begun.record.swept, lane.settings.retention_ms
    due_at_ms, now_ms = sweep_at_ms(swept, lane.settings), lane.clock()
    if due_at_ms is None or due_at_ms > now_ms:
        return
    assert swept is not None
    assert retention_ms is not None
    work.has_swept = True
    until_ms = now_ms - retention_ms
    for each in ledger.purgeable(lane.storage, swept.through, until_ms, SWEEP_MAX):
        if work.purged < SWEEP_MAX:
            work.purged += _purge(lane.storage, each, now_ms)


def plan(lane: Lane, work: Pass, record: GenerationRecord, end: Tail) -> Swept | None:
    """Say how far the purge has come and from when on there is something to purge, inside finish.

    The ledger is asked only where that may have changed: after a sweep, and once something has settled or a message
    was sent in a lane that held nothing to purge.
    """
    if lane.settings.retention_ms is None:
        return None
    swept = record.swept
    if swept is not None and not work.has_swept:
        is_unchanged = swept.settled == end.settled and not work.has_sent
        if swept.oldest_ms is not None or is_unchanged:
            return swept
    through = 0 if swept is None else swept.through
    first, oldest_ms = ledger.unpurged(lane.storage, through)
    through = end.last if first is None else first - 1
    return Swept(through=through, settled=end.settled, oldest_ms=oldest_ms)


def sweep_at_ms(swept: Swept | None, settings: Settings) -> int | None:
    """Return when the next sweep is due, or None while there is nothing to purge."""
    if settings.retention_ms is None or swept is None or swept.oldest_ms is None:
        return None
    return swept.oldest_ms + settings.retention_ms + settings.retention_ms // 10


def _purge(storage: Storage, settled: Submission, now_ms: int) -> int:
    """Purge a submission and what had joined it; returns how many that were."""
    together = [settled]
    if settled.host_sequence is not None:
        together += ledger.joined_behind(storage, settled.sequence, JOINS_MAX)

    def step() -> None:
        for each in together:
            conversation_log.purge(storage, each.id)
            ledger.bury(storage, each, now_ms)
            # A callback that was given up has nothing left to say.
            given_up = agenda.buried(storage, f"{each.id}/{MessageKind.CALLBACK}")
            if given_up is not None:
                agenda.remove(storage, given_up)

    storage.commit(step)
    return len(together)
