"""What a check of a conversation speaks of: the laws by name, one that is broken, and what they are about."""

from dataclasses import dataclass
from enum import StrEnum


class Law(StrEnum):
    """Which law is broken, in a word."""

    CONVERSATION = "conversation"
    SEQUENCE = "sequence"
    RECORD_ID = "record-id"
    DIGEST = "digest"
    CHAIN = "chain"
    PAYLOAD = "payload"
    SETTLEMENT = "settlement"
    INPUT = "input"
    ORDER = "order"
    STATE = "state"
    TOTALS = "totals"
    ALARM = "alarm"
    NONTERMINAL = "nonterminal"
    OPERATIONS = "operations"
    GENERATION_RECORD = "generation-record"


@dataclass(frozen=True, slots=True)
class BrokenLaw:
    """One law that does not hold, what was found instead, and where."""

    law: Law
    found: str
    sequence: int | None = None
    """The record."""
    submission: str | None = None


@dataclass(frozen=True, slots=True)
class SubmissionFacts:
    """What the laws need to know of one row of the ledger."""

    sequence: int
    id: str
    state: str
    """One of State, unless the row is broken."""
    outcome: str | None
    is_owned: bool
    is_purged: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    """How the lane stands in the turn in which a check ends: the totals of its tail, its generation, its alarm."""

    settled_total: int
    head: int
    dirty: int
    processed: int
    due_at_ms: int | None
    alarm_at_ms: int | None
    pass_runs: bool = False
    is_in_delivery: bool = False
    """The alarm may be on its way: its slot is empty from then on."""
    nonterminal: int | None = None
    """How many submissions the generation record remembers as open; None where nobody has looked."""
    stray_operations: tuple[int, ...] = ()
    """The places in the queue of submissions that have operations and are not open."""
    unreadable: str | None = None
    """What is wrong with the generation record."""
