"""The description says all of the table of routes and nothing else; the page shows it without help from elsewhere.

What the Worker answers is held to it in test_answers.py and test_properties.py.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from quiesce import answers, api, docs_page, openapi, publications, routes, wire
from quiesce.asks import Publication, Route
from quiesce.assertions import HEADER
from quiesce.errors import Refusal, RefusalCode
from quiesce.ids import parse_json

DOCUMENT = openapi.document()
OPERATIONS = {
    (method.upper(), path): operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
by_row = pytest.mark.parametrize(
    "route", routes.ROUTES, ids=[f"{each.method} {each.path}" for each in routes.ROUTES]
)


def references_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "$ref":
                yield inner
            else:
                yield from references_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references_in(inner)


def test_every_route_is_described_and_nothing_else_is() -> None:
    rows = {(route.method, route.path) for route in routes.ROUTES}
    assert rows == api.DESCRIPTIONS.keys() == OPERATIONS.keys()


def test_every_reference_leads_somewhere() -> None:
    schemas = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    assert set(references_in(DOCUMENT)) <= schemas


def test_no_two_operations_have_one_name() -> None:
    names = [each["operationId"] for each in OPERATIONS.values()]
    assert len(set(names)) == len(names)


@by_row
def test_an_operation_takes_what_its_row_takes(route: Route) -> None:
    operation = OPERATIONS[route.method, route.path]
    asked = {(each["in"], each["name"]) for each in operation["parameters"]}
    words = {each[1:-1] for each in route.segments if each.startswith("{")}
    assert {name for place, name in asked if place == "path"} == words
    assert {name for place, name in asked if place == "query"} == route.query
    assert (("header", "Prefer") in asked) == route.may_wait
    assert bool(operation["security"]) == (route.role is not None)
    assert ("requestBody" in operation) == (route.body is not None)


@by_row
def test_an_operation_with_a_role_takes_any_of_the_ways_to_say_who_asks(route: Route) -> None:
    schemes = DOCUMENT["components"]["securitySchemes"]
    assert schemes["token"]["scheme"] == "bearer"
    assert (schemes["access"]["in"], schemes["access"]["name"].lower()) == ("header", HEADER)
    security = OPERATIONS[route.method, route.path]["security"]
    assert security == ([] if route.role is None else [{"token": []}, {"access": []}])


@by_row
def test_the_example_of_a_body_is_one_that_is_taken(route: Route) -> None:
    if route.body is not None:
        example = OPERATIONS[route.method, route.path]["requestBody"]["content"]["application/json"]
        wire.parse_body(route.body, wire.dump(example["example"]).encode())


@by_row
def test_the_example_of_a_path_finds_its_route(route: Route) -> None:
    path = route.path
    for each in OPERATIONS[route.method, route.path]["parameters"]:
        if each["in"] == "path":
            assert re.fullmatch(each["schema"]["pattern"], each["example"])
            path = path.replace("{" + each["name"] + "}", each["example"])
    assert routes.find(route.method, path) is route


def test_the_examples_of_a_check_and_of_a_bundle_are_what_they_stand_for() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    for example in schemas["Verification"]["examples"]:
        answers.Verification.model_validate(example)
    (text,) = openapi.LINES["examples"]
    told = [parse_json(line) for line in text.splitlines()]
    assert [each["type"] for each in told] == ["header", "record", "end"]
    assert parse_json(told[1]["payload"]) == {"conversation": "chat-1"}


def test_every_code_of_the_closed_set_is_refused_somewhere() -> None:
    """But for the one that is given where the method has no operation."""
    named = {
        code
        for operation in OPERATIONS.values()
        for answer in operation["responses"].values()
        for content in answer.get("content", {}).values()
        if "allOf" in content["schema"]
        for code in content["schema"]["allOf"][1]["properties"]["code"]["enum"]
    }
    assert named == set(RefusalCode) - {RefusalCode.METHOD_NOT_ALLOWED}


@pytest.mark.parametrize("code", RefusalCode)
def test_a_refusal_is_a_problem_as_it_is_described(code: RefusalCode) -> None:
    refused = wire.refuse(Refusal(code, "because"))
    answers.Problem.model_validate(refused.body)


def test_every_kind_of_record_is_named() -> None:
    assert "settlement" in answers.KINDS
    assert len(answers.KINDS) == len(set(answers.KINDS)) == 26


def test_the_document_is_made_once_and_is_json() -> None:
    media_type, _, text = publications.read(Publication.OPENAPI)
    assert media_type == "application/json"
    assert parse_json(text) == DOCUMENT
    assert publications.read(Publication.OPENAPI)[2] is text


def test_the_page_needs_nothing_from_elsewhere_and_takes_no_text_for_markup() -> None:
    _, headers, page = publications.read(Publication.DOCS)
    assert page == docs_page.PAGE
    assert not re.findall(r"(?:https?:)?//[a-z]|@import|\burl\(|<img|innerHTML|eval\(", page)
    assert "default-src 'none'" in headers["content-security-policy"]
    assert set(re.findall(r'(?:href|src)="([^"#]+)"', page)) == {"openapi.json", "data:,"}
