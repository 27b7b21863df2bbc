"""The client and the command against the running Worker: one story each, told through the API.

Not tested here: what the deployment does; only that the client says it rightly.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic_core import from_json
from typer.testing import CliRunner, Result

from quiesce.cli.main import app
from quiesce.client import AsyncClient, Client, Refused, StillOpen
from workshop.serving import Server

pytestmark = pytest.mark.worker

type Quiesce = Callable[..., Result]


@pytest.fixture
def quiesce(server: Server) -> Iterator[Client]:
    with Client(server.url, "dev") as client:
        yield client


@pytest.fixture
def command(server: Server, conversation: str) -> Quiesce:
    """Run the command on the Worker and one conversation."""
    environment = {
        "QUIESCE_URL": server.url,
        "QUIESCE_TOKEN": "dev",
        "QUIESCE_CONVERSATION": conversation,
        "COLUMNS": "100",
    }

    def run(*arguments: str, exit_code: int = 0) -> Result:
        result = CliRunner().invoke(app, arguments, env=environment)
        assert result.exit_code == exit_code, result.output
        return result

    return run


def test_work_is_submitted_settled_listed_and_read_back(quiesce: Client, conversation: str) -> None:
    receipt = quiesce.submit(conversation, "echo", {"a": [1, None]}, key="once")
    again = quiesce.submit(conversation, "echo", {"a": [1, None]}, key="once")
    assert (receipt.is_replayed, again.is_replayed) == (False, True)
    assert again.submission == receipt.submission
    settlement = quiesce.wait(conversation, receipt.submission, timeout_s=20)
    assert settlement.is_completed
    assert settlement.result == {"a": [1, None]}
    assert quiesce.status(conversation, receipt.submission).settlement == settlement
    quiesce.submit(conversation, "echo", 2)
    listed = list(quiesce.submissions(conversation, page_size=1))
    assert [each.sequence for each in listed] == [1, 2]
    records = list(quiesce.records(conversation, page_size=2))
    assert [each.sequence for each in records] == list(range(1, len(records) + 1))
    assert quiesce.lane(conversation).counts["settled"] >= 1
    before = quiesce.maintenance(conversation).generation.dirty
    assert quiesce.force_pass(conversation, reason="to see").generation.dirty == before + 1


def test_what_waits_is_explained_and_moved(quiesce: Client, conversation: str) -> None:
    asked = quiesce.submit(conversation, "approval", {"question": "May I?"}).submission
    with pytest.raises(StillOpen):
        quiesce.wait(conversation, asked, timeout_s=2)
    (explained,) = quiesce.explain(conversation)
    (operation,) = explained.open_operations
    assert quiesce.explain_one(conversation, asked).why == explained.why
    quiesce.deny(conversation, asked, operation.operation, reason="no")
    quiesce.deny(conversation, asked, operation.operation, reason="no")
    with pytest.raises(Refused) as raised:
        quiesce.approve(conversation, asked, operation.operation)
    assert raised.value.code == "decision-conflict"
    assert raised.value.facts["recorded"]["decision"] == "denied"
    assert quiesce.wait(conversation, asked, timeout_s=20).result["approved"] is False
    signalled = quiesce.submit(conversation, "signal", {"name": "paid"}).submission
    quiesce.signal(conversation, signalled, "paid", {"cents": 3}, key="delivery-1")
    assert quiesce.wait(conversation, signalled, timeout_s=20).result["payload"] == {"cents": 3}
    ended = quiesce.submit(conversation, "signal", {"name": "never"}).submission
    assert quiesce.abort(conversation, ended, reason="enough").submission == ended
    assert quiesce.wait(conversation, ended, timeout_s=20).outcome == "aborted"
    assert quiesce.abort(conversation, ended).is_settled
    with pytest.raises(Refused, match="already-settled"):
        quiesce.retry(conversation, ended)


def test_a_token_has_its_roles_and_no_others(server: Server, quiesce: Client) -> None:
    roles: tuple[Any, ...] = ("submit", "observe", "decide", "operate")
    assert all(quiesce.has_role(role) for role in roles)
    with Client(server.url, "only-observe") as observer:
        assert [role for role in roles if observer.has_role(role)] == ["observe"]
    with (
        Client(server.url, "nobody's") as stranger,
        pytest.raises(Refused, match="unauthenticated"),
    ):
        stranger.has_role("observe")


def test_the_client_for_asyncio_tells_the_same_story(server: Server, conversation: str) -> None:
    async def story() -> None:
        async with AsyncClient(server.url, "dev") as quiesce:
            works = [quiesce.submit(conversation, "echo", number) for number in range(3)]
            receipts = await asyncio.gather(*works)
            waits = [quiesce.wait(conversation, each.submission, timeout_s=20) for each in receipts]
            assert [each.result for each in await asyncio.gather(*waits)] == [0, 1, 2]
            assert [each.state async for each in quiesce.submissions(conversation)] == [
                "settled"
            ] * 3
            assert (await quiesce.health()).status == "ok"
            assert "echo" in {agent.name for agent in await quiesce.agents()}

    asyncio.run(story())


def test_the_command_takes_work_from_submission_to_settlement(command: Quiesce) -> None:
    assert "completed" in command("submit", "echo", '"hello"', "--wait", "20").stdout
    command("submit", "fail", '{"kind": "final"}', "--wait", "20", exit_code=1)
    accepted = command("submit", "approval", '{"question": "May I?"}', "--json")
    submission = from_json(accepted.stdout)["submission"]
    watched = command("watch", submission, "--timeout", "2", exit_code=4)
    assert "waits for approval question" in watched.stdout
    assert "approval-requested" in watched.stdout
    assert "quiesce approve" in command("explain", submission).stdout
    assert submission in command("owed").stdout
    assert submission in command("ls", "--state", "suspended").stdout
    command("approve", submission, "-r", "why not")
    lines = command("watch", submission, "--json").stdout.splitlines()
    assert from_json(lines[-1])["result"]["approved"] is True
    assert "completed" in command("show", submission).stdout
    assert "3 settled" in command("lane").stdout
    kinds = [from_json(line)["kind"] for line in command("records", "--json").stdout.splitlines()]
    assert kinds.count("settlement") == 3


def test_the_command_resolves_signals_aborts_and_forces(
    command: Quiesce, outside_server: Any
) -> None:
    outside_server.failures_left["none"] = 1_000
    charge = f'{{"url": "{outside_server.url}", "amount": 3}}'
    unknown = from_json(command("submit", "charge", charge, "--json").stdout)["submission"]
    command("watch", unknown, "--timeout", "4", exit_code=4)
    assert "--result JSON" in command("show", unknown).stdout
    command(
        "resolve", unknown, "completed", "--result", '{"reference": "r-1"}', "-r", "in their books"
    )
    shown = command("watch", unknown, "--json").stdout.splitlines()[-1]
    assert from_json(shown)["result"] == {"reference": "r-1"}
    waiting = from_json(command("submit", "signal", '{"name": "go"}', "--json").stdout)[
        "submission"
    ]
    command("signal", waiting, "go", "null")
    command("watch", waiting)
    aborted = from_json(command("submit", "signal", '{"name": "go"}', "--json").stdout)[
        "submission"
    ]
    command("abort", aborted, "-r", "enough")
    command("watch", aborted, exit_code=1)
    assert "already-settled" in command("retry", aborted, exit_code=1).stderr
    assert "generation" in command("pass", "-r", "to see").stdout


def test_doctor_is_content_with_the_worker(command: Quiesce, server: Server) -> None:
    command("submit", "echo", "1", "--wait", "20")
    found = {
        each["check"]: each["level"]
        for each in map(from_json, command("doctor", "--json").stdout.splitlines())
    }
    assert set(found.values()) <= {"ok", "note"}
    assert found["conversation"] == "ok"
    assert "without decide" in command("doctor", "--token", "only-submit").stdout
    wrong = command("doctor", "--token", "nobody's", exit_code=1)
    assert "sha256sum" in wrong.stdout
    command("doctor", "--url", f"{server.url}/elsewhere", exit_code=1)
