"""The generation record and the alarm slot, as they are stored: virgin, readable, unreadable, newer.

What the next record and the next alarm are is decided elsewhere, and tested in `tests/decisions`.

Not tested here: that a pass acknowledges what it should.
"""

from collections.abc import Callable

from contract.ground import NOW, Check, OpenStorage, conversation, lay_out, row
from quiesce import schema, wake
from quiesce.errors import NewerStorage
from quiesce.generation import Clear, Keep, SetAt
from quiesce.generation_record import FIRST, RECOVERED, GenerationRecord
from quiesce.settings import Settings
from quiesce.storage import AlarmSlot, Storage
from quiesce.wake import RECORD_KEY, UNREADABLE_KEY, Wake

UNREADABLE = '{"schema_version":1,"dirty":3}'
NEWER = '{"schema_version":2,"anything":[1,2]}'
HUGE = 2**60


def _wake(storage: Storage, slot: AlarmSlot, *, pass_runs: bool = False) -> Wake:
    return Wake(
        storage=storage,
        slot=slot,
        settings=Settings(),
        deployment="this",
        now_ms=NOW,
        jitter=0.0,
        pass_runs=pass_runs,
    )


async def _opened[T](storage: Storage, act: Callable[[Wake], T], *, pass_runs: bool = False) -> T:
    return await storage.transaction(lambda slot: act(_wake(storage, slot, pass_runs=pass_runs)))


def _count(opened: Wake) -> None:
    opened.count_mutation(opened.storage.counts(), opened=1)


def _record(storage: Storage) -> GenerationRecord:
    found = wake.load(storage)
    assert found is not None
    return found


async def check_a_virgin_object_is_nothing_and_stays_so(open_storage: OpenStorage) -> None:
    """Reading writes nothing, not even a table; neither does a hint, nor a repair."""
    storage = await open_storage()
    mark = storage.counts()
    assert wake.load(storage) is None
    assert wake.open_record(storage) is None
    assert not await _opened(storage, lambda opened: opened.repair())
    await _opened(storage, lambda opened: opened.hasten())
    assert storage.counts().since(mark).rows_written == 0
    assert storage.kv_get(RECORD_KEY) is None
    assert await storage.alarm_at_ms() is None
    assert not schema.exists(storage)


async def check_the_first_mutation_owes_one_pass_and_arms(open_storage: OpenStorage) -> None:
    storage = await open_storage()

    def step(slot: AlarmSlot) -> None:
        lay_out(storage, row(1))
        _wake(storage, slot).count_mutation(storage.counts(), opened=1, is_virgin=True)

    await storage.transaction(step)
    record = _record(storage)
    assert (record.dirty, record.processed, record.nonterminal) == (1, 0, 1)
    assert await storage.alarm_at_ms() == NOW + 1


async def check_tables_without_a_record_owe_one_pass(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    assert wake.load(storage) == RECOVERED
    assert storage.kv_get(RECORD_KEY) is None, "reading it writes nothing"
    await _opened(storage, _count)
    record = _record(storage)
    assert (record.dirty, record.processed) == (2, 0)
    assert storage.kv_get(UNREADABLE_KEY) is None, "there was nothing to keep"


async def check_a_stored_record_is_read_as_it_was(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    record = FIRST.changed(dirty=HUGE + 1, processed=HUGE, due_at_ms=NOW, last_pass={"a": "é"})
    wake.store(storage, record)
    assert wake.load(storage) == record
    assert wake.open_record(storage) == record
    text = storage.kv_get(RECORD_KEY)
    assert text is not None
    assert f'"dirty":"{HUGE + 1}"' in text


async def check_a_caught_up_lane_is_read_without_sql(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    wake.store(storage, FIRST)
    mark = storage.counts()
    assert wake.load(storage) == FIRST
    spent = storage.counts().since(mark)
    assert (spent.statements, spent.kv_reads) == (0, 1)


async def check_a_mutation_adds_one_and_arms_with_it(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    wake.store(storage, FIRST.changed(dirty=7, processed=7, nonterminal=2, idle_wakes=9))
    await _opened(storage, _count)
    record = _record(storage)
    assert (record.dirty, record.processed, record.nonterminal, record.idle_wakes) == (8, 7, 3, 0)
    assert record.cost.rows_written >= 2, "the record and the alarm are billed"
    assert await storage.alarm_at_ms() == NOW + 1


async def check_a_mutation_in_a_pass_leaves_the_passs_alarm(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    wake.store(storage, FIRST)
    await storage.transaction(lambda slot: slot.set(NOW + 10))
    await _opened(storage, _count, pass_runs=True)
    assert await storage.alarm_at_ms() == NOW + 10
    assert _record(storage).dirty == 1


async def check_a_mutation_that_fails_has_changed_neither_record_nor_alarm(
    open_storage: OpenStorage,
) -> None:
    storage = await conversation(open_storage)
    wake.store(storage, FIRST)

    def act(opened: Wake) -> None:
        _count(opened)
        raise ValueError("no")

    try:
        await _opened(storage, act)
    except ValueError:
        assert wake.load(storage) == FIRST
        assert await storage.alarm_at_ms() is None
    else:
        raise AssertionError("nothing was raised")


async def check_an_unreadable_record_is_copied_once_and_replaced(
    open_storage: OpenStorage,
) -> None:
    storage = await conversation(open_storage)
    storage.kv_put(RECORD_KEY, UNREADABLE)
    assert wake.load(storage) == RECOVERED
    assert storage.kv_get(RECORD_KEY) == UNREADABLE, "reading it writes nothing"
    assert storage.kv_get(UNREADABLE_KEY) is None
    await _opened(storage, _count)
    assert storage.kv_get(UNREADABLE_KEY) == UNREADABLE
    assert _record(storage).dirty == 2
    storage.kv_put(RECORD_KEY, "no record either")
    await _opened(storage, _count)
    assert storage.kv_get(UNREADABLE_KEY) == UNREADABLE, "the first one is the evidence"
    assert _record(storage).dirty == 2


async def check_a_record_of_newer_code_is_refused_with_its_bytes_untouched(
    open_storage: OpenStorage,
) -> None:
    storage = await conversation(open_storage)
    storage.kv_put(RECORD_KEY, NEWER)
    acts: tuple[Callable[[Wake], object], ...] = (
        lambda opened: wake.load(opened.storage),
        lambda opened: wake.open_record(opened.storage),
        _count,
        lambda opened: opened.repair(),
        lambda opened: opened.hasten(),
    )
    for act in acts:
        try:
            await _opened(storage, act)
        except NewerStorage:
            assert storage.kv_get(RECORD_KEY) == NEWER
            assert storage.kv_get(UNREADABLE_KEY) is None
            assert await storage.alarm_at_ms() is None
        else:
            raise AssertionError("nothing was raised")


async def check_a_repair_arms_an_owed_lane_whose_alarm_was_lost(
    open_storage: OpenStorage,
) -> None:
    storage = await conversation(open_storage)
    wake.store(storage, FIRST.changed(dirty=1))
    assert not await _opened(storage, lambda opened: opened.repair(), pass_runs=True)
    assert await _opened(storage, lambda opened: opened.repair())
    assert await storage.alarm_at_ms() == NOW + 1
    assert _record(storage).alarm_repaired == 1
    assert not await _opened(storage, lambda opened: opened.repair())
    assert _record(storage).alarm_repaired == 1


async def check_a_repair_with_nothing_to_repair_writes_nothing(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    wake.store(storage, FIRST.changed(deployment="this"))
    mark = storage.counts()
    assert not await _opened(storage, lambda opened: opened.repair())
    assert storage.counts().since(mark).rows_written == 0


async def check_a_hint_only_makes_the_alarm_sooner(open_storage: OpenStorage) -> None:
    """It never counts a generation, never acts in a pass, and wakes neither a quiet nor a parked lane."""
    storage = await conversation(open_storage)
    await storage.transaction(lambda slot: slot.set(NOW + 900))
    parked = {"dirty": 1, "idle_wakes": 65}
    for values, pass_runs, expected in (
        ({}, False, NOW + 900),
        (parked, False, NOW + 900),
        ({"dirty": 1}, True, NOW + 900),
        ({"dirty": 1}, False, NOW + 1),
    ):
        record = FIRST.changed(**values)
        wake.store(storage, record)
        await _opened(storage, lambda opened: opened.hasten(), pass_runs=pass_runs)
        assert await storage.alarm_at_ms() == expected
        assert wake.load(storage) == record


async def check_an_alarm_decision_is_written_to_the_slot(open_storage: OpenStorage) -> None:
    storage = await open_storage()
    for write, expected in ((Keep(), None), (SetAt(NOW), NOW), (Keep(), NOW), (Clear(), None)):
        await storage.transaction(lambda slot, write=write: wake.write_alarm(slot, write))
        assert await storage.alarm_at_ms() == expected


WAKING: tuple[Check, ...] = tuple(
    check for name, check in sorted(globals().items()) if name.startswith("check_")
)
