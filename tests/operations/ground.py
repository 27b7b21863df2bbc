"""What the tests of operations stand on: a world outside that counts, and agents made of one handler.

A `World` acts out a script: the n-th call of a name gets the n-th of its behaviours, and the last one from then on.
A behaviour that is an exception is raised, `HANG` never returns, anything else is the answer.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from quiesce import Agent, Run
from quiesce.errors import Refusal, RefusalCode
from quiesce.ids import SubmissionId
from quiesce.recovery import Wait
from quiesce.settings import Settings
from quiesce.states import State
from quiesce.testing import Conversation, Deployment

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
HANG = object()

type Handler = Callable[[Run, Any], Awaitable[Any]]


class World:
    """The world outside, which counts what is done to it."""

    def __init__(self, **scripts: list[Any]) -> None:
        self.calls: Counter[str] = Counter()
        self.seen: list[Any] = []
        self._scripts = scripts

    def script(self, name: str, *behaviours: Any) -> None:
        """Change what the world does from now on: the next call of the name gets the first of these."""
        self._scripts[name] = [*([None] * self.calls[name]), *behaviours]

    async def act(self, name: str, *arguments: Any) -> Any:
        """Do one thing to the world."""
        self.calls[name] += 1
        self.seen.append((name, *arguments))
        script = self._scripts.get(name, [f"{name} done"])
        behaviour = script[min(self.calls[name], len(script)) - 1]
        if behaviour is HANG:
            await asyncio.sleep(DAY_MS)
        if isinstance(behaviour, BaseException):
            raise behaviour
        return behaviour


def agent(handle: Handler, name: str = "work", **options: Any) -> Agent:
    """Declare an agent that takes any JSON and runs this handler."""
    made = Agent(name, input=Any, **options)
    made.handler(handle)
    return made


@contextmanager
def deployed(
    *agents: Agent | Handler, seed: int = 0, **settings: Any
) -> Iterator[tuple[Deployment, Conversation]]:
    """Deploy agents, or handlers of an agent named `work`, and give the first conversation."""
    served = [each if isinstance(each, Agent) else agent(each) for each in agents]
    with Deployment(served, Settings(**settings), seed=seed) as deployment:
        yield deployment, deployment.conversation("one")


@contextmanager
def refused(code: RefusalCode) -> Iterator[dict[str, Any]]:
    """Expect a refusal; its facts are in the mapping afterwards."""
    facts: dict[str, Any] = {}
    with pytest.raises(Refusal) as caught:
        yield facts
    assert caught.value.code is code, caught.value
    facts.update(caught.value.facts)


def pass_time(deployment: Deployment, delay_ms: int) -> None:
    """Let time pass while the platform delivers no alarm: it is late."""
    deployment.run(asyncio.sleep(delay_ms / 1_000))


def begin(deployment: Deployment, lane: Conversation) -> "asyncio.Task[Any]":
    """Deliver the lane's alarm as far as it gets without the clock, at the time for which it is set."""
    assert lane.alarm_at_ms is not None
    pass_time(deployment, lane.alarm_at_ms - deployment.now_ms)
    return lane.start_delivery()


def state_of(lane: Conversation, submission: SubmissionId) -> State:
    """Return where a submission stands."""
    return lane.status(submission).submission.state


def wait_of(lane: Conversation, submission: SubmissionId) -> Wait:
    """Return what a submission waits for; fails when it waits for nothing."""
    wait = lane.status(submission).waiting_for
    assert wait is not None, lane.status(submission)
    return wait


def kinds(lane: Conversation, submission: SubmissionId) -> list[str]:
    """Return the kinds of a submission's records, in order."""
    return [each.kind for each in lane.records() if each.submission == submission]


def ids(lane: Conversation, submission: SubmissionId) -> list[str]:
    """Return the ids of a submission's records without the submission, in order."""
    return [
        each.record_id.removeprefix(f"{submission}/")
        for each in lane.records()
        if each.submission == submission
    ]
