"""Alarms, as parity's list has them: AL-1 to AL-9, on real workerd, driven by nothing but the persisted alarm.

Parity: TP-5.
"""

from typing import Any

import pytest

from runtime.helpers.ondisk import Seen, until
from runtime.helpers.stage import REASON, Stage

pytestmark = pytest.mark.worker

APPROVE = {"decision": "approved", "reason": REASON}
MANY = 1_000
SOON_S = 20
"""Well before the minute after which the last resort tries again."""
QUESTION = {"question": "May it?"}


def suspended(stage: Stage) -> Seen:
    """Bring a conversation to an approval that it waits for, with no alarm set."""
    stage.submit("approval", QUESTION)
    seen = stage.until_state("suspended")
    assert seen.alarm_at_ms is None
    return seen


def unknown(stage: Stage) -> Seen:
    """Bring a conversation to a payment that left no result."""
    stage.outside.status["POST"] = 500
    stage.submit("charge", {"url": stage.url, "amount": 1})
    return stage.until_state("unknown")


def deliver(stage: Stage, times: int = 1) -> None:
    """Have the platform deliver the alarm, so often one after another."""
    for _ in range(times):
        before = stage.deliveries
        stage.control("set_alarm")
        until(lambda: ended(stage), lambda found: found > before)  # noqa: B023 - read at once


def ended(stage: Stage) -> int:
    return sum(each["ended"] is not None for each in stage.life()["deliveries"])


def spent(stage: Stage) -> dict[str, int]:
    return dict(stage.life()["counts"])


def test_al_1_a_forced_alarm_on_a_quiet_lane_runs_no_sql_and_writes_nothing(stage: Stage) -> None:
    before = suspended(stage)
    counts = spent(stage)
    stage.control("rig", part="sql", times=MANY)
    deliver(stage)
    assert stage.life()["deliveries"][-1]["ended"] == "in order"
    assert stage.life()["refused"] == {}
    assert spent(stage) == {**counts, "kv_reads": counts["kv_reads"] + 1}
    assert stage.look() == before
    stage.control("rig", part="sql", times=0)
    assert stage.post("approvals/question", APPROVE).status_code == 200
    assert stage.until_settled().settlements[0].result["approved"] is True


def test_al_2_an_approval_that_races_the_acknowledgement_stays_dirty_and_resumes_exactly_once(
    stage: Stage,
) -> None:
    stage.arm("maintenance:finish:before", "pause")
    stage.submit("approval", QUESTION)
    stage.until_paused("maintenance:finish:before")
    assert stage.look().states == ["suspended"]
    assert stage.post("approvals/question", APPROVE).status_code == 200
    raced = stage.look()
    assert raced.generation is not None
    assert raced.generation.is_owed
    assert raced.alarm_at_ms is not None
    stage.control("release", point="maintenance:finish:before")
    seen = stage.until_settled()
    assert seen.count("approval-decided") == 1
    assert stage.life()["seen"].count("claim:after") == 2


def test_al_3_a_mutation_in_flight_cannot_be_acknowledged(stage: Stage) -> None:
    """Its body is held between the commit that counts it and its end, while a whole pass runs."""
    stage.submit("echo", 1)
    stage.until_settled()
    stage.arm("maintenance:mutation:armed", "pause")
    stage.in_background(lambda: stage.control("mutation", conversation=stage.name, key="late"))
    stage.until_paused("maintenance:mutation:armed")
    deliver(stage)
    held = stage.look()
    assert held.generation is not None
    assert held.generation.is_owed
    assert held.alarm_at_ms is not None
    stage.control("release", point="maintenance:mutation:armed")
    seen = stage.until(lambda seen: len(seen.submissions) == 2 and seen.is_settled)
    assert len(stage.until_settled().settlements) == len(seen.submissions)
    assert stage.state()["active"] == 0


@pytest.mark.parametrize("is_at_once", [False, True])
def test_al_4_double_alarms_on_a_ready_lane_change_nothing(
    stage: Stage, *, is_at_once: bool
) -> None:
    stage.arm("maintenance:begin:before", "pause")
    stage.submit("steps", {"count": 2, "url": stage.url})
    stage.until_paused("maintenance:begin:before")
    stage.control("set_alarm")
    if is_at_once:
        stage.in_background(lambda: stage.control("deliver", times=3))
    stage.control("release", point="maintenance:begin:before")
    seen = stage.until_settled()
    deliver(stage)
    assert stage.look() == seen
    assert stage.calls == {"0": 1, "1": 1}


def test_al_5_double_alarms_on_a_suspended_lane_change_nothing(stage: Stage) -> None:
    before = suspended(stage)
    deliver(stage, 2)
    stage.control("deliver", times=3)
    assert stage.look() == before
    stage.post("approvals/question", APPROVE)
    stage.until_settled()


def test_al_6_double_alarms_never_repeat_an_unknown_call(stage: Stage) -> None:
    before = unknown(stage)
    assert before.alarm_at_ms is None
    deliver(stage, 2)
    assert stage.look() == before
    assert stage.calls == {"POST": 1}
    stage.outside.status.clear()
    body = {"resolution": "never-happened", "reason": REASON}
    assert stage.post("resolutions/charge", body).status_code == 200
    assert stage.until_settled().settlements[0].outcome == "completed"
    assert stage.calls == {"POST": 2}


@pytest.mark.parametrize("point", ["claim:before", "claim:after", "maintenance:finish:before"])
def test_al_7_a_failing_pass_is_redelivered_and_converges_with_no_client_call(
    stage: Stage, point: str
) -> None:
    stage.arm(point, "raise")
    stage.submit("echo", 1)
    seen = stage.until_settled()
    deliveries: list[dict[str, Any]] = stage.life()["deliveries"]
    assert deliveries[0]["ended"].startswith("RuntimeError")
    assert deliveries[-1]["ended"] == "in order"
    assert len(seen.settlements) == 1


def test_al_8_the_alarm_is_there_exactly_while_something_can_move(stage: Stage) -> None:
    assert suspended(stage).alarm_at_ms is None
    stage.arm("maintenance:begin:before", "pause")
    stage.post("approvals/question", APPROVE)
    decided = stage.look()
    assert decided.generation is not None
    assert decided.generation.is_owed
    stage.until_paused("maintenance:begin:before")
    stage.control("release", point="maintenance:begin:before")
    assert stage.until_settled().alarm_at_ms is None


@pytest.mark.parametrize("point", ["claim:before", "claim:after", "settle:before"])
def test_al_9_an_incarnation_that_dies_in_its_pass_leaves_its_alarm_behind(
    stage: Stage, point: str
) -> None:
    stage.arm(point, "pause")
    stage.submit("echo", 1)
    stage.until_paused(point)
    assert stage.look().alarm_at_ms is not None
    stage.in_background(lambda: stage.control("abort"))
    stage.until_settled()
    assert stage.life()["constructions"] == 2


def test_an_evicted_object_goes_on_where_it_waited(stage: Stage) -> None:
    before = suspended(stage)
    assert stage.server.evict("ConversationObject", stage.name)
    assert stage.look() == before
    stage.post("approvals/question", APPROVE)
    stage.until_settled()
    assert stage.life()["constructions"] == 2


def test_a_lost_alarm_is_repaired_by_the_next_request_and_counted(stage: Stage) -> None:
    """M13, with the slot emptied behind the engine's back while work is owed."""
    stage.arm("maintenance:begin:before", "abort")
    stage.submit("echo", 1)
    stage.until_sprung()
    stage.control("delete_alarm")
    stage.client.status(stage.name, stage.submissions[0])
    stage.until_settled()


def test_a_storm_of_mutations_is_answered_and_settles_in_order(stage: Stage) -> None:
    """Parity's gap 9: hundreds of bumps while passes run."""
    for place in range(120):
        stage.submit("echo", place, f"key-{place}")
    seen = stage.until_settled()
    assert [each.result for each in seen.settlements] == list(range(120))


def test_the_last_resort_of_a_failed_begin_moves_no_alarm_that_a_mutation_has_set(
    stage: Stage,
) -> None:
    """M10 and M2: the bare alarm is for a slot that is empty, or set to later."""
    stage.arm("maintenance:begin:before", "pause")
    stage.submit("echo", 1)
    stage.until_paused("maintenance:begin:before")
    stage.submit("echo", 2, "second")
    armed_at_ms = stage.look().alarm_at_ms
    assert armed_at_ms is not None
    stage.control("rig", part="transaction", times=1)
    stage.control("release", point="maintenance:begin:before")
    assert len(stage.until_settled(SOON_S).settlements) == 2
    assert stage.life()["refused"] == {"transaction": 1}
