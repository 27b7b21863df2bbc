"""A caller of a running Worker, in the words of the contract."""

import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Self

import httpx

TIMEOUT_S = 20.0
PROBLEM = {"type", "title", "status", "detail", "code"}
KEPT_S = 2
"""How long an unused connection is kept. workerd closes one after five seconds, and a request on its way by then
gets no answer."""


class Client:
    """One caller with one token."""

    def __init__(self, url: str, token: str | None = "dev") -> None:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        limits = httpx.Limits(keepalive_expiry=KEPT_S)
        self.http = httpx.Client(base_url=url, headers=headers, timeout=60, limits=limits)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def submit(
        self,
        conversation: str,
        agent: str,
        value: Any,
        key: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        **terms: Any,
    ) -> httpx.Response:
        """POST work; without a key, under a new one."""
        return self.http.post(
            f"/v1/conversations/{conversation}/submissions",
            json={"agent": agent, "input": value, **terms},
            headers={"idempotency-key": key or uuid.uuid4().hex, **(headers or {})},
        )

    def accepted(self, conversation: str, agent: str, value: Any, **more: Any) -> str:
        """POST work that must be accepted, and return the submission's id."""
        response = self.submit(conversation, agent, value, **more)
        assert response.status_code in {200, 202}, response.text
        return str(response.json()["submission"])

    def act(
        self,
        conversation: str,
        submission: str,
        action: str,
        body: Mapping[str, Any],
        *,
        key: str | None = None,
    ) -> httpx.Response:
        """POST a command about a submission, such as `abort` or `approvals/question`."""
        headers = {} if key is None else {"idempotency-key": key}
        path = f"{submissions(conversation)}/{submission}/{action}"
        return self.http.post(path, json=dict(body), headers=headers)

    def waits(self, conversation: str, submission: str, kind: str) -> dict[str, Any]:
        """Return the status once the submission waits for something of this kind."""

        def holds(status: dict[str, Any]) -> bool:
            return (status["waiting_for"] or {}).get("kind") == kind

        return until(lambda: self.status(conversation, submission), holds)

    def settled(
        self, conversation: str, submission: str, timeout_s: float = TIMEOUT_S
    ) -> dict[str, Any]:
        """Return the settlement, waiting for it by long polls."""
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            response = self.http.get(
                f"/v1/conversations/{conversation}/submissions/{submission}/settlement",
                headers={"prefer": f"wait={max(1, round(left_s))}"},
            )
            if response.status_code == 200:
                return dict(response.json())
            assert response.status_code in {202, 503}, response.text
        message = f"{submission} is not settled: {self.status(conversation, submission)}"
        raise AssertionError(message)

    def status(self, conversation: str, submission: str) -> dict[str, Any]:
        """Read one submission."""
        return self.read(f"/v1/conversations/{conversation}/submissions/{submission}")

    def lane(self, conversation: str) -> dict[str, Any]:
        """Read the lane."""
        return self.read(f"/v1/conversations/{conversation}")

    def maintenance(self, conversation: str) -> dict[str, Any]:
        """Read the generation record and the alarm."""
        return self.read(f"/v1/conversations/{conversation}/maintenance")

    def items(self, path: str, **query: Any) -> list[dict[str, Any]]:
        """Read every item of a paged route, page by page."""
        found: list[dict[str, Any]] = []
        while True:
            page = self.read(path, **query)
            found += page["items"]
            if page["next"] is None:
                return found
            query["after"] = page["next"]

    def records(self, conversation: str) -> list[dict[str, Any]]:
        """Read the whole log."""
        return self.items(f"/v1/conversations/{conversation}/records")

    def read(self, path: str, **query: Any) -> dict[str, Any]:
        """GET what must be there."""
        response = self.http.get(path, params=query)
        assert response.status_code == 200, response.text
        return dict(response.json())


def until[T](read: Callable[[], T], holds: Callable[[T], bool], timeout_s: float = TIMEOUT_S) -> T:
    """Read over and over until what is read holds, and return it; each read is a request, so nothing spins."""
    deadline = time.monotonic() + timeout_s
    while not holds(found := read()):
        assert time.monotonic() < deadline, f"it never came to hold; last read: {found}"
    return found


def assert_problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Check that an answer is a problem document with this status and code, and return it."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert set(problem) >= PROBLEM
    assert problem["status"] == status
    assert problem["code"] == code
    assert "Traceback" not in response.text
    return problem


def submissions(conversation: str) -> str:
    """Return the path of a conversation's submissions."""
    return f"/v1/conversations/{conversation}/submissions"
