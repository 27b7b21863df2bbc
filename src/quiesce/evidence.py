"""The facts about one submission, folded from its rows.

Evidence is a value: recovery decides from it alone, and inspection explains from it alone.
What it costs to gather depends on what is open, never on history.
"""

from dataclasses import dataclass

from quiesce.agent import OnExhausted


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds that recovery holds a submission to."""

    attempts_max: int
    interruptions_max: int
    interruption_window_ms: int
    version_check_ms: int


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A tool call that was prepared and left no result."""

    operation: str
    name: str
    is_uncertain: bool
    """Calling it again could have the effect twice; an idempotent call may simply be made again."""
    is_unknown: bool
    """It was marked: nobody could prove what became of it, and it waits for a resolution."""
    since_ms: int


@dataclass(frozen=True, slots=True)
class OpenWait:
    """An approval, a signal, a timer or a child that is undecided."""

    operation: str
    name: str
    kind: str
    since_ms: int
    due_at_ms: int | None


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that the next decision about one submission may depend on."""

    now_ms: int
    state: str
    state_since_ms: int
    is_head: bool
    is_owned: bool
    """An attempt of this or an earlier incarnation claimed it and never ended in order."""
    attempts: int
    interruptions: int
    """Claims in a row that left no record and ended without order."""
    interrupted_since_ms: int | None
    not_before_ms: int | None
    deadline_at_ms: int | None
    has_settlement_record: bool
    is_abort_wanted: bool
    """Somebody has asked for its end."""
    calls: tuple[OpenCall, ...]
    waits: tuple[OpenWait, ...]
    agent: str
    agent_version: str
    is_agent_served: bool
    on_exhausted: OnExhausted
    limits: Limits
