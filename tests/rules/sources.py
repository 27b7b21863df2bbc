"""The sources of the package as the rules see them: the order of its modules, and their syntax trees.

`ORDER` is the table of contents of `src/quiesce`: read the modules in this order and nothing is used before it
is known. A new module is listed here, at its place, or `test_order.py` fails.
"""

import ast
import io
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "quiesce"

WORDS = ("ids", "trace_context", "errors", "diagnostics", "settings", "states", "records", "agent")
DECISIONS = (
    "pacing",
    "generation_record",
    "generation",
    "evidence",
    "recovery",
    "quiescence",
    "laws",
    "invariants",
)
BOOKS = (
    "storage",
    "schema",
    "wake",
    "agenda",
    "ledger",
    "ledger_facts",
    "conversation_log",
    "operations",
    "signals",
    "outbox",
    "following",
)
STAGES = (
    "failpoints",
    "audience",
    "rates",
    "telemetry",
    "lane",
    "settlement",
    "settlement_shape",
    "waits",
    "callbacks",
    "admission",
    "commands",
    "deciding",
    "fence",
    "journal",
    "joining",
    "waiting",
    "children",
    "run",
    "attempt",
    "repair",
    "ports",
    "deliver",
    "drain",
    "retention",
    "pass_report",
    "maintenance",
    "inspection",
    "explain",
    "verifying",
)
HOST = (
    "access",
    "assertions",
    "keyring",
    "headers",
    "wire",
    "verbs",
    "shapes",
    "events",
    "watching",
    "bundle",
    "exporting",
    "dispatch",
    "asks",
    "routes",
    "answers",
    "api",
    "openapi",
    "docs_page",
    "publications",
    "reporting",
    "streaming",
    "timers",
    "workerd",
    "observing",
    "signatures",
    "conversation_object",
    "router",
)
WORKER = (*WORDS, *DECISIONS, *BOOKS, *STAGES, *HOST)
"""What a Worker imports."""
TESTING = (
    "testing.crashing",
    "testing.virtual_time",
    "testing.sqlite_storage",
    "testing.network",
    "testing.host",
    "testing.conversation",
    "testing.deployment",
    "testing",
)
CALLERS = (
    "client.results",
    "client.errors",
    "client.exchange",
    "client.address",
    "client.transport",
    "client.carrying",
    "client.streams",
    "client.bundles",
    "client.calls",
    "client.awaiting",
    "client.blocking",
    "client",
    "cli",
    "cli.wording",
    "cli.inputs",
    "cli.troubles",
    "cli.screens",
    "cli.session",
    "cli.watching",
    "cli.work",
    "cli.deciding",
    "cli.doctor",
    "cli.operating",
    "cli.auditing",
    "cli.main",
    "cli.__main__",
)
"""The programs that call a deployment from outside."""
ORDER = (*WORKER, *TESTING, *CALLERS)
"""Every module of the package but its own `__init__`, which only names what is public."""

PUBLIC = "__init__"
MODULES = (*ORDER, PUBLIC)


def path_of(module: str) -> Path:
    """Return the file of a module of the package."""
    place = PACKAGE.joinpath(*module.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


@cache
def text_of(module: str) -> str:
    return path_of(module).read_text(encoding="utf-8")


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(text_of(module))


@cache
def imports_for_types_of(module: str) -> set[ast.stmt]:
    """Return the imports that only a type checker makes."""
    return {
        each
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for each in node.body
    }


@cache
def imports_of(module: str) -> tuple[tuple[str, ast.stmt], ...]:
    """Return the dotted name of everything that a module imports when it runs, wherever the import stands."""
    found: list[tuple[str, ast.stmt]] = []
    for node in ast.walk(tree_of(module)):
        if node in imports_for_types_of(module):
            continue
        if isinstance(node, ast.Import):
            found.extend((name.name, node) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively, at line {node.lineno}"
            assert node.module is not None
            found.extend((f"{node.module}.{name.name}", node) for name in node.names)
    return tuple(found)


@cache
def functions_of(module: str) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef, ...]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return tuple(node for node in ast.walk(tree_of(module)) if isinstance(node, kinds))


@cache
def calls_of(module: str) -> tuple[tuple[str, ast.Call], ...]:
    """Return the dotted text of what is called, such as `storage.execute`, and the call."""
    nodes = ast.walk(tree_of(module))
    return tuple((ast.unparse(node.func), node) for node in nodes if isinstance(node, ast.Call))


def prose_of(text: str) -> Iterator[tuple[int, str]]:
    """Yield what a source says in words: each comment, and each string that stands as a statement."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            value = node.value.value
            if isinstance(value, str):
                yield node.lineno, value
