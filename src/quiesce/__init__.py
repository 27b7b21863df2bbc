"""Quiesce runs conversation work durably on Cloudflare, in Python.

Accepted work settles, exactly once, through crashes, evictions and deploys. Requests only record that work is
owed; alarms do it. While the work waits for a person, a child or a clock, it holds no alarm that it does not
need and costs nothing. What may have happened and cannot be proven becomes a visible unknown, never a guess.

The modules of this package stand in a total order, and each imports only modules before it. Read them so.
"""

from quiesce.agent import (
    Agent,
    Failed,
    Happened,
    NeverStarted,
    Registry,
    Retryable,
    SafeToRetry,
    ToolFailed,
    UncertainCall,
    Unproven,
)
from quiesce.children import ChildOutcome
from quiesce.joining import JoinedInput
from quiesce.run import Run
from quiesce.waiting import Approval, Decision, Received, Signal, Timer, Won

__all__ = [
    "Agent",
    "Approval",
    "ChildOutcome",
    "Decision",
    "Failed",
    "Happened",
    "JoinedInput",
    "NeverStarted",
    "Received",
    "Registry",
    "Retryable",
    "Run",
    "SafeToRetry",
    "Signal",
    "Timer",
    "ToolFailed",
    "UncertainCall",
    "Unproven",
    "Won",
]
__version__ = "0.1.0"
