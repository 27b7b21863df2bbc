"""What lies between simulated Objects, and between them and callback URLs: a network that can fail.

By default every call arrives once and is answered. A test puts its own rule in place to lose requests, lose
answers, deliver twice or much later; whatever happens, the caller only learns an answer or that there was none.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from quiesce.errors import StorageUnavailable
from quiesce.ports import receive
from quiesce.testing.crashing import Crashed

if TYPE_CHECKING:
    from quiesce.testing.conversation import Conversation
    from quiesce.testing.deployment import Deployment

type Fate = Literal["arrives", "lost", "answer-lost", "twice", "late"]
type Rule = Callable[[str, str], Fate]


def _arrives(_conversation: str, _text: str) -> Fate:
    return "arrives"


@dataclass(frozen=True, slots=True)
class Post:
    """One POST to a callback URL."""

    url: str
    body: str
    headers: Mapping[str, str]


@dataclass(slots=True)
class Network:
    """The calls between Objects, what becomes of them, and the POSTs to callback URLs."""

    rule: Rule = _arrives
    """What becomes of a call, given the conversation that it is for and its text."""
    answers: Callable[[Post], int] = lambda _post: 200
    """What a callback URL answers; it may raise StorageUnavailable for no answer."""
    calls: list[tuple[str, str]] = field(default_factory=list)
    """Every call that was made: the conversation that it was for, and its text."""
    posts: list[Post] = field(default_factory=list)
    late: list[tuple[str, str]] = field(default_factory=list)
    """The calls that are still under way, though their callers have given them up."""


class SimulatedOutside:
    """How one simulated Object reaches the others."""

    def __init__(self, deployment: "Deployment") -> None:
        self._deployment = deployment

    async def ask(self, conversation: str, text: str) -> str:
        """Carry one message to another conversation's Object and bring its answer."""
        network = self._deployment.network
        network.calls.append((conversation, text))
        fate = network.rule(conversation, text)
        if fate == "late":
            network.late.append((conversation, text))
        if fate in {"lost", "late"}:
            raise StorageUnavailable("the call was lost")
        target = self._deployment.conversation(conversation)
        answer = await _arrive(target, text)
        if fate == "twice":
            answer = await _arrive(target, text)
        if fate == "answer-lost":
            raise StorageUnavailable("the answer was lost")
        return answer

    async def post(self, url: str, body: str, headers: Mapping[str, str]) -> int:
        """POST a body to a URL and return the status of the answer."""
        await asyncio.sleep(0)
        post = Post(url, body, headers)
        self._deployment.network.posts.append(post)
        return self._deployment.network.answers(post)


async def _arrive(target: "Conversation", text: str) -> str:
    """Let the called Object answer in a task of its own: it lives and dies apart from its caller."""
    task = asyncio.create_task(target.within(lambda: receive(target.lane, text)))
    try:
        return await asyncio.shield(task)
    except Crashed as crash:
        raise StorageUnavailable(f"the called Object died: {crash}") from None
    except asyncio.CancelledError:
        if not task.cancelled():
            # It is the caller who is cancelled; the called Object goes on.
            raise
        raise StorageUnavailable("the called Object died") from None
