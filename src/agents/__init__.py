"""The reference agents that this deployment serves: small enough to read, and each shows one promise."""

from agents.echo import echo
from agents.fail import fail
from agents.steps import steps
from quiesce import Registry

REGISTRY = Registry([echo, steps, fail])

__all__ = ["REGISTRY"]
