"""A call that must not happen twice, and the process killed in its middle: unknown, and no second call.

Parity: NC-15 to NC-17, TP-6.
"""

import pytest

from runtime.conftest import NewStage
from runtime.helpers.ondisk import until
from runtime.helpers.stage import REASON, Stage
from workshop.serving import Server

pytestmark = pytest.mark.worker

RESOLUTIONS = {
    "completed": ({"result": {"reference": "seen"}}, "completed", 1),
    "failed": ({}, "failed", 1),
    "never-happened": ({}, "completed", 2),
    "safe-to-retry": ({}, "completed", 2),
    "abort": ({}, "aborted", 1),
}
"""What comes with each resolution, how the submission then settles, and how many calls there were in all."""


@pytest.fixture(scope="module")
def killed(server: Server, new_stage: NewStage) -> dict[str, Stage]:
    """Conversations whose payment was under way when the process was killed: the server had been asked."""
    stages = {name: new_stage() for name in (*RESOLUTIONS, "idempotent", "readonly", "proven")}
    held = []
    for name, stage in stages.items():
        held.append(stage.outside.hold("POST"))
        if name in RESOLUTIONS:
            stage.submit("charge", {"url": stage.url, "amount": 1})
        elif name == "proven":
            stage.outside.bodies["ask"] = b"paid"
            stage.submit("prover", {"url": stage.url})
        else:
            stage.submit("payer", {"url": stage.url, "effect": name})
    for stage in stages.values():
        until(lambda: stage.calls.get("POST"), bool)  # noqa: B023 - read at once
        assert stage.file.exists()
    server.kill_runtime()
    for event in held:
        event.set()
    return stages


@pytest.mark.parametrize("resolution", RESOLUTIONS)
def test_a_payment_killed_under_way_is_unknown_until_somebody_says_what_became_of_it(
    killed: dict[str, Stage], resolution: str
) -> None:
    stage = killed[resolution]
    more, outcome, calls = RESOLUTIONS[resolution]
    seen = stage.until_state("unknown")
    assert seen.alarm_at_ms is None
    assert stage.calls == {"POST": 1}
    assert stage.client.status(stage.name, stage.submissions[0])["waiting_for"]["kind"] == (
        "resolution"
    )
    body = {"resolution": resolution, "reason": REASON, **more}
    answer = stage.post("resolutions/charge", body)
    assert answer.status_code == 200, answer.text
    seen = stage.until_settled()
    assert [each.outcome for each in seen.settlements] == [outcome]
    assert stage.calls == {"POST": calls}
    assert seen.count("tool-prepared") == calls
    assert seen.count("tool-unknown") == 1
    if resolution == "completed":
        assert seen.settlements[0].result == {"reference": "seen"}


def test_an_idempotent_payment_killed_under_way_is_made_again_by_itself(
    killed: dict[str, Stage],
) -> None:
    stage = killed["idempotent"]
    assert [each.outcome for each in stage.until_settled().settlements] == ["completed"]
    assert stage.calls == {"before": 1, "POST": 2, "after": 1}


def test_a_readonly_call_killed_under_way_is_made_again_by_itself(killed: dict[str, Stage]) -> None:
    stage = killed["readonly"]
    seen = stage.until_settled()
    assert stage.calls == {"before": 1, "POST": 2, "after": 1}
    assert seen.count("tool-prepared") == 0


def test_a_reconciler_proves_what_became_of_a_payment_killed_under_way(
    killed: dict[str, Stage],
) -> None:
    stage = killed["proven"]
    seen = stage.until_settled()
    assert seen.settlements[0].result == "proven"
    assert stage.calls == {"POST": 1, "ask": 1}


def test_killed_again_while_it_is_unknown_it_stays_unknown(server: Server, stage: Stage) -> None:
    stage.outside.hold("POST")
    stage.submit("charge", {"url": stage.url, "amount": 1})
    until(lambda: stage.calls.get("POST"), bool)
    assert stage.file.exists()
    server.kill_runtime()
    unknown = stage.until_state("unknown")
    server.kill_runtime()
    stage.client.status(stage.name, stage.submissions[0])
    assert stage.look() == unknown
    assert stage.calls == {"POST": 1}
