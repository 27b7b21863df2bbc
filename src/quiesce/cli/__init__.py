"""The command `quiesce`: the client of `quiesce.client` on a terminal. It needs the extra `cli`."""
