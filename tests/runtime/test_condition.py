"""The report on a failed test tells of the runtime, and one that answers nobody fails no other test."""

import os
import signal
import uuid

import pytest

from worker.helpers.client import Client
from workshop import condition
from workshop.serving import Server

pytestmark = pytest.mark.worker


def test_a_runtime_that_answers_nobody_is_told_of_and_replaced(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(condition, "PATIENCE_SECONDS", 1)
    told = condition.told_of(server)
    assert told.startswith("the Worker answers\na new Object answers\n")
    conversation = uuid.uuid4().hex
    settlement = client.settled(conversation, client.accepted(conversation, "echo", 1))
    stopped = server.runtime_pid()
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    told = condition.told_of(server)
    assert "the Worker did not answer within 1 s" in told
    assert f"workerd: process {stopped}, state T, 0% of a core" in told
    assert '"event":"settled"' in told
    assert server.runtime_pid() != stopped
    assert client.settled(conversation, settlement["submission"]) == settlement
