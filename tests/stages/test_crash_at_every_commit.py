"""Crash at every commit, over the whole corpus.

For every scenario, and every commit that its undisturbed run makes, the process dies before and after that commit,
keeping or losing what was not synced. From then on nothing but alarms happens, except that a client whose POST
died may send it again with the same key. The smallest scenarios die a second time, at every commit of the recovery.

Then: every submission that has a Receipt is settled exactly once, as in the undisturbed run; one whose POST died is
absent or settled; no recorded step ran again; and the alarm is null.
The laws of the conversation, input and settlement order among them, are checked by the kit after every event, and
after every crash that what is owed has an alarm.

These runs are also EV-1 to EV-13 (every commit of the submit path), EV-14 to EV-19, EV-23 to EV-28 (claim, input,
settlement), EV-39 (steps), CH-1 (equal to an undisturbed run), S12, S24, S43, S45, S54 and S126.

What cannot happen: EV-4 to EV-9, EV-11, EV-12, EV-17, EV-18, EV-24 to EV-27 speak of the state between two
commits that are one commit here: admission creates the conversation, its record and a ready row at once, a claim
applies the input, and a settlement's record and row are written together. EV-16 waits for a lease to lapse; a claim
of a dead incarnation is dead at once. EV-20 to EV-22 are a model's turns, which are steps here.

Parity: NC-1 to NC-4, NC-7 to NC-9, DRT-12 to DRT-16, RC-1, RC-2, RC-5.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from quiesce.states import State
from quiesce.testing import CrashPlan, Deployment, commit_counter, crash_plans
from stages.corpus import CORPUS, Client, Scenario, ScenarioOver, agents

pytestmark = pytest.mark.slow

type Outcomes = dict[tuple[str, str], tuple[object, ...]]


@dataclass(frozen=True)
class Played:
    """How one run of a scenario ended."""

    outcomes: Outcomes
    is_unanswered: bool
    """Whether the crash hit a POST."""


def play(scenario: Scenario, plans: list[CrashPlan], *, repeats: bool = False) -> Played:
    """Run a scenario with these crashes, then alarms alone until quiet, and check what must always hold."""
    with Deployment([], scenario.settings) as deployment:
        client = Client(deployment, plans, repeats=repeats)
        deployment.deploy(agents(client.world))
        try:
            scenario.play(client)
        except ScenarioOver:
            deployment.run_until_quiet()
            client.release_quarantined()
        deployment.run_until_quiet()
        for lane in deployment:
            assert lane.alarm_at_ms is None, f"{lane.name} keeps an alarm that it does not need"
        check_unanswered(client)
        return Played(outcomes(client), client.unanswered is not None)


def outcomes(client: Client) -> Outcomes:
    """Return how every submission with a Receipt was settled; fails when one is not."""
    found: Outcomes = {}
    for (lane, key), receipt in client.receipts.items():
        settled = client.deployment.conversation(lane).settlement(receipt.submission)
        failure = (settled.failure or {}).get("error_type")
        found[lane, key] = (settled.outcome, settled.result, failure, *settled.completed_operations)
    return found


def check_unanswered(client: Client) -> None:
    """A submission whose POST died without an answer is absent or settled."""
    for lane in client.deployment:
        if not lane.is_virgin:
            counts = lane.state().counts
            assert {state for state in State if counts[state]} <= {State.SETTLED}, counts


def undisturbed(scenario: Scenario) -> tuple[Played, int]:
    """Run a scenario without a crash; returns how it ended and how many commits it made."""
    counter = commit_counter()
    played = play(scenario, [counter])
    return played, counter.seen


def check_as_undisturbed(played: Played, control: Played, what: str) -> None:
    """Every Receipt leads to the settlement that it leads to without a crash."""
    for place, outcome in played.outcomes.items():
        assert outcome == control.outcomes[place], f"{what}: {place} settled differently"


def named(scenarios: list[Scenario], *, all_fast: bool = True) -> list[object]:
    """Name each case; without `all_fast`, the bigger ones are slow."""
    return [
        pytest.param(
            each, id=each.name, marks=() if all_fast or each.is_small else pytest.mark.slow
        )
        for each in scenarios
    ]


@pytest.mark.parametrize("scenario", named(CORPUS))
def test_undisturbed_run_settles_everything(scenario: Scenario) -> None:
    control, commits = undisturbed(scenario)
    assert control.outcomes
    assert commits > 3


@pytest.mark.parametrize("scenario", named(CORPUS, all_fast=False))
def test_crash_at_every_commit_converges(scenario: Scenario) -> None:
    control, commits = undisturbed(scenario)
    for plan in crash_plans(commits):
        played = play(scenario, [plan])
        assert plan.fired, f"{plan} never happened"
        check_as_undisturbed(played, control, str(plan))
        if played.is_unanswered:
            again = CrashPlan(plan.commit, plan.when, plan.keeps_unsynced)
            repeated = play(scenario, [again], repeats=True)
            assert again.fired
            check_as_undisturbed(repeated, control, f"{plan}, and the POST repeated")


@pytest.mark.slow
@pytest.mark.parametrize("scenario", named([each for each in CORPUS if each.is_small]))
def test_second_crash_at_every_commit_of_the_recovery(scenario: Scenario) -> None:
    control, commits = undisturbed(scenario)
    for first in crash_plans(commits):
        for second in second_crashes(scenario, first):
            again = CrashPlan(first.commit, first.when, first.keeps_unsynced)
            played = play(scenario, [again, second])
            assert again.fired, f"{again} never happened"
            assert second.fired, f"{again}, then {second} never happened"
            check_as_undisturbed(played, control, f"{again}, then {second}")


def second_crashes(scenario: Scenario, first: CrashPlan) -> Iterator[CrashPlan]:
    """Yield every way to die in the recovery from a first crash."""
    counter = commit_counter()
    play(scenario, [CrashPlan(first.commit, first.when, first.keeps_unsynced), counter])
    return crash_plans(counter.seen)
