"""Where an exception may be swallowed, and who may parse what came from outside.

Not tested: whether what is caught by name is caught rightly.
"""

import ast

from rules.sources import MODULES, calls_of, functions_of, imports_of

BROAD = frozenset({"Exception", "BaseException"})
SWALLOWERS = {
    # An application's error may raise when it is asked what it is.
    "diagnostics": {"type_of", "words_of", "causes_of"},
    "attempt": {"_handle"},  # An application's error becomes the attempt's outcome.
    "repair": {"_answer"},  # The failure of an agent's reconciler proves nothing about the call.
    "telemetry": {"harmless"},  # The work must not depend on who listens to it.
    "conversation_object": {"call"},  # The host's edge: no stack crosses the border.
    "router": {"fetch"},  # The host's edge.
    "testing.conversation": {"_deliver"},  # The platform survives whatever a handler raises.
}
"""The only places where `except Exception` ends without raising."""
PARSERS = {
    # Twice the same text: once safely, for its depth, and then for names that stand twice in an object.
    "wire": {"json.loads"},
}
UNSAFE_PARSERS = frozenset(
    {
        "json.load",
        "json.loads",
        "json.JSONDecoder",
        "request.json",
        "JSON.parse",
        "eval",
        "ast.literal_eval",
    }
)


def handlers_of(module: str) -> list[tuple[str, ast.ExceptHandler]]:
    """Return every `except` with the function that it stands in, the innermost one."""
    found: dict[ast.ExceptHandler, str] = {}
    for function in functions_of(module):
        for node in ast.walk(function):
            if isinstance(node, ast.ExceptHandler):
                found[node] = function.name
    return [(name, handler) for handler, name in found.items()]


def caught_by(handler: ast.ExceptHandler) -> set[str]:
    if handler.type is None:
        return {"BaseException"}
    names = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {ast.unparse(name).rpartition(".")[2] for name in names}


def raises_at_its_end(handler: ast.ExceptHandler) -> bool:
    return isinstance(handler.body[-1], ast.Raise)


def test_every_exception_is_swallowed_around_applications_and_at_the_hosts_edge_only() -> None:
    """Whoever else catches all, raises again."""
    swallowers: dict[str, set[str]] = {}
    for module in MODULES:
        for name, handler in handlers_of(module):
            if caught_by(handler) & BROAD and not raises_at_its_end(handler):
                swallowers.setdefault(module, set()).add(name)
    assert swallowers == SWALLOWERS


def test_nothing_suppresses_every_exception() -> None:
    for module in MODULES:
        for called, call in calls_of(module):
            if called.rpartition(".")[2] == "suppress":
                assert not {ast.unparse(each) for each in call.args} & BROAD, module


def test_json_from_outside_is_never_parsed_by_what_recurses() -> None:
    """A nested array of 5,000 levels takes the whole process down in `json.loads` and in `request.json()`."""
    parsers: dict[str, set[str]] = {}
    for module in MODULES:
        for called, _ in calls_of(module):
            if called in UNSAFE_PARSERS or called.endswith((".request.json", ".JSON.parse")):
                parsers.setdefault(module, set()).add(called)
    assert parsers == PARSERS


def test_no_module_has_such_a_parser_by_another_name() -> None:
    for module in MODULES:
        names = {name for name, _ in imports_of(module)}
        assert not names & UNSAFE_PARSERS, module
        renamed = {
            alias.name
            for _, statement in imports_of(module)
            if isinstance(statement, ast.Import)
            for alias in statement.names
            if alias.asname is not None
        }
        assert not renamed & {"json", "ast"}, module


def test_an_exception_that_replaces_another_says_whether_it_stands_for_it() -> None:
    """`from None` or `from error`: what a caller sees of the inner error is decided, never an accident."""
    for module in MODULES:
        for name, handler in handlers_of(module):
            for node in ast.walk(handler):
                if isinstance(node, ast.Raise) and node.exc is not None:
                    assert node.cause is not None, f"{module}.{name}, line {node.lineno}"
