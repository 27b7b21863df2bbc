"""What an application declares, and the registry of a deployment.

Not tested here: running a handler.

Parity: SEC-3.
"""

from collections.abc import Iterable
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from quiesce import Agent, Failed, Registry, Retryable, Run


class Order(BaseModel):
    id: str


def agent(name: str, version: str = "1", **policies: Any) -> Agent:
    declared = Agent(name, input=Order, version=version, **policies)

    @declared.handler
    async def handle(_run: Run, _order: Order) -> None: ...

    return declared


def deployment(agents: Iterable[Agent]) -> str:
    return Registry(agents).deployment


def test_one_version_of_a_name_is_registered_once() -> None:
    with pytest.raises(ValueError, match="'refunds' version '1' is registered twice"):
        Registry([agent("refunds"), agent("other"), agent("refunds")])


def test_an_agent_without_a_handler_cannot_be_registered() -> None:
    with pytest.raises(LookupError, match="'refunds' declares no handler"):
        Registry([Agent("refunds", input=Order)])


def test_versions_stand_side_by_side_and_the_last_one_takes_new_submissions() -> None:
    old, new = agent("refunds", "1"), agent("refunds", "2")
    registry = Registry([old, new])
    assert registry.current("refunds") is new
    assert registry.version("refunds", "1") is old
    assert registry.version("refunds", "2") is new
    assert list(registry) == [new]


def test_the_order_of_listing_decides_and_not_the_version() -> None:
    old, new = agent("refunds", "1"), agent("refunds", "2")
    assert Registry([new, old]).current("refunds") is old


def test_what_is_not_registered_is_not_found() -> None:
    registry = Registry([agent("refunds", "1")])
    assert registry.current("other") is None
    assert registry.version("refunds", "2") is None
    assert registry.version("other", "1") is None


def test_the_deployment_digest_names_the_registered_versions() -> None:
    """Golden: the same agents are the same deployment on every incarnation."""
    assert deployment([agent("refunds", "1"), agent("echo", "3")]) == "b5c855ea9329697a"


def test_the_deployment_digest_does_not_depend_on_the_order_of_listing() -> None:
    one, two = agent("a"), agent("b")
    assert deployment([one, two]) == deployment([two, one])


@pytest.mark.parametrize(
    "agents",
    [
        pytest.param([agent("a", "2"), agent("b")], id="another-version"),
        pytest.param([agent("a"), agent("b"), agent("a", "2")], id="one-more-version"),
        pytest.param([agent("a"), agent("b"), agent("c")], id="one-more-agent"),
        pytest.param([agent("a")], id="one-agent-less"),
        pytest.param([], id="none"),
    ],
)
def test_another_set_of_agents_is_another_deployment(agents: list[Agent]) -> None:
    assert deployment(agents) != deployment([agent("a"), agent("b")])


def test_declaring_an_agent_builds_no_validator() -> None:
    """A cold start pays for the one agent that it runs."""
    built: list[str] = []

    class Dear:
        @classmethod
        def __get_pydantic_core_schema__(cls, _source: Any, handler: Any) -> Any:
            built.append(cls.__name__)
            return handler(int)

    declared = Agent("dear", input=Dear, output=Dear)
    assert built == []
    assert declared.input_adapter.validate_json("1") == 1
    assert built == ["Dear"]
    assert declared.input_adapter is declared.input_adapter
    assert declared.output_adapter is declared.output_adapter


def test_the_input_is_validated_by_the_model_that_was_declared() -> None:
    refunds = agent("refunds")
    assert refunds.input_adapter.validate_json('{"id":"17"}') == Order(id="17")
    with pytest.raises(ValidationError):
        refunds.input_adapter.validate_json('{"id":17}')


def test_an_agent_fails_when_exhausted_unless_it_asks_to_be_held() -> None:
    assert agent("a").on_exhausted == "fail"
    assert agent("a", on_exhausted="quarantine").on_exhausted == "quarantine"


@pytest.mark.parametrize("failure", [Retryable, Failed])
def test_a_failure_type_is_bounded(failure: type[Retryable | Failed]) -> None:
    assert len(failure("sorry", error_type="x" * 1_000).error_type) == 100
    assert str(failure("sorry")) == "sorry"


def test_a_failure_has_a_type_of_its_own_unless_it_is_named() -> None:
    assert Retryable("sorry").error_type == "retryable"
    assert Failed("sorry").error_type == "failed"
