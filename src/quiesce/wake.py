"""The generation record and the alarm slot: read and written in one transaction, and nowhere else.

1. The record is one small text in the key-value store, so that an alarm with nothing to do touches no SQL.
2. A record that cannot be read is copied once, then replaced by one that owes a pass. Nothing is lost with it:
   what is owed stands in the ledger, and one pass finds it.
3. A record of newer code is refused, and its bytes are left alone.
4. An Object with neither record nor tables is virgin; reading it writes nothing.
"""

from dataclasses import dataclass

from quiesce import generation, generation_record, schema
from quiesce.errors import Corruption
from quiesce.generation import AlarmWrite, Clear, Keep, Moment, SetAt
from quiesce.generation_record import Cost, GenerationRecord
from quiesce.settings import Settings
from quiesce.storage import AlarmSlot, Counts, Storage

RECORD_KEY = "quiesce:maintenance:v1"
UNREADABLE_KEY = "quiesce:maintenance:unreadable"


def load(storage: Storage) -> GenerationRecord | None:
    """Read the record, or None for a virgin Object; writes nothing.

    An Object with tables and no readable record reads as one that owes a pass. Raises NewerStorage.
    """
    text = storage.kv_get(RECORD_KEY)
    if text is None:
        return generation_record.RECOVERED if schema.exists(storage) else None
    try:
        return generation_record.parse_record(text)
    except Corruption:
        return generation_record.RECOVERED


def unreadable(storage: Storage) -> str | None:
    """Say what is wrong with the record of an Object that has tables, or None; raises NewerStorage."""
    text = storage.kv_get(RECORD_KEY)
    if text is None:
        return "there is no generation record"
    try:
        generation_record.parse_record(text)
    except Corruption as corruption:
        return f"the generation record cannot be read: {corruption.found}"
    if storage.kv_get(UNREADABLE_KEY) is not None:
        return f"a generation record could not be read, and was put aside under {UNREADABLE_KEY}"
    return None


def open_record(storage: Storage) -> GenerationRecord | None:
    """Read the record in order to write it: what cannot be read is copied aside first, once."""
    record = load(storage)
    text = storage.kv_get(RECORD_KEY) if record is generation_record.RECOVERED else None
    if text is not None and storage.kv_get(UNREADABLE_KEY) is None:
        storage.kv_put(UNREADABLE_KEY, text)
    return record


def store(storage: Storage, record: GenerationRecord) -> None:
    """Write the record, which `open_record` gave to the caller in this same transaction."""
    storage.kv_put(RECORD_KEY, record.model_dump_json())


def write_alarm(slot: AlarmSlot, write: AlarmWrite) -> None:
    """Apply one decision to the slot."""
    match write:
        case Keep():
            pass
        case SetAt(at_ms=at_ms):
            slot.set(at_ms)
        case Clear():
            slot.clear()


@dataclass(slots=True)
class Wake:
    """The generation and the alarm inside one transaction: what a mutation counts and arms with."""

    storage: Storage
    slot: AlarmSlot
    settings: Settings
    deployment: str
    now_ms: int
    jitter: float
    pass_runs: bool

    @property
    def moment(self) -> Moment:
        """The clock, the jitter and the slot, for a decision."""
        return Moment(self.now_ms, self.jitter, self.slot.at_ms)

    def count_mutation(
        self,
        mark: Counts,
        *,
        opened: int = 0,
        rows_written: int = 0,
        deferred: bool = False,
        is_virgin: bool = False,
        is_actionable: bool = True,
    ) -> None:
        """Add one generation and arm for it; the first one, in an Object that was virgin until this step.

        What is not actionable is only noted: it owes no pass.

        `opened` says how many more submissions are open than before. The lane's cost grows by what storage
        was asked for since `mark`, by this record and its alarm, and by `rows_written` still to come.
        """
        record = None if is_virgin else open_record(self.storage)
        record = record or generation_record.FIRST
        changed = record
        if is_actionable:
            changed, alarm = generation.mutate(
                record, self.moment, self.settings, pass_runs=self.pass_runs, deferred=deferred
            )
            write_alarm(self.slot, alarm)
        spent = self.storage.counts().since(mark)
        cost = Cost(
            rows_read=spent.rows_read,
            rows_written=spent.rows_written + 1 + self.slot.is_changed + rows_written,
        )
        nonterminal = max(0, changed.nonterminal + opened)
        store(self.storage, changed.changed(nonterminal=nonterminal, cost=changed.cost.plus(cost)))

    def repair(self) -> bool:
        """Arm a lane again whose alarm was lost; returns whether there was anything to repair."""
        record = open_record(self.storage)
        if record is None or self.pass_runs:
            return False
        repaired, alarm = generation.ensure(
            record, self.moment, self.settings, deployment=self.deployment
        )
        if repaired is record:
            return False
        store(self.storage, repaired)
        write_alarm(self.slot, alarm)
        return True

    def hasten(self) -> None:
        """Arm an owed lane for the next millisecond: a hint that may be dropped, and never counts."""
        record = load(self.storage)
        if (
            record is None
            or self.pass_runs
            or not record.is_owed
            or generation.is_parked(record, self.settings)
        ):
            return
        write_alarm(
            self.slot, generation.arm_by(self.now_ms + 1, self.moment, tolerate_stale=False)
        )
