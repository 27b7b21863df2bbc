"""The same work done under workerd and in the simulated deployment: record for record, both logs say the same.

TP-1, TP-2. What differs is left out of the comparison: instants and durations, what the work has cost, and the
digests over both.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from agents import REGISTRY
from quiesce import shapes
from quiesce.testing import Conversation, Deployment
from worker.helpers.client import Client

pytestmark = pytest.mark.worker

PRINCIPAL = "dev"
REASON = "looked at it"
WORK: tuple[tuple[str, Any], ...] = (
    ("echo", {"text": "é \u2028 \U0001f600", "numbers": [0, -1.5, 2**53 + 1], "nothing": None}),
    ("steps", {"count": 3}),
    ("refunds", {"order": "o-1", "cents": 500}),
    ("fail", {"kind": "final"}),
    ("fail", {"kind": "retryable", "times": 1}),
    ("sleep", {"ms": 5}),
    ("research", {"topic": "x"}),
    ("parent", {"child": "nobody", "input": None}),
    ("refunds", {"order": "o-2", "cents": 17_000}),
)
"""What is submitted, in this order; the last waits for a person."""


def normal(records: list[Mapping[str, Any]]) -> list[Any]:
    """Leave out of records what depends on when and on what the work was done."""
    return [
        {
            name: value
            for name, value in each.items()
            if name not in {"created_at", "digest", "payload"}
        }
        | {"payload": timeless(each["payload"])}
        for each in records
    ]


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: timeless(each)
            for name, each in value.items()
            if name != "cost" and not name.endswith("_ms")
        }
    return [timeless(each) for each in value] if isinstance(value, list) else value


def children_of(records: list[Mapping[str, Any]]) -> list[str]:
    return [
        each["payload"]["conversation"] for each in records if each["kind"] == "child-requested"
    ]


def simulated(name: str) -> dict[str, list[Any]]:
    """Do the work in the simulation; returns the log of every conversation that came of it."""
    with Deployment(REGISTRY) as deployment:
        lane = deployment.conversation(name)
        made = [
            lane.submit(agent, value, key=f"key-{place}", principal=PRINCIPAL).submission
            for place, (agent, value) in enumerate(WORK)
        ]
        deployment.run_until_quiet(within_ms=60_000)
        lane.approve(made[-1], "large-refund", REASON, PRINCIPAL)
        deployment.run_until_quiet()
        own = read(lane)
        families = {each: read(deployment.conversation(each)) for each in children_of(own)}
        return {each: normal(log) for each, log in ({name: own} | families).items() if log}


def read(lane: Conversation) -> list[Mapping[str, Any]]:
    return [shapes.record_body(each) for each in lane.records()]


def served(client: Client, name: str) -> dict[str, list[Any]]:
    """Do the same work under workerd."""
    made = [
        client.accepted(name, agent, value, key=f"key-{place}")
        for place, (agent, value) in enumerate(WORK)
    ]
    client.waits(name, made[-1], "approval")
    body = {"decision": "approved", "reason": REASON}
    assert client.act(name, made[-1], "approvals/large-refund", body).status_code == 200
    assert client.settled(name, made[-1])["result"]["reference"] == "refund_pay_o-2_17000"
    own = client.records(name)
    logs = {name: own}
    for each in children_of(own):
        found = client.http.get(f"/v1/conversations/{each}")
        logs[each] = client.records(each) if found.status_code == 200 else []
    return {each: normal(log) for each, log in logs.items() if log}


def test_one_story_leaves_the_same_evidence_in_the_simulation_and_under_workerd(
    client: Client, conversation: str
) -> None:
    expected, found = simulated(conversation), served(client, conversation)
    assert len(expected) == 4
    assert len(expected[conversation]) > 30
    assert found == expected
