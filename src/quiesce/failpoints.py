"""Named places before and after each durable act, inert in production.

1. A failpoint does nothing unless something was armed there. Arming is for tests and crash kits: what is armed
   may pause, raise, abort the Object or end the process.
2. A point whose name ends in `:after` stands behind a `sync`: what the act wrote is on disk there.
3. What is armed is consumed once, in order, before it acts.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from quiesce.storage import Storage

MAINTENANCE = (
    "maintenance:dirty:before",
    "maintenance:dirty:after",
    "maintenance:mutation:armed",
    "maintenance:mutation:finished",
    "maintenance:ensure:before",
    "maintenance:ensure:after",
    "maintenance:begin:before",
    "maintenance:begin:after",
    "maintenance:finish:before",
    "maintenance:finish:after",
)
COMMITS = (
    "admit:before",
    "admit:after",
    "claim:before",
    "claim:after",
    "step:before",
    "step:after",
    "prepare:before",
    "prepare:after",
    "reconcile:before",
    "reconcile:after",
    "release:before",
    "release:after",
    "settle:before",
    "settle:after",
)

DELIVERIES = ("deliver:before", "deliver:after")
"""Between another Object's answer and the commit that delivery makes about it, and behind that commit."""


class Failpoints(Protocol):
    """Where a test may stop, break or end an incarnation."""

    async def reach(self, name: str) -> None:
        """Pass the named place."""
        ...

    async def reach_after(self, name: str, storage: Storage) -> None:
        """Pass the named place, behind a sync if anything is armed there."""
        ...


class InertFailpoints:
    """The failpoints of production: none."""

    async def reach(self, name: str) -> None:
        """Do nothing."""

    async def reach_after(self, name: str, storage: Storage) -> None:
        """Do nothing."""


class ArmedFailpoints:
    """Failpoints with actions armed by name; each action is consumed once, in the order of arming."""

    def __init__(self) -> None:
        self._armed: dict[str, list[Callable[[], Awaitable[None]]]] = {}
        self.reached: list[str] = []

    def arm(self, name: str, action: Callable[[], Awaitable[None]]) -> None:
        """Arm one action at a named place."""
        if name not in MAINTENANCE + COMMITS + DELIVERIES:
            message = f"{name!r} is no failpoint"
            raise LookupError(message)
        self._armed.setdefault(name, []).append(action)

    async def reach(self, name: str) -> None:
        """Run what is armed at the named place, if anything is."""
        actions = self._armed.get(name)
        if actions:
            action = actions.pop(0)
            self.reached.append(name)
            await action()

    async def reach_after(self, name: str, storage: Storage) -> None:
        """Run what is armed at the named place, with everything written so far on disk."""
        if self._armed.get(name):
            await storage.sync()
            await self.reach(name)
