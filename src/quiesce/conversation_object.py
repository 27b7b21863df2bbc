"""The Durable Object class: one conversation, its storage, its alarm, and one method for requests.

1. The constructor does nothing that can fail; the gate runs inside `blockConcurrencyWhile`.
2. A request comes as one JSON string and is answered by one string; nothing that it raised crosses the border.
3. An alarm is a pass. What it raises is let out, so that the platform's own reporting sees it.
"""

import os
from typing import Any, ClassVar

from workers import DurableObject

from quiesce import maintenance, reporting, wire, workerd
from quiesce.agent import Registry
from quiesce.dispatch import dispatch
from quiesce.errors import Refusal, RefusalCode
from quiesce.failpoints import Failpoints, InertFailpoints
from quiesce.lane import Lane
from quiesce.observing import Observer
from quiesce.ports import receive
from quiesce.settings import Settings
from quiesce.telemetry import Reporter
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
            reporter=self.reporter(env),
        )
        storage.on_written = self.lane.audience.tell
        self.lane.publish = self.lane.audience.show
        ctx.blockConcurrencyWhile(self._open)

    def failpoints(self) -> Failpoints:
        """Return where this Object may be stopped: nowhere, but in a test's subclass."""
        return InertFailpoints()

    def reporter(self, env: Any) -> Reporter:
        """Return who is told of this Object's work."""
        return Observer(env)

    async def _open(self) -> None:
        use_cancellable_timers()
        await maintenance.open_lane(self.lane)

    async def call(self, command: str) -> str:
        """Answer one request: a command as JSON in, an encoded answer out."""
        try:
            return (await dispatch(self.lane, command)).encode()
        except Exception as error:  # noqa: BLE001 - the host's edge: a bug must not cross the border as a stack
            self.lane.tell("bug", None, reporting.bug(error))
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
        await maintenance.on_alarm(self.lane, retry_count)


def _settings(env: Any) -> tuple[Settings, Exception | None]:
    """Parse the settings; what is wrong with them keeps the Object from serving, and is said to every caller."""
    try:
        return workerd.Deployment.settings(env), None
    except ValueError as error:
        return Settings(), error
