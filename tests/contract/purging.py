"""What a purge takes out of the books, and what it leaves."""

from contract.ground import (
    NOW,
    Check,
    OpenStorage,
    append,
    at,
    conversation,
    identity,
    refusal_of,
    row,
    step_entry,
)
from quiesce import agenda, conversation_log, ledger, outbox
from quiesce.errors import IllegalMove
from quiesce.outbox import MessageKind
from quiesce.records import CHAIN_START, chain_digest
from quiesce.states import State
from quiesce.storage import Storage

ALL = 100


def places(storage: Storage, after: int, until_ms: int, limit: int = ALL) -> list[int]:
    return [each.sequence for each in ledger.purgeable(storage, after, until_ms, limit)]


async def check_a_purge_takes_the_payloads_of_one_submission_and_leaves_their_identities(
    open_storage: OpenStorage,
) -> None:
    storage = await conversation(open_storage, row(1, State.SETTLED), row(2, State.SETTLED))
    for number, place in enumerate((1, 2, 1)):
        append(storage, step_entry(identity(place), f"s-{number}"))
    before = conversation_log.page(storage, 0, ALL, 2**40)
    storage.commit(lambda: conversation_log.purge(storage, identity(1)))
    after = conversation_log.page(storage, 0, ALL, 2**40)
    chain = CHAIN_START
    for old, new in zip(before, after, strict=True):
        assert (new.record_id, new.digest, new.chain) == (old.record_id, old.digest, old.chain)
        assert new.payload == (None if old.submission == identity(1) else old.payload)
        chain = chain_digest(chain, new.sequence, new.digest, new.created_at_ms)
        assert new.chain == chain


async def check_a_page_of_purged_records_is_bounded_by_count_alone(
    open_storage: OpenStorage,
) -> None:
    storage = await conversation(open_storage, row(1, State.SETTLED))
    for number in range(5):
        append(storage, step_entry(identity(1), f"s-{number}"))
    storage.commit(lambda: conversation_log.purge(storage, identity(1)))
    assert [each.sequence for each in conversation_log.page(storage, 1, 3, 1)] == [2, 3, 4]


async def check_what_was_purged_is_a_replay_when_it_is_appended_again(
    open_storage: OpenStorage,
) -> None:
    storage = await conversation(open_storage, row(1, State.SETTLED))
    end = append(storage, step_entry(identity(1), "a"))
    storage.commit(lambda: conversation_log.purge(storage, identity(1)))
    assert append(storage, step_entry(identity(1), "a")) == end


async def check_a_row_is_buried_once_and_only_when_it_is_settled(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage, row(1, State.SETTLED, input="{}"), row(2))
    settled, ready = at(storage, 1), at(storage, 2)
    storage.commit(lambda: ledger.bury(storage, settled, NOW + 5))
    assert at(storage, 1).purged_at_ms == NOW + 5
    assert ledger.input_of(storage, 1) is None
    for refused in (settled, ready):
        error = refusal_of(storage, lambda refused=refused: ledger.bury(storage, refused, NOW + 6))
        assert isinstance(error, IllegalMove)


async def check_what_was_settled_by_an_instant_is_found_in_bounded_pages(
    open_storage: OpenStorage,
) -> None:
    rows = [row(place, State.SETTLED, settled_at_ms=NOW + place) for place in (1, 2, 4, 5)]
    storage = await conversation(open_storage, *rows, row(3))
    assert ledger.unpurged(storage, 0) == (1, NOW + 1)
    assert places(storage, 0, NOW + 4) == [1, 2, 4]
    assert places(storage, 0, NOW + 5, 2) == [1, 2]
    assert places(storage, 2, NOW + 5) == [4, 5]
    for place in (1, 2):
        storage.commit(lambda place=place: ledger.bury(storage, at(storage, place), NOW + 9))
    assert places(storage, 0, NOW + 5) == [4, 5]
    assert ledger.unpurged(storage, 0) == (3, NOW + 4), "an open one is the first, not the oldest"
    assert ledger.unpurged(storage, 5) == (None, None)


async def check_what_is_owed_to_others_cannot_be_purged_nor_what_it_had_joined(
    open_storage: OpenStorage,
) -> None:
    rows = [row(place, State.SETTLED, settled_at_ms=NOW + place) for place in (1, 4)]
    family = [row(place, State.SETTLED, settled_at_ms=NOW, host_sequence=2) for place in (2, 3)]
    storage = await conversation(open_storage, *rows, *family)
    assert places(storage, 0, NOW + 9) == [1, 2, 4], "what has joined goes with its host"
    for owed in (1, 3):
        storage.commit(
            lambda owed=owed: outbox.owe(storage, MessageKind.CALLBACK, identity(owed), NOW)
        )
    assert places(storage, 0, NOW + 9) == [4]
    assert ledger.unpurged(storage, 0) == (1, NOW + 4)
    assert [each.sequence for each in ledger.joined_behind(storage, 2, ALL)] == [3]
    for entry in agenda.due(storage, NOW, ALL):
        message = outbox.message_of(entry)
        storage.commit(lambda message=message: outbox.bury(storage, message, "no answer"))
    assert places(storage, 0, NOW + 9) == [1, 2, 4], "what was given up is not owed"
    assert ledger.unpurged(storage, 0) == (1, NOW)


PURGING: tuple[Check, ...] = tuple(
    check for name, check in sorted(globals().items()) if name.startswith("check_")
)
