"""The deployed Worker, with streams and waits so short that asking for them costs little."""

from worker import conftest

server = conftest.server
client = conftest.client
conversation = conftest.conversation
