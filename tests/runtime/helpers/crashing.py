"""Brings a scenario to one passage of a failpoint, and after the crash there on to its end, as its client would.

What the client had asked for and what was not yet durable it asks for again, with the same key. Everything else has
to come from the persisted alarm: between two acts of the client no request reaches the Object.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from runtime.helpers.ondisk import Seen, until
from runtime.helpers.scenarios import SCENARIOS, STEPS, Scenario
from runtime.helpers.stage import REASON, Stage

LOSES_THE_REQUEST = ("admit:before", "maintenance:dirty:before", "maintenance:mutation:armed")
BEHIND_NO_SYNC = ("settle:before", "maintenance:finish:before")
"""What the attempt wrote last is committed there, and not yet on disk: a crash at once takes it along."""


@dataclass(frozen=True)
class Crash:
    """One passage of one failpoint in one scenario, counting from 0."""

    scenario: str
    point: str
    passage: int = 0

    def __str__(self) -> str:
        return f"{self.scenario}-at-{self.point}-{self.passage}"

    @property
    def of(self) -> Scenario:
        """The scenario."""
        return SCENARIOS[self.scenario]

    @property
    def is_in_second_act(self) -> bool:
        """Whether the client's second act had been asked for by then."""
        act = self.of.act is not None
        return act and self.passage > 0 and self.point.startswith("maintenance:dirty")

    @property
    def loses_the_request(self) -> bool:
        """Whether what the client had asked for was not yet durable."""
        was_armed_only = self.scenario == "mutation" and self.point == "maintenance:dirty:after"
        return self.point in LOSES_THE_REQUEST or (was_armed_only and self.passage == 0)

    @property
    def leaves_unknown(self) -> bool:
        """Whether a call is left of which nobody can say what became of it."""
        return self.scenario == "charge" and self.point in {"prepare:after", "step:before"}

    def calls(self, *, at_once: bool) -> dict[str, int]:
        """Return how often the server outside was asked for what, when all is over.

        `at_once` says that the crash came in the same breath as the failpoint, and not after a pause there.
        """
        calls = dict(self.of.calls)
        if self.scenario == "steps" and self.point == "step:before":
            calls[str(self.passage)] += 1
        if self.scenario == "steps" and at_once and self.point in BEHIND_NO_SYNC:
            calls[str(STEPS - 1)] += 1
        if self.scenario == "join" and (
            self.point == "step:before" or (at_once and self.point in BEHIND_NO_SYNC)
        ):
            calls["tell"] += 1
        if self.scenario == "abort-of-what-runs" and self.is_in_second_act:
            # The attempt that the abort did not reach in time dies with its incarnation, and runs again.
            calls["0"] += self.loses_the_request
        if self.scenario == "abort-of-what-runs" and not at_once and self.passage == 0:
            # The alarm had started the attempt while its admission still stood at the failpoint.
            calls["0"] += self.point in {"admit:after", "maintenance:dirty:after"}
        if self.point == "prepare:after":
            calls.pop("POST")
        if self.scenario == "payment-that-is-proven" and self.point == "reconcile:before":
            calls["ask"] += 1
        return calls


def all_crashes() -> Iterator[Crash]:
    """Every passage of every failpoint in every scenario."""
    for scenario in SCENARIOS.values():
        for point, times in scenario.passes.items():
            for passage in range(times):
                yield Crash(scenario.name, point, passage)


def bring_to(
    stage: Stage, crash: Crash, action: str, is_over: Callable[[], bool] | None = None
) -> None:
    """Run the scenario until the trap at the passage has acted, or until `is_over` says so."""
    scenario = crash.of
    has_come = is_over or (lambda: has_sprung(stage))
    if scenario.before is not None:
        scenario.before(stage)
    stage.arm(crash.point, action, crash.passage)
    stage.in_background(lambda: scenario.start(stage))
    if scenario.act is not None:
        act = scenario.act
        until(lambda: has_come() or scenario.may_act(stage), bool)
        if not has_come():
            stage.has_acted = not (crash.loses_the_request and crash.is_in_second_act)
            stage.in_background(lambda: act(stage))
    until(has_come, bool)


def has_sprung(stage: Stage) -> bool:
    """Say whether the trap has acted, without a request to the Object."""
    return bool(stage.life()["sprung"])


def bring_to_the_end(stage: Stage, crash: Crash) -> Seen:
    """Do what the client still has to do, and return the conversation when all of it is settled."""
    scenario = crash.of
    if crash.loses_the_request and not crash.is_in_second_act:
        scenario.start(stage)
    if crash.leaves_unknown:
        stage.until_state("unknown")
        body = {"resolution": "completed", "result": {"reference": "r-1"}, "reason": REASON}
        assert stage.post("resolutions/charge", body).status_code == 200
    if scenario.act is not None and not stage.has_acted:
        until(lambda: scenario.may_act(stage), bool)
        answer = scenario.act(stage)
        assert getattr(answer, "status_code", 0) in {200, 202}, getattr(answer, "text", answer)
    return stage.until_settled()


def check_the_end(stage: Stage, crash: Crash, *, at_once: bool) -> None:
    """Bring a crashed scenario to its end, and check what it came to."""
    seen = bring_to_the_end(stage, crash)
    scenario = crash.of
    assert len(seen.settlements) == scenario.settled
    assert {each.outcome for each in seen.settlements} == {scenario.outcome}
    assert seen.count("input-applied") <= scenario.settled - scenario.joined
    assert seen.count("input-joined") == scenario.joined
    assert stage.calls == crash.calls(at_once=at_once)
