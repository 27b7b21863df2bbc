"""The process killed with -9 at every passage of every failpoint: what comes back converges by its alarm alone.

All conversations are brought to where they are to be killed, and stand still there; then one kill ends them all. A
few more end the process themselves, in the same breath as the failpoint. Covers RS-2 and parity's gap 4.
"""

import pytest

from runtime.conftest import NewStage
from runtime.helpers.bringing import Brought, bring_all
from runtime.helpers.crashing import Crash, all_crashes, bring_to, check_the_end
from runtime.helpers.stage import Stage
from workshop.serving import Server

pytestmark = pytest.mark.worker

CRASHES = tuple(all_crashes())
EXITS = (
    Crash("echo", "maintenance:begin:after"),
    Crash("steps", "step:before", 1),
    Crash("steps", "step:after", 1),
    Crash("approval", "maintenance:dirty:after", 1),
    Crash("charge", "prepare:after"),
    Crash("echo", "settle:after"),
)


@pytest.fixture(scope="module")
def killed(server: Server, new_stage: NewStage) -> Brought[Crash, Stage]:
    """Every crash of the matrix, each in a conversation of its own, after one kill of the process."""
    brought = bring_all(bring_to, {crash: new_stage() for crash in CRASHES}, "pause")
    server.kill_runtime()
    return brought


@pytest.mark.parametrize("crash", CRASHES, ids=str)
def test_a_process_killed_here_converges_with_no_request(
    killed: Brought[Crash, Stage], crash: Crash
) -> None:
    check_the_end(killed.there(crash), crash, at_once=False)


@pytest.mark.parametrize("crash", EXITS, ids=str)
def test_a_process_that_ends_itself_here_converges_with_no_request(
    server: Server, stage: Stage, crash: Crash
) -> None:
    runtime = server.runtime_pid()
    assert runtime is not None
    bring_to(stage, crash, "exit", lambda: server.runtime_pid() != runtime)
    server.wait_for_restart(runtime)
    check_the_end(stage, crash, at_once=True)
