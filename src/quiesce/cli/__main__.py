"""`python -m quiesce.cli`: the command, where its script is not installed."""

from quiesce.cli.main import run

run()
