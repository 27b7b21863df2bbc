"""retention: the payloads of what was settled long ago are purged, and its tombstone goes on answering its key.

1. A submission whose settlement is older than RETENTION_MS loses every payload: its input, its result, and all that
   its records say. Their ids, digests and chain stay, and so do its key, its place, its outcome and its times.
2. Each is purged in a commit of its own, which may be repeated; what dies between two of them goes on with the
   alarm that the pass armed at its begin. What had joined a host is answered with the host's result, so it is
   purged in the host's commit, and none of them before all are due and owed to nobody.
3. A sweep waits until a tenth of the time more has passed, so that one wake purges what a whole such span has
   settled. A lane holds one alarm for it, and none when nothing is left to purge.
4. What is still owed to a parent or a callback URL is told first.
5. How far the purge has come stands in the generation record, which every pass writes anyway: a lane that keeps
   everything pays nothing for it.
"""

from quiesce import agenda, conversation_log, ledger
from quiesce.conversation_log import Tail
from quiesce.generation_record import GenerationRecord, Swept
from quiesce.ids import parse_json
from quiesce.lane import Lane, Pass
from quiesce.ledger import Submission
from quiesce.outbox import MessageKind
from quiesce.settings import Settings
from quiesce.settlement import JOINS_MAX
from quiesce.storage import Storage

SWEEP_MAX = 32
"""So many submissions are purged by one pass, and what had joined the last of them."""
_TOLD = (MessageKind.PARENT, MessageKind.CALLBACK)


def sweep(lane: Lane, work: Pass) -> None:
    """Purge what is due, up to the bound of a pass."""
    swept, retention_ms = work.begun.record.swept, lane.settings.retention_ms
    due_at_ms, now_ms = sweep_at_ms(swept, lane.settings), lane.clock()
    if due_at_ms is None or due_at_ms > now_ms:
        return
    assert swept is not None
    assert retention_ms is not None
    place = swept.through
    while work.purged < SWEEP_MAX:
        found = ledger.settled_until(lane.storage, place, now_ms - retention_ms, SWEEP_MAX)
        if not found:
            work.has_swept = True
            return
        for each in found:
            if work.purged >= SWEEP_MAX:
                return
            place = each.sequence
            together = _settled_together(lane.storage, each)
            if not any(_is_owed_to_others(lane.storage, one) for one in together):
                _purge(lane.storage, together, now_ms)
                work.purged += len(together)


def plan(lane: Lane, work: Pass, record: GenerationRecord, end: Tail, now_ms: int) -> Swept | None:
    """Say how far the purge has come and from when on there is something to purge, inside finish.

    The ledger is asked only where that may have changed: after a sweep, and once something has settled in a lane
    that held nothing to purge.
    """
    if lane.settings.retention_ms is None:
        return None
    swept = record.swept or Swept()
    purged = swept.purged + work.purged
    if swept.oldest_ms is not None and not work.purged and not work.has_swept:
        return swept
    at_ms = now_ms if work.has_swept else swept.at_ms
    if end.settled == purged:
        return Swept(through=end.head - 1, purged=purged, at_ms=at_ms)
    first, oldest_ms = ledger.unpurged(lane.storage, swept.through)
    through = end.last if first is None else first - 1
    # A pass that died has purged what it did not count.
    purged = end.settled if oldest_ms is None else purged
    return Swept(through=through, purged=purged, oldest_ms=oldest_ms, at_ms=at_ms)


def sweep_at_ms(swept: Swept | None, settings: Settings) -> int | None:
    """Return when the next sweep is due, or None while there is nothing to purge."""
    if settings.retention_ms is None or swept is None or swept.oldest_ms is None:
        return None
    span_ms = settings.retention_ms // 10
    return max(swept.oldest_ms + settings.retention_ms + span_ms, swept.at_ms + span_ms)


def _is_owed_to_others(storage: Storage, settled: Submission) -> bool:
    if settled.parent is None and parse_json(settled.terms)["callback_url"] is None:
        return False
    return any(agenda.is_owed(storage, f"{settled.id}/{kind}") for kind in _TOLD)


def _settled_together(storage: Storage, settled: Submission) -> list[Submission]:
    """Return a submission and what settled with it as its host; nothing for one that goes with its host."""
    if settled.host_sequence is None:
        return [settled]
    if settled.host_sequence != settled.sequence:
        return []
    return [settled, *ledger.joined_behind(storage, settled.sequence, JOINS_MAX)]


def _purge(storage: Storage, together: list[Submission], now_ms: int) -> None:
    def step() -> None:
        for each in together:
            conversation_log.purge(storage, each.id)
            ledger.bury(storage, each, now_ms)
            # A callback that was given up has nothing left to say.
            given_up = agenda.buried(storage, f"{each.id}/{MessageKind.CALLBACK}")
            if given_up is not None:
                agenda.remove(storage, given_up)

    if together:
        storage.commit(step)
