"""recover: carry out every decision that is not "run it", for each open submission that can move.

1. Only the head can move, and what a clock or a person has released out of order; so recovery reads these, and
   what it costs does not grow with the queue or with history.
2. A decision is applied in one commit that names the state and the epoch which the evidence was read from.
3. Recovery precedes any claim, and asks the outside world nothing that it could answer from its own rows.
"""

from quiesce import ledger, settlement
from quiesce.evidence import Evidence, Limits
from quiesce.lane import Lane, Pass
from quiesce.ledger import Submission
from quiesce.recovery import (
    Await,
    AwaitUntil,
    Claim,
    Decision,
    FinishFromHistory,
    Nothing,
    Postpone,
    Quarantine,
    SettleFailed,
    classify,
)
from quiesce.settlement import FailedForGood
from quiesce.states import State

PAGE_MAX = 64
DECISIONS_MAX = 256
"""A pass repairs at most so many submissions; the rest stays due for the next one."""


def fold(lane: Lane, submission: Submission, now_ms: int, *, is_head: bool) -> Evidence:
    """Gather the facts about one submission."""
    settings = lane.settings
    agent = lane.agents.version(submission.agent, submission.agent_version)
    return Evidence(
        now_ms=now_ms,
        state=submission.state,
        state_since_ms=submission.state_since_ms,
        is_head=is_head,
        is_owned=submission.owner is not None,
        attempts=submission.attempts,
        interruptions=0 if submission.has_progressed else submission.interruptions,
        interrupted_since_ms=submission.interrupted_since_ms,
        not_before_ms=submission.not_before_ms,
        deadline_at_ms=submission.deadline_at_ms,
        has_settlement_record=submission.is_settled_in_log,
        agent=submission.agent,
        agent_version=submission.agent_version,
        is_agent_served=agent is not None,
        on_exhausted="fail" if agent is None else agent.on_exhausted,
        limits=Limits(
            attempts_max=settings.attempts_max,
            interruptions_max=settings.interruptions_max,
            interruption_window_ms=settings.interruption_window_ms,
            version_check_ms=settings.parked_wake_ms,
        ),
    )


def recover(lane: Lane, work: Pass) -> None:
    """Settle what is overdue anywhere in the queue, then bring the head to where it waits or can run."""
    now_ms = lane.clock()
    head = ledger.head(lane.storage)
    for submission in ledger.due_deadlines(lane.storage, now_ms, PAGE_MAX):
        is_head = head is not None and submission.sequence == head.sequence
        apply(lane, work, submission, classify(fold(lane, submission, now_ms, is_head=is_head)))
    recover_head(lane, work)


def recover_head(lane: Lane, work: Pass) -> tuple[Submission, Decision] | None:
    """Apply what is decided for the head until it waits or can run; returns that last decision."""
    for _ in range(DECISIONS_MAX):
        submission = ledger.head(lane.storage)
        if submission is None:
            return None
        decision = classify(fold(lane, submission, lane.clock(), is_head=True))
        if not apply(lane, work, submission, decision):
            return submission, decision
    return None


def apply(lane: Lane, work: Pass, submission: Submission, decision: Decision) -> bool:
    """Carry out one decision in one commit; returns whether there was anything to do."""
    storage, now_ms = lane.storage, lane.clock()
    match decision:
        case Nothing() | Await() | AwaitUntil() | Claim():
            return False
        case FinishFromHistory():
            storage.commit(lambda: settlement.finish_from_history(storage, submission, now_ms))
            work.settled += 1
        case SettleFailed(error_type=error_type, message=message):
            if submission.last_failure is not None:
                message = f"{message}; the last failure: {submission.last_failure}"
            verdict = FailedForGood(error_type, message)
            cost = submission.cost.plus(work.charge(submission.id, storage.counts(), now_ms))
            storage.commit(lambda: settlement.settle(storage, submission, verdict, now_ms, cost))
            work.settled += 1
            lane.announce(submission.id)
        case Quarantine():
            storage.commit(lambda: ledger.move(storage, submission, State.QUARANTINED, now_ms))
        case Postpone(not_before_ms=not_before_ms, interruptions=interruptions):
            storage.commit(
                lambda: ledger.move(
                    storage,
                    submission,
                    submission.state,
                    now_ms,
                    not_before_ms=not_before_ms,
                    interruptions=interruptions,
                )
            )
    work.recovered += 1
    return True
