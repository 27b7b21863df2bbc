"""The seam itself: values, the key-value store, transactions, commits, the alarm slot, the counts.

Not tested: what a crash loses (the stages' tests crash at every commit), and exact counts of rows, which only
workerd tells.
"""

from typing import Any

from contract.ground import NOW, Check, OpenStorage, raised_by, refusal_of
from quiesce.errors import Refusal, RefusalCode
from quiesce.storage import AlarmSlot, Storage

PROBE = "CREATE TABLE probe (place INTEGER PRIMARY KEY, i INTEGER, r REAL, t TEXT, b BLOB) STRICT"
INTEGERS = (0, 1, -1, 2**31, -(2**31) - 1, NOW, 2**53 - 2, -(2**53) + 2)
REALS = (0.5, -1.25, 1e300, 5e-324, 2.0)
TEXTS = ("", "a", "a\x00b", "\x00", "é😀\u2028", "'\"\\;--", "x" * 100_000)
BLOBS = (b"", b"\x00\xff", bytes(range(256)))


def _places(storage: Storage) -> list[int]:
    return [found for (found,) in storage.execute("SELECT place FROM probe ORDER BY place")]


async def _probe(open_storage: OpenStorage) -> Storage:
    storage = await open_storage()
    storage.commit(lambda: storage.execute(PROBE))
    return storage


def _come_back(storage: Storage, column: str, values: tuple[Any, ...]) -> list[Any]:
    storage.write("DELETE FROM probe")
    for place, value in enumerate(values):
        storage.write(f"INSERT INTO probe (place, {column}) VALUES (?, ?)", place, value)
    return [found for (found,) in storage.execute(f"SELECT {column} FROM probe ORDER BY place")]


async def check_every_bound_value_comes_back(open_storage: OpenStorage) -> None:
    storage = await _probe(open_storage)
    for column, values in {"i": INTEGERS, "r": REALS, "t": TEXTS, "b": BLOBS}.items():
        found = _come_back(storage, column, values)
        assert tuple(found) == values, (column, found)
    assert all(type(text) is str for text in _come_back(storage, "t", TEXTS))
    assert all(type(blob) is bytes for blob in _come_back(storage, "b", BLOBS))
    assert all(type(number) is int for number in _come_back(storage, "i", INTEGERS))


async def check_none_is_bound_as_null(open_storage: OpenStorage) -> None:
    storage = await _probe(open_storage)
    storage.write("INSERT INTO probe VALUES (1, ?, ?, ?, ?)", None, None, None, None)
    assert storage.execute("SELECT i, r, t, b FROM probe") == [(None, None, None, None)]
    assert storage.execute("SELECT count(*) FROM probe WHERE i IS NULL AND t IS NULL") == [(1,)]


async def check_a_boolean_is_bound_as_nought_or_one(open_storage: OpenStorage) -> None:
    storage = await _probe(open_storage)
    assert _come_back(storage, "i", (True, False)) == [1, 0]
    yes = True
    assert storage.execute("SELECT place FROM probe WHERE i = ?", yes) == [(0,)]


async def check_an_integer_column_holds_integers(open_storage: OpenStorage) -> None:
    storage = await _probe(open_storage)
    _come_back(storage, "i", INTEGERS)
    assert storage.execute("SELECT DISTINCT typeof(i) FROM probe") == [("integer",)]


async def check_a_write_says_whether_it_matched_anything(open_storage: OpenStorage) -> None:
    """How much it wrote may include index entries; that it was nothing is exact."""
    storage = await _probe(open_storage)
    assert storage.write("INSERT INTO probe (place, i) VALUES (?, ?)", 1, 7) > 0
    assert storage.write("INSERT INTO probe (place) VALUES (1) ON CONFLICT DO NOTHING") == 0
    assert storage.write("UPDATE probe SET i = 8 WHERE place = 1 AND i = 7") > 0
    assert storage.write("UPDATE probe SET i = 9 WHERE place = 1 AND i = 7") == 0
    assert storage.write("UPDATE probe SET i = 8 WHERE place = 1 AND i = 8") > 0, (
        "though it is equal"
    )
    assert storage.write("DELETE FROM probe WHERE place = 2") == 0
    assert storage.write("DELETE FROM probe WHERE place = 1") > 0
    assert _places(storage) == []


async def check_a_statement_that_returns_rows_has_run_to_its_end(open_storage: OpenStorage) -> None:
    storage = await _probe(open_storage)
    insert = "INSERT INTO probe (place, i) VALUES (1, 7), (2, 8) RETURNING place, i"
    assert storage.execute(insert) == [(1, 7), (2, 8)]
    assert storage.execute("UPDATE probe SET i = 9 WHERE i = 0 RETURNING place") == []
    assert storage.execute("DELETE FROM probe WHERE i = 8 RETURNING place") == [(2,)]
    assert storage.execute("SELECT place FROM probe") == [(1,)]


async def check_the_key_value_store_holds_texts(open_storage: OpenStorage) -> None:
    storage = await open_storage()
    assert storage.kv_get("a") is None
    for text in TEXTS:
        storage.kv_put("a", text)
        storage.kv_put("b", "other")
        assert storage.kv_get("a") == text
    assert storage.kv_get("b") == "other"


async def check_a_transaction_commits_sql_key_value_and_alarm_together(
    open_storage: OpenStorage,
) -> None:
    storage = await _probe(open_storage)

    def step(slot: AlarmSlot) -> str:
        assert slot.at_ms is None
        storage.write("INSERT INTO probe (place) VALUES (1)")
        storage.kv_put("a", "1")
        slot.set(NOW)
        assert _places(storage) == [1]
        assert storage.kv_get("a") == "1"
        return "done"

    assert await storage.transaction(step) == "done"
    assert _places(storage) == [1]
    assert storage.kv_get("a") == "1"
    assert await storage.alarm_at_ms() == NOW


async def check_an_exception_rolls_a_transaction_back_and_arrives_itself(
    open_storage: OpenStorage,
) -> None:
    storage = await _probe(open_storage)
    await storage.transaction(lambda slot: slot.set(NOW))
    storage.kv_put("a", "before")
    for error in (ValueError("no"), Refusal(RefusalCode.GONE, "no")):
        caught = await raised_by(
            storage, lambda slot, error=error: _write_and_raise(storage, slot, error)
        )
        assert caught is error
        assert _places(storage) == []
        assert storage.kv_get("a") == "before"
        assert await storage.alarm_at_ms() == NOW


def _write_and_raise(storage: Storage, slot: AlarmSlot | None, error: Exception) -> None:
    storage.write("INSERT INTO probe (place) VALUES (1)")
    storage.kv_put("a", "after")
    if slot is not None:
        slot.set(NOW + 1)
    raise error


async def check_a_commit_commits_sql_and_key_value_together(open_storage: OpenStorage) -> None:
    storage = await _probe(open_storage)

    def step() -> int:
        storage.write("INSERT INTO probe (place) VALUES (1)")
        storage.kv_put("a", "1")
        return 7

    assert storage.commit(step) == 7
    await storage.sync()
    assert _places(storage) == [1]
    assert storage.kv_get("a") == "1"


async def check_an_exception_rolls_a_commit_back_and_arrives_itself(
    open_storage: OpenStorage,
) -> None:
    storage = await _probe(open_storage)
    storage.kv_put("a", "before")
    for error in (ValueError("no"), Refusal(RefusalCode.GONE, "no")):
        caught = refusal_of(storage, lambda error=error: _write_and_raise(storage, None, error))
        assert caught is error
        assert _places(storage) == []
        assert storage.kv_get("a") == "before"
    storage.commit(lambda: storage.write("INSERT INTO probe (place) VALUES (2)"))
    assert _places(storage) == [2], "a store that rolled back goes on"


async def check_a_broken_constraint_rolls_its_commit_back(open_storage: OpenStorage) -> None:
    storage = await _probe(open_storage)
    storage.write("INSERT INTO probe (place) VALUES (1)")

    def step() -> None:
        storage.write("INSERT INTO probe (place) VALUES (2)")
        storage.write("INSERT INTO probe (place) VALUES (1)")

    refusal_of(storage, step)
    assert _places(storage) == [1]


async def check_the_alarm_slot_is_set_moved_and_cleared(open_storage: OpenStorage) -> None:
    storage = await open_storage()
    assert await storage.alarm_at_ms() is None
    for at_ms in (NOW + 5, NOW + 9, NOW + 1):
        await storage.transaction(lambda slot, at_ms=at_ms: slot.set(at_ms))
        assert await storage.alarm_at_ms() == at_ms
    await storage.transaction(lambda slot: slot.clear())
    assert await storage.alarm_at_ms() is None
    await storage.arm(NOW + 3)
    assert await storage.alarm_at_ms() == NOW + 3
    assert await storage.transaction(lambda slot: slot.at_ms) == NOW + 3


async def check_an_alarm_write_equal_to_what_is_stored_is_skipped(
    open_storage: OpenStorage,
) -> None:
    """Each write of the alarm is billed as a row."""
    storage = await open_storage()
    await storage.transaction(lambda slot: slot.clear())
    assert storage.counts().alarm_writes == 0
    await storage.transaction(lambda slot: slot.set(NOW))
    assert storage.counts().alarm_writes == 1
    await storage.transaction(lambda slot: slot.set(NOW))
    assert storage.counts().alarm_writes == 1
    await storage.transaction(lambda slot: slot.clear())
    await storage.transaction(lambda slot: slot.clear())
    assert storage.counts().alarm_writes == 2


async def check_what_was_asked_for_is_counted(open_storage: OpenStorage) -> None:
    storage = await _probe(open_storage)
    mark = storage.counts()
    storage.write("INSERT INTO probe (place) VALUES (1)")
    storage.kv_put("a", "1")
    written = storage.counts().since(mark)
    assert written.rows_written >= 2
    assert written.statements == 1
    mark = storage.counts()
    storage.execute("SELECT place FROM probe")
    storage.kv_get("a")
    await storage.alarm_at_ms()
    await storage.transaction(lambda _slot: None)
    read = storage.counts().since(mark)
    assert (read.rows_written, read.alarm_writes) == (0, 0)
    assert (read.statements, read.kv_reads) == (1, 1)
    assert read.rows_read >= 1


async def check_the_size_of_the_database_is_told(open_storage: OpenStorage) -> None:
    storage = await _probe(open_storage)
    before = storage.database_bytes()
    for place in range(20):
        storage.write("INSERT INTO probe (place, t) VALUES (?, ?)", place, "x" * 10_000)
    assert storage.database_bytes() >= before + 150_000


SEAM: tuple[Check, ...] = (
    check_every_bound_value_comes_back,
    check_none_is_bound_as_null,
    check_a_boolean_is_bound_as_nought_or_one,
    check_an_integer_column_holds_integers,
    check_a_write_says_whether_it_matched_anything,
    check_a_statement_that_returns_rows_has_run_to_its_end,
    check_the_key_value_store_holds_texts,
    check_a_transaction_commits_sql_key_value_and_alarm_together,
    check_an_exception_rolls_a_transaction_back_and_arrives_itself,
    check_a_commit_commits_sql_and_key_value_together,
    check_an_exception_rolls_a_commit_back_and_arrives_itself,
    check_a_broken_constraint_rolls_its_commit_back,
    check_the_alarm_slot_is_set_moved_and_cleared,
    check_an_alarm_write_equal_to_what_is_stored_is_skipped,
    check_what_was_asked_for_is_counted,
    check_the_size_of_the_database_is_told,
)
