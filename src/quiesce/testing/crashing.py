"""Where a simulated process may die: before or after each commit, keeping or losing what was not on disk."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from quiesce.errors import IncarnationEnded


class Crashed(IncarnationEnded):
    """The simulated process died. Not an Exception: nothing in it gets to clean up."""


@dataclass(slots=True)
class CrashPlan:
    """Die at the commit of this number, counted from 1 from the moment the plan becomes the present one.

    A commit is whatever changes storage atomically: a transaction, a commit within an attempt, and an alarm
    that is set outside of both. What changes nothing is not counted.
    """

    commit: int
    when: Literal["before", "after"] = "after"
    keeps_unsynced: bool = True
    """Whether commits that were not yet synced have reached the disk."""
    fired: bool = field(default=False, init=False)
    seen: int = field(default=0, init=False)
    """How many commits have passed since the plan became the present one."""

    def at_commit(self, when: Literal["before", "after"]) -> None:
        """Count a commit as it passes; raises Crashed at the planned one, once."""
        if when == "before":
            self.seen += 1
        if not self.fired and self.seen == self.commit and when == self.when:
            self.fired = True
            raise Crashed(f"{when} commit {self.commit}")

    def __str__(self) -> str:
        kept = "keeping" if self.keeps_unsynced else "losing"
        return f"{self.when} commit {self.commit}, {kept} what was not synced"


def commit_counter() -> CrashPlan:
    """Return a plan that never fires: its `seen` counts the commits of an undisturbed run."""
    return CrashPlan(0)


def crash_plans(commits_max: int) -> Iterator[CrashPlan]:
    """Yield every way to die at each of the first `commits_max` commits."""
    for commit in range(1, commits_max + 1):
        yield CrashPlan(commit, "before", keeps_unsynced=True)
        yield CrashPlan(commit, "before", keeps_unsynced=False)
        yield CrashPlan(commit, "after", keeps_unsynced=True)
        yield CrashPlan(commit, "after", keeps_unsynced=False)
