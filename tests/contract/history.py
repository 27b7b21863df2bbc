"""The log and settlement: what is recorded, once, in order, for good.

The ST and LG numbers are those of the parity list.

Not tested here: that a stage appends what it should.

Parity: SN-16, CF-1, RJ-3, RJ-6, RJ-7, RH-1, RH-2, DRT-15, DRT-16, SEC-3.
"""

from dataclasses import replace
from typing import Any

from contract.ground import (
    NAME,
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
from quiesce import agenda, conversation_log, ledger, operations, schema, settlement
from quiesce.conversation_log import Entry, Tail
from quiesce.errors import Corruption, IllegalMove
from quiesce.generation_record import Cost
from quiesce.ids import OperationId, RecordId, SubmissionId, record_id
from quiesce.invariants import Export, broken_laws
from quiesce.laws import SubmissionFacts
from quiesce.operations import OpenOperation, OperationKind, OperationState
from quiesce.records import CHAIN_START, SettlementRecorded, StepCompleted, TimerFired, chain_digest
from quiesce.settlement import Aborted, Completed, FailedForGood
from quiesce.states import OutcomeKind, State
from quiesce.storage import Storage

BYTES_MAX = 10**6
COST = Cost(wakes=1, rows_read=2, rows_written=3, active_ms=4)


def _log(storage: Storage) -> list[RecordId]:
    return [each.record_id for each in conversation_log.page(storage, 0, 1_000, BYTES_MAX)]


def _check_laws(storage: Storage) -> None:
    """Hold the whole conversation against its laws, apart from those of the alarm."""
    end = conversation_log.tail(storage)
    export = Export(
        submissions=tuple(
            SubmissionFacts(
                each.sequence, each.id, each.state, each.outcome, is_owned=each.owner is not None
            )
            for each in ledger.page(storage, 0, 1_000, None)
        ),
        records=tuple(conversation_log.page(storage, 0, 1_000, BYTES_MAX)),
        settled_total=end.settled,
        head=end.head,
        dirty=0,
        processed=0,
        due_at_ms=None,
        alarm_at_ms=None,
    )
    assert broken_laws(export) == []


# The log.


async def check_sequences_start_at_one_and_have_no_gap(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    for number in range(5):
        append(storage, step_entry(identity(1), f"s-{number}"))
    found = conversation_log.page(storage, 0, 100, BYTES_MAX)
    assert [each.sequence for each in found] == [1, 2, 3, 4, 5, 6]


async def check_every_link_of_the_chain_covers_the_one_before(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    for number in range(3):
        append(storage, step_entry(identity(1), f"s-{number}", value={"n": number}))
    chain = CHAIN_START
    for each in conversation_log.page(storage, 0, 100, BYTES_MAX):
        chain = chain_digest(chain, each.sequence, each.digest, each.created_at_ms)
        assert each.chain == chain
    assert conversation_log.tail(storage).chain == chain


async def check_a_record_is_read_as_it_was_appended(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    entry = step_entry(identity(1), "a", value={"b": ["é😀\x00", 2.0, None, 2**60]})
    append(storage, replace(entry, epoch=7))
    found = conversation_log.read(storage, entry.record_id)
    assert found is not None
    assert found.parsed() == entry.payload
    assert (found.submission, found.epoch, found.created_at_ms) == (identity(1), 7, NOW)
    assert found.kind == "step-completed"
    assert conversation_log.read(storage, RecordId("nothing")) is None


async def check_what_is_no_attempts_takes_the_epoch_of_the_tail(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    assert append(storage, replace(step_entry(identity(1), "a"), epoch=7)).epoch == 7
    assert append(storage, step_entry(identity(1), "b")).epoch == 7


async def check_st_1_a_record_whose_commit_fails_was_never_there(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)

    def step() -> None:
        end = conversation_log.tail(storage)
        end = conversation_log.append(storage, end, step_entry(identity(1), "a"), NOW)
        conversation_log.append(storage, end, step_entry(identity(1), "b"), NOW)
        raise ValueError("no")

    assert isinstance(refusal_of(storage, step), ValueError)
    assert conversation_log.tail(storage).sequence == 1


async def check_st_2_the_same_record_is_a_replay_at_any_tail(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    entry = step_entry(identity(1), "a", value=1)
    append(storage, entry)
    for further in ("b", "c"):
        before = conversation_log.tail(storage)
        assert append(storage, entry) == before
        assert append(storage, replace(entry, epoch=9)) == before, "a later attempt says the same"
        assert conversation_log.tail(storage) == before
        append(storage, step_entry(identity(1), further))
    assert len(_log(storage)) == 4


async def check_st_2_a_replay_adds_nothing_to_the_totals(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    append(storage, step_entry(identity(1), "a"))
    end = conversation_log.tail(storage)
    again = storage.commit(
        lambda: conversation_log.append(storage, end, step_entry(identity(1), "a"), NOW, settles=1)
    )
    assert again == end


async def check_st_2_altered_content_under_a_known_id_is_corruption(
    open_storage: OpenStorage,
) -> None:
    storage = await conversation(open_storage)
    entry = step_entry(identity(1), "a", value=1)
    append(storage, entry)
    altered = (
        replace(entry, payload=StepCompleted(operation="a", arguments_digest="d", value=2)),
        replace(entry, payload=TimerFired(operation="a")),
        replace(entry, submission=identity(2)),
        replace(entry, submission=None),
    )
    for each in altered:
        error = refusal_of(storage, lambda each=each: append_within(storage, each))
        assert isinstance(error, Corruption), each
        assert entry.record_id in error.law


def append_within(storage: Storage, entry: Entry) -> Tail:
    """Append inside a commit that the caller has opened."""
    return conversation_log.append(storage, conversation_log.tail(storage), entry, NOW)


async def check_st_3_a_stale_tail_is_refused(open_storage: OpenStorage) -> None:
    """Whoever read the tail in an earlier step cannot write over what came after it."""
    storage = await conversation(open_storage)
    stale = conversation_log.tail(storage)
    append(storage, step_entry(identity(1), "a"))
    late = step_entry(identity(1), "b")
    refusal_of(storage, lambda: conversation_log.append(storage, stale, late, NOW))


async def check_st_5_reading_on_gives_exactly_what_follows(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    for number in range(6):
        append(storage, step_entry(identity(1), f"s-{number}"))
    whole = conversation_log.page(storage, 0, 100, BYTES_MAX)
    assert len(whole) == 7
    for after in range(9):
        assert conversation_log.page(storage, after, 100, BYTES_MAX) == whole[after:]
    assert conversation_log.page(storage, 2, 3, BYTES_MAX) == whole[2:5]


async def check_st_7_the_tail_lets_another_incarnation_go_on(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    end = append(storage, replace(step_entry(identity(1), "a"), epoch=3))
    assert conversation_log.tail(storage) == replace(end, last=3)
    after = append(storage, step_entry(identity(1), "b"))
    assert (after.sequence, after.epoch, after.head, after.last) == (3, 3, 1, 3)


async def check_the_first_record_names_the_conversation(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    assert conversation_log.conversation(storage) == NAME


async def check_st_8_an_empty_log_has_the_first_tail(open_storage: OpenStorage) -> None:
    storage = await open_storage()
    storage.commit(lambda: schema.create(storage))
    assert conversation_log.tail(storage) == Tail()
    assert conversation_log.page(storage, 0, 10, BYTES_MAX) == []


async def check_a_page_ends_at_its_bytes_and_is_never_empty_before_the_end(
    open_storage: OpenStorage,
) -> None:
    storage = await conversation(open_storage)
    for number in range(5):
        append(storage, step_entry(identity(1), f"s-{number}", value="x" * 1_000))
    sizes = [len(each.payload) for each in conversation_log.page(storage, 1, 10, BYTES_MAX)]
    assert _lengths(storage, after=1, bytes_max=sum(sizes[:3])) == sizes[:3]
    assert _lengths(storage, after=1, bytes_max=sum(sizes[:3]) - 1) == sizes[:2]
    assert _lengths(storage, after=1, bytes_max=1) == sizes[:1]
    assert _lengths(storage, after=6, bytes_max=1) == []


async def check_a_page_counts_bytes_and_not_characters(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    for number in range(4):
        append(storage, step_entry(identity(1), f"s-{number}", value="😀" * 1_000))
    found = _lengths(storage, after=1, bytes_max=9_000)
    assert sum(found) <= 9_000
    assert len(found) == 2


def _lengths(storage: Storage, *, after: int, bytes_max: int) -> list[int]:
    found = conversation_log.page(storage, after, 100, bytes_max)
    return [len(each.payload.encode()) for each in found]


async def check_the_records_of_a_submission_are_its_own(open_storage: OpenStorage) -> None:
    """Also when another's id begins with its id, or stands next to it in the order of the index."""
    storage = await conversation(open_storage)
    own = SubmissionId("sub_a")
    for owner in (
        "sub_a",
        "sub_a0",
        "sub_a.",
        "sub_a-",
        "sub_ab",
        "sub_",
        "sub_A",
        "sub_a~",
        "sub_",
    ):
        append(storage, step_entry(SubmissionId(owner), "z"))
    append(storage, step_entry(own, "a"))
    append(storage, Entry(record_id(own, "input~0"), own, None, TimerFired(operation="t")))
    found = conversation_log.of_submission(storage, own)
    assert [each.record_id for each in found] == [
        "sub_a/z/completed",
        "sub_a/a/completed",
        "sub_a/input~0",
    ]
    assert conversation_log.of_submission(storage, SubmissionId("sub_b")) == []


async def check_the_records_of_an_operation_are_its_own(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    for operation in ("charge", "charge~1", "charge@k", "charge0", "charge.", "charges"):
        append(storage, step_entry(identity(1), operation))
    append(storage, step_entry(identity(2), "charge"))
    found = conversation_log.of_operation(storage, identity(1), OperationId("charge"))
    assert [each.record_id for each in found] == [f"{identity(1)}/charge/completed"]


async def check_progress_is_a_record_of_ones_own_behind_a_place(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    append(storage, step_entry(identity(1), "a"))
    append(storage, step_entry(identity(2), "a"))
    assert conversation_log.has_progressed(storage, identity(1), 1)
    assert not conversation_log.has_progressed(storage, identity(1), 2)
    assert not conversation_log.has_progressed(storage, identity(3), 0)


# Settlement.


def _settle(storage: Storage, place: int, verdict: Any = None, now_ms: int = NOW) -> None:
    submission = at(storage, place)
    chosen = verdict or Completed({"ok": True})
    storage.commit(lambda: settlement.conclude(storage, submission, chosen, now_ms, COST))


async def check_lg_8_settling_is_the_record_and_the_row(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    claim(storage, 1, epoch=4)
    _settle(storage, 1, now_ms=NOW + 50)
    settled = at(storage, 1)
    assert (settled.state, settled.outcome) == (State.SETTLED, "completed")
    assert (settled.settled_at_ms, settled.owner, settled.is_open) == (NOW + 50, None, False)
    assert settled.is_settled_in_log
    assert settled.cost == COST
    read = settlement.read(storage, settled)
    assert read is not None
    assert (read.settled_at_ms, read.recorded.result) == (NOW + 50, {"ok": True})
    assert read.recorded.cost == COST.model_dump()
    record = conversation_log.read(storage, settlement.settlement_id(identity(1)))
    assert record is not None
    assert record.epoch == 4
    _check_laws(storage)


async def check_lg_8_a_submission_is_settled_exactly_once(open_storage: OpenStorage) -> None:
    """By whoever comes late with what it read before, and by whoever reads again."""
    storage = await conversation(open_storage)
    early = claim(storage, 1)
    _settle(storage, 1)
    for late in (early, at(storage, 1)):
        for verdict in (Completed({"ok": True}), Completed({"ok": False}), Aborted("late")):
            error = refusal_of(
                storage,
                lambda late=late, verdict=verdict: settlement.conclude(
                    storage, late, verdict, NOW + 1, COST
                ),
            )
            assert isinstance(error, IllegalMove | Corruption)
    assert conversation_log.tail(storage).settled == 1


async def check_lg_9_a_stale_attempt_cannot_settle(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    stale = claim(storage, 1)
    ledger.move(storage, stale, State.INPUT_APPLIED, NOW, owner="two", epoch=2)
    error = refusal_of(
        storage, lambda: settlement.conclude(storage, stale, Completed(1), NOW, COST)
    )
    assert isinstance(error, IllegalMove)


async def check_an_open_submission_has_no_settlement(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    assert settlement.read(storage, at(storage, 1)) is None
    assert not at(storage, 1).is_settled_in_log


async def check_settling_the_head_moves_it_on(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    for place in (1, 2, 3):
        head = ledger.head(storage)
        assert head is not None
        assert head.sequence == place
        claim(storage, place, epoch=place)
        _settle(storage, place)
        end = conversation_log.tail(storage)
        assert (end.settled, end.head, end.nonterminal) == (place, place + 1, 3 - place)
    assert ledger.head(storage) is None
    _check_laws(storage)


async def check_the_head_moves_past_what_was_settled_out_of_order(
    open_storage: OpenStorage,
) -> None:
    storage = await conversation(open_storage, *[row(place) for place in range(1, 6)])
    for place in (2, 3, 5):
        _settle(storage, place, Aborted("not wanted"))
        assert conversation_log.tail(storage).head == 1
    assert conversation_log.tail(storage).settled == 3
    claim(storage, 1)
    _settle(storage, 1)
    assert conversation_log.tail(storage).head == 4
    claim(storage, 4, epoch=2)
    _settle(storage, 4)
    assert conversation_log.tail(storage).head == 6
    ledger.insert(storage, row(6))
    head = ledger.head(storage)
    assert head is not None
    assert head.sequence == 6
    _check_laws(storage)


async def check_a_failure_is_bounded_and_lists_what_was_completed(
    open_storage: OpenStorage,
) -> None:
    storage = await conversation(open_storage)
    claim(storage, 1)
    for name in ("b", "a"):
        append(storage, step_entry(identity(1), name))
    append(storage, step_entry(identity(2), "c"))
    _settle(storage, 1, FailedForGood("t" * 1_000, "m" * 10_000))
    read = settlement.read(storage, at(storage, 1))
    assert read is not None
    assert read.recorded.outcome is OutcomeKind.FAILED
    assert read.recorded.failure == {"error_type": "t" * 100, "message": "m" * 2_000}
    assert read.recorded.completed_operations == ["b", "a"]


async def check_an_abort_keeps_its_reason(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    _settle(storage, 2, Aborted("r" * 5_000))
    read = settlement.read(storage, at(storage, 2))
    assert read is not None
    assert (read.recorded.outcome, read.recorded.reason) == (OutcomeKind.ABORTED, "r" * 2_000)
    assert not read.recorded.effects_may_have_happened


def _open(
    storage: Storage,
    name: str,
    kind: OperationKind = OperationKind.TOOL,
    state: OperationState = OperationState.PREPARED,
    **detail: Any,
) -> None:
    identity_ = OperationId(name)
    says = {"name": name, **detail}
    opened = OpenOperation(1, identity_, kind, state, "d" * 64, NOW, None, says)
    operations.open_(storage, opened)


async def check_what_was_open_is_closed_and_what_may_have_happened_is_listed(
    open_storage: OpenStorage,
) -> None:
    storage = await conversation(open_storage)
    claim(storage, 1)
    for name, effect in (("charge", "uncertain"), ("notify", "idempotent")):
        _open(storage, name, effect=effect, call=1)
    _settle(storage, 1, Aborted("not wanted"))
    assert operations.of_submission(storage, 1) == []
    read = settlement.read(storage, at(storage, 1))
    assert read is not None
    assert read.recorded.effects_may_have_happened
    assert read.recorded.unknown_operations == ["charge"]


async def check_what_a_released_submission_had_open_is_closed_too(
    open_storage: OpenStorage,
) -> None:
    """An operator's retry brings a quarantined submission to ready with what it waits for still open."""
    storage = await conversation(open_storage, row(1, epoch=1, input=None), row(2))
    _open(storage, "ask", OperationKind.APPROVAL, OperationState.WAITING)
    assert at(storage, 1).state is State.READY
    _settle(storage, 1, Aborted("not wanted"))
    assert operations.of_submission(storage, 1) == []


async def check_a_submission_with_children_is_reserved_and_settled_when_they_are(
    open_storage: OpenStorage,
) -> None:
    """What it will say is fixed at once; each child is owed an abort, and nothing else is open."""
    storage = await conversation(open_storage)
    claim(storage, 1, epoch=3)
    _open(storage, "charge", effect="uncertain", call=1)
    _open(storage, "ship", OperationKind.CHILD, OperationState.WAITING)
    _settle(storage, 1, Aborted("not wanted"), now_ms=NOW + 5)
    reserved = at(storage, 1)
    assert (reserved.state, reserved.owner) == (State.TERMINALIZING, None)
    assert settlement.read(storage, reserved) is None
    assert conversation_log.tail(storage).head == 1, (
        "it holds the lane until its children have settled"
    )
    (child,) = operations.of_submission(storage, 1)
    assert child.operation == "ship"
    assert child.detail["is_aborting"]
    assert child.detail["is_owed"]
    operations.close(storage, child)
    storage.commit(lambda: settlement.settle_reserved(storage, reserved, NOW + 9, COST))
    read = settlement.read(storage, at(storage, 1))
    assert read is not None
    assert (read.recorded.outcome, read.recorded.reason) == (OutcomeKind.ABORTED, "not wanted")
    assert read.recorded.unknown_operations == ["charge"]
    assert conversation_log.tail(storage).head == 2
    _check_laws(storage)


async def check_a_detaching_abort_settles_at_once_and_lists_the_children(
    open_storage: OpenStorage,
) -> None:
    storage = await conversation(open_storage)
    claim(storage, 1)
    _open(storage, "ship", OperationKind.CHILD, OperationState.WAITING)
    _settle(storage, 1, Aborted("not wanted", detaches=True))
    read = settlement.read(storage, at(storage, 1))
    assert read is not None
    assert read.recorded.effects_may_have_happened
    assert read.recorded.unknown_operations == ["ship"]
    assert operations.of_submission(storage, 1) == []


async def check_nothing_is_settled_as_reserved_that_was_not(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage, row(1, State.TERMINALIZING))
    found = at(storage, 1)
    error = refusal_of(storage, lambda: settlement.settle_reserved(storage, found, NOW, COST))
    assert isinstance(error, Corruption)


async def check_settling_ends_the_deadline_and_owes_whoever_asked_to_be_told(
    open_storage: OpenStorage,
) -> None:
    """In the same commit: no deadline is left to wake the lane, and no message can be forgotten."""
    told = row(
        1,
        deadline_at_ms=NOW + 50,
        parent='{"conversation":"p"}',
        terms='{"callback_url":"https://example.com/x"}',
    )
    storage = await conversation(open_storage, told, row(2))
    agenda.add(storage, agenda.deadline(1, NOW + 50))
    claim(storage, 1)
    _settle(storage, 1)
    _settle(storage, 2, Aborted("not wanted"))
    subjects = [each.subject for each in agenda.due(storage, NOW + 50, 10)]
    assert subjects == [f"{identity(1)}/callback", f"{identity(1)}/parent"]


async def check_a_settlement_that_stands_in_the_log_is_finished_in_the_ledger(
    open_storage: OpenStorage,
) -> None:
    """The log is the authority: the row follows it, with that outcome and at that time."""
    storage = await conversation(open_storage)
    claim(storage, 1)
    recorded = SettlementRecorded(
        outcome=OutcomeKind.FAILED, failure={"error_type": "e", "message": "m"}, cost={}
    )
    entry = Entry(settlement.settlement_id(identity(1)), identity(1), 1, recorded)
    end = replace(conversation_log.tail(storage), head=2)
    storage.commit(lambda: conversation_log.append(storage, end, entry, NOW + 5, settles=1))
    found = at(storage, 1)
    assert found.is_settled_in_log
    assert found.is_open
    storage.commit(lambda: settlement.finish_from_history(storage, found))
    settled = at(storage, 1)
    assert (settled.state, settled.outcome, settled.owner) == (State.SETTLED, "failed", None)
    assert settled.settled_at_ms == NOW + 5, "when it was settled, and not when the row followed"
    assert len(_log(storage)) == 3, "nothing is appended for it"
    assert conversation_log.tail(storage).settled == 1
    _check_laws(storage)
    error = refusal_of(storage, lambda: settlement.finish_from_history(storage, found))
    assert isinstance(error, IllegalMove)


async def check_nothing_is_finished_from_a_history_that_does_not_say_so(
    open_storage: OpenStorage,
) -> None:
    storage = await conversation(open_storage)
    found = claim(storage, 1)
    error = refusal_of(storage, lambda: settlement.finish_from_history(storage, found))
    assert isinstance(error, Corruption)
    impostor = Entry(
        settlement.settlement_id(identity(1)), identity(1), 1, TimerFired(operation="t")
    )
    append(storage, impostor)
    error = refusal_of(storage, lambda: settlement.finish_from_history(storage, found))
    assert isinstance(error, Corruption)


async def check_a_settlement_whose_commit_fails_was_never_there(open_storage: OpenStorage) -> None:
    storage = await conversation(open_storage)
    owned = claim(storage, 1)

    def step() -> None:
        settlement.conclude(storage, owned, Completed(1), NOW, COST)
        raise ValueError("no")

    before = everything(storage)
    assert isinstance(refusal_of(storage, step), ValueError)
    assert everything(storage) == before


HISTORY: tuple[Check, ...] = tuple(
    check for name, check in sorted(globals().items()) if name.startswith("check_")
)
