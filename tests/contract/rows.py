"""The operational rows: the laws of the schema, the ledger, open operations, delivered signals.

The LG numbers are those of the parity list, as far as a book can keep them; admission and the stages keep the rest.

Not tested here: the log and settlement (`tests/contract/history.py`), the generation (`tests/contract/waking.py`).

Parity: SN-14, SN-15.
"""

from dataclasses import fields
from typing import Any

from contract.ground import (
    LAWFUL,
    NOW,
    Check,
    OpenStorage,
    append,
    at,
    claim,
    conversation,
    everything,
    identity,
    refusal_of,
    row,
    step_entry,
)
from quiesce import agenda, ledger, operations, outbox, schema, signals
from quiesce.errors import IllegalMove
from quiesce.generation_record import Cost
from quiesce.ids import OperationId, SubmissionId
from quiesce.ledger import Submission
from quiesce.operations import OpenOperation, OperationKind, OperationState
from quiesce.outbox import Message, MessageKind
from quiesce.signals import Signal
from quiesce.states import OPEN, OWNED, State, is_lawful
from quiesce.storage import Storage

UNLAWFUL: tuple[tuple[str, State, dict[str, Any]], ...] = (
    ("settled without an outcome", State.SETTLED, {"outcome": None}),
    ("purged while open", State.READY, {"purged_at_ms": NOW, "input": None}),
    ("purged with its input still in the row", State.SETTLED, {"purged_at_ms": NOW}),
    ("settled without a time", State.SETTLED, {"settled_at_ms": None}),
    ("an outcome of nobody's", State.SETTLED, {"outcome": "vanished"}),
    ("an outcome while open", State.READY, {"outcome": "completed"}),
    ("a settled time while open", State.READY, {"settled_at_ms": NOW}),
    *[(f"owned while {state}", state, {"owner": "one"}) for state in State if state not in OWNED],
    ("running without an owner", State.RUNNING, {"owner": None}),
    *[
        (f"{state} with its input still in the row", state, {"input": "{}"})
        for state in (State.INPUT_APPLIED, State.SUSPENDED, State.UNKNOWN)
    ],
    ("joining without a host", State.JOINING, {"host_sequence": None}),
    ("joined without a host", State.JOINED, {"host_sequence": None}),
    ("interrupted since never", State.READY, {"interruptions": 1}),
    ("fewer attempts than none", State.READY, {"attempts": -1}),
    ("fewer interruptions than none", State.READY, {"interruptions": -1}),
    ("a state that is none", State.READY, {"state": "resting"}),
    ("a mode that is none", State.READY, {"mode": "jump"}),
    ("a text for a number", State.READY, {"epoch": "one"}),
    ("no agent", State.READY, {"agent": None}),
    ("an id twice", State.READY, {"id": identity(1)}),
    ("a place twice", State.READY, {"sequence": 1}),
)


# The schema.


async def check_a_virgin_object_has_no_tables(open_storage: OpenStorage) -> None:
    storage = await open_storage()
    assert not schema.exists(storage)
    await storage.transaction(lambda _slot: schema.create(storage))
    assert schema.exists(storage)


async def check_tables_that_are_rolled_back_never_were(open_storage: OpenStorage) -> None:
    storage = await open_storage()

    def step(_slot: object) -> None:
        schema.create(storage)
        raise ValueError("no")

    try:
        await storage.transaction(step)
    except ValueError:
        assert not schema.exists(storage)
    else:
        raise AssertionError("nothing was raised")


async def check_a_lawful_row_of_every_state_is_taken(open_storage: OpenStorage) -> None:
    rows = [row(place, state) for place, state in enumerate(State, start=1)]
    storage = await conversation(open_storage, *rows)
    assert [each.state for each in ledger.page(storage, 0, 100, None)] == list(State)


async def check_the_schema_refuses_every_unlawful_row(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage, row(1))
    for name, state, columns in UNLAWFUL:
        unlawful = row(2, state) | columns
        try:
            refusal_of(storage, lambda unlawful=unlawful: ledger.insert(storage, unlawful))
        except AssertionError as error:
            raise AssertionError(name) from error


async def check_the_schema_refuses_a_record_that_breaks_its_laws(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    columns = "sequence, record_id, kind, epoch, created_at_ms, version, payload, digest, chain, settled, head"
    lawful = (2, "r", "k", 0, NOW, 1, "{}", "d" * 64, "c" * 64, 0, 1)
    insert = f"INSERT INTO records ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    for place, value in ((0, 0), (0, 1), (1, None), (6, None), (7, "d"), (8, ""), (9, -1), (10, 0)):
        unlawful = [*lawful]
        unlawful[place] = value
        refusal_of(storage, lambda unlawful=unlawful: storage.write(insert, *unlawful))
    storage.write(insert, *lawful)


# The ledger.


async def check_lg_1_an_id_is_admitted_once(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    refusal_of(storage, lambda: ledger.insert(storage, row(4, id=identity(1))))
    assert at(storage, 1).id == identity(1)


async def check_lg_3_the_head_is_the_first_open_submission(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    head = ledger.head(storage)
    assert head is not None
    assert (head.sequence, head.id) == (1, identity(1))
    assert ledger.head_behind(storage, 1) == 2
    assert ledger.head_behind(storage, 3) == 4


async def check_lg_3_the_head_behind_passes_over_what_is_settled(open_storage: OpenStorage) -> None:
    rows = (row(1), row(2, State.SETTLED), row(3, State.SETTLED), row(4), row(5, State.SETTLED))
    storage = await conversation(open_storage, *rows)
    assert ledger.head_behind(storage, 1) == 4
    assert ledger.head_behind(storage, 4) == 6


async def check_lg_4_a_stale_epoch_is_fenced(open_storage: OpenStorage) -> None:
    """An attempt that lost its submission cannot move it, whatever it wants to write."""
    storage = await conversation(open_storage)
    first = claim(storage, 1, "one", epoch=1)
    ledger.move(storage, first, State.INPUT_APPLIED, NOW, owner="two", epoch=2)
    for enters in (State.INPUT_APPLIED, State.SUSPENDED, State.SETTLED):
        changes = {"outcome": "completed", "settled_at_ms": NOW} if enters is State.SETTLED else {}
        error = refusal_of(
            storage,
            lambda enters=enters, changes=changes: ledger.move(
                storage, first, enters, NOW, **changes
            ),
        )
        assert isinstance(error, IllegalMove)
    assert (at(storage, 1).owner, at(storage, 1).epoch) == ("two", 2)


async def check_lg_4_a_stale_state_is_fenced(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    read_before = at(storage, 1)
    ledger.move(storage, read_before, State.QUARANTINED, NOW)
    error = refusal_of(
        storage,
        lambda: ledger.move(
            storage, read_before, State.SETTLED, NOW, outcome="aborted", settled_at_ms=NOW
        ),
    )
    assert isinstance(error, IllegalMove)


async def check_lg_5_a_dead_owner_is_taken_over_at_a_higher_epoch(
    open_storage: OpenStorage,
) -> None:
    storage = await conversation(open_storage)
    first = claim(storage, 1, "one", epoch=1)
    ledger.move(storage, first, State.INPUT_APPLIED, NOW + 9, owner="two", epoch=2)
    second = at(storage, 1)
    assert (second.owner, second.epoch, second.state) == ("two", 2, State.INPUT_APPLIED)
    assert second.state_since_ms == first.state_since_ms, "it has been in this state all along"


async def check_lg_6_a_release_ends_ownership_and_keeps_the_state(
    open_storage: OpenStorage,
) -> None:
    storage = await conversation(open_storage)
    owned = claim(storage, 1)
    ledger.move(storage, owned, State.INPUT_APPLIED, NOW, attempts=1, not_before_ms=NOW + 100)
    released = at(storage, 1)
    assert (released.owner, released.state) == (None, State.INPUT_APPLIED)
    assert (released.attempts, released.not_before_ms, released.epoch) == (1, NOW + 100, 1)


async def check_ownership_ends_with_the_state(open_storage: OpenStorage) -> None:
    """In the same statement: no row is ever owned in a state that cannot be."""
    targets = [
        State.SUSPENDED,
        State.UNKNOWN,
        State.QUARANTINED,
        State.TERMINALIZING,
        State.SETTLED,
    ]
    rows = [row(place) for place in range(1, len(targets) + 1)]
    storage = await conversation(open_storage, *rows)
    for place, enters in enumerate(targets, start=1):
        owned = claim(storage, place, epoch=place)
        changes = {"outcome": "failed", "settled_at_ms": NOW} if enters is State.SETTLED else {}
        ledger.move(storage, owned, enters, NOW, **changes)
        assert at(storage, place).owner is None, enters


async def check_an_unlawful_move_raises_and_changes_nothing(open_storage: OpenStorage) -> None:
    rows = [row(place, state) for place, state in enumerate(State, start=1)]
    storage = await conversation(open_storage, *rows)
    for place, leaves in enumerate(State, start=1):
        for enters in State:
            if is_lawful(leaves, enters) or enters is leaves:
                continue
            changes = LAWFUL[enters] | {"input": None}
            changes.pop("host_sequence", None)
            error = refusal_of(
                storage,
                lambda place=place, enters=enters, changes=changes: ledger.move(
                    storage, at(storage, place), enters, NOW, **changes
                ),
            )
            assert isinstance(error, IllegalMove), f"{leaves} to {enters}: {error!r}"


async def check_a_settled_row_is_never_changed_again(open_storage: OpenStorage) -> None:
    """Settled is left by nothing, and not for itself either: an outcome stands as it was recorded."""
    storage = await conversation(open_storage, row(1, State.SETTLED))
    for changes in ({"outcome": "failed"}, {"settled_at_ms": NOW + 1}, {"attempts": 1}):
        error = refusal_of(
            storage,
            lambda changes=changes: ledger.move(
                storage, at(storage, 1), State.SETTLED, NOW + 1, **changes
            ),
        )
        assert isinstance(error, IllegalMove)


async def check_a_move_says_since_when_and_at_what_cost(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    cost = Cost(wakes=1, rows_read=2, rows_written=3, active_ms=4)
    ledger.move(storage, at(storage, 1), State.QUARANTINED, NOW + 77, cost)
    moved = at(storage, 1)
    assert (moved.state_since_ms, moved.cost) == (NOW + 77, cost)
    ledger.move(storage, moved, State.READY, NOW + 78)
    assert at(storage, 1).cost == cost


async def check_a_move_touches_its_own_row_only(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    others = [at(storage, 2), at(storage, 3)]
    claim(storage, 1)
    assert [at(storage, 2), at(storage, 3)] == others


async def check_lg_11_a_scan_is_what_is_open_in_the_order_of_the_queue(
    open_storage: OpenStorage,
) -> None:
    rows = [row(place, state) for place, state in enumerate(State, start=1)]
    storage = await conversation(open_storage, *rows)
    in_order = [state for state in State if state in OPEN]
    assert [each.state for each in ledger.open_page(storage, 0, 100)] == in_order
    assert [each.sequence for each in ledger.open_page(storage, 2, 3)] == [3, 4, 5]
    assert ledger.open_page(storage, len(rows), 3) == []
    assert [each.sequence for each in ledger.page(storage, 9, 100, State.SETTLED)] == [11]
    assert ledger.page(storage, 11, 100, State.SETTLED) == []


async def check_lg_12_a_submission_is_found_by_its_id_and_by_its_place(
    open_storage: OpenStorage,
) -> None:
    storage = await conversation(open_storage)
    found = ledger.find(storage, identity(2))
    assert found is not None
    assert found == ledger.at(storage, 2)
    assert (found.sequence, found.idempotency_key, found.state) == (2, "key-2", State.READY)
    assert ledger.find(storage, SubmissionId("sub_0")) is None
    assert ledger.at(storage, 4) is None


async def check_lg_13_no_scan_carries_the_input(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage, row(1, input='{"large":1}'))
    assert "input" not in {each.name for each in fields(Submission)}
    assert ledger.input_of(storage, 1) == '{"large":1}'
    claim(storage, 1)
    assert ledger.input_of(storage, 1) is None
    assert ledger.input_of(storage, 2) is None


async def check_a_record_of_the_attempt_that_owns_it_is_progress(
    open_storage: OpenStorage,
) -> None:
    """Its own, after the claim, and only while it is owned."""
    storage = await conversation(open_storage)
    assert not claim(storage, 1).has_progressed
    append(storage, step_entry(identity(2), "a"))
    assert not at(storage, 1).has_progressed
    append(storage, step_entry(identity(1), "a"))
    assert at(storage, 1).has_progressed
    ledger.move(storage, at(storage, 1), State.INPUT_APPLIED, NOW)
    assert not at(storage, 1).has_progressed


async def check_open_submissions_are_counted_by_state(open_storage: OpenStorage) -> None:
    rows = (row(1, State.SETTLED), row(2, State.SUSPENDED), row(3), row(4), row(5, State.SETTLED))
    storage = await conversation(open_storage, *rows)
    assert ledger.counts_by_state(storage, 1) == {State.SUSPENDED: 1, State.READY: 2}
    assert ledger.counts_by_state(storage, 3) == {State.READY: 2}


# The agenda and the outbox.


def _due(storage: Storage, at_ms: int, limit: int = 10) -> list[str]:
    return [each.subject for each in agenda.due(storage, at_ms, limit)]


async def check_what_is_due_is_found_the_earliest_first(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    assert agenda.next_due(storage) is None
    for place, at_ms in ((1, NOW + 30), (3, NOW + 10), (4, NOW + 10), (5, NOW + 20)):
        agenda.add(storage, agenda.deadline(place, at_ms))
    assert agenda.next_due(storage) == agenda.deadline(3, NOW + 10)
    assert _due(storage, NOW + 20) == ["3", "4", "5"]
    assert _due(storage, NOW + 20, limit=2) == ["3", "4"]
    assert _due(storage, NOW + 9) == []


async def check_what_is_done_with_is_owed_no_more(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    for place in (1, 2):
        agenda.add(storage, agenda.deadline(place, NOW))
    assert agenda.remove(storage, agenda.deadline(1, NOW))
    assert not agenda.remove(storage, agenda.deadline(1, NOW))
    assert not agenda.remove(storage, agenda.deadline(2, NOW + 1)), "it is known by its time too"
    assert _due(storage, NOW) == ["2"]


async def check_a_message_is_owed_until_it_is_delivered(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    outbox.owe(storage, MessageKind.PARENT, identity(1), NOW)
    outbox.owe(storage, MessageKind.CALLBACK, identity(1), NOW)
    message = _message(storage, NOW)
    assert (message.submission, message.tries, message.since_ms) == (identity(1), 0, NOW)
    assert outbox.delivered(storage, message)
    assert not outbox.delivered(storage, message), "a second sender finds it delivered"
    assert len(_due(storage, NOW)) == 1


async def check_a_message_that_failed_is_owed_again_later(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    outbox.owe(storage, MessageKind.CALLBACK, identity(1), NOW)
    first = _message(storage, NOW)
    outbox.postpone(storage, first, NOW + 100, "e" * 1_000)
    assert _due(storage, NOW + 99) == []
    again = _message(storage, NOW + 100)
    assert (again.tries, again.since_ms, again.last_error) == (1, NOW, "e" * 300)
    outbox.postpone(storage, first, NOW + 50, "late")
    assert _due(storage, NOW + 99) == [], "who read it before it was postponed changes nothing"


async def check_a_message_that_was_given_up_is_kept_and_can_be_revived(
    open_storage: OpenStorage,
) -> None:
    storage = await conversation(open_storage)
    outbox.owe(storage, MessageKind.CALLBACK, identity(1), NOW)
    outbox.bury(storage, _message(storage, NOW), "gone")
    assert agenda.next_due(storage) is None, "it wakes nobody"
    kept = agenda.buried(storage, f"{identity(1)}/callback")
    assert kept is not None
    assert kept.detail["last_error"] == "gone"
    assert outbox.revive(storage, MessageKind.CALLBACK, identity(1), NOW + 5)
    assert not outbox.revive(storage, MessageKind.CALLBACK, identity(1), NOW + 5)
    assert _message(storage, NOW + 5).tries == 0


def _message(storage: Storage, at_ms: int) -> Message:
    return outbox.message_of(agenda.due(storage, at_ms, 1)[0])


# Open operations.


def _operation(
    name: str,
    kind: OperationKind = OperationKind.APPROVAL,
    state: OperationState = OperationState.WAITING,
    *,
    place: int = 1,
    opened_at_ms: int = NOW,
    due_at_ms: int | None = None,
) -> OpenOperation:
    detail = {"name": name, "effect": "uncertain"}
    return OpenOperation(
        place, OperationId(name), kind, state, "d" * 64, opened_at_ms, due_at_ms, detail
    )


async def check_an_operation_is_open_until_it_is_closed(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    asked = _operation("ask", due_at_ms=NOW + 5)
    operations.open_(storage, asked)
    assert operations.find(storage, 1, OperationId("ask")) == asked
    assert operations.find(storage, 2, OperationId("ask")) is None
    operations.close(storage, asked)
    assert operations.find(storage, 1, OperationId("ask")) is None


async def check_an_operation_is_opened_once(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    operations.open_(storage, _operation("ask"))
    operations.open_(storage, _operation("ask", place=2))
    refusal_of(storage, lambda: operations.open_(storage, _operation("ask")))


async def check_an_operation_is_closed_once(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    asked = _operation("ask")
    operations.open_(storage, asked)
    operations.close(storage, asked)
    error = refusal_of(storage, lambda: operations.close(storage, asked))
    assert isinstance(error, IllegalMove)


async def check_a_prepared_call_is_marked_unknown_once(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    call = _operation("charge", OperationKind.TOOL, OperationState.PREPARED)
    operations.open_(storage, call)
    operations.mark_unknown(storage, call)
    marked = operations.find(storage, 1, OperationId("charge"))
    assert marked is not None
    assert marked.state is OperationState.UNKNOWN
    assert isinstance(
        refusal_of(storage, lambda: operations.mark_unknown(storage, call)), IllegalMove
    )
    assert isinstance(refusal_of(storage, lambda: operations.close(storage, call)), IllegalMove)
    operations.close(storage, marked)


async def check_only_a_tool_is_prepared_or_unknown_and_only_others_wait(
    open_storage: OpenStorage,
) -> None:
    storage = await conversation(open_storage)
    for kind in OperationKind:
        for state in OperationState:
            operation = _operation("x", kind, state)
            if (kind is OperationKind.TOOL) == (state is not OperationState.WAITING):
                operations.open_(storage, operation)
                operations.close(storage, operation)
            else:
                refusal_of(
                    storage, lambda operation=operation: operations.open_(storage, operation)
                )


async def check_open_operations_are_read_the_earliest_first_and_closed_together(
    open_storage: OpenStorage,
) -> None:
    storage = await conversation(open_storage)
    for name, opened_at_ms in (("a", NOW + 2), ("b", NOW + 1), ("c", NOW + 2)):
        operations.open_(storage, _operation(name, opened_at_ms=opened_at_ms))
    operations.open_(storage, _operation("other", place=2))
    found = [each.operation for each in operations.of_submission(storage, 1)]
    assert found == ["b", "a", "c"]
    operations.close_all(storage, 1)
    assert operations.of_submission(storage, 1) == []
    assert len(operations.of_submission(storage, 2)) == 1


# Signals.


def _signal(arrival: int, key: str, name: str = "paid", place: int = 1) -> Signal:
    return Signal(place, arrival, name, key, "alice", "null", None)


async def check_signals_wait_in_the_order_of_their_arrival(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    assert signals.next_arrival(storage, 1) == 1
    for arrival, key in ((1, "z"), (2, "a"), (3, "m")):
        signals.insert(storage, _signal(arrival, key))
    signals.insert(storage, _signal(9, "z", place=2))
    assert [each.idempotency_key for each in signals.pending(storage, 1)] == ["z", "a", "m"]
    assert signals.next_arrival(storage, 1) == 4


async def check_a_consumed_signal_goes_on_answering_to_its_key(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    first, second = _signal(1, "z"), _signal(2, "a")
    signals.insert(storage, first)
    signals.insert(storage, second)
    signals.consume(storage, first, OperationId("wait"))
    assert signals.pending(storage, 1) == [second]
    answered = signals.find(storage, 1, "paid", "z")
    assert answered is not None
    assert answered.consumed_by == "wait"
    assert signals.next_arrival(storage, 1) == 3


async def check_a_key_is_used_once_for_each_signal(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    signals.insert(storage, _signal(1, "z"))
    signals.insert(storage, _signal(2, "z", name="shipped"))
    refusal_of(storage, lambda: signals.insert(storage, _signal(3, "z")))


async def check_signals_are_forgotten_with_their_submission_only(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    signals.insert(storage, _signal(1, "z"))
    signals.insert(storage, _signal(1, "z", place=2))
    signals.delete_all(storage, 1)
    assert signals.find(storage, 1, "paid", "z") is None
    assert signals.find(storage, 2, "paid", "z") is not None


async def check_reading_the_books_writes_nothing(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    before = everything(storage)
    mark = storage.counts()
    ledger.head(storage)
    ledger.find(storage, identity(1))
    ledger.open_page(storage, 0, 10)
    ledger.counts_by_state(storage, 1)
    operations.of_submission(storage, 1)
    signals.pending(storage, 1)
    assert storage.counts().since(mark).rows_written == 0
    assert everything(storage) == before


ROWS: tuple[Check, ...] = tuple(
    check for name, check in sorted(globals().items()) if name.startswith("check_")
)
