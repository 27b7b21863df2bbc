"""classify: from the evidence about one submission to what is to be done about it.

The precedence is a numbered list; the first rule that applies decides.

 1. It is settled: nothing.
 2. Its settlement stands in the log: finish exactly that settlement. History wins over the ledger. Its settlement
    is reserved: await the children that have not settled, then settle exactly so.
 3. It has joined a host: await the host's settlement, which settles it too.
 4. Somebody wants it aborted, or its deadline has passed: settle it so, wherever it stands in the queue; with
    children that is only reserved (2). Calls that left no result are recorded as unknown, never as undone.
    Otherwise, if it is not the head, it waits behind the head and has no part in what the lane can do.
 5. A call that could have its effect twice left no result: ask its reconciler; without proof it is unknown.
 6. It has an unknown call: await a resolution.
 7. Its attempts or interruptions are exhausted: settle it failed, or quarantine it, as its agent declares; one that
    is quarantined awaits an operator.
 8. It waits for approvals, signals, timers or children: close what is due; suspend it while one is undecided;
    resume it when none is; run it again beside them if it has a retry time, or its attempt died. (9, what a
    delegation owes to its child, is delivery's to do, and never blocks this.)
10. It is admitted and its parent has not established it: await the parent.
12. Its retry time lies ahead: await it. An attempt died and its delay has not been set: set it.
13. This deployment lacks its agent's version: await a deployment that has it, looking once in a while.
14. Otherwise: claim it, apply its input if that has not been done (11), and run.

classify is total: every evidence has exactly one decision.
"""

from dataclasses import dataclass
from enum import StrEnum

from quiesce.errors import FailureType
from quiesce.evidence import Evidence, OpenWait
from quiesce.pacing import interruption_delay_ms
from quiesce.states import State


class WaitKind(StrEnum):
    """What a submission can wait for."""

    APPROVAL = "approval"
    SIGNAL = "signal"
    TIMER = "timer"
    CHILD = "child"
    RESOLUTION = "resolution"
    RETRY = "retry"
    HEAD = "head"
    PARENT = "parent"
    AGENT_VERSION = "agent-version"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Wait:
    """What a submission waits for, since when, and until when if a clock ends it."""

    kind: WaitKind
    reason: str
    since_ms: int
    until_ms: int | None = None
    operation: str | None = None
    name: str | None = None
    behind: str | None = None


@dataclass(frozen=True, slots=True)
class Nothing:
    """The submission is settled."""

    reason: str = "settled"


@dataclass(frozen=True, slots=True)
class FinishFromHistory:
    """The log holds the settlement; the ledger has to follow."""

    reason: str = "its settlement stands in the log"


@dataclass(frozen=True, slots=True)
class SettleReserved:
    """Its settlement is reserved, and every child has settled."""

    reason: str = "its settlement is reserved"


@dataclass(frozen=True, slots=True)
class SettleAborted:
    """Settle the submission aborted."""

    reason: str = "somebody asked for its abort"


@dataclass(frozen=True, slots=True)
class SettleFailed:
    """Settle the submission failed."""

    error_type: str
    message: str
    reason: str = "it has failed for good"


@dataclass(frozen=True, slots=True)
class Reconcile:
    """Ask what became of these calls; what cannot be proven becomes unknown."""

    operations: tuple[str, ...]
    reason: str = "a call left no result"


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Hold the submission, and the lane behind it, for an operator."""

    reason: str


@dataclass(frozen=True, slots=True)
class CloseDue:
    """Close the waits whose time has come."""

    operations: tuple[str, ...]
    reason: str = "a wait has come to its time"


@dataclass(frozen=True, slots=True)
class Suspend:
    """Hold the submission until its waits are decided; whoever owned it is gone."""

    reason: str = "its waits are undecided"


@dataclass(frozen=True, slots=True)
class Resume:
    """Everything that it was suspended for is decided."""

    reason: str = "its waits are decided"


@dataclass(frozen=True, slots=True)
class Postpone:
    """End the ownership of a dead attempt, and set the time of the next claim."""

    not_before_ms: int
    interruptions: int
    reason: str = "its attempt was interrupted"


@dataclass(frozen=True, slots=True)
class Await:
    """Only an outside event can move it."""

    wait: Wait

    @property
    def reason(self) -> str:
        """Why it waits."""
        return self.wait.reason


@dataclass(frozen=True, slots=True)
class AwaitUntil:
    """A clock will move it."""

    wait: Wait
    at_ms: int

    @property
    def reason(self) -> str:
        """Why it waits."""
        return self.wait.reason


@dataclass(frozen=True, slots=True)
class Claim:
    """Claim it at a higher epoch and run."""

    interruptions: int
    reason: str = "it can run"


type Decision = (
    Nothing
    | FinishFromHistory
    | SettleReserved
    | SettleAborted
    | SettleFailed
    | Reconcile
    | Quarantine
    | CloseDue
    | Suspend
    | Resume
    | Postpone
    | Await
    | AwaitUntil
    | Claim
)


def classify(evidence: Evidence) -> Decision:
    """Decide what is to be done about one submission."""
    if evidence.state == State.SETTLED:
        return Nothing()
    if evidence.has_settlement_record:
        return FinishFromHistory()
    if evidence.state == State.TERMINALIZING:
        return Await(_wait(evidence.waits[0])) if evidence.waits else SettleReserved()
    return (
        _joined(evidence)
        or _ended_from_outside(evidence)
        or _behind_the_head(evidence)
        or _unproven(evidence)
        or _exhausted(evidence)
        or _waiting(evidence)
        or _admitted(evidence)
        or _next_claim(evidence)
    )


def _joined(evidence: Evidence) -> Decision | None:
    if evidence.state != State.JOINED:
        return None
    reason = "it has joined the head of the lane, and settles with it"
    return Await(Wait(WaitKind.HEAD, reason, evidence.state_since_ms))


def _ended_from_outside(evidence: Evidence) -> Decision | None:
    if evidence.is_abort_wanted:
        return SettleAborted()
    if evidence.deadline_at_ms is not None and evidence.deadline_at_ms <= evidence.now_ms:
        message = "the deadline of the submission has passed"
        return SettleFailed(FailureType.DEADLINE_EXCEEDED, message)
    return None


def _behind_the_head(evidence: Evidence) -> Decision | None:
    if evidence.is_head:
        return None
    reason = "it is queued behind the head of the lane"
    return Await(Wait(WaitKind.HEAD, reason, evidence.state_since_ms))


def _unproven(evidence: Evidence) -> Decision | None:
    unproven = tuple(
        call.operation for call in evidence.calls if call.is_uncertain and not call.is_unknown
    )
    if unproven:
        return Reconcile(unproven)
    for call in evidence.calls:
        if call.is_unknown:
            reason = f"nobody can prove what became of the call {call.name!r}; say so"
            wait = Wait(
                WaitKind.RESOLUTION,
                reason,
                call.since_ms,
                operation=call.operation,
                name=call.name,
            )
            return Await(wait)
    if evidence.state == State.UNKNOWN:
        return Resume("every unknown call is resolved")
    return None


def _exhausted(evidence: Evidence) -> Decision | None:
    if evidence.state == State.QUARANTINED:
        reason = "it is quarantined until an operator retries or aborts it"
        return Await(Wait(WaitKind.OPERATOR, reason, evidence.state_since_ms))
    limits = evidence.limits
    spent: str | None = None
    if evidence.attempts >= limits.attempts_max:
        spent = f"{evidence.attempts} attempts failed, which is the maximum"
    elif evidence.interruptions >= limits.interruptions_max:
        since_ms = evidence.interrupted_since_ms
        lasted_ms = 0 if since_ms is None else evidence.now_ms - since_ms
        if lasted_ms >= limits.interruption_window_ms:
            spent = (
                f"{evidence.interruptions} attempts in a row ended without order or progress,"
                f" over {lasted_ms} ms"
            )
    if spent is None:
        return None
    if evidence.on_exhausted == "quarantine":
        return Quarantine(spent)
    return SettleFailed(FailureType.ATTEMPTS_EXHAUSTED, spent)


def _waiting(evidence: Evidence) -> Decision | None:
    if evidence.state == State.READY:
        # Released from quarantine: its handler runs again from the top, and finds its waits where they are.
        return None
    is_suspended = evidence.state == State.SUSPENDED
    if not evidence.waits:
        return Resume() if is_suspended else None
    due = tuple(
        wait.operation
        for wait in evidence.waits
        if wait.due_at_ms is not None and wait.due_at_ms <= evidence.now_ms
    )
    if due:
        return CloseDue(due)
    if not is_suspended and (evidence.not_before_ms is not None or evidence.is_owned):
        # It is to run again beside its waits: another branch failed retryably, or has got further, or the attempt
        # died and nobody knows whether it had opened them all.
        return None
    if not is_suspended:
        return Suspend()
    timed = [wait for wait in evidence.waits if wait.due_at_ms is not None]
    if timed:
        first = min(timed, key=_due_at_ms)
        shown = first if evidence.waits[0].due_at_ms is not None else evidence.waits[0]
        return AwaitUntil(_wait(shown), _due_at_ms(first))
    return Await(_wait(evidence.waits[0]))


def _due_at_ms(wait: OpenWait) -> int:
    assert wait.due_at_ms is not None
    return wait.due_at_ms


def _wait(wait: OpenWait) -> Wait:
    return Wait(
        WaitKind(wait.kind),
        f"it waits for the {wait.kind} {wait.name!r}",
        wait.since_ms,
        until_ms=wait.due_at_ms,
        operation=wait.operation,
        name=wait.name,
    )


def _admitted(evidence: Evidence) -> Decision | None:
    if evidence.state != State.ADMITTED:
        return None
    reason = "its parent has not established it"
    return Await(Wait(WaitKind.PARENT, reason, evidence.state_since_ms))


def _next_claim(evidence: Evidence) -> Decision:
    now_ms = evidence.now_ms
    if evidence.is_owned:
        delay_ms = interruption_delay_ms(evidence.interruptions)
        if delay_ms > 0:
            return Postpone(now_ms + delay_ms, evidence.interruptions)
    elif evidence.not_before_ms is not None and evidence.not_before_ms > now_ms:
        wait = Wait(
            WaitKind.RETRY,
            "its next attempt has a time",
            evidence.state_since_ms,
            until_ms=evidence.not_before_ms,
        )
        return AwaitUntil(wait, evidence.not_before_ms)
    if not evidence.is_agent_served:
        at_ms = now_ms + evidence.limits.version_check_ms
        wait = Wait(
            WaitKind.AGENT_VERSION,
            f"this deployment lacks agent {evidence.agent} at version {evidence.agent_version}",
            evidence.state_since_ms,
            until_ms=at_ms,
            name=f"{evidence.agent}@{evidence.agent_version}",
        )
        return AwaitUntil(wait, at_ms)
    return Claim(evidence.interruptions)
