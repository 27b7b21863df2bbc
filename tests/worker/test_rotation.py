"""A principal's token is exchanged without a pause: the old one and the new one are valid at once for a while.

Not tested: how fast a new setting reaches every machine of the platform.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from worker.conftest import ROLES
from worker.helpers.client import Client, assert_problem
from workshop import serving

pytestmark = pytest.mark.worker

OLD, NEW = "old-token", "new-token"


@contextmanager
def deployment(folder: Path, *secrets: str) -> Iterator[serving.Server]:
    """Serve what is stored below a folder, with these tokens of one principal."""
    worker = serving.deployed_worker()
    ann = {"principal": "ann", "roles": ROLES}
    tokens = {hashlib.sha256(secret.encode()).hexdigest(): ann for secret in secrets}
    worker["bindings"] = {"QUIESCE_TOKENS": json.dumps(tokens)}
    with serving.Server.start(
        [worker], persist=folder / "state", log=folder / "log", snapshot=True
    ) as server:
        yield server


def test_work_outlives_the_exchange_of_its_principals_token(
    tmp_path: Path, conversation: str
) -> None:
    """Before, during and after it, one key is one submission; a parent and its child go on across it."""
    question = {"child": "approval", "input": {"question": "?"}}
    family = f"family-{conversation}"
    with deployment(tmp_path, OLD) as server, Client(server.url, OLD) as old:
        first = old.submit(conversation, "echo", 1, key="one").json()["submission"]
        parent = old.accepted(family, "parent", question)
        old.waits(family, parent, "child")
        with Client(server.url, NEW) as early:
            assert_problem(early.submit(conversation, "echo", 1, key="one"), 401, "unauthenticated")

    with (
        deployment(tmp_path, OLD, NEW) as server,
        Client(server.url, OLD) as old,
        Client(server.url, NEW) as new,
    ):
        second = old.submit(conversation, "echo", 2, key="two").json()["submission"]
        third = new.submit(conversation, "echo", 3, key="three").json()["submission"]
        for caller in (old, new):
            for value, key, known in ((1, "one", first), (2, "two", second), (3, "three", third)):
                again = caller.submit(conversation, "echo", value, key=key)
                assert again.status_code == 200
                assert again.headers["idempotent-replayed"] == "true"
                assert again.json()["submission"] == known
        assert len({first, second, third}) == 3

    with (
        deployment(tmp_path, NEW) as server,
        Client(server.url, OLD) as old,
        Client(server.url, NEW) as new,
    ):
        assert_problem(old.submit(conversation, "echo", 1, key="one"), 401, "unauthenticated")
        assert_problem(old.http.get(f"/v1/conversations/{conversation}"), 401, "unauthenticated")
        again = new.submit(conversation, "echo", 1, key="one")
        assert (again.status_code, again.json()["submission"]) == (200, first)
        other = new.submit(conversation, "echo", "other", key="one")
        assert_problem(other, 409, "idempotency-conflict")

        requested = next(each for each in new.records(family) if each["kind"] == "child-requested")
        child = requested["payload"]
        new.waits(child["conversation"], child["submission"], "approval")
        decision = {"decision": "approve"}
        decided = new.act(
            child["conversation"], child["submission"], "approvals/question", decision
        )
        assert decided.status_code == 200
        outcome = new.settled(family, parent)
        assert outcome["outcome"] == "completed"
        assert outcome["result"]["result"] == {"approved": True, "decided_by": "ann"}
