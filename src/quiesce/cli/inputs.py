"""JSON that a person gives to a command: as it stands, from a file, or from standard input.

1. `@name` is a file, `-` is standard input, and everything else is the JSON itself.
2. What is not JSON is a usage error, which says where and shows how a string is quoted.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from pydantic_core import from_json

HOW_TO_QUOTE = """in a shell, a string is '"hello"' and an object is '{"count": 3}'"""


@dataclass(frozen=True, slots=True)
class JSON:
    """A JSON value that was given; null is one too, and None means that nothing was given."""

    value: Any = None


def json_value(text: str) -> JSON:
    """Read the JSON that an argument stands for."""
    try:
        raw = _bytes_of(text)
    except OSError as error:
        raise typer.BadParameter(f"{text[1:]!r} cannot be read: {error.strerror}") from None
    try:
        return JSON(from_json(raw, allow_inf_nan=False, cache_strings="none"))
    except ValueError as error:
        raise typer.BadParameter(f"this is no JSON: {error}; {HOW_TO_QUOTE}") from None


def _bytes_of(text: str) -> bytes:
    if text == "-":
        return sys.stdin.buffer.read()
    if text.startswith("@"):
        return Path(text[1:]).read_bytes()
    return text.encode()
