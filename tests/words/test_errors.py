"""Refusals and Corruption: what they carry.

Not tested here: their status codes, which the host's table gives.

Parity: CF-2, SN-17.
"""

from quiesce.errors import Corruption, FailureType, Refusal, RefusalCode, limit_exceeded


def test_the_refusals_are_the_closed_set_of_the_contract() -> None:
    assert {code.value for code in RefusalCode} == {
        "invalid-request",
        "unauthenticated",
        "forbidden",
        "not-found",
        "method-not-allowed",
        "idempotency-conflict",
        "already-settled",
        "decision-conflict",
        "not-waiting",
        "joined-to-host",
        "gone",
        "input-too-large",
        "unsupported-media-type",
        "unknown-agent",
        "queue-full",
        "rate-limited",
        "corruption",
        "unavailable",
        "database-full",
    }


def test_the_failures_that_quiesce_declares_are_a_closed_set() -> None:
    assert {failure.value for failure in FailureType} == {
        "attempts-exhausted",
        "attempt-deadline",
        "deadline-exceeded",
        "result-too-large",
        "diverged",
        "budget-exhausted",
    }


def test_the_refusal_of_a_limit_names_the_limit_the_actual_and_the_maximum() -> None:
    refusal = limit_exceeded(RefusalCode.INPUT_TOO_LARGE, "INPUT_BYTES_MAX", 11, 10)
    assert refusal.code is RefusalCode.INPUT_TOO_LARGE
    assert refusal.facts == {"limit": "INPUT_BYTES_MAX", "actual": 11, "maximum": 10}
    assert "INPUT_BYTES_MAX allows 10, this would make 11" in str(refusal)


def test_a_refusal_without_facts_has_none() -> None:
    assert Refusal(RefusalCode.NOT_FOUND, "nothing").facts == {}


def test_corruption_names_the_law_and_what_was_found() -> None:
    corruption = Corruption("one is one", "two")
    assert (corruption.law, corruption.found) == ("one is one", "two")
    assert str(corruption) == "one is one; found two"
