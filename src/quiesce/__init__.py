"""Quiesce runs conversation work durably on Cloudflare, in Python.

Accepted work settles, exactly once, through crashes, evictions and deploys. Requests only record that work is
owed; alarms do it. While the work waits for a person, a child or a clock, it holds no alarm that it does not
need and costs nothing. What may have happened and cannot be proven becomes a visible unknown, never a guess.

The modules of this package stand in a total order, and each imports only modules before it. Read them so.
"""

from quiesce.agent import Agent, Failed, Registry, Retryable, ToolFailed
from quiesce.run import Run

__all__ = ["Agent", "Failed", "Registry", "Retryable", "Run", "ToolFailed"]
__version__ = "0.1.0"
