"""The Durable Object class: one conversation, its storage, its alarm, and one method for requests.

1. The constructor does nothing that can fail; the gate runs inside `blockConcurrencyWhile`.
2. A request comes as one JSON string and is answered by one string; nothing that it raised crosses the border.
3. An alarm is a pass. What it raises is let out, so that the platform's own reporting sees it.
"""

import json
import os
from typing import Any, ClassVar

from workers import DurableObject

from quiesce import maintenance, wire, workerd
from quiesce.agent import Registry
from quiesce.dispatch import dispatch
from quiesce.errors import Refusal, RefusalCode
from quiesce.failpoints import Failpoints, InertFailpoints
from quiesce.lane import Lane
from quiesce.ports import receive
from quiesce.settings import Settings
from quiesce.timers import use_cancellable_timers


class ConversationObject(DurableObject):
    """One conversation. A deployment subclasses it and names its agents."""

    agents: ClassVar[Registry]

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        settings, problem = _settings(env)
        storage = workerd.WorkerdStorage(ctx)
        self.lane = Lane(
            storage=storage,
            clock=workerd.now_ms,
            jitter=workerd.jitter,
            settings=settings,
            agents=self.agents,
            failpoints=self.failpoints(),
            incarnation=os.urandom(8).hex(),
            abort_object=ctx.abort,
            outside=workerd.WorkerdOutside(env),
            is_platform_error=workerd.is_platform_error,
            hurt=problem,
        )
        storage.on_written = self.lane.audience.tell
        self.lane.publish = self.lane.audience.show
        ctx.blockConcurrencyWhile(self._open)

    def failpoints(self) -> Failpoints:
        """Return where this Object may be stopped: nowhere, but in a test's subclass."""
        return InertFailpoints()

    async def _open(self) -> None:
        use_cancellable_timers()
        await maintenance.open_lane(self.lane)

    async def call(self, command: str) -> str:
        """Answer one request: a command as JSON in, an encoded answer out."""
        try:
            return (await dispatch(self.lane, command)).encode()
        except Exception as error:  # noqa: BLE001 - the host's edge: a bug must not cross the border as a stack
            _log({"event": "bug", "error": type(error).__name__, "message": str(error)[:2_000]})
            message = (
                "the request met a fault of this service; it may be repeated with the same key"
            )
            return wire.refuse(Refusal(RefusalCode.UNAVAILABLE, message)).encode()

    async def port(self, text: str) -> str:
        """Answer one call of another Object of this deployment."""
        return await receive(self.lane, text)

    async def alarm(self, info: Any = None) -> None:
        """Run a maintenance pass: the platform delivers the lane's alarm."""
        retry_count = int(getattr(info, "retryCount", 0) or 0)
        report = await maintenance.on_alarm(self.lane, retry_count)
        if report is not None and report.phase == "actionable":
            _log({"event": "pass", "conversation": self.lane.conversation, **report.fields()})


def _settings(env: Any) -> tuple[Settings, Exception | None]:
    """Parse the settings; what is wrong with them keeps the Object from serving, and is said to every caller."""
    try:
        return workerd.Deployment.settings(env), None
    except ValueError as error:
        return Settings(), error


def _log(line: dict[str, Any]) -> None:
    workerd.log(json.dumps(line, ensure_ascii=False))
