"""Trace context: which headers are lawful, what is kept of them, and what is carried on."""

import pytest

from quiesce import trace_context

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
KEPT = f"00-{TRACE}-{PARENT}-01"


@pytest.mark.parametrize(
    ("header", "kept"),
    [
        (KEPT, KEPT),
        (f"00-{TRACE}-{PARENT}-00", f"00-{TRACE}-{PARENT}-00"),
        (f"00-{TRACE}-{PARENT}-03", f"00-{TRACE}-{PARENT}-03"),
        (f"00-{TRACE}-{PARENT}-ff", f"00-{TRACE}-{PARENT}-03"),
        (f"01-{TRACE}-{PARENT}-01", KEPT),
        (f"cc-{TRACE}-{PARENT}-01-what-comes-later", KEPT),
    ],
)
def test_a_lawful_traceparent_is_kept_as_version_00(header: str, kept: str) -> None:
    assert trace_context.read(header) == kept
    assert trace_context.trace_id(kept) == TRACE


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "00",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-0g",
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE}-{PARENT}-1",
        f"00-{TRACE[1:]}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01-",
        f"00-{TRACE}-{PARENT}-01-more",
        f"01-{TRACE}-{PARENT}-01.more",
        f" {KEPT}",
        f"{KEPT}\n",
        f"{KEPT}, {KEPT}",
        f"01-{TRACE}-{PARENT}-01-{'x' * 500}",
        f"01-{TRACE}-{PARENT}-01-é",
    ],
)
def test_what_breaks_the_grammar_is_no_trace(header: str | None) -> None:
    assert trace_context.read(header) is None


def test_a_call_carries_on_the_trace_and_its_flags_under_a_parent_of_its_own() -> None:
    carried = trace_context.onward(KEPT, "sub_1", "charge")
    assert carried is not None
    assert trace_context.read(carried) == carried
    version, trace, parent, flags = carried.split("-")
    assert (version, trace, flags) == ("00", TRACE, "01")
    assert parent != PARENT


def test_the_same_call_has_the_same_parent_and_another_call_another_one() -> None:
    asked = [("sub_1", "a"), ("sub_1", "b"), ("sub_2", "a")]
    carried = [trace_context.onward(KEPT, *each) for each in asked]
    assert carried == [trace_context.onward(KEPT, *each) for each in asked]
    assert len(set(carried)) == 3


def test_what_belongs_to_no_trace_starts_none() -> None:
    assert trace_context.onward(None, "sub_1", "a") is None
    assert trace_context.trace_id(None) is None
