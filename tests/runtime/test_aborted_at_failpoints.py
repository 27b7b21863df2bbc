"""The Object aborted at every passage of every failpoint, in every kind of work: it converges by its alarm alone.

Covers EV-1 to EV-3, EV-14 to EV-19, EV-23 to EV-28, EV-29 to EV-54 as far as each is a failpoint of ours, CE-2, and
the ten maintenance failpoints, which parity's gap 4 asks for. The process killed there: test_killed_at_failpoints.
"""

from collections import Counter

import pytest

from quiesce.failpoints import COMMITS, MAINTENANCE
from runtime.conftest import NewStage
from runtime.helpers.bringing import Brought, bring_all
from runtime.helpers.crashing import Crash, all_crashes, bring_to, check_the_end
from runtime.helpers.ondisk import until
from runtime.helpers.scenarios import SCENARIOS, Scenario
from runtime.helpers.stage import Stage

pytestmark = pytest.mark.worker

CRASHES = tuple(all_crashes())


def test_every_failpoint_is_passed_by_some_scenario() -> None:
    assert {crash.point for crash in CRASHES} == {*MAINTENANCE, *COMMITS}


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_an_undisturbed_scenario_passes_each_failpoint_as_often_as_the_matrix_says(
    stage: Stage, scenario: Scenario
) -> None:
    if scenario.before is not None:
        scenario.before(stage)
    passed = len(stage.life()["seen"])
    scenario.start(stage)
    if scenario.act is not None:
        until(lambda: scenario.may_act(stage), bool)
        scenario.act(stage)
    seen = stage.until_settled()
    found = Counter(stage.life()["seen"][passed:])
    if scenario.is_paced:
        assert found >= Counter(scenario.passes)
    else:
        assert found == Counter(scenario.passes)
    assert {each.outcome for each in seen.settlements} == {scenario.outcome}
    assert stage.calls == scenario.calls


@pytest.fixture(scope="module")
def aborted(new_stage: NewStage) -> Brought[Crash, Stage]:
    """Every crash of the matrix, each in a conversation of its own, some seconds after the Object was aborted."""
    return bring_all(bring_to, {crash: new_stage() for crash in CRASHES}, "abort")


@pytest.mark.parametrize("crash", CRASHES, ids=str)
def test_an_object_aborted_here_converges_with_no_request(
    aborted: Brought[Crash, Stage], crash: Crash
) -> None:
    check_the_end(aborted.there(crash), crash, at_once=True)
