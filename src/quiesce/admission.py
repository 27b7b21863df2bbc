"""admit: from a parsed request to a durable obligation, in one commit.

1. A submission's id is derived from conversation, principal and key, so the same request finds what it made.
2. A replay answers the first Receipt and is exempt from every limit. The same key with other content is refused,
   naming what differs.
3. Count and insert are one transaction; a refusal writes nothing, not even the first table.
4. What the commit holds: dirty + 1, the alarm, the row, and for a new conversation its first record. What dies
   before it left nothing; what dies after it is finished by the alarm, with no request.
"""

from dataclasses import asdict, dataclass
from typing import Any

from pydantic import ValidationError

from quiesce import agenda, callbacks, conversation_log, ledger, schema, settlement, wake
from quiesce.conversation_log import Entry, Tail
from quiesce.errors import Refusal, RefusalCode, limit_exceeded
from quiesce.ids import (
    ConversationId,
    SubmissionId,
    canonical_json,
    digest,
    parse_json,
    plain_json,
    record_id,
    submission_id,
)
from quiesce.lane import Lane, gone, mutate
from quiesce.ledger import Submission
from quiesce.records import ConversationCreated
from quiesce.settlement import Settlement
from quiesce.states import State
from quiesce.storage import Counts, SqlValue, Storage
from quiesce.telemetry import Fact
from quiesce.wake import Wake

SUBMISSION_ROWS_WRITTEN = 2
"""What inserting a submission writes: the row and its id's index entry."""
SUBMISSION_ROWS_READ = 1
"""What inserting a submission reads: whether its id is taken."""
RETRY_AFTER_S = 5


@dataclass(frozen=True, slots=True)
class Parent:
    """Who delegated a child: the submission and operation that wait for it, and everybody further up."""

    conversation: str
    submission: str
    operation: str
    ancestors: tuple[tuple[str, str], ...]
    """Agent and input digest of each, the root first."""


@dataclass(frozen=True, slots=True)
class Request:
    """One parsed request to admit work; every string was validated at the edge."""

    conversation: ConversationId
    principal: str
    key: str
    agent: str
    input: Any
    mode: str = "queue"
    deadline_ms: int | None = None
    callback_url: str | None = None
    parent: Parent | None = None
    is_rated: bool = False
    """Whether it counts against the rate of its principal."""
    traceparent: str | None = None
    """Which trace asked; no part of what is asked, so a repeat may come from another one."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What admission returns: the submission's identity and place, and its settlement once there is one."""

    conversation: ConversationId
    submission: SubmissionId
    sequence: int
    accepted_at_ms: int
    is_replayed: bool
    settlement: Settlement | None
    traceparent: str | None
    """The trace of whoever asked first."""


@dataclass(frozen=True, slots=True)
class _Proposal:
    request: Request
    id: SubmissionId
    input: str
    input_digest: str
    terms: str


async def admit(lane: Lane, request: Request) -> Receipt:
    """Admit one submission, or find it again.

    Raises Refusal: `idempotency-conflict`, `gone`, `rate-limited`, `unknown-agent`, `invalid-request`,
    `input-too-large`, `queue-full`, `database-full`, `not-found` for a conversation of another name.
    """
    proposal = _propose(request)
    await lane.failpoints.reach("admit:before")
    receipt = await mutate(lane, lambda opened, _: _admit(lane, proposal, opened))
    await lane.failpoints.reach("admit:after")
    # What is committed names the conversation, so no line needs to read it.
    lane.conversation = receipt.conversation
    facts: dict[str, Fact] = {
        "submission": receipt.submission,
        "agent": request.agent,
        "sequence": receipt.sequence,
        "is_replayed": receipt.is_replayed,
    }
    at_ms = None if receipt.is_replayed else receipt.accepted_at_ms
    lane.tell("admitted", receipt.traceparent, facts, at_ms=at_ms)
    return receipt


def _propose(request: Request) -> _Proposal:
    try:
        text = canonical_json(request.input)
    except ValueError as error:
        message = f"the input is not JSON that can be stored: {error}"
        raise Refusal(RefusalCode.INVALID_REQUEST, message) from None
    terms = plain_json(
        {
            "agent": request.agent,
            "mode": request.mode,
            "deadline_ms": request.deadline_ms,
            "callback_url": request.callback_url,
        }
    )
    return _Proposal(
        request,
        submission_id(request.conversation, request.principal, request.key),
        text,
        digest(text),
        terms,
    )


def _admit(lane: Lane, proposal: _Proposal, wake_: Wake) -> Receipt:
    storage = lane.storage
    mark = storage.counts()
    is_virgin = wake.load(storage) is None
    if not is_virgin:
        lane.require_conversation(proposal.request.conversation)
        found = ledger.find(storage, proposal.id)
        if found is not None:
            _check_same_content(found, proposal)
            wake_.repair()
            if found.purged_at_ms is not None:
                raise gone(found)
            settled = None if found.is_open else settlement.read(storage, found)
            return Receipt(
                proposal.request.conversation,
                found.id,
                found.sequence,
                found.accepted_at_ms,
                is_replayed=True,
                settlement=settled,
                traceparent=found.traceparent,
            )
    if proposal.request.is_rated:
        lane.rates.take(proposal.request.principal, lane.settings, wake_.now_ms)
    _check_input(lane, proposal)
    _check_callback(lane, proposal)
    sequence = _check_room(lane, proposal, is_virgin=is_virgin)
    charged_from = mark
    if is_virgin:
        _create_conversation(storage, proposal.request.conversation, wake_.now_ms)
        # What the conversation itself has cost is its lane's; the submission pays for what follows.
        charged_from = storage.counts()
    wake_.count_mutation(
        mark,
        opened=1,
        rows_written=SUBMISSION_ROWS_WRITTEN,
        is_virgin=is_virgin,
        # A child waits for its parent to establish it, and nothing can be done until then.
        is_actionable=proposal.request.parent is None or proposal.request.deadline_ms is not None,
    )
    _insert(lane, proposal, sequence, wake_, charged_from)
    return Receipt(
        proposal.request.conversation,
        proposal.id,
        sequence,
        wake_.now_ms,
        is_replayed=False,
        settlement=None,
        traceparent=proposal.request.traceparent,
    )


def _check_same_content(found: Submission, proposal: _Proposal) -> None:
    terms = proposal.terms if found.purged_at_ms is None else ledger.forgotten(proposal.terms)
    stored, asked = parse_json(found.terms), parse_json(terms)
    differing = [name for name in sorted(asked) if stored.get(name) != asked[name]]
    if found.input_digest != proposal.input_digest:
        differing.append("input")
    if differing:
        raise Refusal(
            RefusalCode.IDEMPOTENCY_CONFLICT,
            f"this key was used for a submission with another {', '.join(differing)};"
            " use a new key for new work, and the same key only to repeat the same request",
            {"submission": found.id, "differing": differing},
        )


def _check_input(lane: Lane, proposal: _Proposal) -> None:
    agent = lane.agents.current(proposal.request.agent)
    if agent is None:
        raise Refusal(
            RefusalCode.UNKNOWN_AGENT,
            f"this deployment serves no agent {proposal.request.agent!r}",
            {"agents": sorted(agent.name for agent in lane.agents)},
        )
    input_bytes = len(proposal.input.encode())
    if input_bytes > lane.settings.input_bytes_max:
        raise limit_exceeded(
            RefusalCode.INPUT_TOO_LARGE,
            "INPUT_BYTES_MAX",
            input_bytes,
            lane.settings.input_bytes_max,
        )
    try:
        agent.input_adapter.validate_json(proposal.input)
    except ValidationError as error:
        raise Refusal(
            RefusalCode.INVALID_REQUEST,
            f"the input is not what agent {agent.name!r} takes",
            {"errors": field_errors(error, "input")},
        ) from None


def _check_callback(lane: Lane, proposal: _Proposal) -> None:
    url = proposal.request.callback_url
    problem = None if url is None else callbacks.problem_with(url, lane.settings)
    if problem is not None:
        message = f"callback_url: {problem}"
        errors = [{"field": "callback_url", "problem": problem}]
        raise Refusal(RefusalCode.INVALID_REQUEST, message, {"errors": errors})


def field_errors(error: ValidationError, *prefix: str) -> list[dict[str, str]]:
    """Say field by field what is wrong: a JSON path and a sentence each, without the values themselves."""
    return [
        {"field": ".".join(map(str, (*prefix, *found["loc"])))[:300], "problem": found["msg"][:300]}
        for found in error.errors(include_url=False, include_input=False, include_context=False)[
            :20
        ]
    ]


def _check_room(lane: Lane, proposal: _Proposal, *, is_virgin: bool) -> int:
    """Check the limits of the lane and return the sequence that the submission will have."""
    settings = lane.settings
    size = lane.storage.database_bytes()
    after = size + len(proposal.input.encode())
    if after > settings.database_bytes_max:
        raise limit_exceeded(
            RefusalCode.DATABASE_FULL, "DATABASE_BYTES_MAX", after, settings.database_bytes_max
        )
    if is_virgin:
        return 1
    end = conversation_log.tail(lane.storage)
    if end.nonterminal >= settings.queue_depth_max:
        raise Refusal(
            RefusalCode.QUEUE_FULL,
            f"the lane holds {end.nonterminal} open submissions, QUEUE_DEPTH_MAX is"
            f" {settings.queue_depth_max}; try again once some have settled",
            {
                "limit": "QUEUE_DEPTH_MAX",
                "actual": end.nonterminal,
                "maximum": settings.queue_depth_max,
                "retry_after_s": RETRY_AFTER_S,
            },
        )
    return end.last + 1


def _create_conversation(storage: Storage, conversation: ConversationId, now_ms: int) -> None:
    schema.create(storage)
    created = ConversationCreated(conversation=conversation)
    entry = Entry(record_id("conversation", "created"), None, None, created)
    conversation_log.append(storage, Tail(), entry, now_ms)


def _insert(lane: Lane, proposal: _Proposal, sequence: int, wake_: Wake, mark: Counts) -> None:
    request, now_ms = proposal.request, wake_.now_ms
    agent = lane.agents.current(request.agent)
    assert agent is not None
    deadline_at_ms = None if request.deadline_ms is None else now_ms + request.deadline_ms
    if deadline_at_ms is not None:
        agenda.add(lane.storage, agenda.deadline(sequence, deadline_at_ms))
    # The row is inserted last, so that it can say what its admission has cost.
    spent = lane.storage.counts().since(mark)
    columns: dict[str, SqlValue] = {
        "sequence": sequence,
        "id": proposal.id,
        "principal": request.principal,
        "idempotency_key": request.key,
        "agent": request.agent,
        "agent_version": agent.version,
        "mode": request.mode,
        "input": proposal.input,
        "input_digest": proposal.input_digest,
        "terms": proposal.terms,
        "accepted_at_ms": now_ms,
        "deadline_at_ms": deadline_at_ms,
        "state": State.READY.value if request.parent is None else State.ADMITTED.value,
        "parent": None if request.parent is None else canonical_json(asdict(request.parent)),
        "traceparent": request.traceparent,
        "state_since_ms": now_ms,
        "rows_read": spent.rows_read + SUBMISSION_ROWS_READ,
        "rows_written": spent.rows_written + SUBMISSION_ROWS_WRITTEN + wake_.slot.is_changed,
    }
    ledger.insert(lane.storage, columns)
