"""From the decisions of a lane to one answer: quiet, due at an instant, or able to move by itself.

1. An autonomous part decides; else the earliest instant; else the lane is quiet.
2. Only an instant after `now` counts as due. One that a pass saw and did not consume is autonomous, so that it
   is paced and counted, and nothing can spin.
3. What is queued behind a head that waits is blocked, not autonomous, and so has no part in this.
"""

from collections.abc import Sequence

from quiesce.generation import Autonomous, DueAt, Quiescence, Quiet
from quiesce.recovery import Await, AwaitUntil, Decision


def of_decision(decision: Decision) -> Quiescence:
    """Say what one decision means for the lane: anything but an await can be acted on now."""
    match decision:
        case Await(wait=wait):
            return Quiet(wait.reason)
        case AwaitUntil(wait=wait, at_ms=at_ms):
            return DueAt(at_ms, wait.reason)
        case _:
            return Autonomous(decision.reason, is_runnable=True)


def combine(parts: Sequence[Quiescence], now_ms: int) -> tuple[Quiescence, int | None]:
    """Join what each part of a lane waits for into one answer, and give the earliest instant due."""
    current = [_spent(part, now_ms) for part in parts]
    due = min((part.at_ms for part in current if isinstance(part, DueAt)), default=None)
    autonomous = [part for part in current if isinstance(part, Autonomous)]
    if autonomous:
        runnable = [part for part in autonomous if part.is_runnable]
        return (runnable or autonomous)[0], due
    for part in current:
        if isinstance(part, DueAt) and part.at_ms == due:
            return part, due
    return next(iter(current), Quiet("nothing is open")), None


def _spent(part: Quiescence, now_ms: int) -> Quiescence:
    if isinstance(part, DueAt) and part.at_ms <= now_ms:
        return Autonomous(f"{part.reason}: was due and has not been consumed")
    return part
