"""One conversation under test: its callers, its traps, its file, and its path at the server outside."""

import contextlib
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from quiesce.ids import ConversationId, submission_id
from runtime.helpers import ondisk, outside
from runtime.helpers.ondisk import Seen, until
from worker.helpers.client import Client
from workshop.serving import Server

CLASS = "ConversationObject"
PRINCIPAL = "dev"
REASON = "a test asked for it"


@dataclass
class Stage:
    """A running server and a conversation of its own on it."""

    server: Server
    client: Client
    outside_server: outside.Outside
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    submissions: list[str] = field(default_factory=list)
    has_acted: bool = False
    """Whether the second act of a scenario is done, and durable."""
    _id: str = ""
    _threads: list[threading.Thread] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Where the agents of this conversation call."""
        return self.outside_server.url_of(self.name)

    @property
    def outside(self) -> outside.Path:
        """What the server outside was asked by this conversation."""
        return self.outside_server.at(self.name)

    @property
    def calls(self) -> dict[str, int]:
        """How often the server outside was asked for each step."""
        with self.outside_server.lock:
            return dict(self.outside.calls)

    def control(self, do: str, **more: Any) -> dict[str, Any]:
        """Ask for one control, which must be carried out."""
        response = self.client.http.post(f"/test/{self.name}", json={"do": do, **more})
        assert response.status_code == 200, response.text
        return dict(response.json())

    def state(self) -> dict[str, Any]:
        """Ask the Object how its present incarnation stands."""
        return self.control("state")

    @property
    def id(self) -> str:
        """The Object's id."""
        if not self._id:
            self._id = self.state()["id"]
        return self._id

    def life(self) -> dict[str, Any]:
        """Read what the process knows of the Object over all its incarnations: the Object is not asked."""
        return self.client.read(f"/lives/{self.id}")

    @property
    def deliveries(self) -> int:
        """How many alarms this process has delivered to the Object."""
        return len(self.life()["deliveries"])

    def arm(self, point: str, action: str, skip: int = 0) -> None:
        """Set a trap in the present incarnation."""
        self._id = self.control("arm", point=point, action=action, skip=skip)["id"]

    def until_paused(self, point: str) -> None:
        """Return when something stands still at a failpoint."""
        until(lambda: self.life()["paused"], lambda paused: point in paused)

    def until_sprung(self, times: int = 1) -> None:
        """Return when so many traps have acted."""
        until(lambda: self.life()["sprung"], lambda sprung: len(sprung) == times)

    @property
    def file(self) -> Path:
        """The Object's file."""
        folder = f"{next(iter(self.server.urls))}-{CLASS}"
        return self.server.persist / "do" / folder / f"{self.id}.sqlite"

    def look(self) -> Seen:
        """Read the conversation from its file: nothing is asked of the Worker."""
        return ondisk.read(self.file)

    def until(self, holds: Callable[[Seen], bool], timeout_s: float = ondisk.TIMEOUT_S) -> Seen:
        """Read the file until it holds."""
        return until(self.look, holds, timeout_s)

    def until_settled(self, timeout_s: float = ondisk.TIMEOUT_S) -> Seen:
        """Read the file until all work is settled and the lane is quiet, and check every law."""
        seen = self.until(lambda seen: seen.is_settled and seen.is_quiet, timeout_s)
        assert seen.alarm_at_ms is None
        assert seen.broken_laws == []
        assert len(seen.settlements) == len(seen.submissions)
        return seen

    def until_state(self, *states: str, timeout_s: float = ondisk.TIMEOUT_S) -> Seen:
        """Read the file until the submissions stand in these states and the lane is quiet."""
        return self.until(lambda seen: seen.states == list(states) and seen.is_quiet, timeout_s)

    def submit(self, agent: str, value: Any, key: str = "key", **terms: Any) -> str:
        """POST work that must be accepted."""
        # Known before it is accepted: the answer may be cut off.
        submission = submission_id(ConversationId(self.name), PRINCIPAL, key)
        if submission not in self.submissions:
            self.submissions.append(submission)
        accepted = self.client.accepted(self.name, agent, value, key=key, **terms)
        assert accepted == submission
        return accepted

    def path(self, rest: str, submission: str | None = None) -> str:
        """Return the path of something of a submission, the last one unless it is named."""
        chosen = submission or self.submissions[-1]
        return f"/v1/conversations/{self.name}/submissions/{chosen}/{rest}"

    def post(self, rest: str, body: Mapping[str, Any], key: str | None = None) -> httpx.Response:
        """POST to something of the last submission."""
        headers = {} if key is None else {"idempotency-key": key}
        return self.client.http.post(self.path(rest), json=dict(body), headers=headers)

    def in_background(self, act: Callable[[], object]) -> None:
        """Start a request whose end nobody waits for: it may be cut off."""

        def run() -> None:
            with contextlib.suppress(httpx.HTTPError, AssertionError):
                act()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self._threads.append(thread)
