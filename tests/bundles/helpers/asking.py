"""Asks a simulated Object as the router does, for `verify` and for a bundle."""

import json
from collections.abc import Iterator
from typing import Any

from quiesce import bundle, verbs, wire
from quiesce.dispatch import dispatch
from quiesce.testing import Conversation


async def ask(lane: Conversation, command: verbs.Command) -> tuple[int, dict[str, str], str]:
    """Carry one command to the Object and bring its answer, as it crosses the border."""
    said = command.model_dump_json()
    answered = await lane.within(lambda: dispatch(lane.lane, said))
    return wire.decode_answer(answered.encode())


def verify(lane: Conversation, status: int = 200) -> dict[str, Any]:
    """Verify a conversation, whose laws may be broken: nothing but the answer is checked."""
    question = verbs.Verify(conversation=lane.name)
    found, _, body = lane.deployment.run(ask(lane, question))
    assert found == status, body
    return dict(json.loads(body))


def laws(lane: Conversation) -> list[str]:
    """Return the laws that a conversation breaks, each once, in the order in which they are told."""
    found = verify(lane)
    assert found["ok"] == (found["problems"] == [])
    return list(dict.fromkeys(each["law"] for each in found["problems"]))


def parts(lane: Conversation) -> Iterator[str]:
    """Yield a bundle part by part, each made when it is asked for: between two, anything may be done."""
    run = lane.deployment.run
    first = run(ask(lane, verbs.Export(conversation=lane.name)))
    assert first[0] == 200, first
    texts = bundle.read(first, lambda question: ask(lane, question))

    async def another() -> str | None:
        return await anext(texts, None)

    while (text := run(another())) is not None:
        yield text


def export(lane: Conversation) -> str:
    """Export a whole conversation as the text of its lines."""
    return "".join(parts(lane))


def lines(text: str) -> list[dict[str, Any]]:
    assert text.endswith("\n")
    return [json.loads(line) for line in text[:-1].split("\n")]
