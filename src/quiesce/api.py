"""What each route is for, what it answers and what it refuses, in words: the half of the API that no type knows.

`openapi.py` joins it with the table of routes; a test holds that every route is described and nothing else is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from quiesce import answers
from quiesce.errors import RefusalCode

C = "/v1/conversations/{conversation}"
S = C + "/submissions/{submission}"
EXAMPLE_SUBMISSION = "sub_cc3dd1e48e6ee29671147bb2e93386b4"
ACCEPTED, OK, NOT_MODIFIED = 202, 200, 304


@dataclass(frozen=True, slots=True)
class Success:
    """One way in which a route succeeds."""

    description: str
    model: type[BaseModel] | None = None
    headers: tuple[str, ...] = ()
    media_type: str = "application/json"


@dataclass(frozen=True, slots=True)
class Described:
    """One route in words."""

    name: str
    group: str
    summary: str
    successes: Mapping[int, Success]
    refuses: frozenset[RefusalCode] = frozenset()
    """What it can refuse beside what every route of its kind can."""
    more: str = ""
    headers: tuple[str, ...] = ()
    body: Mapping[str, Any] = field(default_factory=dict)
    """An example of the body."""


_Code = RefusalCode
_OPEN = frozenset({_Code.ALREADY_SETTLED, _Code.JOINED_TO_HOST, _Code.NOT_WAITING})
_DECIDE = _OPEN | {_Code.DECISION_CONFLICT, _Code.DATABASE_FULL}
_KEY = ("Idempotency-Key",)
_WAIT = ("Prefer",)
_TRACE = ("traceparent",)
_STATUS = {OK: Success("The submission as it now stands.", answers.Status)}
_STATUS_LATER = {ACCEPTED: Success("It is recorded, and will be done.", answers.Status)}
_REPEATED = "Sent again it is answered again, and changes nothing."

DESCRIPTIONS: Mapping[tuple[str, str], Described] = {
    ("POST", f"{C}/submissions"): Described(
        "submit",
        "Work",
        "Have work accepted",
        {
            ACCEPTED: Success(
                "New work: it is owed from now on.",
                answers.Receipt,
                ("Location", "Preference-Applied"),
            ),
            OK: Success(
                "The same request had been accepted before: the same receipt.",
                answers.Receipt,
                ("Idempotent-Replayed", "Preference-Applied"),
            ),
        },
        frozenset(
            {
                _Code.IDEMPOTENCY_CONFLICT,
                _Code.GONE,
                _Code.UNKNOWN_AGENT,
                _Code.QUEUE_FULL,
                _Code.RATE_LIMITED,
                _Code.DATABASE_FULL,
            }
        ),
        "The same `Idempotency-Key` with the same content always finds the same submission; with other content it"
        " is refused, naming what differs. `Prefer: wait=N` changes only how long the answer takes: it then carries"
        " the settlement, if there is one by that time.",
        _KEY + _WAIT + _TRACE,
        {"agent": "echo", "input": {"hello": "world"}},
    ),
    ("GET", f"{C}/submissions"): Described(
        "listSubmissions",
        "Work",
        "List submissions",
        {
            OK: Success(
                "A page, in the order of the queue; large results make it shorter.",
                answers.StatusPage,
            )
        },
    ),
    ("GET", S): Described(
        "readSubmission",
        "Work",
        "Read where a submission stands",
        {
            OK: Success("The submission.", answers.Status, ("ETag",)),
            NOT_MODIFIED: Success("It stands as it did when its ETag was given.", None, ("ETag",)),
        },
        headers=("If-None-Match",),
    ),
    ("GET", f"{S}/settlement"): Described(
        "readSettlement",
        "Work",
        "Read a settlement, or wait for it",
        {
            OK: Success("It is settled.", answers.Settlement, ("Preference-Applied",)),
            ACCEPTED: Success(
                "It is still owed; this is where it stands.",
                answers.Status,
                ("Retry-After", "Preference-Applied"),
            ),
        },
        frozenset({_Code.RATE_LIMITED}),
        headers=_WAIT,
    ),
    ("POST", f"{S}/abort"): Described(
        "abort",
        "Work",
        "Ask for an end",
        {
            **_STATUS_LATER,
            OK: Success("It had been aborted before: its settlement.", answers.Settlement),
        },
        _OPEN | {_Code.DATABASE_FULL},
        f"What has happened outside is not undone. {_REPEATED} `detach` lets its children go instead of waiting for"
        " them, and takes the role `operate`.",
        body={"reason": "the customer has changed their mind"},
    ),
    ("POST", f"{S}/approvals/{{operation}}"): Described(
        "decideApproval",
        "Decisions",
        "Decide an approval",
        _STATUS,
        _DECIDE,
        f"{_REPEATED} Another decision is refused with the one that is recorded.",
        body={"decision": "approve", "reason": "checked against the invoice"},
    ),
    ("POST", f"{S}/resolutions/{{operation}}"): Described(
        "resolveCall",
        "Decisions",
        "Say what became of an unknown call",
        _STATUS,
        _DECIDE | {_Code.RATE_LIMITED},
        "`completed` gives the call's `result`; `failed` fails it with the reason; `never-happened` and"
        " `safe-to-retry` let it be made once more; `abort` ends the submission.",
        body={"resolution": "completed", "result": {"reference": "r-1"}, "reason": "found there"},
    ),
    ("POST", f"{S}/signals/{{signal}}"): Described(
        "deliverSignal",
        "Decisions",
        "Deliver a signal",
        {
            ACCEPTED: Success(
                "It is stored, and received when the Run waits for it.",
                answers.Status,
                ("Idempotent-Replayed",),
            )
        },
        _DECIDE | {_Code.IDEMPOTENCY_CONFLICT, _Code.RATE_LIMITED},
        headers=_KEY,
        body={"payload": {"paid": True}},
    ),
    ("POST", f"{S}/retry"): Described(
        "retry",
        "Operating",
        "Let a submission go on at once",
        _STATUS_LATER,
        _OPEN | {_Code.DATABASE_FULL},
        "For one that is quarantined, or that waits for the time of its next attempt; of one that is settled, a"
        " callback that was given up is owed again.",
        body={"reason": "the service is back"},
    ),
    ("POST", f"{S}/skip"): Described(
        "skipHead",
        "Operating",
        "End the head of the queue, so that what stands behind it can run",
        {
            **_STATUS_LATER,
            OK: Success("It had been aborted before: its settlement.", answers.Settlement),
        },
        _OPEN | {_Code.DATABASE_FULL},
        "An abort that lets the head's children go, and that is refused if the submission is not, or no longer, the"
        " head.",
        body={"reason": "it will never be answered"},
    ),
    ("GET", f"{S}/explain"): Described(
        "explainSubmission",
        "Looking",
        "Explain why a submission is where it is",
        {OK: Success("What it waits for, and what would move it.", answers.Explanation)},
        frozenset({_Code.ALREADY_SETTLED}),
    ),
    ("GET", f"{C}/explain"): Described(
        "explain",
        "Looking",
        "Explain every open submission",
        {OK: Success("A page, in the order of the queue.", answers.ExplanationPage)},
    ),
    ("GET", C): Described(
        "readLane",
        "Looking",
        "Read the lane",
        {OK: Success("The lane.", answers.Lane)},
    ),
    ("GET", f"{C}/maintenance"): Described(
        "readMaintenance",
        "Looking",
        "Read the generation record and the alarm",
        {OK: Success("The generation record.", answers.Maintenance)},
    ),
    ("POST", f"{C}/maintenance/pass"): Described(
        "forcePass",
        "Operating",
        "Owe the lane a pass",
        {ACCEPTED: Success("It is recorded, with author and reason.", answers.Maintenance)},
        frozenset({_Code.DATABASE_FULL}),
        body={"reason": "to see whether it moves"},
    ),
    ("GET", f"{C}/records"): Described(
        "readRecords",
        "Looking",
        "Read the log",
        {OK: Success("A page, bounded by count and by bytes.", answers.RecordPage)},
    ),
    ("GET", f"{C}/events"): Described(
        "followEvents",
        "Looking",
        "Follow the log as it grows",
        {
            OK: Success(
                "Server-Sent Events until the time is over or the submission is settled. `record`: a Record, its"
                " sequence the event's id. `progress`: a Progress, without an id. `settlement`: the Settlement, the"
                " last event of a stream that is kept to a submission. `end`: why the stream ended before that;"
                " come back with the last id.",
                media_type="text/event-stream",
            )
        },
        frozenset({_Code.RATE_LIMITED}),
        "Begins behind `Last-Event-ID`, or else behind `after`, or else at the beginning; `submission` keeps it to"
        " one submission's records.",
        ("Last-Event-ID",),
    ),
    ("GET", f"{C}/verify"): Described(
        "verify",
        "Looking",
        "Hold a whole conversation against its laws",
        {OK: Success("What was checked, and every law that is broken.", answers.Verification)},
        frozenset({_Code.RATE_LIMITED}),
        "Nothing is written and nothing is mended. It takes a while where the log is long, during which the"
        " conversation's work goes on; one check runs at a time.",
    ),
    ("GET", f"{C}/export"): Described(
        "exportConversation",
        "Looking",
        "Export a conversation as a bundle that can be checked without the deployment",
        {
            OK: Success(
                "JSON documents, one a line: a `header`, each `submission`, each `record`, and an `end`. What has"
                " no `end` is not whole.",
                media_type="application/x-ndjson",
            )
        },
        more="The digest of every record and the chain of all can be computed anew from what the lines hold."
        " Nothing is written.",
    ),
    ("GET", "/v1/agents"): Described(
        "listAgents",
        "Deployment",
        "Read which agents there are",
        {OK: Success("Every agent.", answers.AgentPage)},
    ),
    ("GET", "/healthz"): Described(
        "readHealth",
        "Deployment",
        "Ask whether the deployment is set up well",
        {OK: Success("It is.", answers.Health)},
    ),
    ("GET", "/openapi.json"): Described(
        "readApi",
        "Deployment",
        "Read this description",
        {OK: Success("An OpenAPI document.")},
    ),
    ("GET", "/docs"): Described(
        "readDocs",
        "Deployment",
        "Read this description as a page",
        {OK: Success("A page without anything from elsewhere.", media_type="text/html")},
    ),
}
