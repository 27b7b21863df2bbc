"""The modules of the package stand in one total order, and each imports only modules before it.

Not tested: whether the order is the best one to read them in.
"""

from itertools import pairwise

from rules.sources import (
    BOOKS,
    CALLERS,
    DECISIONS,
    MODULES,
    ORDER,
    PACKAGE,
    PUBLIC,
    TESTING,
    WORDS,
    WORKER,
    imports_for_types_of,
    imports_of,
    path_of,
)

PURE_LIBRARIES = frozenset(
    {
        "collections",
        "dataclasses",
        "difflib",
        "functools",
        "enum",
        "hashlib",
        "json",
        "math",
        "pydantic",
        "pydantic_core",
        "re",
        "typing",
    }
)
"""What words, decisions and books may import from outside: nothing that can act, wait or tell the time."""


def own_imports(module: str) -> set[str]:
    """Return which modules of the package a module imports."""
    found = set()
    for name, _ in imports_of(module):
        root, _, rest = name.partition(".")
        if root == "quiesce":
            parts = rest.split(".")
            known = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
            found.add(next((each for each in known if each in ORDER), rest))
    return found


def test_the_order_lists_exactly_the_modules_of_the_package() -> None:
    assert sorted(path_of(module) for module in MODULES) == sorted(PACKAGE.rglob("*.py"))


def test_the_order_lists_no_module_twice() -> None:
    assert len(set(ORDER)) == len(ORDER)


def test_a_module_imports_only_modules_before_it() -> None:
    ahead = {module: own_imports(module) - set(ORDER[:place]) for place, module in enumerate(ORDER)}
    assert {module: found for module, found in ahead.items() if found} == {}


def test_what_the_package_makes_public_comes_from_modules_of_the_order() -> None:
    assert own_imports(PUBLIC) <= set(ORDER)


def test_no_module_of_the_worker_imports_what_is_shipped_for_tests_and_callers() -> None:
    shipped = {*TESTING, *CALLERS}
    assert [module for module in (*WORKER, PUBLIC) if own_imports(module) & shipped] == []


def test_a_caller_knows_the_words_of_the_contract_and_nothing_of_the_engine() -> None:
    known = {*WORDS, *CALLERS}
    assert [module for module in CALLERS if own_imports(module) - known] == []


def test_no_module_of_the_worker_looks_ahead_for_a_type() -> None:
    """Only the testing kit may name the type of what holds it."""
    assert [module for module in WORKER if imports_for_types_of(module)] == []


def test_words_decisions_and_books_import_nothing_from_outside_that_can_act() -> None:
    found = {
        module: {name.partition(".")[0] for name, _ in imports_of(module)}
        - PURE_LIBRARIES
        - {"quiesce"}
        for module in (*WORDS, *DECISIONS, *BOOKS)
    }
    assert {module: roots for module, roots in found.items() if roots} == {}


def test_the_ranks_follow_one_another_words_decisions_books() -> None:
    """So that no decision can read a row, and no book can hold a decision's caller."""
    first = [ORDER.index(rank[0]) for rank in (WORDS, DECISIONS, BOOKS)]
    assert all(earlier < later for earlier, later in pairwise(first))
