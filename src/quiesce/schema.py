"""Tables with their laws, and the numbered migrations that made them.

1. State laws are CHECK constraints: a bug that would break one fails its commit instead.
2. Migrations are forward only. The storage version is the generation record's `schema_version`, so that an
   alarm with nothing to do reads it without SQL.
3. Every index is paid for on each write. `submissions` has one, its id; `records` has one, its record id, which
   is also how a Run finds its own records; `operations` and `agenda` hold only what is open, and are their own
   indexes.
"""

from quiesce.states import OutcomeKind, State
from quiesce.storage import Storage


def _one_of(column: str, *values: str) -> str:
    """Write `column IN values` as alternatives: a list becomes a temporary table, whose rows are billed as read."""
    return "(" + " OR ".join(f"{column} = '{value}'" for value in values) + ")"


MIGRATION_1 = (
    f"""
    CREATE TABLE submissions (
        sequence INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        principal TEXT NOT NULL,
        idempotency_key TEXT NOT NULL,
        agent TEXT NOT NULL,
        agent_version TEXT NOT NULL,
        mode TEXT NOT NULL CHECK ({_one_of("mode", "queue", "join")}),
        input TEXT,
        input_digest TEXT NOT NULL,
        terms TEXT NOT NULL,
        accepted_at_ms INTEGER NOT NULL,
        deadline_at_ms INTEGER,
        state TEXT NOT NULL CHECK ({_one_of("state", *State)}),
        state_since_ms INTEGER NOT NULL,
        owner TEXT,
        epoch INTEGER NOT NULL DEFAULT 0,
        attempts INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
        interruptions INTEGER NOT NULL DEFAULT 0 CHECK (interruptions >= 0),
        interrupted_since_ms INTEGER,
        claimed_tail INTEGER NOT NULL DEFAULT 0,
        not_before_ms INTEGER,
        last_failure TEXT,
        abort TEXT,
        host_sequence INTEGER,
        parent TEXT,
        traceparent TEXT,
        outcome TEXT CHECK ({_one_of("outcome", *OutcomeKind)}),
        settled_at_ms INTEGER,
        purged_at_ms INTEGER,
        wakes INTEGER NOT NULL DEFAULT 0,
        rows_read INTEGER NOT NULL DEFAULT 0,
        rows_written INTEGER NOT NULL DEFAULT 0,
        active_ms INTEGER NOT NULL DEFAULT 0,
        CHECK ((state = 'settled') = (outcome IS NOT NULL)),
        CHECK ((state = 'settled') = (settled_at_ms IS NOT NULL)),
        CHECK (purged_at_ms IS NULL OR (state = 'settled' AND input IS NULL)),
        CHECK (owner IS NULL OR {_one_of("state", "running", "input-applied")}),
        CHECK (state <> 'running' OR owner IS NOT NULL),
        CHECK (input IS NULL OR NOT {_one_of("state", "input-applied", "suspended", "unknown")}),
        CHECK ((interruptions = 0) OR (interrupted_since_ms IS NOT NULL)),
        CHECK (host_sequence IS NOT NULL OR NOT {_one_of("state", "joining", "joined")})
    ) STRICT
    """,
    f"""
    CREATE TABLE agenda (
        at_ms INTEGER NOT NULL,
        kind TEXT NOT NULL CHECK ({_one_of("kind", "deadline", "message", "buried")}),
        subject TEXT NOT NULL,
        detail TEXT NOT NULL,
        PRIMARY KEY (at_ms, kind, subject)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE records (
        sequence INTEGER PRIMARY KEY CHECK (sequence > 0),
        record_id TEXT NOT NULL UNIQUE,
        kind TEXT NOT NULL,
        submission TEXT,
        epoch INTEGER NOT NULL,
        created_at_ms INTEGER NOT NULL,
        version INTEGER NOT NULL,
        payload TEXT,
        digest TEXT NOT NULL CHECK (length(digest) = 64),
        chain TEXT NOT NULL CHECK (length(chain) = 64),
        settled INTEGER NOT NULL CHECK (settled >= 0),
        head INTEGER NOT NULL CHECK (head > 0),
        CHECK (payload IS NOT NULL OR submission IS NOT NULL)
    ) STRICT
    """,
    f"""
    CREATE TABLE operations (
        submission_sequence INTEGER NOT NULL,
        operation TEXT NOT NULL,
        kind TEXT NOT NULL CHECK ({_one_of("kind", "tool", "approval", "signal", "timer", "child")}),
        state TEXT NOT NULL CHECK ({_one_of("state", "prepared", "unknown", "waiting")}),
        arguments_digest TEXT NOT NULL,
        opened_at_ms INTEGER NOT NULL,
        due_at_ms INTEGER,
        detail TEXT NOT NULL,
        PRIMARY KEY (submission_sequence, operation),
        CHECK ((kind = 'tool') = {_one_of("state", "prepared", "unknown")})
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE signals (
        submission_sequence INTEGER NOT NULL,
        arrival INTEGER NOT NULL,
        signal TEXT NOT NULL,
        idempotency_key TEXT NOT NULL,
        author TEXT NOT NULL,
        payload TEXT NOT NULL,
        consumed_by TEXT,
        PRIMARY KEY (submission_sequence, signal, idempotency_key)
    ) STRICT, WITHOUT ROWID
    """,
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (MIGRATION_1,)


def create(storage: Storage) -> None:
    """Create every table, inside the transaction of the first accepted admission."""
    for migration in MIGRATIONS:
        for statement in migration:
            storage.write(statement)


def exists(storage: Storage) -> bool:
    """Say whether this Object has tables of ours; an Object without any is virgin."""
    found = storage.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'submissions'"
    )
    return len(found) == 1
