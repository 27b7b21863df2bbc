"""The client's tests use the same running Worker as the tests of the Worker do."""

from worker.conftest import conversation, outside_server, server

__all__ = ["conversation", "outside_server", "server"]
