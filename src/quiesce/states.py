"""Submission states, the table of lawful moves, and outcomes.

1. A move that is not in `MOVES` is illegal: it raises and changes nothing.
2. `settled` is left by nothing.
3. A submission is *owned* only in `running` and `input-applied`; every move out of these ends ownership.
"""

from enum import StrEnum


class State(StrEnum):
    """Where a submission stands."""

    ADMITTED = "admitted"
    READY = "ready"
    RUNNING = "running"
    INPUT_APPLIED = "input-applied"
    SUSPENDED = "suspended"
    UNKNOWN = "unknown"
    JOINING = "joining"
    JOINED = "joined"
    TERMINALIZING = "terminalizing"
    QUARANTINED = "quarantined"
    SETTLED = "settled"


class OutcomeKind(StrEnum):
    """The one terminal outcome of a submission."""

    COMPLETED = "completed"
    FAILED = "failed"
    ABORTED = "aborted"


OPEN = frozenset(State) - {State.SETTLED}
OWNED = frozenset({State.RUNNING, State.INPUT_APPLIED})

MOVES: dict[State, frozenset[State]] = {
    # establishment by the parent; abort
    State.ADMITTED: frozenset({State.READY, State.SETTLED, State.TERMINALIZING}),
    # claim and apply are one commit, which passes through `running`; the join's passes through `joining`
    State.READY: frozenset(
        {
            State.RUNNING,
            State.INPUT_APPLIED,
            State.JOINING,
            State.JOINED,
            State.QUARANTINED,
            State.TERMINALIZING,
            State.SETTLED,
        }
    ),
    State.RUNNING: frozenset(
        {
            State.READY,
            State.INPUT_APPLIED,
            State.QUARANTINED,
            State.TERMINALIZING,
            State.SETTLED,
        }
    ),
    # claim again, release and retry keep the state
    State.INPUT_APPLIED: frozenset(
        {
            State.INPUT_APPLIED,
            State.SUSPENDED,
            State.UNKNOWN,
            State.QUARANTINED,
            State.TERMINALIZING,
            State.SETTLED,
        }
    ),
    # decision, due time, child settled
    State.SUSPENDED: frozenset(
        {
            State.INPUT_APPLIED,
            State.UNKNOWN,
            State.QUARANTINED,
            State.TERMINALIZING,
            State.SETTLED,
        }
    ),
    # resolution
    State.UNKNOWN: frozenset(
        {State.INPUT_APPLIED, State.QUARANTINED, State.TERMINALIZING, State.SETTLED}
    ),
    State.JOINING: frozenset({State.JOINED, State.READY, State.SETTLED}),
    State.JOINED: frozenset({State.TERMINALIZING, State.SETTLED}),
    State.TERMINALIZING: frozenset({State.SETTLED}),
    # the operator's retry, or abort
    State.QUARANTINED: frozenset({State.READY, State.TERMINALIZING, State.SETTLED}),
    State.SETTLED: frozenset(),
}


def is_lawful(leaves: State, enters: State) -> bool:
    """Say whether a submission may move from `leaves` to `enters`."""
    return enters in MOVES[leaves]
