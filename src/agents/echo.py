"""echo: any JSON in, the same JSON out."""

from typing import Any

from quiesce import Agent, Run

echo = Agent("echo", input=Any, output=Any)


@echo.handler
async def handle(_run: Run, value: Any) -> Any:
    """Return the input."""
    return value
