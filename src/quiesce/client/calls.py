"""Every call of the API, once: how its request is built, and how its answer is read.

1. A call is a flow; it neither sends nor sleeps.
2. A logical call that admits work or delivers a signal has one idempotency key, its own retries included.
3. A call is repeated by itself only if that is lawful: see `is_repeatable` where it is false.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal
from urllib.parse import quote

from pydantic_core import to_json

from quiesce.client.bundles import Bundle
from quiesce.client.errors import BadArgument, Refused, StillOpen
from quiesce.client.exchange import Flow, Pause, Reply, Request, Terms, ask, read
from quiesce.client.results import (
    AgentDescription,
    Explanation,
    Health,
    Lane,
    Maintenance,
    Page,
    Receipt,
    Record,
    Settlement,
    Status,
    Verification,
)
from quiesce.client.streams import Course
from quiesce.ids import IDEMPOTENCY_KEY

Mode = Literal["queue", "join"]
Resolution = Literal["completed", "failed", "never-happened", "safe-to-retry", "abort"]
Role = Literal["submit", "observe", "decide", "operate"]

OK = 200
FORBIDDEN = 403
POLL_PAUSE_S = 1.0
VERIFY_S = 300
"""How much longer than other answers that of a check may take."""
REPEATABLE_RESOLUTIONS: frozenset[Resolution] = frozenset({"completed", "failed", "abort"})
"""The others let the call be made once more. Where that call is unknown in its turn, a repeat of the request would
decide about it too, which nobody has done."""

UNLAWFUL = "/v1/conversations/-"
ROLE_PROBES: Mapping[Role, tuple[Literal["GET", "POST"], str]] = {
    "submit": ("POST", f"{UNLAWFUL}/submissions"),
    "observe": ("GET", UNLAWFUL),
    "decide": ("POST", f"{UNLAWFUL}/submissions/-/approvals/-"),
    "operate": ("POST", f"{UNLAWFUL}/maintenance/pass"),
}
"""For each role a request that needs it and names a conversation that cannot exist. The role is looked at first,
and nothing is read or written either way."""


@dataclass(frozen=True, slots=True)
class Listing[T]:
    """A list that is read page by page."""

    model: type[Page[T]]
    request: Request
    terms: Terms

    def page(self, after: str | None = None) -> Flow[Page[T]]:
        """Read one page: the first, or the one at the cursor that the page before it gave."""
        query = dict(self.request.query)
        if after is not None:
            query["after"] = after
        reply = yield from ask(replace(self.request, query=query), self.terms)
        return read(self.model, reply)


class Calls:
    """Every call, under the terms of one client."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms

    def submit(
        self,
        conversation: str,
        agent: str,
        input: Any = None,  # noqa: A002 - the name that it has in the API
        *,
        key: str | None = None,
        mode: Mode = "queue",
        deadline_ms: int | None = None,
        callback_url: str | None = None,
    ) -> Flow[Receipt]:
        """Have work accepted; it is owed from the moment that the receipt exists.

        The same key with the same work finds the same submission, so give a key of your own where the whole
        program may run twice. Without one, each call is new work.
        """
        body: dict[str, Any] = {"agent": agent, "input": input, "mode": mode}
        if deadline_ms is not None:
            body["deadline_ms"] = deadline_ms
        if callback_url is not None:
            body["callback_url"] = callback_url
        path = _path(conversation, "submissions")
        reply = yield from self._post(path, body, headers=self._keyed(key))
        is_replayed = reply.headers.get("idempotent-replayed") == "true"
        return read(Receipt, reply, is_replayed=is_replayed)

    def wait(
        self, conversation: str, submission: str, *, timeout_s: float | None = None
    ) -> Flow[Settlement]:
        """Wait until a submission is settled, for ever or for a time; raises StillOpen when that is over."""
        clock = self.terms.clock
        deadline_s = None if timeout_s is None else clock() + timeout_s
        while True:
            began_s = clock()
            left_s = math.inf if deadline_s is None else max(0.0, deadline_s - began_s)
            wait_s = math.ceil(min(self.terms.poll_s, left_s))
            reply = yield from self._settlement(conversation, submission, wait_s, deadline_s)
            if reply.status == OK:
                return read(Settlement, reply)
            if deadline_s is not None and clock() >= deadline_s:
                raise StillOpen(read(Status, reply))
            # A deployment may wait for less than it was asked to, or not at all.
            pause_s = (reply.retry_after_s or POLL_PAUSE_S) - (clock() - began_s)
            if deadline_s is not None:
                pause_s = min(pause_s, deadline_s - clock())
            if pause_s > 0:
                yield Pause(pause_s)

    def poll(
        self, conversation: str, submission: str, *, wait_s: int = 0
    ) -> Flow[Settlement | Status]:
        """Read the settlement, waiting for it at most `wait_s`; the status if it is still owed then."""
        reply = yield from self._settlement(conversation, submission, wait_s, None)
        return read(Settlement, reply) if reply.status == OK else read(Status, reply)

    def _settlement(
        self, conversation: str, submission: str, wait_s: int, deadline_s: float | None
    ) -> Flow[Reply]:
        path = _path(conversation, "submissions", submission, "settlement")
        headers = {"prefer": f"wait={wait_s}"} if wait_s > 0 else {}
        request = Request("GET", path, headers=headers, wait_s=wait_s)
        return (yield from ask(request, self.terms, deadline_s))

    def status(self, conversation: str, submission: str) -> Flow[Status]:
        """Read where a submission stands."""
        return read(Status, (yield from self._get(_path(conversation, "submissions", submission))))

    def submissions(
        self, conversation: str, *, state: str | None = None, page_size: int | None = None
    ) -> Listing[Status]:
        """List the submissions of a conversation in the order of its queue, all or those in one state."""
        path = _path(conversation, "submissions")
        return self._listing(Page[Status], path, state=state, limit=page_size)

    def lane(self, conversation: str) -> Flow[Lane]:
        """Read the lane of a conversation: counts, head, what blocks it, its alarm and its cost."""
        return read(Lane, (yield from self._get(_path(conversation))))

    def maintenance(self, conversation: str) -> Flow[Maintenance]:
        """Read the generation record and the alarm of a conversation."""
        return read(Maintenance, (yield from self._get(_path(conversation, "maintenance"))))

    def force_pass(self, conversation: str, *, reason: str = "") -> Flow[Maintenance]:
        """Owe a conversation a pass now; each call is a record with its reason, so none is repeated by itself."""
        path = _path(conversation, "maintenance", "pass")
        reply = yield from self._post(path, {"reason": reason}, is_repeatable=False)
        return read(Maintenance, reply)

    def records(
        self, conversation: str, *, after: int = 0, page_size: int | None = None
    ) -> Listing[Record]:
        """List the log of a conversation behind the record with the sequence `after`."""
        path = _path(conversation, "records")
        return self._listing(Page[Record], path, after=after or None, limit=page_size)

    def records_page(
        self, conversation: str, *, after: int = 0, page_size: int | None = None
    ) -> Flow[Page[Record]]:
        """Read one page of the log, for whoever follows it while it grows."""
        listing = self.records(conversation, after=after, page_size=page_size)
        return (yield from listing.page())

    def stream(
        self,
        conversation: str,
        *,
        submission: str | None = None,
        after: int = 0,
        timeout_s: float | None = None,
    ) -> Course:
        """Follow the log of a conversation as it grows, behind the record with the sequence `after`.

        Kept to one submission, it ends with that submission's settlement. Connections that break or end are taken
        up where they were left, so that no record is missed and none comes twice.
        """
        path = _path(conversation, "events")
        return Course(self.terms, path, submission=submission, after=after, timeout_s=timeout_s)

    def approve(
        self, conversation: str, submission: str, operation: str, *, reason: str = ""
    ) -> Flow[Status]:
        """Approve what a submission asks; the same decision again changes nothing."""
        return self._decide(
            _path(conversation, "submissions", submission), operation, "approve", reason
        )

    def deny(
        self, conversation: str, submission: str, operation: str, *, reason: str = ""
    ) -> Flow[Status]:
        """Deny what a submission asks; its agent is told, and goes on as it sees fit."""
        return self._decide(
            _path(conversation, "submissions", submission), operation, "deny", reason
        )

    def _decide(self, path: str, operation: str, decision: str, reason: str) -> Flow[Status]:
        body = {"decision": decision, "reason": reason}
        reply = yield from self._post(f"{path}/approvals/{_segment(operation)}", body)
        return read(Status, reply)

    def resolve(
        self,
        conversation: str,
        submission: str,
        operation: str,
        resolution: Resolution,
        *,
        result: Any = None,
        reason: str = "",
    ) -> Flow[Status]:
        """Say what became of a call that may have happened and left no result.

        `completed` takes the call's `result`; `never-happened` and `safe-to-retry` let it be made once more.
        """
        body = {"resolution": resolution, "result": result, "reason": reason}
        path = _path(conversation, "submissions", submission, "resolutions", operation)
        is_repeatable = resolution in REPEATABLE_RESOLUTIONS
        return read(Status, (yield from self._post(path, body, is_repeatable=is_repeatable)))

    def signal(
        self,
        conversation: str,
        submission: str,
        name: str,
        payload: Any = None,
        *,
        key: str | None = None,
    ) -> Flow[Status]:
        """Deliver a signal, to be received now or when the submission comes to wait for it."""
        path = _path(conversation, "submissions", submission, "signals", name)
        reply = yield from self._post(path, {"payload": payload}, headers=self._keyed(key))
        return read(Status, reply)

    def abort(self, conversation: str, submission: str, *, reason: str = "") -> Flow[Status]:
        """Ask that a submission ends; it may take a while, and effects that happened are not undone."""
        path = _path(conversation, "submissions", submission)
        reply = yield from self._post(f"{path}/abort", {"reason": reason})
        if reply.status == OK:
            # It had been aborted before, and the answer is its settlement.
            reply = yield from self._get(path)
        return read(Status, reply)

    def retry(self, conversation: str, submission: str, *, reason: str = "") -> Flow[Status]:
        """Let a submission go on at once that is quarantined, or waits for the time of its next attempt."""
        path = _path(conversation, "submissions", submission, "retry")
        reply = yield from self._post(path, {"reason": reason}, is_repeatable=False)
        return read(Status, reply)

    def skip(self, conversation: str, submission: str, *, reason: str = "") -> Flow[Status]:
        """End the head of the queue, so that what stands behind it can run; only of the head is that taken."""
        path = _path(conversation, "submissions", submission)
        reply = yield from self._post(f"{path}/skip", {"reason": reason})
        if reply.status == OK:
            # It had been aborted before, and the answer is its settlement.
            reply = yield from self._get(path)
        return read(Status, reply)

    def explain(self, conversation: str, *, page_size: int | None = None) -> Listing[Explanation]:
        """Explain every open submission: what it waits for, what would move it, how old that is."""
        return self._listing(Page[Explanation], _path(conversation, "explain"), limit=page_size)

    def explain_one(self, conversation: str, submission: str) -> Flow[Explanation]:
        """Explain one open submission; a settled one is refused as `already-settled`."""
        path = _path(conversation, "submissions", submission, "explain")
        return read(Explanation, (yield from self._get(path)))

    def verify(self, conversation: str) -> Flow[Verification]:
        """Hold a whole conversation against its laws; the longer its log is, the longer this takes."""
        path = _path(conversation, "verify")
        reply = yield from ask(Request("GET", path, wait_s=VERIFY_S), self.terms)
        return read(Verification, reply)

    def export(self, conversation: str) -> Bundle:
        """Read a whole conversation as a bundle: its lines as bytes, which can be checked without the deployment.

        Raises Unreachable at the end of what was cut before its end: then what has come is not whole.
        """
        return Bundle(self.terms, _path(conversation, "export"))

    def agents(self) -> Flow[tuple[AgentDescription, ...]]:
        """Read which agents the deployment serves."""
        return read(Page[AgentDescription], (yield from self._get("/v1/agents"))).items

    def health(self) -> Flow[Health]:
        """Ask whether the deployment answers and is set up well; this needs no token."""
        reply = yield from self._get("/healthz")
        return read(Health, reply, served_at=_date(reply))

    def has_role(self, role: Role) -> Flow[bool]:
        """Ask whether the token has a role, without touching any conversation."""
        method, path = ROLE_PROBES[role]
        try:
            yield from ask(Request(method, path), self.terms)
        except Refused as refused:
            if refused.code in {"unauthenticated", "rate-limited", "unavailable"}:
                raise
            return refused.status != FORBIDDEN
        return True

    def _get(self, path: str) -> Flow[Reply]:
        return ask(Request("GET", path), self.terms)

    def _post(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        headers: Mapping[str, str] | None = None,
        is_repeatable: bool = True,
    ) -> Flow[Reply]:
        request = Request(
            "POST",
            path,
            headers={"content-type": "application/json", **(headers or {})},
            body=to_json(body, inf_nan_mode="constants"),
            is_repeatable=is_repeatable,
        )
        return ask(request, self.terms)

    def _listing[T](self, model: type[Page[T]], path: str, **query: str | int | None) -> Listing[T]:
        asked = {name: str(value) for name, value in query.items() if value is not None}
        return Listing(model, Request("GET", path, asked), self.terms)

    def _keyed(self, key: str | None) -> Mapping[str, str]:
        chosen = self.terms.new_key() if key is None else key
        if not IDEMPOTENCY_KEY.fullmatch(chosen):
            raise BadArgument("an idempotency key has 1 to 255 printable ASCII characters")
        return {"idempotency-key": chosen}


def _path(conversation: str, *rest: str) -> str:
    return "/".join(("/v1/conversations", _segment(conversation), *map(_segment, rest)))


def _segment(text: str) -> str:
    """Escape one part of a path; the deployment says what is wrong with it, unless it would never see it."""
    if text in {"", ".", ".."}:
        raise BadArgument(f"{text!r} is no id")
    return quote(text, safe="~@:")


def _date(reply: Reply) -> datetime | None:
    try:
        return parsedate_to_datetime(reply.headers["date"])
    except (KeyError, ValueError):
        return None
