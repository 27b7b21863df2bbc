"""drain: run the head of the queue, one submission after another, up to the bounds of a pass.

1. claim is one commit: epoch + 1, interruptions + 1, and the input's entry into the log if it has not been made.
   It is on disk before the handler is called, so an attempt that takes the process down is counted.
2. An attempt's outcome is written in one commit, fenced by its epoch. Every outcome that ends an attempt in order
   writes interruptions back to 0; a retryable failure adds one to attempts and sets a durable time for the next.
3. At a bound the pass stops between two submissions, with everything committed.
"""

from dataclasses import dataclass, replace
from typing import Any

from quiesce import conversation_log, deliver, ledger, operations, repair, settlement
from quiesce.agent import Agent
from quiesce.attempt import (
    AbortedAttempt,
    Ended,
    FailedAttempt,
    Fenced,
    Finished,
    Interrupted,
    LeftOpen,
    Suspended,
    attempt,
)
from quiesce.conversation_log import Entry
from quiesce.errors import Corruption
from quiesce.fence import Fence
from quiesce.ids import canonical_json, parse_json, record_id
from quiesce.journal import Journal
from quiesce.lane import Lane, Pass
from quiesce.ledger import Submission
from quiesce.operations import OperationState
from quiesce.pacing import backoff_ms, interruption_delay_ms
from quiesce.records import InputApplied, Record
from quiesce.recovery import Claim, Decision
from quiesce.run import Run
from quiesce.settlement import Aborted, Completed, FailedForGood, Verdict
from quiesce.states import State
from quiesce.telemetry import ATTEMPT_SPAN, Settled
from quiesce.trace_context import trace_id

PASS_RECORDS_MAX = 256
"""A pass that has recorded so much leaves the rest to the next one: the platform lets one invocation make a
thousand subrequests, and the calls of one submission must not be refused for those of its neighbours."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A submission that an attempt of this incarnation owns."""

    submission: Submission
    agent: Agent
    submitted: Any
    journal: list[Record]


async def drain(lane: Lane, work: Pass, decided: tuple[Submission, Decision] | None) -> None:
    """Claim, run and end the head of the queue until it waits or the pass has done its share.

    `decided` is what recovery has decided about the head.
    """
    for _ in range(lane.settings.pass_submissions_max):
        if decided is None or not isinstance(decided[1], Claim):
            return
        claimed = await claim(lane, work, decided[0], decided[1])
        ended = await _traced(lane, work, claimed)
        await end(lane, work, claimed, ended)
        if isinstance(ended.outcome, Suspended) or claimed.submission.parent is not None:
            # What this owes to another Object is sent before the next claim.
            await deliver.deliver(lane, work)
        if lane.clock() - work.started_ms >= lane.settings.pass_ms_max:
            return
        if claimed.submission.claimed_tail - (work.tail_before or 0) >= PASS_RECORDS_MAX:
            return
        decided = await repair.recover_head(lane, work)


async def claim(lane: Lane, work: Pass, submission: Submission, decision: Claim) -> Claimed:
    """Take the head at a higher epoch; what that writes is on disk when this returns."""
    storage, now_ms = lane.storage, lane.clock()
    agent = lane.agents.version(submission.agent, submission.agent_version)
    assert agent is not None
    await lane.failpoints.reach("claim:before")
    claimed, applied = storage.commit(lambda: _claim(lane, work, submission, decision, now_ms))
    await storage.sync()
    await lane.failpoints.reach("claim:after")
    if applied is not None:
        return Claimed(claimed, agent, applied.input, [])
    journal = conversation_log.of_submission(storage, submission.id)
    return Claimed(claimed, agent, _applied_input(claimed, journal), journal)


def _claim(
    lane: Lane, work: Pass, submission: Submission, decision: Claim, now_ms: int
) -> tuple[Submission, InputApplied | None]:
    storage = lane.storage
    end = conversation_log.tail(storage)
    work.note_tail(end.sequence)
    epoch = max(end.epoch, submission.epoch) + 1
    applied = None
    text = None
    if submission.state is State.READY:
        text = ledger.input_of(storage, submission.sequence)
    if text is not None:
        applied = InputApplied(
            agent=submission.agent,
            agent_version=submission.agent_version,
            input=parse_json(text),
        )
        entry = Entry(record_id(submission.id, "input"), submission.id, epoch, applied)
        end = conversation_log.append(storage, end, entry, now_ms)
    cost = submission.cost.plus(work.charge(submission.id, storage.counts(), now_ms))
    since_ms = submission.interrupted_since_ms if decision.interruptions else now_ms
    changes: dict[str, Any] = {
        "owner": lane.incarnation,
        "epoch": epoch,
        "interruptions": decision.interruptions + 1,
        "interrupted_since_ms": since_ms,
        "claimed_tail": end.sequence,
        "not_before_ms": None,
    }
    ledger.move(storage, submission, State.INPUT_APPLIED, now_ms, cost, input=None, **changes)
    claimed = replace(
        submission, state=State.INPUT_APPLIED, cost=cost, has_progressed=False, **changes
    )
    return claimed, applied


def _applied_input(submission: Submission, journal: list[Record]) -> Any:
    for record in journal:
        payload = record.parsed() if record.kind == "input-applied" else None
        if isinstance(payload, InputApplied):
            return payload.input
    raise Corruption(f"{submission.id} has its input in the log", "no input-applied record")


async def _traced(lane: Lane, work: Pass, claimed: Claimed) -> Ended:
    """Run an attempt inside a span, while the pass may have one more."""
    submission = claimed.submission
    with work.span.inner(ATTEMPT_SPAN) as span:
        span.note(
            {
                "submission": submission.id,
                "agent": submission.agent,
                "trace_id": trace_id(submission.traceparent),
            }
        )
        ended = await _run(lane, claimed)
        span.note({"outcome": type(ended.outcome).__name__})
    return ended


async def _run(lane: Lane, claimed: Claimed) -> Ended:
    submission = claimed.submission
    fence = Fence(lane, submission.sequence, submission.id, submission.epoch)
    journal = Journal(submission.id, claimed.journal, lane.settings.operations_max)
    run = Run(fence, journal, submission)
    limit_ms = min(
        lane.settings.attempt_ms_max,
        claimed.agent.attempt_ms_max or lane.settings.attempt_ms_max,
    )
    if submission.deadline_at_ms is not None:
        limit_ms = min(limit_ms, max(1, submission.deadline_at_ms - lane.clock()))
    return await attempt(lane, claimed.agent, fence, run, claimed.submitted, limit_ms=limit_ms)


async def end(lane: Lane, work: Pass, claimed: Claimed, ended: Ended) -> None:
    """Write down how an attempt ended: settle its submission, suspend it, or release it."""
    match ended.outcome:
        case Finished(result=result):
            await _settle(lane, work, claimed, Completed(result))
        case FailedAttempt(is_retryable=False, error_type=error_type, message=message):
            await _settle(lane, work, claimed, FailedForGood(error_type, message))
        case FailedAttempt() as failure:
            await _retry_later(lane, work, claimed, failure)
        case Suspended(may_go_on=may_go_on):
            await _suspend(lane, work, claimed, may_go_on=may_go_on)
        case LeftOpen(message=message):
            last_failure = canonical_json({"error_type": "tool-left-no-result", "message": message})
            await _leave(lane, work, claimed, interruptions=0, last_failure=last_failure)
        case AbortedAttempt():
            await _leave(lane, work, claimed, interruptions=0)
        case Interrupted(reason=reason):
            await _release(lane, work, claimed, reason)
        case Fenced():
            pass
    if ended.is_stuck:
        lane.abort_object("a handler ignored its cancellation")


async def _settle(lane: Lane, work: Pass, claimed: Claimed, verdict: Verdict) -> None:
    """Settle with the handler's outcome, unless an abort was recorded first."""
    storage, submission, now_ms = lane.storage, claimed.submission, lane.clock()

    def step() -> list[Settled]:
        cost = submission.cost.plus(work.charge(submission.id, storage.counts(), now_ms))
        fresh = ledger.refreshed(storage, submission)
        if fresh is None:
            return []
        wish = ledger.abort_wish(fresh)
        final = verdict if wish is None else Aborted(wish.reason, wish.detaches)
        return settlement.conclude(storage, fresh, final, now_ms, cost)

    await lane.failpoints.reach("settle:before")
    settled = storage.commit(step)
    await lane.failpoints.reach_after("settle:after", storage)
    work.settled += len(settled)
    lane.announce(settled)


async def _retry_later(lane: Lane, work: Pass, claimed: Claimed, failure: FailedAttempt) -> None:
    """Count the attempt and set the durable time of the next one."""
    submission, settings = claimed.submission, lane.settings
    delay_ms = backoff_ms(
        settings.backoff_base_ms, settings.backoff_cap_ms, submission.attempts, lane.jitter()
    )
    last_failure = {"error_type": failure.error_type, "message": failure.message}
    await _leave(
        lane,
        work,
        claimed,
        attempts=submission.attempts + 1,
        interruptions=0,
        not_before_ms=lane.clock() + delay_ms,
        last_failure=canonical_json(last_failure),
    )


async def _suspend(lane: Lane, work: Pass, claimed: Claimed, *, may_go_on: bool) -> None:
    """Suspend until every wait is decided; go on at once if that, or something else, has happened meanwhile.

    A call that left no result comes first: then the submission is only released, and recovery asks about it. One
    with a branch that has got further is released with a time of now, which tells recovery to run it again beside
    its wait.
    """
    left = operations.of_submission(lane.storage, claimed.submission.sequence)
    is_suspended = bool(left) and all(each.state is OperationState.WAITING for each in left)
    if may_go_on or not is_suspended:
        not_before_ms = lane.clock() if may_go_on else None
        await _leave(lane, work, claimed, interruptions=0, not_before_ms=not_before_ms)
    else:
        await _leave(lane, work, claimed, State.SUSPENDED, interruptions=0)


async def _release(lane: Lane, work: Pass, claimed: Claimed, reason: str) -> None:
    """End the ownership of an interrupted attempt, which keeps what the claim counted against it."""
    submission, storage = claimed.submission, lane.storage
    fresh = ledger.at(storage, submission.sequence)
    interruptions = submission.interruptions
    if fresh is None or fresh.has_progressed:
        interruptions = 0
    delay_ms = interruption_delay_ms(interruptions)
    await _leave(
        lane,
        work,
        claimed,
        interruptions=interruptions,
        not_before_ms=lane.clock() + delay_ms if delay_ms else None,
        last_failure=canonical_json({"error_type": "interrupted", "message": reason}),
    )


async def _leave(
    lane: Lane,
    work: Pass,
    claimed: Claimed,
    enters: State = State.INPUT_APPLIED,
    **changes: Any,
) -> None:
    storage, submission, now_ms = lane.storage, claimed.submission, lane.clock()

    def step() -> None:
        cost = submission.cost.plus(work.charge(submission.id, storage.counts(), now_ms))
        ledger.move(storage, submission, enters, now_ms, cost, **changes)

    await lane.failpoints.reach("release:before")
    storage.commit(step)
    await storage.sync()
    await lane.failpoints.reach("release:after")
