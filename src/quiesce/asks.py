"""What a request asks for: the parts of a call, and the builder of each route's one command.

1. A builder is given a call that its caller may make, with path, query and body parsed, and returns the command
   for the Object, the answer where no Object need be asked, or the name of a document of this deployment.
2. What is wrong with a header or a query is refused here, before any Object is asked.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from quiesce import shapes, trace_context, verbs, wire
from quiesce.access import Role, require_role
from quiesce.agent import Registry
from quiesce.errors import Refusal, RefusalCode
from quiesce.headers import idempotency_key, wait_seconds
from quiesce.ids import SUBMISSION_ID
from quiesce.settings import Settings, Token
from quiesce.states import State
from quiesce.verbs import Command
from quiesce.wire import Answer, Body, answer

CURSOR = re.compile(r"[0-9]{1,15}")
LIMIT = re.compile(r"[0-9]{1,4}")


class Publication(StrEnum):
    """A document that every deployment publishes about itself."""

    OPENAPI = "openapi"
    DOCS = "docs"


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request before its body is read."""

    method: str
    path: str
    """As it was sent: not yet decoded."""
    query: str
    header: Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Call:
    """A request that its caller may make, with every part parsed, as the builders of the table see it."""

    route: "Route"
    request: Request
    settings: Settings
    agents: Registry
    token: Token | None
    ids: Mapping[str, str]
    query: Mapping[str, str]
    body: Any = None

    @property
    def principal(self) -> str:
        """Whom the caller's token speaks for."""
        assert self.token is not None
        return self.token.principal

    @property
    def conversation(self) -> str:
        """The conversation that the path names."""
        return self.ids["conversation"]

    @property
    def submission(self) -> str:
        """The submission that the path names."""
        return self.ids["submission"]

    @property
    def wait_s(self) -> int | None:
        """How long the caller would wait, within what is allowed; None where nobody asked or nothing waits."""
        if not self.route.may_wait:
            return None
        return wait_seconds(self.request.header("prefer"), self.settings.wait_seconds_max)


type Build = Callable[[Call], Command | Answer | Publication]


@dataclass(frozen=True, slots=True)
class Route:
    """One row of the table."""

    method: str
    path: str
    role: Role | None
    """What the caller's token must allow, or None where no token is needed."""
    build: Build
    body: type[Body] | None = None
    query: frozenset[str] = frozenset()
    may_wait: bool = False
    """Whether `Prefer: wait=N` delays the answer."""
    segments: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "segments", tuple(self.path.split("/")))


def submit(call: Call) -> Command:
    """Ask for work to be admitted."""
    return verbs.Submit(
        conversation=call.conversation,
        principal=call.principal,
        key=idempotency_key(call.request.header("idempotency-key")),
        body=call.body,
        traceparent=trace_context.read(call.request.header(trace_context.HEADER)),
    )


def list_submissions(call: Call) -> Command:
    """Ask for a page of submissions."""
    state = call.query.get("state")
    if state is not None and state not in set(State):
        message = f"state must be one of {', '.join(State)}"
        raise Refusal(RefusalCode.INVALID_REQUEST, message)
    return verbs.ListSubmissions(
        conversation=call.conversation, after=_after(call), limit=_limit(call), state=state
    )


def read_status(call: Call) -> Command:
    """Ask where a submission stands."""
    return verbs.ReadStatus(
        conversation=call.conversation,
        submission=call.submission,
        if_none_match=call.request.header("if-none-match"),
    )


def read_settlement(call: Call) -> Command:
    """Ask for a settlement, and how long to wait for it."""
    return verbs.ReadSettlement(
        conversation=call.conversation,
        submission=call.submission,
        wait_ms=(call.wait_s or 0) * 1_000,
    )


def read_records(call: Call) -> Command:
    """Ask for a page of the log."""
    return verbs.ReadRecords(conversation=call.conversation, after=_after(call), limit=_limit(call))


def retry(call: Call) -> Command:
    """Ask to let a submission go on at once."""
    return verbs.Retry(
        conversation=call.conversation,
        submission=call.submission,
        principal=call.principal,
        reason=call.body.reason,
    )


def skip(call: Call) -> Command:
    """Ask to end the head of the queue, so that what stands behind it can run."""
    return verbs.Abort(
        detaches=True,
        skips=True,
        conversation=call.conversation,
        submission=call.submission,
        principal=call.principal,
        reason=call.body.reason,
    )


def force_pass(call: Call) -> Command:
    """Ask for a pass."""
    return verbs.ForcePass(
        conversation=call.conversation, principal=call.principal, reason=call.body.reason
    )


def abort(call: Call) -> Command:
    """Ask for an abort."""
    if call.body.detach:
        # What is let go may still have effects, so only an operator may do that.
        assert call.token is not None
        require_role(call.token, Role.OPERATE)
    return verbs.Abort(
        detaches=call.body.detach,
        conversation=call.conversation,
        submission=call.submission,
        principal=call.principal,
        reason=call.body.reason,
    )


def decide(call: Call) -> Command:
    """Ask for a decision to be recorded."""
    return verbs.Decide(
        conversation=call.conversation,
        submission=call.submission,
        operation=call.ids["operation"],
        principal=call.principal,
        choice=call.body.choice,
        reason=call.body.reason,
    )


def resolve(call: Call) -> Command:
    """Say what became of an unknown call."""
    return verbs.Resolve(
        conversation=call.conversation,
        submission=call.submission,
        operation=call.ids["operation"],
        principal=call.principal,
        body=call.body,
    )


def signal(call: Call) -> Command:
    """Ask for a signal to be delivered."""
    return verbs.DeliverSignal(
        conversation=call.conversation,
        submission=call.submission,
        signal=call.ids["signal"],
        principal=call.principal,
        key=idempotency_key(call.request.header("idempotency-key")),
        payload=call.body.payload,
    )


def explain(call: Call) -> Command:
    """Ask why every open submission, or one, is where it is."""
    return verbs.Explain(
        conversation=call.conversation,
        submission=call.ids.get("submission"),
        after=_after(call),
        limit=_limit(call),
    )


def watch(call: Call) -> Command:
    """Ask for the events behind a place.

    `Last-Event-ID` outdoes `after`: a browser that comes back sends both, and the header is the later one.
    """
    place = call.request.header("last-event-id")
    if place is not None and not CURSOR.fullmatch(place):
        message = "Last-Event-ID must be the id of an event of this conversation"
        raise Refusal(RefusalCode.INVALID_REQUEST, message)
    submission = call.query.get("submission")
    if submission is not None and not SUBMISSION_ID.fullmatch(submission):
        raise no_submission(call.conversation, submission)
    return verbs.Watch(
        conversation=call.conversation,
        submission=submission,
        place=_after(call) if place is None else int(place),
    )


def no_submission(conversation: str, submission: str) -> Refusal:
    """Build the refusal of an id that is derived for no submission: the Object need not be asked."""
    message = f"conversation {conversation!r} has no submission {submission[:128]!r}"
    return Refusal(RefusalCode.NOT_FOUND, message)


def publish(publication: Publication) -> Build:
    """Name a document of this deployment."""
    return lambda _call: publication


def read(
    verb: type[verbs.ReadLane | verbs.ReadMaintenance | verbs.Verify | verbs.Export],
) -> Build:
    """Ask for what one verb reads of the whole lane."""
    return lambda call: verb(conversation=call.conversation)


def agents(call: Call) -> Answer:
    """Answer with what this deployment serves."""
    return answer(200, shapes.agents_body(call.agents))


def health(_call: Call) -> Answer:
    """Answer that this deployment is set up well."""
    # Whoever gets here has passed the parsing of the settings, which is what can be wrong.
    return answer(200, {"status": "ok"})


def _after(call: Call) -> int:
    text = call.query.get("after", "0")
    if not CURSOR.fullmatch(text):
        message = "after must be the `next` of an earlier page, or the sequence of a record"
        raise Refusal(RefusalCode.INVALID_REQUEST, message)
    return int(text)


def _limit(call: Call) -> int:
    text = call.query.get("limit", str(wire.PAGE_DEFAULT))
    if not LIMIT.fullmatch(text) or not 1 <= int(text) <= wire.PAGE_MAX:
        message = f"limit must be a number from 1 to {wire.PAGE_MAX}"
        raise Refusal(RefusalCode.INVALID_REQUEST, message)
    return int(text)
