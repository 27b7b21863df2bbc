"""The records of the log: payloads, the envelope, the digests.

Not tested here: appending and reading; the contract of the books says so.

Parity: SN-1, SN-2, SN-7 to SN-10, SN-20, SN-21, SN-24, SN-25.
"""

import hashlib
from enum import Enum
from typing import Any, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from quiesce.errors import Corruption
from quiesce.ids import JSON_DEPTH_MAX, RecordId, SubmissionId, canonical_json, parse_json
from quiesce.records import (
    CHAIN_START,
    RECORD_VERSION,
    Payload,
    Record,
    SettlementRecorded,
    StepCompleted,
    TimerFired,
    chain_digest,
    content_digest,
    payload_json,
)
from quiesce.states import OutcomeKind

KINDS: tuple[type[BaseModel], ...] = get_args(Payload.__value__)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def values(annotation: Any) -> st.SearchStrategy[Any]:
    """Draw values for a payload's field from its annotation, so that a new kind is tested as it is added."""
    inner = get_args(annotation)
    if annotation is Any:
        return JSON
    if get_origin(annotation) is dict:
        return st.dictionaries(values(inner[0]), values(inner[1]), max_size=3)
    if inner and isinstance(annotation, type(int | str)):
        return st.one_of([values(each) for each in inner])
    if annotation is int:
        return st.integers(1, 2**53)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return st.sampled_from(annotation)
    return st.from_type(annotation)


def payloads(kind: type[BaseModel]) -> st.SearchStrategy[Any]:
    fields = {name: values(field.annotation) for name, field in kind.model_fields.items()}
    return st.builds(kind, **fields)


def record(kind: str, payload: str) -> Record:
    return Record(
        sequence=7,
        record_id=RecordId("sub_1/x"),
        kind=kind,
        submission=SubmissionId("sub_1"),
        epoch=1,
        created_at_ms=1,
        version=RECORD_VERSION,
        payload=payload,
        digest="0" * 64,
        chain="0" * 64,
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.model_fields["kind"].default)
@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_a_payload_comes_back_from_the_log_as_it_was_written(
    kind: type[BaseModel], data: st.DataObject
) -> None:
    payload = data.draw(payloads(kind))
    stored = payload_json(payload)
    assert record(payload.kind, stored).parsed() == payload
    assert stored == canonical_json(parse_json(stored))
    assert "kind" not in parse_json(stored)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.model_fields["kind"].default)
def test_a_payload_is_closed_and_frozen(kind: type[BaseModel]) -> None:
    assert kind.model_config.get("extra") == "forbid"
    assert kind.model_config.get("frozen")


def test_no_two_kinds_share_a_name() -> None:
    names = [kind.model_fields["kind"].default for kind in KINDS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        pytest.param("timer-fired", "{}", id="a-field-is-missing"),
        pytest.param("timer-fired", '{"operation":"t","more":1}', id="a-field-too-many"),
        pytest.param("timer-fired", '{"operation":1}', id="a-field-of-another-type"),
        pytest.param("timer-fired", '{"operation":"t"', id="cut-short"),
        pytest.param("timer-fired", "", id="empty"),
        pytest.param("timer-fired", "[" * 100_000, id="too-deep"),
        pytest.param("timer-fired", "[]", id="an-array"),
        pytest.param("timer-fired", "1", id="a-number"),
        pytest.param("timer-fired", "null", id="null"),
        pytest.param("no-such-kind", '{"operation":"t"}', id="an-unknown-kind"),
        pytest.param("step-completed", '{"operation":"t"}', id="another-kind"),
    ],
)
def test_a_payload_that_is_not_one_of_its_kind_is_corruption(kind: str, payload: str) -> None:
    with pytest.raises(Corruption) as found:
        record(kind, payload).parsed()
    assert "record 7" in found.value.law
    assert len(found.value.found) <= 300


def test_a_payload_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        TimerFired(operation="t").operation = "u"  # type: ignore[misc]


def test_the_payload_is_stored_without_its_kind_and_in_canonical_form() -> None:
    step = StepCompleted(operation="a", arguments_digest="d", value={"b": 1, "a": [2.0, None]})
    assert payload_json(step) == (
        '{"arguments_digest":"d","operation":"a","value":{"a":[2.0,null],"b":1}}'
    )


def test_a_value_that_nests_to_the_limit_still_fits_into_a_record() -> None:
    """What a handler may return must be recordable, or its settlement would fail in every pass."""
    deepest: Any = []
    for _ in range(JSON_DEPTH_MAX - 1):
        deepest = [deepest]
    assert canonical_json(deepest)
    for payload in (
        StepCompleted(operation="a", arguments_digest="d", value=deepest),
        SettlementRecorded(outcome=OutcomeKind.COMPLETED, result=deepest, cost={}),
    ):
        assert record(payload.kind, payload_json(payload)).parsed() == payload


def test_the_content_digest_covers_identity_kind_owner_epoch_version_and_payload() -> None:
    """Golden: were it computed in another way, every stored log would read as tampered with."""
    text = b'["sub_1/a/completed","step-completed","sub_1",3,1,"{\\"value\\":1}"]'
    found = content_digest(
        RecordId("sub_1/a/completed"), "step-completed", "sub_1", 3, '{"value":1}'
    )
    assert found == hashlib.sha256(text).hexdigest()
    assert found == "1aff3c3ac23b1228a954dc43b3a589b209961af8820301779002029ae3c11832"


def test_the_chain_covers_what_came_before_the_place_the_content_and_the_time() -> None:
    """Golden, as above."""
    found = chain_digest(CHAIN_START, 1, "c" * 64, 1_767_225_600_000)
    text = "0" * 64 + "1" + "c" * 64 + "1767225600000"
    assert found == hashlib.sha256(text.encode()).hexdigest()
    assert found == "8bc79fd8178d263b603782c4434d2c7a32070d4c81fb9610bb2b5226991b1055"


@pytest.mark.parametrize("place", range(5))
def test_whatever_is_changed_of_a_record_changes_its_digest(place: int) -> None:
    says = (RecordId("sub_1/a"), "timer-fired", "sub_1", 3, "{}")
    others = (RecordId("sub_1/b"), "timer-set", None, 4, "[]")
    changed = [*says]
    changed[place] = others[place]
    assert content_digest(*says) != content_digest(*changed)  # type: ignore[arg-type]


@pytest.mark.parametrize("place", range(4))
def test_whatever_is_changed_of_a_link_changes_the_chain(place: int) -> None:
    link = (CHAIN_START, 7, "c" * 64, 1_000)
    others = ("1" * 64, 8, "d" * 64, 1_001)
    changed = [*link]
    changed[place] = others[place]
    assert chain_digest(*link) != chain_digest(*changed)  # type: ignore[arg-type]
