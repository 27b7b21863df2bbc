"""classify: from the evidence about one submission to what is to be done about it.

The precedence is a numbered list; the first rule that applies decides.

 1. It is settled: nothing.
 2. Its settlement stands in the log: finish exactly that settlement. History wins over the ledger.
 4. Its deadline has passed: settle it failed, `deadline-exceeded`, wherever it stands in the queue.
 3. It is not the head: it waits behind the head, and has no part in what the lane can do.
 7. Its attempts or interruptions are exhausted: settle it failed, or quarantine it, as its agent declares.
10. It is admitted and its parent has not established it: await the parent. It is quarantined: await an operator.
12. Its retry time lies ahead: await it. An attempt died and its delay has not been set: set it.
13. This deployment lacks its agent's version: await a deployment that has it, looking once in a while.
14. Otherwise: claim it, apply its input if that has not been done, and run.

classify is total: every evidence has exactly one decision.
"""

from dataclasses import dataclass
from enum import StrEnum

from quiesce.evidence import Evidence
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
class SettleFailed:
    """Settle the submission failed."""

    error_type: str
    message: str
    reason: str = "it has failed for good"


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Hold the submission, and the lane behind it, for an operator."""

    reason: str


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
    Nothing | FinishFromHistory | SettleFailed | Quarantine | Postpone | Await | AwaitUntil | Claim
)


def classify(evidence: Evidence) -> Decision:
    """Decide what is to be done about one submission."""
    if evidence.state == State.SETTLED:
        return Nothing()
    if evidence.has_settlement_record:
        return FinishFromHistory()
    if evidence.deadline_at_ms is not None and evidence.deadline_at_ms <= evidence.now_ms:
        return SettleFailed("deadline-exceeded", "the deadline of the submission has passed")
    if not evidence.is_head:
        wait = Wait(
            WaitKind.HEAD,
            "it is queued behind the head of the lane",
            evidence.state_since_ms,
        )
        return Await(wait)
    return _exhausted(evidence) or _stable_wait(evidence) or _next_claim(evidence)


def _exhausted(evidence: Evidence) -> Decision | None:
    if evidence.state == State.QUARANTINED:
        return None
    limits = evidence.limits
    spent: str | None = None
    if evidence.attempts >= limits.attempts_max:
        spent = f"{evidence.attempts} attempts failed, which is the maximum"
    elif evidence.interruptions >= limits.interruptions_max:
        assert evidence.interrupted_since_ms is not None
        lasted_ms = evidence.now_ms - evidence.interrupted_since_ms
        if lasted_ms >= limits.interruption_window_ms:
            spent = (
                f"{evidence.interruptions} attempts in a row ended without order or progress,"
                f" over {lasted_ms} ms"
            )
    if spent is None:
        return None
    if evidence.on_exhausted == "quarantine":
        return Quarantine(spent)
    return SettleFailed("attempts-exhausted", spent)


def _stable_wait(evidence: Evidence) -> Decision | None:
    if evidence.state == State.QUARANTINED:
        reason = "it is quarantined until an operator retries or aborts it"
        return Await(Wait(WaitKind.OPERATOR, reason, evidence.state_since_ms))
    if evidence.state == State.ADMITTED:
        reason = "its parent has not established it"
        return Await(Wait(WaitKind.PARENT, reason, evidence.state_since_ms))
    return None


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
