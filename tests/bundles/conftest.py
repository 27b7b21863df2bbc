"""The deployed Worker, and its callers."""

from worker import conftest

server = conftest.server
client = conftest.client
caller_with = conftest.caller_with
conversation = conftest.conversation
nothing_written = conftest.nothing_written
