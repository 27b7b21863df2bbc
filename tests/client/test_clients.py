"""Every call through both clients: the requests they send, what they make of the answers, how long they wait."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from pydantic import BaseModel
from pydantic_core import from_json

from client.helpers.deployment import (
    Told,
    call_awaiting,
    call_blocking,
    explanation,
    ok,
    page,
    problem,
    receipt,
    record,
    settlement,
    status,
    verification,
)
from quiesce.client import AsyncClient, BadArgument, Client, Refused, StillOpen, Unreachable
from quiesce.client.results import Receipt, Status

type Make = Callable[..., Any]

both = pytest.mark.parametrize("make", [call_blocking, call_awaiting], ids=["blocking", "asyncio"])
C, S = "c", "sub_1"
ONE = "/v1/conversations/c/submissions/sub_1"

REQUESTS: dict[str, tuple[tuple[Any, ...], dict[str, Any], httpx.Response, str, Any]] = {
    "submit": (
        (C, "echo", {"a": 1}),
        {"deadline_ms": 5},
        ok(receipt(), 202),
        "POST /v1/conversations/c/submissions",
        {"agent": "echo", "input": {"a": 1}, "mode": "queue", "deadline_ms": 5},
    ),
    "status": ((C, S), {}, ok(status()), f"GET {ONE}", None),
    "wait": ((C, S), {}, ok(settlement()), f"GET {ONE}/settlement", None),
    "lane": (
        (C,),
        {},
        ok(
            {
                "conversation": C,
                "counts": {"ready": 1},
                "head": S,
                "blocked_on": None,
                "generation": {"dirty": "9" * 30, "processed": "1"},
                "alarm_at": None,
                "due_at": None,
                "parked": False,
                "last_pass": None,
                "cost": status()["cost"],
            }
        ),
        "GET /v1/conversations/c",
        None,
    ),
    "submissions": (
        (C,),
        {"state": "ready", "page_size": 3},
        page(status()),
        "GET /v1/conversations/c/submissions?state=ready&limit=3",
        None,
    ),
    "records": (
        (C,),
        {"after": 7},
        page(record(8)),
        "GET /v1/conversations/c/records?after=7",
        None,
    ),
    "explain": ((C,), {}, page(explanation()), "GET /v1/conversations/c/explain", None),
    "explain_one": ((C, S), {}, ok(explanation()), f"GET {ONE}/explain", None),
    "approve": (
        (C, S, "ask@k~1"),
        {"reason": "fine"},
        ok(status()),
        f"POST {ONE}/approvals/ask@k~1",
        {"decision": "approve", "reason": "fine"},
    ),
    "deny": (
        (C, S, "ask"),
        {},
        ok(status()),
        f"POST {ONE}/approvals/ask",
        {"decision": "deny", "reason": ""},
    ),
    "resolve": (
        (C, S, "charge", "completed"),
        {"result": [1]},
        ok(status()),
        f"POST {ONE}/resolutions/charge",
        {"resolution": "completed", "result": [1], "reason": ""},
    ),
    "signal": (
        (C, S, "paid", None),
        {},
        ok(status(), 202),
        f"POST {ONE}/signals/paid",
        {"payload": None},
    ),
    "abort": ((C, S), {}, ok(status(), 202), f"POST {ONE}/abort", {"reason": ""}),
    "retry": ((C, S), {}, ok(status(), 202), f"POST {ONE}/retry", {"reason": ""}),
    "skip": ((C, S), {"reason": "no"}, ok(status(), 202), f"POST {ONE}/skip", {"reason": "no"}),
    "verify": ((C,), {}, ok(verification()), "GET /v1/conversations/c/verify", None),
    "agents": ((), {}, page({"name": "echo", "version": "1"}), "GET /v1/agents", None),
    "health": ((), {}, ok({"status": "ok"}), "GET /healthz", None),
}


@both
@pytest.mark.parametrize("name", REQUESTS)
def test_a_call_sends_its_request_and_reads_its_answer(make: Make, name: str) -> None:
    args, kwargs, answer, line, body = REQUESTS[name]
    told = Told(answer)
    assert make(told, name, *args, **kwargs)
    (sent,) = told.requests
    assert f"{sent.method} {sent.url.raw_path.decode()}" == line
    assert (from_json(sent.content) if sent.content else None) == body
    assert sent.headers["authorization"] == "Bearer dev"


def test_every_call_has_the_same_parameters_in_both_clients() -> None:
    names = {name for name in vars(Client) if not name.startswith("_")} - {
        "close",
        "run",
        "iterate",
    }
    assert names >= REQUESTS.keys()
    assert names == {name for name in vars(AsyncClient) if not name.startswith("_")} - {
        "close",
        "run",
        "iterate",
    }


@both
def test_one_call_has_one_key_and_the_next_call_another(make: Make) -> None:
    told = Told(problem(503, "unavailable", "1"), httpx.ReadError("cut off"), ok(receipt(), 202))
    make(told, "submit", C, "echo", 1)
    make(told, "submit", C, "echo", 1)
    keys = [sent.headers["idempotency-key"] for sent in told.requests]
    assert keys == ["key-1", "key-1", "key-1", "key-2"]
    assert told.pauses == [1.0, 0.2]


@both
def test_a_key_of_the_callers_own_is_sent_and_a_replay_is_seen(make: Make) -> None:
    told = Told(ok(receipt(), idempotent_replayed="true"))
    found = make(told, "submit", C, "echo", 1, key="mine")
    assert isinstance(found, Receipt)
    assert found.is_replayed
    assert told.requests[0].headers["idempotency-key"] == "mine"


@both
def test_an_answer_that_breaks_off_is_asked_for_again_and_a_forced_pass_is_not(make: Make) -> None:
    told = Told(httpx.ReadTimeout("slow"), ok(status()))
    assert make(told, "approve", C, S, "ask")
    for name, args in (("force_pass", (C,)), ("retry", (C, S))):
        told = Told(httpx.ReadTimeout("slow"), ok(status()))
        with pytest.raises(Unreachable) as raised:
            make(told, name, *args)
        assert raised.value.may_have_arrived
        assert len(told.requests) == 1


@both
@pytest.mark.parametrize(
    ("resolution", "tries"),
    [("completed", 2), ("failed", 2), ("abort", 2), ("never-happened", 1), ("safe-to-retry", 1)],
)
def test_a_resolution_that_lets_a_call_be_made_again_is_sent_once(
    make: Make, resolution: str, tries: int
) -> None:
    """Its repeat could meet the next unknown call, about which nobody has decided."""
    told = Told(httpx.ReadError("cut off"), ok(status()))
    if tries == 1:
        with pytest.raises(Unreachable):
            make(told, "resolve", C, S, "charge", resolution)
    else:
        make(told, "resolve", C, S, "charge", resolution)
    assert len(told.requests) == tries


@both
def test_a_wait_asks_again_until_the_settlement_is_there(make: Make) -> None:
    told = Told(ok(status(), 202, retry_after="1"), ok(settlement()))
    told.answering_takes_s = 25.0
    assert make(told, "wait", C, S).result == {"a": 1}
    assert [sent.headers["prefer"] for sent in told.requests] == ["wait=25", "wait=25"]
    assert told.pauses == []


@both
def test_a_deployment_that_does_not_wait_is_not_asked_without_pause(make: Make) -> None:
    told = Told(ok(status(), 202, retry_after="1"), ok(status(), 202), ok(settlement()))
    make(told, "wait", C, S)
    assert told.pauses == [1.0, 1.0]


@both
def test_a_wait_ends_at_its_deadline_with_where_the_submission_stands(make: Make) -> None:
    told = Told(ok(status(), 202, retry_after="1"))
    told.answering_takes_s = 20.0
    with pytest.raises(
        StillOpen, match="sub_1 is still suspended, waiting for approval ask"
    ) as raised:
        make(told, "wait", C, S, timeout_s=30)
    assert raised.value.status.state == "suspended"
    assert [sent.headers["prefer"] for sent in told.requests] == ["wait=25", "wait=10"]
    assert told.now_s <= 1_000 + 40


@both
def test_a_wait_of_no_time_reads_once_and_does_not_wait(make: Make) -> None:
    told = Told(ok(status(), 202, retry_after="1"))
    with pytest.raises(StillOpen):
        make(told, "wait", C, S, timeout_s=0)
    (sent,) = told.requests
    assert "prefer" not in sent.headers
    assert told.pauses == []


@both
def test_no_retry_of_a_wait_goes_beyond_its_deadline(make: Make) -> None:
    told = Told(problem(429, "rate-limited", "5"))
    with pytest.raises(Refused):
        make(told, "wait", C, S, timeout_s=12)
    assert told.pauses == [5.0, 5.0]


@both
def test_a_list_is_read_page_by_page_and_only_as_far_as_it_is_used(make: Make) -> None:
    told = Told(page(record(1), record(2), after="2"), page(record(3)))
    assert [each.sequence for each in make(told, "records", C)] == [1, 2, 3]
    assert [sent.url.params.get("after") for sent in told.requests] == [None, "2"]


def test_the_next_page_is_not_read_before_it_is_wanted() -> None:
    told = Told(page(record(1), after="1"))
    with told.client() as client:
        next(client.records(C))
    assert len(told.requests) == 1


@both
def test_an_abort_that_had_been_answered_by_a_settlement_is_answered_by_the_status(
    make: Make,
) -> None:
    told = Told(ok(settlement(outcome="aborted")), ok(status(state="settled")))
    assert make(told, "abort", C, S).is_settled


@both
@pytest.mark.parametrize(
    ("answer", "has_it"),
    [(problem(400, "invalid-request"), True), (problem(403, "forbidden", role="x"), False)],
)
def test_a_role_is_asked_for_without_a_conversation_that_could_exist(
    make: Make, answer: httpx.Response, *, has_it: bool
) -> None:
    told = Told(answer)
    assert make(told, "has_role", "operate") is has_it
    assert told.requests[0].url.path == "/v1/conversations/-/maintenance/pass"


@both
def test_a_token_that_is_not_let_in_has_no_roles_to_ask_for(make: Make) -> None:
    with pytest.raises(Refused, match="unauthenticated"):
        make(Told(problem(401, "unauthenticated")), "has_role", "observe")


@both
@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("lane", ("",), {}),
        ("lane", ("..",), {}),
        ("submit", (C, "echo", 1), {"key": "é"}),
        ("submit", (C, "echo", 1), {"key": ""}),
        ("signal", (C, S, "."), {}),
    ],
)
def test_what_no_request_can_carry_is_refused_before_it_is_sent(
    make: Make, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    told = Told(ok({}))
    with pytest.raises(BadArgument):
        make(told, name, *args, **kwargs)
    assert told.requests == []


def test_an_id_is_escaped_into_one_part_of_the_path() -> None:
    told = Told(problem(400, "invalid-request"))
    with told.client() as client, pytest.raises(Refused):
        client.lane("a/b?c#d e")
    assert told.requests[0].url.raw_path == b"/v1/conversations/a%2Fb%3Fc%23d%20e"


def test_a_model_of_pydantic_is_an_input() -> None:
    class Refund(BaseModel):
        order: str

    told = Told(ok(receipt(), 202))
    with told.client() as client:
        client.submit(C, "refunds", Refund(order="7"))
    assert from_json(told.requests[0].content)["input"] == {"order": "7"}


def test_fields_and_words_that_a_later_deployment_adds_do_no_harm() -> None:
    told = Told(ok(status(state="dreaming", mood="calm", waiting_for=None)))
    with told.client() as client:
        found = client.status(C, S)
    assert isinstance(found, Status)
    assert found.state == "dreaming"
    assert found.document["mood"] == "calm"


def test_the_token_of_developers_is_sent_to_this_machine_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("QUIESCE_URL", "QUIESCE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    here = ("http://127.0.0.1:8787", "http://localhost:1", "http://[::1]:1", "http://127.9.9.9")
    assert {Client(url).address.token for url in here} == {"dev"}
    there = ("https://quiesce.example.com", "http://10.0.0.1", "http://localhost.example.com")
    assert {Client(url).address.token for url in there} == {None}
    monkeypatch.setenv("QUIESCE_TOKEN", "from the environment")
    assert Client(there[0]).address.token == "from the environment"
    assert Client(there[0], "secret").address.token == "secret"
    assert "secret" not in repr(Client(there[0], "secret").address)


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1", "ftp://x", "http://", "http://a:b@c", "http://x?y", "http://x:y"]
)
def test_a_url_that_is_none_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIESCE_URL", "nonsense")
    with pytest.raises(BadArgument):
        Client(url)
