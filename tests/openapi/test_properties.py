"""Whatever is sent to whichever route, no answer is a server's fault, each is as described, and the lane goes on.

The requests are made from the Worker's own description, lawful and unlawful ones; their ids are often those of
something that is there. Bounded, and the same in every run.
"""

import uuid
from collections import Counter
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from worker.helpers.client import Client, until
from workshop.serving import Server

pytestmark = [pytest.mark.worker, pytest.mark.slow]

VARIABLES = {
    "QUIESCE_EVENTS_SECONDS_MAX": "1",
    "QUIESCE_WAIT_SECONDS_MAX": "1",
    "QUIESCE_QUEUE_DEPTH_MAX": "4",
    "QUIESCE_ATTEMPT_MS_MAX": "2000",
}
EXAMPLES = 30
"""For each operation, lawful and unlawful."""
REQUESTS_MIN = 1_000
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
HARMLESS = ("echo", "approval", "signal", "sleep", "refunds")
"""The agents that are submitted to by name: of the others one ends the process on purpose."""


def a_scene(client: Client) -> list[dict[str, str]]:
    """Make conversations in which something waits to be decided, and name what stands there."""
    places: list[dict[str, str]] = []
    for agent, value in (
        ("approval", {"question": "?"}),
        ("signal", {"name": "news"}),
        ("echo", 1),
    ):
        conversation = uuid.uuid4().hex
        submission = client.accepted(conversation, agent, value)
        rest = {"suspended", "settled"}
        until(lambda c=conversation, s=submission: client.status(c, s)["state"], rest.__contains__)
        place = {"conversation": conversation, "submission": submission}
        places.append({**place, "operation": "question", "signal": "news"})
    return places


def operations_of(server: Server) -> list[Any]:
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    return [each.ok() for each in schema.get_all_operations()]


def test_no_request_breaks_the_worker_or_its_description(server: Server, client: Client) -> None:
    places = a_scene(client)
    statuses: Counter[int] = Counter()
    for operation in operations_of(server):
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            if mode is GenerationMode.NEGATIVE and not operation.path_parameters:
                continue
            send(server, operation, mode, places, statuses)
    print(f"{statuses.total()} requests: {dict(sorted(statuses.items()))}")  # noqa: T201 - how much was sent
    assert statuses.total() >= REQUESTS_MIN
    assert not {status for status in statuses if status >= 500}
    assert statuses.keys() >= {200, 202, 400, 404, 409, 422}
    for place in places:
        conversation = place["conversation"]
        lane = client.lane(conversation)
        assert lane["counts"]["quarantined"] == lane["counts"]["unknown"] == 0
        verified = client.read(f"/v1/conversations/{conversation}/verify")
        assert verified["ok"], verified["problems"]
    fresh = uuid.uuid4().hex
    submission = client.accepted(fresh, "echo", "all is well")
    assert client.settled(fresh, submission)["result"] == "all is well"


def send(
    server: Server,
    operation: Any,
    mode: GenerationMode,
    places: list[dict[str, str]],
    statuses: Counter[int],
) -> None:
    """Send requests to one operation, and check each answer."""

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        case=operation.as_strategy(generation_mode=mode),
        place=st.sampled_from([*places, None]),
        agent=st.sampled_from([*HARMLESS, None]),
    )
    def one(case: Any, place: dict[str, str] | None, agent: str | None) -> None:
        if place is not None:
            case.path_parameters = {
                name: place[name] for name in (case.path_parameters or {}) if name in place
            }
        if isinstance(case.body, dict) and "agent" in case.body and agent is not None:
            case.body = {**case.body, "agent": agent}
        response = case.call(base_url=server.url, headers={"authorization": "Bearer dev"})
        statuses[response.status_code] += 1
        case.validate_response(response, checks=CHECKS)

    one()
