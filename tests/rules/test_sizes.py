"""A module holds one idea, a function fits a screen.

Not tested: whether a smaller one would read better. `pyproject.toml` holds the arguments of tests and scripts.
"""

import ast

from rules.sources import MODULES, functions_of, text_of, tree_of

MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
POSITIONAL_MAX = 5


def test_a_module_has_at_most_400_lines() -> None:
    lines = {module: len(text_of(module).splitlines()) for module in MODULES}
    assert {module: count for module, count in lines.items() if count > MODULE_LINES_MAX} == {}


def test_a_function_has_at_most_60_lines() -> None:
    lines = {
        f"{module}.{each.name}": (each.end_lineno or 0) - each.lineno + 1
        for module in MODULES
        for each in functions_of(module)
    }
    assert {name: count for name, count in lines.items() if count > FUNCTION_LINES_MAX} == {}


def test_a_function_takes_at_most_five_positional_parameters() -> None:
    """`self` counts, so a method takes four."""
    positional = {
        f"{module}.{each.name}": len(each.args.posonlyargs) + len(each.args.args)
        for module in MODULES
        for each in functions_of(module)
    }
    assert {name: count for name, count in positional.items() if count > POSITIONAL_MAX} == {}


def test_a_module_begins_by_saying_in_one_sentence_what_it_owns() -> None:
    for module in MODULES:
        docstring = ast.get_docstring(tree_of(module))
        assert docstring, module
        assert docstring.split("\n\n")[0].rstrip().endswith("."), module
