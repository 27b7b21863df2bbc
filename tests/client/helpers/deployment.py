"""A deployment that answers from a list, and a clock that moves only when a client pauses."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
from pydantic_core import to_json

from quiesce.client import AsyncClient, Client, Terms

URL = "http://127.0.0.1:9"

type Answer = httpx.Response | httpx.RequestError | Callable[[httpx.Request], httpx.Response]


class Told:
    """The deployment: answers in order, the last one again and again, and every request that it got."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.pauses: list[float] = []
        self.now_s = 1_000.0
        self.answering_takes_s = 0.0
        self.keys = 0

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        self.now_s += self.answering_takes_s
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, httpx.RequestError):
            raise answer
        if not isinstance(answer, httpx.Response):
            return answer(request)
        # A response is used up by the one client that reads it.
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds

    async def pause_later(self, seconds: float) -> None:
        self.pause(seconds)

    def new_key(self) -> str:
        self.keys += 1
        return f"key-{self.keys}"

    def terms(self, **changed: Any) -> Terms:
        """Terms with this clock, no jitter, and keys that count."""
        return Terms(clock=lambda: self.now_s, jitter=lambda: 0.0, new_key=self.new_key, **changed)

    def client(self, **changed: Any) -> Client:
        http = httpx.Client(transport=httpx.MockTransport(self.answer))
        return Client(URL, http=http, terms=self.terms(**changed), sleep=self.pause)

    def async_client(self, **changed: Any) -> AsyncClient:
        http = httpx.AsyncClient(transport=httpx.MockTransport(self.answer))
        return AsyncClient(URL, http=http, terms=self.terms(**changed), sleep=self.pause_later)


def call_blocking(told: Told, name: str, *args: Any, **kwargs: Any) -> Any:
    """Make a call with the blocking client; what it iterates over becomes a list."""
    with told.client() as client:
        found = getattr(client, name)(*args, **kwargs)
        return list(found) if isinstance(found, Iterator) else found


def call_awaiting(told: Told, name: str, *args: Any, **kwargs: Any) -> Any:
    """Make the same call with the client for asyncio."""

    async def make() -> Any:
        async with told.async_client() as client:
            found = getattr(client, name)(*args, **kwargs)
            if isinstance(found, AsyncIterator):
                return [each async for each in found]
            return await found

    return asyncio.run(make())


def problem(status: int, code: str, retry_after: str | None = None, **facts: Any) -> httpx.Response:
    headers = {"content-type": "application/problem+json"}
    if retry_after is not None:
        headers["retry-after"] = retry_after
    body = {"type": "t", "title": "T", "status": status, "detail": "why", "code": code, **facts}
    return httpx.Response(status, json=body, headers=headers)


COST = {"wakes": 1, "rows_read": 2, "rows_written": 3, "active_ms": 4, "usd": 0.000001}
TIME = "2030-01-02T03:04:05.006Z"


def settlement(**changed: Any) -> dict[str, Any]:
    return {
        "conversation": "c",
        "submission": "sub_1",
        "outcome": "completed",
        "result": {"a": 1},
        "failure": None,
        "settled_at": TIME,
        "cost": COST,
        **changed,
    }


def status(**changed: Any) -> dict[str, Any]:
    return {
        "conversation": "c",
        "submission": "sub_1",
        "sequence": 1,
        "agent": "echo",
        "state": "suspended",
        "attempts": 0,
        "interruptions": 0,
        "waiting_for": {"kind": "approval", "since": TIME, "operation": "ask", "url": "/x"},
        "next_attempt_at": None,
        "settlement": None,
        "cost": COST,
        **changed,
    }


def receipt(**changed: Any) -> dict[str, Any]:
    return {
        "conversation": "c",
        "submission": "sub_1",
        "sequence": 1,
        "accepted_at": TIME,
        "settlement": None,
        **changed,
    }


def record(sequence: int, **changed: Any) -> dict[str, Any]:
    return {
        "sequence": sequence,
        "record_id": f"sub_1/{sequence}",
        "kind": "step-completed",
        "submission": "sub_1",
        "epoch": 1,
        "created_at": TIME,
        "payload": {"operation": f"step-{sequence}", "value": sequence},
        "digest": "d",
        **changed,
    }


def explanation(**changed: Any) -> dict[str, Any]:
    return {
        "conversation": "c",
        "submission": "sub_1",
        "sequence": 1,
        "agent": "approval",
        "state": "suspended",
        "waiting_for": status()["waiting_for"],
        "why": "it waits",
        "moved_by": "a decision",
        "age_ms": 90_000,
        "freshness": "ok",
        "open_operations": [
            {
                "operation": "ask",
                "name": "ask",
                "kind": "approval",
                "state": "waiting",
                "since": TIME,
                "until": None,
            }
        ],
        **changed,
    }


def verification(*problems: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return {
        "conversation": "c",
        "ok": not problems,
        "checked": {"records": 12, "submissions": 3},
        "tail": {"sequence": 12, "digest": "d" * 64},
        "problems": list(problems),
        "truncated": False,
        **changed,
    }


def page(*items: Any, after: str | None = None) -> httpx.Response:
    return httpx.Response(200, json={"items": list(items), "next": after})


def ok(body: Any, status_code: int = 200, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status_code, json=body, headers=named)


def happened(kind: str, data: Any, place: int | None = None) -> str:
    """Write one event of a stream."""
    first = "" if place is None else f"id: {place}\n"
    return f"{first}event: {kind}\ndata: {to_json(data).decode()}\n\n"


def stream(*events: str) -> httpx.Response:
    """Answer with a stream that breaks off behind these events, unless the last one ends it."""
    return httpx.Response(
        200, text="retry: 1000\n\n" + "".join(events), headers={"content-type": "text/event-stream"}
    )
