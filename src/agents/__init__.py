"""The reference agents that this deployment serves: small enough to read, and each shows one promise."""

from agents.approval import approval
from agents.charge import charge
from agents.echo import echo
from agents.fail import fail
from agents.parent import parent
from agents.refunds import refunds
from agents.research import research
from agents.signal import signal
from agents.sleep import sleep
from agents.steps import steps
from quiesce import Registry

REGISTRY = Registry([echo, steps, fail, approval, charge, sleep, signal, refunds, parent, research])

__all__ = ["REGISTRY"]
