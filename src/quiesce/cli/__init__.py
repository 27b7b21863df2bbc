"""The command `quiesce`: the client of `quiesce.client` on a terminal. `pip install quiesce[cli]`."""
