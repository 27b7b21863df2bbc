"""How a Run delegates to a child: its identity, its request, and what the parent is given in the end.

1. A child's conversation, key and submission id are derived from the parent's submission and the operation, so that
   however often it is asked for there is one child.
2. The request is one commit: the record, and the open operation, which is also the message that is owed to the
   child's Object. It ends the attempt; a parent that waits for children holds no alarm.
3. A failed child is a value. What could never be admitted is one too: too deep a delegation, or one that would
   delegate the same input to the same agent again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quiesce.agent import Failed
from quiesce.conversation_log import Tail
from quiesce.errors import FailureType
from quiesce.fence import Fence
from quiesce.ids import (
    ConversationId,
    SubmissionId,
    canonical_json,
    digest,
    parse_json,
    submission_id,
)
from quiesce.journal import Journal, Operation
from quiesce.ledger import Submission
from quiesce.operations import OpenOperation, OperationKind, OperationState, open_
from quiesce.records import ChildJoined, ChildRequested

CHILD_MARK = "~child-"
"""Between the root's conversation and what tells its children apart."""
ROOT_MAX = 88
"""So much of the root's conversation fits into an id beside the mark and the digest."""
DEPTH_MAX = 8
"""A child of a child of a child: so many levels below a root, and no more."""


@dataclass(frozen=True, slots=True)
class ChildOutcome:
    """How a child has settled."""

    outcome: str
    """`completed`, `failed` or `aborted`."""
    result: Any
    failure: Mapping[str, Any] | None
    submission: str
    conversation: str


@dataclass(frozen=True, slots=True)
class Lineage:
    """Where a submission stands among its ancestors: agent and input digest of each, the root first."""

    ancestors: tuple[tuple[str, str], ...]


def lineage_of(submission: Submission) -> Lineage:
    """Return the ancestors of a submission's children: its own, and itself."""
    inherited: list[tuple[str, str]] = []
    if submission.parent is not None:
        inherited = [(agent, text) for agent, text in parse_json(submission.parent)["ancestors"]]
    return Lineage((*inherited, (submission.agent, submission.input_digest)))


def delegate(
    fence: Fence, journal: Journal, parent: Submission, operation: Operation
) -> ChildOutcome:
    """Return how the child has settled, or ask for it and end the attempt."""
    agent, value = operation.arguments
    conversation, submission = child_of(fence, parent, operation)
    joined = journal.find(operation.id, "joined")
    if isinstance(joined, ChildJoined):
        return ChildOutcome(
            joined.outcome.value, joined.result, joined.failure, submission, conversation
        )
    forbidden = _forbidden(parent, agent, value)
    if forbidden is not None:
        return ChildOutcome("failed", None, forbidden, submission, conversation)
    if journal.find(operation.id, "requested") is None:
        _check_count(fence, journal)
        fence.commit(lambda end, now_ms: _request(fence, end, parent, operation, now_ms))
        journal.note("child")
    raise fence.suspend(f"waits for the child {operation.name!r}")


def child_of(
    fence: Fence, parent: Submission, operation: Operation
) -> tuple[ConversationId, SubmissionId]:
    """Derive the one address that a delegation can have.

    Its conversation begins as that of the root does, so that whoever is kept to the one sees the other.
    """
    root = fence.lane.own_conversation().partition(CHILD_MARK)[0][:ROOT_MAX]
    own = digest(f"{parent.id}/{operation.id}")[:32]
    conversation = ConversationId(f"{root}{CHILD_MARK}{own}")
    key = child_key(parent.id, operation.id)
    return conversation, submission_id(conversation, parent.principal, key)


def child_key(parent: SubmissionId, operation: str) -> str:
    """Derive the idempotency key of a child's admission."""
    return f"{parent}/{operation}"


def _forbidden(parent: Submission, agent: str, value: Any) -> dict[str, str] | None:
    ancestors = lineage_of(parent).ancestors
    if len(ancestors) > DEPTH_MAX:
        return {
            "error_type": "delegation-too-deep",
            "message": f"a child may stand {DEPTH_MAX} levels below its root, and no deeper",
        }
    if (agent, digest(canonical_json(value))) in ancestors:
        return {
            "error_type": "delegation-cycle",
            "message": f"agent {agent!r} already works on this very input, further up",
        }
    return None


def _check_count(fence: Fence, journal: Journal) -> None:
    maximum = fence.lane.settings.children_max
    if journal.count("child") >= maximum:
        message = f"a Run may have {maximum} children (CHILDREN_MAX)"
        raise Failed(message, error_type=FailureType.BUDGET_EXHAUSTED)


def _request(
    fence: Fence, end: Tail, parent: Submission, operation: Operation, now_ms: int
) -> None:
    agent, value = operation.arguments
    conversation, submission = child_of(fence, parent, operation)
    requested = ChildRequested(
        operation=operation.id,
        arguments_digest=operation.arguments_digest,
        agent=agent,
        input=value,
        conversation=conversation,
        submission=submission,
    )
    fence.append(end, (operation.id, "requested"), requested, now_ms)
    row = OpenOperation(
        submission_sequence=fence.sequence,
        operation=operation.id,
        kind=OperationKind.CHILD,
        state=OperationState.WAITING,
        arguments_digest=operation.arguments_digest,
        opened_at_ms=now_ms,
        due_at_ms=None,
        detail={
            "name": operation.name,
            "conversation": conversation,
            "submission": submission,
            "is_owed": True,
            "is_aborting": False,
            "tries": 0,
            "next_try_ms": 0,
        },
    )
    open_(fence.lane.storage, row)
