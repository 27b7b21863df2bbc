"""What the contract of the books stands on: how a storage is opened, a conversation laid out, a refusal seen.

Nothing is imported but `quiesce` and the standard library, so that the whole folder can be shipped into a Worker.
Every instant is far ahead, because an alarm that is set under the platform's own clock must not come due.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from quiesce import conversation_log, ledger, schema
from quiesce.conversation_log import Entry, Tail
from quiesce.ids import ConversationId, SubmissionId, record_id, submission_id
from quiesce.ledger import Submission
from quiesce.records import ConversationCreated, InputApplied, Payload, StepCompleted
from quiesce.states import State
from quiesce.storage import AlarmSlot, Storage

type OpenStorage = Callable[[], Awaitable[Storage]]
"""Opens the storage of an Object that holds nothing yet. A check opens one, once."""
type Check = Callable[[OpenStorage], Awaitable[None]]

NOW = 4_102_444_800_000
"""2100-01-01T00:00:00Z."""
NAME = ConversationId("order-17")
LAWFUL: dict[State, dict[str, Any]] = {
    State.ADMITTED: {},
    State.READY: {},
    State.RUNNING: {"owner": "one", "epoch": 1},
    State.INPUT_APPLIED: {"owner": "one", "epoch": 1, "input": None},
    State.SUSPENDED: {"input": None},
    State.UNKNOWN: {"input": None},
    State.JOINING: {"host_sequence": 1},
    State.JOINED: {"host_sequence": 1},
    State.TERMINALIZING: {},
    State.QUARANTINED: {},
    State.SETTLED: {"outcome": "completed", "settled_at_ms": NOW},
}
"""What a row in each state says beside what every row says."""


def identity(place: int) -> SubmissionId:
    """Return the id of the submission at a place of the queue."""
    return submission_id(NAME, "alice", f"key-{place}")


def row(place: int, state: State = State.READY, **columns: Any) -> dict[str, Any]:
    """Return the columns of a lawful row of the ledger, with some replaced."""
    return {
        "sequence": place,
        "id": identity(place),
        "principal": "alice",
        "idempotency_key": f"key-{place}",
        "agent": "echo",
        "agent_version": "1",
        "mode": "queue",
        "input": "{}",
        "input_digest": "d" * 64,
        "terms": '{"callback_url":null}',
        "accepted_at_ms": NOW + place,
        "state": state.value,
        "state_since_ms": NOW + place,
        **LAWFUL[state],
        **columns,
    }


def lay_out(storage: Storage, *rows: dict[str, Any]) -> None:
    """Create the tables, the first record and some rows of the ledger."""
    schema.create(storage)
    created = Entry(
        record_id("conversation", "created"), None, None, ConversationCreated(conversation=NAME)
    )
    conversation_log.append(storage, Tail(), created, NOW)
    for columns in rows:
        ledger.insert(storage, columns)


async def conversation(open_storage: OpenStorage, *rows: dict[str, Any]) -> Storage:
    """Open a storage that holds a conversation with these rows; without any, three ready ones."""
    storage = await open_storage()
    chosen = rows or (row(1), row(2), row(3))
    await storage.transaction(lambda _slot: lay_out(storage, *chosen))
    return storage


def at(storage: Storage, place: int) -> Submission:
    """Read the submission at a place of the queue, which is there."""
    found = ledger.at(storage, place)
    assert found is not None
    return found


def claim(storage: Storage, place: int, owner: str = "one", epoch: int = 1) -> Submission:
    """Claim a submission and apply its input, as an attempt does, and read it back."""

    def step() -> None:
        applied = InputApplied(agent="echo", agent_version="1", input=None)
        entry = Entry(record_id(identity(place), "input"), identity(place), epoch, applied)
        end = conversation_log.append(storage, conversation_log.tail(storage), entry, NOW)
        ledger.move(
            storage,
            at(storage, place),
            State.INPUT_APPLIED,
            NOW,
            input=None,
            owner=owner,
            epoch=epoch,
            claimed_tail=end.sequence,
        )

    storage.commit(step)
    return at(storage, place)


def step_entry(owner: SubmissionId, name: str, value: Any = None) -> Entry:
    """Build the record of a completed step."""
    says: Payload = StepCompleted(operation=name, arguments_digest="d", value=value)
    return Entry(record_id(owner, name, "completed"), owner, None, says)


def append(storage: Storage, entry: Entry) -> Tail:
    """Append one record in a commit of its own."""
    return storage.commit(
        lambda: conversation_log.append(storage, conversation_log.tail(storage), entry, NOW)
    )


def everything(storage: Storage) -> list[list[tuple[Any, ...]]]:
    """Read every row of every table of ours, to tell whether anything changed."""
    tables = storage.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        " AND name NOT LIKE '_cf%' AND name NOT LIKE 'host%' ORDER BY name"
    )
    return [storage.execute(f"SELECT * FROM {table}") for (table,) in tables]


async def raised_by(storage: Storage, step: Callable[[AlarmSlot], object]) -> Exception:
    """Run a step that must fail in a transaction, and return what arrived here."""
    try:
        await storage.transaction(step)
    except Exception as error:  # noqa: BLE001 - which object it is decides the check
        return error
    raise AssertionError("nothing was raised")


def refusal_of(storage: Storage, step: Callable[[], object]) -> Exception:
    """Run a step that must fail in a commit, check that nothing changed, and return what it raised."""
    before = everything(storage)
    try:
        storage.commit(step)
    except Exception as error:  # noqa: BLE001 - each store raises its own error for a broken constraint
        assert everything(storage) == before
        return error
    raise AssertionError("it was not refused")
