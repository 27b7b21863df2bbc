"""The mutations that a person makes on what was accepted: each one local transaction.

1. Bump, rows and alarm are one transaction; a refused mutation writes nothing.
2. Every command leaves a record with its author and its reason.
"""

from quiesce import conversation_log, ledger
from quiesce.conversation_log import Entry
from quiesce.errors import Refusal, RefusalCode
from quiesce.ids import ConversationId, SubmissionId, record_id
from quiesce.lane import Lane, mutate
from quiesce.records import OperatorActed
from quiesce.states import State
from quiesce.wake import Wake


async def force_pass(lane: Lane, conversation: ConversationId, author: str, reason: str) -> None:
    """Owe the lane a pass and arm for it: the lever that an operator always has."""

    def step(wake: Wake, now_ms: int) -> None:
        lane.require_conversation(conversation)
        mark = lane.storage.counts()
        end = conversation_log.tail(lane.storage)
        acted = OperatorActed(action="pass-forced", author=author, reason=reason)
        entry = Entry(record_id("operator", str(end.sequence + 1)), None, None, acted)
        conversation_log.append(lane.storage, end, entry, now_ms)
        wake.count_mutation(mark)

    await mutate(lane, step)


async def release_quarantined(
    lane: Lane, conversation: ConversationId, submission: SubmissionId, author: str, reason: str
) -> None:
    """Let a quarantined submission run again, with its attempts and interruptions forgotten."""

    def step(wake: Wake, now_ms: int) -> None:
        found = lane.require_submission(conversation, submission)
        if found.state is State.SETTLED:
            raise Refusal(RefusalCode.ALREADY_SETTLED, f"{submission} is settled {found.outcome}")
        if found.state is not State.QUARANTINED:
            raise Refusal(
                RefusalCode.NOT_WAITING,
                f"{submission} is {found.state}; only a quarantined submission can be retried",
                {"state": found.state.value},
            )
        mark = lane.storage.counts()
        end = conversation_log.tail(lane.storage)
        acted = OperatorActed(action="quarantine-released", author=author, reason=reason)
        identity = record_id(submission, "released", str(end.sequence + 1))
        conversation_log.append(lane.storage, end, Entry(identity, submission, None, acted), now_ms)
        ledger.move(
            lane.storage,
            found,
            State.READY,
            now_ms,
            attempts=0,
            interruptions=0,
            interrupted_since_ms=None,
            not_before_ms=None,
        )
        wake.count_mutation(mark)

    await mutate(lane, step)
