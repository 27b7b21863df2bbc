"""What the crash matrix crashes: one scenario for each kind of work, and which failpoints each passes how often.

A scenario is started, and goes on by itself to a stable wait or to its end. Then comes the client's second act, if
it has one, and what is left settles.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from runtime.helpers.stage import REASON, Stage

STEPS = 3
SLEEP_MS = 300

DIRTY = {"maintenance:dirty:before": 1, "maintenance:dirty:after": 1}
ADMIT = {**DIRTY, "admit:before": 1, "admit:after": 1}
PASS = {
    "maintenance:begin:before": 1,
    "maintenance:begin:after": 1,
    "maintenance:finish:before": 1,
    "maintenance:finish:after": 1,
}
CLAIM = {"claim:before": 1, "claim:after": 1}
RELEASE = {"release:before": 1, "release:after": 1}
SETTLE = {"settle:before": 1, "settle:after": 1}
STEP = {"step:before": 1, "step:after": 1}
PREPARE = {"prepare:before": 1, "prepare:after": 1}
RECONCILE = {"reconcile:before": 1, "reconcile:after": 1}
MUTATION = {
    "maintenance:mutation:armed": 1,
    "maintenance:mutation:finished": 1,
    "maintenance:ensure:before": 1,
    "maintenance:ensure:after": 1,
}


def together(*parts: Mapping[str, int]) -> dict[str, int]:
    """Add up how often each failpoint is passed."""
    total: dict[str, int] = {}
    for part in parts:
        for point, times in part.items():
            total[point] = total.get(point, 0) + times
    return total


@dataclass(frozen=True)
class Scenario:
    """One kind of work: how it starts, where it waits, what its client does then, and how it ends."""

    name: str
    start: Callable[[Stage], object]
    passes: Mapping[str, int]
    """How often the undisturbed scenario passes each failpoint."""
    act: Callable[[Stage], object] | None = None
    may_act: Callable[[Stage], bool] = lambda _: False
    """Whether the time of the second act has come."""
    before: Callable[[Stage], object] | None = None
    """What is done undisturbed, before anything is armed."""
    outcome: str = "completed"
    calls: Mapping[str, int] = field(default_factory=dict)
    """What the undisturbed scenario asks of the server outside."""
    settled: int = 1
    joined: int = 0
    """How many of these have joined another, each once."""
    is_paced: bool = False
    """Whether a retry time decides how many passes it takes."""


def _abort(stage: Stage) -> object:
    return stage.post("abort", {"reason": REASON})


def _is_suspended(stage: Stage) -> bool:
    seen = stage.look()
    return seen.states == ["suspended"] and seen.is_quiet


def _is_unknown(stage: Stage) -> bool:
    seen = stage.look()
    return seen.states == ["unknown"] and seen.is_quiet


def _start_held(stage: Stage) -> None:
    stage.outside.hold("0")
    stage.submit("steps", {"count": STEPS, "url": stage.url})


def _is_held(stage: Stage) -> bool:
    return "0" in stage.calls


def _host_with_a_joiner(stage: Stage) -> None:
    stage.submit("collector", {"url": stage.url}, "host")
    stage.submit("collector", {"url": stage.url}, "joiner", mode="join")
    stage.until_state("suspended", "ready")


def _approve_host(stage: Stage) -> object:
    path = stage.path("approvals/question", stage.submissions[0])
    answer = stage.client.http.post(path, json={"decision": "approved", "reason": REASON})
    assert answer.status_code == 200, answer.text
    return answer


def _start_failing_payment(stage: Stage) -> None:
    stage.outside.status["POST"] = 500
    stage.submit("charge", {"url": stage.url, "amount": 1})


def _start_proven_payment(stage: Stage) -> None:
    stage.outside.status["POST"] = 500
    stage.outside.bodies["ask"] = b"paid"
    stage.submit("prover", {"url": stage.url})


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "echo",
            lambda stage: stage.submit("echo", {"a": [1, None]}),
            together(ADMIT, PASS, CLAIM, SETTLE),
        ),
        Scenario(
            "steps",
            lambda stage: stage.submit("steps", {"count": STEPS, "url": stage.url}),
            together(ADMIT, PASS, CLAIM, STEP, STEP, STEP, SETTLE),
            calls={"0": 1, "1": 1, "2": 1},
        ),
        Scenario(
            "approval",
            lambda stage: stage.submit("approval", {"question": "May it?"}),
            together(ADMIT, PASS, CLAIM, RELEASE, DIRTY, PASS, CLAIM, SETTLE),
            may_act=_is_suspended,
            act=lambda stage: stage.post(
                "approvals/question", {"decision": "approved", "reason": REASON}
            ),
        ),
        Scenario(
            "signal",
            lambda stage: stage.submit("signal", {"name": "news"}),
            together(ADMIT, PASS, CLAIM, RELEASE, DIRTY, PASS, CLAIM, SETTLE),
            may_act=_is_suspended,
            act=lambda stage: stage.post("signals/news", {"payload": None}, key="signal"),
        ),
        Scenario(
            "sleep",
            lambda stage: stage.submit("sleep", {"ms": SLEEP_MS}),
            together(ADMIT, PASS, CLAIM, RELEASE, PASS, CLAIM, SETTLE),
        ),
        Scenario(
            "charge",
            lambda stage: stage.submit("charge", {"url": stage.url, "amount": 1}),
            together(ADMIT, PASS, CLAIM, PREPARE, STEP, SETTLE),
            calls={"POST": 1},
        ),
        Scenario(
            "payment-that-leaves-no-result",
            _start_failing_payment,
            together(ADMIT, PASS, CLAIM, PREPARE, RELEASE, RECONCILE, DIRTY, PASS, CLAIM, SETTLE),
            may_act=_is_unknown,
            act=lambda stage: stage.post(
                "resolutions/charge",
                {"resolution": "completed", "result": {"reference": "r-1"}, "reason": REASON},
            ),
            calls={"POST": 1},
            is_paced=True,
        ),
        Scenario(
            "payment-that-is-proven",
            _start_proven_payment,
            together(ADMIT, PASS, CLAIM, PREPARE, RELEASE, RECONCILE, CLAIM, SETTLE),
            calls={"POST": 1, "ask": 1},
            is_paced=True,
        ),
        Scenario(
            "abort",
            lambda stage: stage.submit("approval", {"question": "May it?"}),
            together(ADMIT, PASS, CLAIM, RELEASE, DIRTY, PASS),
            may_act=_is_suspended,
            act=_abort,
            outcome="aborted",
        ),
        Scenario(
            "abort-of-what-runs",
            _start_held,
            together(ADMIT, PASS, CLAIM, DIRTY, RELEASE, PASS),
            may_act=_is_held,
            act=_abort,
            outcome="aborted",
            calls={"0": 1},
        ),
        Scenario(
            "join",
            _approve_host,
            together(DIRTY, PASS, CLAIM, STEP, SETTLE),
            before=_host_with_a_joiner,
            calls={"tell": 1},
            settled=2,
            joined=1,
        ),
        Scenario(
            "mutation",
            lambda stage: stage.control("mutation", conversation=stage.name, key="mutation"),
            together(DIRTY, ADMIT, MUTATION, PASS, CLAIM, SETTLE),
            before=lambda stage: (stage.submit("echo", 1, "first"), stage.until_settled()),
            settled=2,
        ),
    )
}
