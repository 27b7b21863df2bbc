"""The command on a deployment that answers from a list: output, errors, exit codes, options, input.

Not tested here: the live picture, beyond that it draws; that was looked at on a terminal.
"""

import io
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic_core import from_json
from rich.console import Console
from typer.testing import CliRunner, Result

from client.helpers.deployment import (
    TIME,
    Told,
    explanation,
    happened,
    ok,
    page,
    problem,
    receipt,
    record,
    settlement,
    status,
    stream,
)
from quiesce.cli import session, watching
from quiesce.cli.main import app
from quiesce.cli.session import Options, Session
from quiesce.client import Client

pytestmark = pytest.mark.slow

type Quiesce = Callable[..., Result]


@pytest.fixture
def quiesce(monkeypatch: pytest.MonkeyPatch) -> Quiesce:
    """Run the command against a list of answers."""
    for name in ("QUIESCE_URL", "QUIESCE_TOKEN", "QUIESCE_CONVERSATION"):
        monkeypatch.delenv(name, raising=False)

    def run(told: Told, *arguments: str, text: str | bytes | None = None) -> Result:
        def open_client(options: Options) -> Client:
            Client(options.url, options.token).close()
            return told.client()

        monkeypatch.setattr(session, "open_client", open_client)
        return CliRunner().invoke(app, arguments, input=text, env={"COLUMNS": "80"})

    return run


NO_ANSWER = Told(ok({}))


def test_help_names_every_command_and_shows_what_to_try(quiesce: Quiesce) -> None:
    shown = quiesce(NO_ANSWER, "--help").stdout
    names = (
        "submit watch ls show records approve deny resolve signal abort retry skip"
        " explain owed lane pass agents verify export doctor"
    )
    for name in names.split():
        assert f" {name} " in shown
        own = quiesce(NO_ANSWER, name, "--help")
        assert own.exit_code == 0
        assert f"quiesce {name}" in own.stdout
        assert "--conversation" in own.stdout
    assert max(map(len, shown.splitlines())) <= 80


def test_the_command_runs_from_its_sources_where_no_script_is_installed() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "quiesce.cli", "--version"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert shown.stdout.startswith("quiesce")


def test_options_of_every_command_stand_before_it_or_behind_it(quiesce: Quiesce) -> None:
    for arguments in (
        ("--json", "-c", "c", "show", "sub_1"),
        ("show", "sub_1", "-c", "c", "--json"),
        ("-c", "other", "show", "sub_1", "-c", "c", "--json"),
    ):
        told = Told(ok(status()))
        result = quiesce(told, *arguments)
        assert from_json(result.stdout) == status()
        assert told.requests[0].url.path == "/v1/conversations/c/submissions/sub_1"


def test_the_conversation_may_come_from_the_environment(
    quiesce: Quiesce, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert quiesce(NO_ANSWER, "lane").exit_code == 2
    monkeypatch.setenv("QUIESCE_CONVERSATION", "from-there")
    told = Told(ok(status()))
    quiesce(told, "show", "sub_1")
    assert "/from-there/" in told.requests[0].url.path


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ('{"a": [1]}', {"a": [1]}), ("null", None), (str(2**70), 2**70)],
)
def test_input_is_json_from_the_argument_a_file_or_stdin(
    quiesce: Quiesce, tmp_path: Path, text: str, value: Any
) -> None:
    file = tmp_path / "input.json"
    file.write_text(text)
    for argument in (text, f"@{file}", "-"):
        told = Told(ok(receipt(), 202))
        result = quiesce(told, "submit", "-c", "c", "echo", argument, text=text)
        assert result.exit_code == 0, result.output
        assert from_json(told.requests[0].content)["input"] == value


@pytest.mark.parametrize("argument", ["hello", "", "NaN", "{'a': 1}", "@no-such-file", "[" * 5_000])
def test_input_that_is_not_json_is_wrong_usage_and_sends_nothing(
    quiesce: Quiesce, argument: str
) -> None:
    told = Told(ok({}))
    result = quiesce(told, "submit", "-c", "c", "echo", argument)
    assert result.exit_code == 2
    assert told.requests == []
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("outcome", "exit_code"), [("completed", 0), ("failed", 1), ("aborted", 1)]
)
def test_a_settlement_that_was_waited_for_is_the_exit_code(
    quiesce: Quiesce, outcome: str, exit_code: int
) -> None:
    answer = settlement(outcome=outcome, failure={"error_type": "e", "message": "m"})
    for arguments in (("--wait", "5"), ("--watch",), ("--wait", "5", "--json")):
        told = Told(
            lambda request: {
                True: ok(receipt(), 202),
                request.url.path.endswith("/events"): stream(
                    happened("record", record(1), 1), happened("settlement", answer)
                ),
                request.url.path.endswith("/sub_1"): ok(status()),
                request.url.path.endswith("/settlement"): ok(answer),
            }[True]
        )
        result = quiesce(told, "submit", "-c", "c", "echo", "1", *arguments)
        assert result.exit_code == exit_code, result.output
        if arguments[-1] == "--json":
            assert from_json(result.stdout) == answer


def test_a_wait_that_is_over_has_an_exit_code_of_its_own(quiesce: Quiesce) -> None:
    told = Told(ok(receipt(), 202), ok(status(), 202))
    result = quiesce(told, "submit", "-c", "c", "echo", "1", "--wait", "0")
    assert result.exit_code == 4
    assert "still suspended, waiting for approval ask" in result.stderr


def test_a_refusal_says_which_limit_and_what_to_do(quiesce: Quiesce) -> None:
    refused = problem(429, "queue-full", "90", limit="QUEUE_DEPTH_MAX", actual=257, maximum=256)
    result = quiesce(Told(refused), "submit", "-c", "c", "echo", "1")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "refused: why (queue-full, HTTP 429)" in result.stderr
    assert "limit QUEUE_DEPTH_MAX: 257 of 256" in result.stderr
    assert "What to do: See what the queue waits for" in result.stderr


def test_what_takes_a_conversation_and_nothing_else_takes_it_without_an_option(
    quiesce: Quiesce,
) -> None:
    for name, *rest in (("ls",), ("records",), ("verify",), ("export",), ("lane",)):
        told = Told(problem(404, "not-found"))
        assert quiesce(told, name, *rest, "named", "-c", "other").exit_code == 1
        assert "/v1/conversations/named" in told.requests[0].url.path


def test_a_pause_that_a_deployment_asks_for_is_told(quiesce: Quiesce) -> None:
    told = Told(problem(429, "queue-full", "7"), ok(receipt()))
    result = quiesce(told, "submit", "-c", "c", "echo", "1")
    assert result.exit_code == 0
    assert "trying again in 7 s" in result.stderr
    assert "trying" not in result.stdout
    told = Told(problem(429, "queue-full", "7"), ok(receipt()))
    assert "trying" not in quiesce(told, "submit", "-c", "c", "echo", "1", "--json").stderr


def test_how_a_settled_submission_ended_is_said_in_a_few_words(quiesce: Quiesce) -> None:
    refused = problem(409, "already-settled", settlement=settlement())
    result = quiesce(Told(refused), "abort", "-c", "c", "sub_1")
    assert f"settlement: completed, settled at {TIME}" in result.stderr
    assert "rows_read" not in result.stderr


def test_a_refusal_for_a_program_is_the_problem_document(quiesce: Quiesce) -> None:
    result = quiesce(Told(problem(404, "not-found")), "lane", "-c", "c", "--json")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert from_json(result.stderr)["code"] == "not-found"


def test_field_errors_are_listed(quiesce: Quiesce) -> None:
    errors = [{"field": "input.cents", "problem": "should be greater than 0"}]
    result = quiesce(
        Told(problem(422, "invalid-request", errors=errors)), "submit", "-c", "c", "refunds", "1"
    )
    assert "input.cents: should be greater than 0" in result.stderr


@pytest.mark.parametrize(
    "answer", [httpx.ConnectError("refused"), httpx.Response(200, text="<html>hello</html>")]
)
def test_no_answer_and_a_strange_one_are_unreachable(quiesce: Quiesce, answer: Any) -> None:
    result = quiesce(Told(answer), "lane", "-c", "c")
    assert result.exit_code == 3
    assert "What to do: Check --url" in result.stderr


def test_a_url_that_is_none_is_wrong_usage(quiesce: Quiesce) -> None:
    result = quiesce(NO_ANSWER, "agents", "--url", "ftp://nowhere")
    assert result.exit_code == 2
    assert "'ftp://nowhere' is no http or https URL" in result.stderr


def test_lists_are_tables_for_people_and_lines_for_programs(quiesce: Quiesce) -> None:
    told = Told(page(status(), after="1"), page(status(sequence=2, attempts=3)))
    table = quiesce(told, "ls", "-c", "c").stdout
    assert table.splitlines()[0].split() == ["#", "submission", "agent", "state", "waits", "for"]
    assert "approval ask (3 failed attempts)" in table
    told = Told(page(status(), after="1"), page(status(sequence=2)))
    lines = quiesce(told, "ls", "-c", "c", "--json").stdout.splitlines()
    assert [from_json(line)["sequence"] for line in lines] == [1, 2]
    told = Told(page(status(), status(), after="2"))
    assert len(quiesce(told, "ls", "-c", "c", "--limit", "2", "--json").stdout.splitlines()) == 2
    assert len(told.requests) == 1


def test_what_was_purged_is_listed_with_its_outcome(quiesce: Quiesce) -> None:
    tombstone = {
        "conversation": "c",
        "submission": "sub_1",
        "sequence": 1,
        "accepted_at": TIME,
        "outcome": "failed",
        "settled_at": TIME,
        "purged_at": TIME,
    }
    told = Told(page(status(state="settled", waiting_for=None, tombstone=tombstone)))
    assert quiesce(told, "ls", "-c", "c").stdout.splitlines()[1].split()[-2:] == [
        "failed",
        "purged",
    ]


def test_text_from_a_deployment_is_never_markup(quiesce: Quiesce) -> None:
    said = "[red]over[/red] [/]"
    waiting = {"kind": "approval", "since": TIME, "operation": said, "url": "/x"}
    assert (
        f"approval {said}"
        in quiesce(Told(page(status(waiting_for=waiting))), "ls", "-c", "c").stdout
    )
    failed = {"error_type": "declined", "message": said}
    shown = quiesce(Told(ok(status(settlement=settlement(failure=failed)))), "show", "-c", "c", "s")
    assert said in shown.stdout


def test_records_are_whole_lines_in_a_pipe(quiesce: Quiesce) -> None:
    long = record(1, payload={"operation": "o", "value": "x" * 300, "arguments_digest": "d"})
    lines = quiesce(Told(page(long, record(2))), "records", "-c", "c").stdout.splitlines()
    assert len(lines) == 2
    assert "x" * 300 in lines[0]
    assert "digest" not in lines[0]


def test_what_would_steer_a_terminal_is_shown_and_not_obeyed(quiesce: Quiesce) -> None:
    evil = "\x1b]0;owned\x07\u202e[bold red]x[/]"
    told = Told(
        ok(
            status(
                agent=evil, waiting_for=None, state="settled", settlement=settlement(result=evil)
            )
        )
    )
    shown = quiesce(told, "show", "-c", "c", "sub_1").stdout
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert "[bold red]" in shown


def test_an_operation_that_is_left_out_is_taken_only_if_it_can_be_no_other(
    quiesce: Quiesce,
) -> None:
    told = Told(ok(explanation()), ok(status()))
    assert quiesce(told, "approve", "-c", "c", "sub_1").exit_code == 0
    assert told.requests[1].url.path.endswith("/approvals/ask")
    first = explanation()["open_operations"][0]
    for operations, said in (
        ([], "has no undecided approval: it waits"),
        ([first, {**first, "operation": "other"}], "name one of ask, other"),
    ):
        told = Told(ok(explanation(open_operations=operations)))
        result = quiesce(told, "approve", "-c", "c", "sub_1")
        assert result.exit_code == 2
        assert said in result.stderr
        assert len(told.requests) == 1


def test_a_call_that_completed_has_a_result_which_may_be_null(quiesce: Quiesce) -> None:
    told = Told(ok(status()))
    arguments = ("resolve", "-c", "c", "sub_1", "completed", "charge")
    assert quiesce(told, *arguments).exit_code == 2
    assert told.requests == []
    assert quiesce(told, *arguments, "--result", "null").exit_code == 0
    assert from_json(told.requests[0].content)["result"] is None


def test_what_is_owed_in_several_conversations_is_one_list_the_oldest_first(
    quiesce: Quiesce,
) -> None:
    told = Told(page(explanation()), page(explanation(conversation="d", age_ms=9_000_000)))
    lines = quiesce(told, "owed", "c", "d", "--json").stdout.splitlines()
    assert [from_json(line)["conversation"] for line in lines] == ["d", "c"]
    told = Told(problem(404, "not-found"), page(explanation()))
    result = quiesce(told, "owed", "missing", "c")
    assert result.exit_code == 1
    assert "1 min 30 s" in result.stdout


def test_a_watch_shows_every_record_once_and_ends_with_the_settlement(quiesce: Quiesce) -> None:
    told = Told(
        ok(status()),
        stream(
            happened("record", record(1), 1),
            happened("progress", {"submission": "sub_1", "value": 1}),
        ),
        ok(status()),
        stream(
            happened("record", record(3), 3),
            happened("record", record(4), 4),
            happened("settlement", settlement()),
        ),
    )
    result = quiesce(told, "watch", "-c", "c", "sub_1", "--json")
    documents = [from_json(line) for line in result.stdout.splitlines()]
    assert [each.get("sequence") for each in documents] == [1, 3, 4, None]
    assert documents[-1]["outcome"] == "completed"
    assert [
        sent.headers["last-event-id"] for sent in told.requests if "events" in sent.url.path
    ] == ["0", "1"]


def test_a_watch_that_is_over_says_where_the_submission_stands(quiesce: Quiesce) -> None:
    told = Told(ok(status()))
    result = quiesce(told, "watch", "-c", "c", "sub_1", "--timeout", "0")
    assert result.exit_code == 4
    assert "sub_1 is suspended, waits for approval ask" in result.stdout


@pytest.mark.parametrize("width", [80, 130])
def test_the_picture_of_a_watch_fits_its_terminal(width: int) -> None:
    told = Told(ok({}))
    with told.client() as client:
        watched = Session(Options(conversation="c"), client)
        watched.out = Console(file=io.StringIO(), width=width, height=24, force_terminal=True)
        watched.time_s = lambda: 1_893_553_500.0
        picture = watching.Picture(watched)
        with told.client():
            for number in range(1, 30):
                picture.see(
                    watching.Record.model_validate(record(number, payload={"value": "x" * 200}))
                )
            picture.see(watching.Status.model_validate(status()))
        lines = watched.out.render_lines(picture, pad=False)
    assert len(lines) <= 24
    shown = "\n".join("".join(each.text for each in line) for line in lines)
    assert "29 records, 19 earlier" in shown
    assert "quiesce approve -c c sub_1 ask" in shown


def doctor_told(**changed: httpx.Response) -> Told:
    def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path == "/healthz":
            return changed.get("health", ok({"status": "ok"}))
        if path == "/v1/agents":
            return changed.get("agents", page({"name": "echo", "version": "1"}))
        if path.startswith("/v1/conversations/-"):
            return changed.get("role", problem(400, "invalid-request"))
        return changed["lane"]

    return Told(answer)


def findings(result: Result) -> dict[str, str]:
    found = [from_json(line) for line in result.stdout.splitlines()]
    return {each["check"]: each["level"] for each in found}


def test_doctor_finds_nothing_wrong_where_nothing_is(quiesce: Quiesce) -> None:
    result = quiesce(doctor_told(), "doctor", "--json")
    assert result.exit_code == 0
    assert findings(result) == {
        "url": "ok", "health": "ok", "clock": "note", "token": "ok", "roles": "ok", "agents": "ok",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "wrong", "exit_code"),
    [
        ({"health": problem(503, "unavailable", "90")}, "health", 1),
        ({"health": httpx.Response(200, text="hello")}, "health", 3),
        ({"health": ok({"status": "ok"}, date="Wed, 02 Jan 2030 03:04:05 GMT")}, "clock", 1),
        ({"role": problem(401, "unauthenticated")}, "token", 1),
        ({"agents": page()}, "agents", 1),
    ],
)
def test_doctor_names_what_is_wrong_and_what_to_do(
    quiesce: Quiesce, changed: dict[str, httpx.Response], wrong: str, exit_code: int
) -> None:
    result = quiesce(doctor_told(**changed), "doctor", "--json")
    assert result.exit_code == exit_code
    assert findings(result)[wrong] == "wrong"
    by_check = {each["check"]: each for each in map(from_json, result.stdout.splitlines())}
    assert by_check[wrong]["remedy"]


def test_doctor_says_what_a_token_without_a_role_cannot_do(quiesce: Quiesce) -> None:
    shown = quiesce(doctor_told(role=problem(403, "forbidden")), "doctor").stdout
    assert "without decide, no approve, deny, resolve" in shown


def test_doctor_tells_a_path_too_many_from_a_deployment_that_is_not_well(quiesce: Quiesce) -> None:
    told = doctor_told(health=problem(404, "not-found"))
    shown = quiesce(told, "doctor").stdout
    assert "not at this path" in shown
    assert "Correct the URL" in shown


def test_a_command_that_is_too_long_for_a_terminal_can_be_copied(quiesce: Quiesce) -> None:
    waiting = {"kind": "resolution", "since": TIME, "operation": "charge-the-card", "url": "/x"}
    name = f"sub_{'1' * 32}"
    told = Told(ok(status(submission=name, state="unknown", waiting_for=waiting)))
    lines = quiesce(told, "show", "-c", "chat-1", name).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    begin = next(place for place, line in enumerate(lines) if "quiesce resolve" in line)
    assert lines[begin].rstrip().endswith(" \\")
    copied = "\n".join(line.rstrip() for line in lines[begin : begin + 2])
    assert shlex.split(copied.replace("\\\n", "")) == [
        "quiesce", "resolve", "-c", "c", name, "completed", "charge-the-card", "--result", "JSON",
    ]  # fmt: skip


def test_times_are_said_in_utc(quiesce: Quiesce) -> None:
    told = Told(ok(status(state="settled", waiting_for=None, settlement=settlement())))
    assert "2030-01-02 03:04:05 Z" in quiesce(told, "show", "-c", "c", "sub_1").stdout
    assert TIME.startswith("2030-01-02T03:04:05")
