"""Identifiers, canonical JSON and the digest.

Not tested: SHA-256 itself, and pydantic's serializer for types that JSON does not have.

Parity: SN-3, SN-5, SN-18, SN-31, RJ-1, RJ-4.
"""

import hashlib
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiesce.ids import (
    CONVERSATION_ID,
    IDEMPOTENCY_KEY,
    JSON_DEPTH_MAX,
    OPERATION_ID,
    OPERATION_NAME,
    SUBMISSION_ID,
    ConversationId,
    canonical_json,
    digest,
    operation_id,
    parse_json,
    record_id,
    submission_id,
)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_a_submission_id_is_derived_from_conversation_principal_and_key() -> None:
    """Golden: an id that changed would admit a repeated request a second time."""
    derived = submission_id(ConversationId("order-17"), "alice", "key-1")
    assert derived == "sub_" + hashlib.sha256(b'["order-17","alice","key-1"]').hexdigest()[:32]
    assert derived == "sub_f0479686837b107e5e7473f718f858ff"
    assert SUBMISSION_ID.fullmatch(derived)


def test_keys_are_scoped_to_the_conversation_and_the_principal() -> None:
    """LG-2 of the parity list; and no two scopes run into one another."""
    scopes = [("a", "b", "c"), ("a", "c", "b"), ("b", "a", "c"), ("ab", "", "c"), ("a", "bc", "")]
    scopes.append(('a","b', "c", ""))
    ids = {submission_id(ConversationId(place), who, key) for place, who, key in scopes}
    assert len(ids) == len(scopes)


@pytest.mark.parametrize(
    ("name", "ordinal", "key", "expected"),
    [
        ("charge", 0, None, "charge"),
        ("charge", 1, None, "charge~1"),
        ("charge", 11, None, "charge~11"),
        ("charge", 0, "order-1", "charge@order-1"),
        ("charge", 2, "order-1", "charge@order-1~2"),
    ],
)
def test_an_operation_id_says_its_name_its_key_and_its_use(
    name: str, ordinal: int, key: str | None, expected: str
) -> None:
    assert operation_id(name, ordinal, key) == expected
    assert OPERATION_ID.fullmatch(expected)


def test_the_longest_operation_id_is_still_one() -> None:
    longest = operation_id("n" * 100, 9_999, "k" * 100)
    assert OPERATION_ID.fullmatch(longest)


def test_different_operations_never_share_an_id() -> None:
    """Neither a name nor a key can hold the characters that join them."""
    assert not OPERATION_NAME.fullmatch("charge@order")
    assert not OPERATION_NAME.fullmatch("charge~1")


def test_a_record_id_is_its_owner_and_what_it_says() -> None:
    assert record_id("sub_1", "settlement") == "sub_1/settlement"
    assert record_id("sub_1", "charge~1", "prepared") == "sub_1/charge~1/prepared"


@pytest.mark.parametrize(
    ("pattern", "lawful", "unlawful"),
    [
        pytest.param(
            CONVERSATION_ID,
            ["a", "_", "0", "a" * 128, "Team:orders@2026-01~x.y"],
            ["", "a" * 129, "-a", ".a", "~a", ":a", "@a", "a/b", "a b", "a%", "é", "a\n", "a\x00"],
            id="conversation",
        ),
        pytest.param(
            SUBMISSION_ID,
            ["sub_" + "0" * 32, "sub_" + "9af" * 10 + "be"],
            [
                "sub_" + "0" * 31,
                "sub_" + "0" * 33,
                "sub_" + "A" * 32,
                "sub_" + "g" * 32,
                "SUB_" + "0" * 32,
                "0" * 32,
                "sub_" + "0" * 32 + "\n",
            ],
            id="submission",
        ),
        pytest.param(
            OPERATION_NAME,
            ["a", "_x", "0", "a" * 100, "load-order.v2:x"],
            ["", "a" * 101, "-a", ".a", ":a", "a~1", "a@k", "a/b", "a b", "é", "a\n"],
            id="operation-name",
        ),
        pytest.param(
            OPERATION_ID,
            ["a", "a@k~1", "a" * 220],
            ["", "a" * 221, "@k", "~1", "a/b", "a\n"],
            id="operation",
        ),
        pytest.param(
            IDEMPOTENCY_KEY,
            ["!", "~", "a", "a b", "a" * 255, '{"a": 1}'],
            ["", " ", " a", "a ", "a" * 256, "a\tb", "a\x7f", "é", "a\n"],
            id="idempotency-key",
        ),
    ],
)
def test_an_identifier_is_lawful_up_to_its_edges_and_not_beyond(
    pattern: Any, lawful: list[str], unlawful: list[str]
) -> None:
    assert [text for text in lawful if not pattern.fullmatch(text)] == []
    assert [text for text in unlawful if pattern.fullmatch(text)] == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (2, "2"),
        (2.0, "2.0"),
        (-0.0, "-0.0"),
        (1e22, "1e+22"),
        (5e-324, "5e-324"),
        (0.1, "0.1"),
        (2**53 + 1, "9007199254740993"),
        (-(10**30), "-1000000000000000000000000000000"),
        ("é😀\x00\u2028", '"é😀\\u0000\u2028"'),
        ('"\\/', '"\\"\\\\/"'),
        ({"b": 1, "a": {"d": [], "c": {}}}, '{"a":{"c":{},"d":[]},"b":1}'),
        ({"é": 1, "z": 2, "Z": 3, "": 4}, '{"":4,"Z":3,"z":2,"é":1}'),
        ((1, "x"), '[1,"x"]'),
    ],
)
def test_a_value_has_one_canonical_text(value: Any, text: str) -> None:
    """Golden: digests of what is stored depend on every character."""
    assert canonical_json(value) == text


@settings(deadline=None)
@given(JSON)
def test_canonical_text_reads_back_and_is_its_own_canonical_text(value: Any) -> None:
    text = canonical_json(value)
    assert parse_json(text) == value
    assert canonical_json(parse_json(text)) == text


@settings(deadline=None)
@given(st.dictionaries(st.text(), st.integers(), min_size=2, max_size=6))
def test_the_order_in_which_an_object_was_built_does_not_matter(value: dict[str, int]) -> None:
    assert canonical_json(dict(reversed(value.items()))) == canonical_json(value)


def test_an_unordered_set_has_one_text_or_none() -> None:
    """Equal sets iterate in different orders; on other incarnations strings do so by their hash.

    A digest over such a text would make a Run diverge from itself.
    """
    one, other = {0, 8}, {8, 0}
    assert one == other
    texts = set()
    for each in (one, other):
        try:
            texts.add(canonical_json(each))
        except ValueError:
            texts.add("refused")
    assert len(texts) == 1


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(math.nan, id="nan"),
        pytest.param(math.inf, id="infinity"),
        pytest.param([-math.inf], id="minus-infinity-inside"),
        pytest.param({"a": math.nan}, id="nan-inside"),
        pytest.param("\ud800", id="lone-surrogate"),
        pytest.param({"\udfff": 1}, id="lone-surrogate-as-a-key"),
        pytest.param(object(), id="no-json-form"),
        pytest.param(b"\xff", id="bytes-that-are-no-text"),
        pytest.param(10**5_000, id="digits-without-bound"),
    ],
)
def test_what_json_cannot_say_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        canonical_json(value)


@pytest.mark.parametrize("levels", [JSON_DEPTH_MAX + 1, 250, 1_000, 100_000])
def test_deep_nesting_is_refused_and_takes_nothing_down(levels: int) -> None:
    with pytest.raises(ValueError, match="deep"):
        canonical_json(nested(levels))
    with pytest.raises(ValueError, match="deep"):
        canonical_json({"a": (nested(levels - 2),)})


def test_a_value_may_nest_to_the_limit() -> None:
    deepest = nested(JSON_DEPTH_MAX)
    assert parse_json(canonical_json(deepest)) == deepest


@pytest.mark.parametrize("levels", [250, 1_000, 100_000])
def test_a_text_that_nests_deep_is_refused_and_takes_nothing_down(levels: int) -> None:
    for text in ("[" * levels, '{"a":' * levels, "[" * levels + "]" * levels):
        with pytest.raises(ValueError, match="recursion"):
            parse_json(text)
        with pytest.raises(ValueError, match="recursion"):
            parse_json(text.encode())


@pytest.mark.parametrize(
    "text",
    ["", "nul", "[1,]", "{1:2}", "'a'", "NaN", "Infinity", "[-Infinity]", '"\\ud800"', "1 2", "01"],
)
def test_what_is_not_json_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S+ \S+"):
        parse_json(text)


def test_a_digest_covers_the_utf8_bytes_of_a_text() -> None:
    assert digest("é") == hashlib.sha256(b"\xc3\xa9").hexdigest()
    assert digest("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
