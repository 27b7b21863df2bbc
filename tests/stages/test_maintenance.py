"""The generation laws M1 to M14, through verbs on a simulated Object; each test is named by its law.

Passes are made to fail by a store that refuses the commits of an attempt (`scope="commits"`), or transactions,
or everything. `jitter=0` makes a paced delay exactly half of the doubled base.

What cannot happen: S21's unnamed alarm: the conversation's name is read from the Object's own rows, never from a
header or a platform name. S24's row per wake: a wake is a number in the generation record, not a row. S30: there
are no facets; a child is an Object of its own. S53 and S155 are the workshop's. S29 is in test_retention.py.

Parity: SN-4, SN-19, DRT-1, S56, RT-7.
"""

import asyncio
import json
import random
from typing import Any

import pytest

from quiesce import Agent, Run, dispatch, maintenance, wake
from quiesce.errors import NewerStorage, Refusal, StorageUnavailable
from quiesce.failpoints import MAINTENANCE
from quiesce.settings import Settings
from quiesce.states import State
from quiesce.testing import Conversation, Crashed, Deployment
from stages.corpus import World, agents

HOUR_MS = 3_600_000
OTHER = 10_000


def approval_agent() -> Agent:
    agent = Agent("ask", input=Any)

    @agent.handler
    async def _(run: Run, _value: Any) -> bool:
        return bool((await run.approval("question", reason="why not")).approved)

    return agent


def deployed(settings: Settings | None = None, **options: Any) -> Deployment:
    """A deployment of the corpus's agents and one that asks for approval, without jitter."""
    world = World()
    deployment = Deployment(
        [*agents(world), approval_agent()], settings, jitter=options.pop("jitter", 0.0), **options
    )
    world.deployment = deployment
    return deployment


def in_ms(lane: Conversation) -> int:
    """How far ahead the alarm stands."""
    assert lane.alarm_at_ms is not None
    return lane.alarm_at_ms - lane.deployment.now_ms


def suspended(lane: Conversation) -> Any:
    """Bring a lane to where it waits for an approval, with no alarm."""
    receipt = lane.submit("ask")
    lane.deployment.run_until_quiet()
    assert lane.status(receipt.submission).submission.state is State.SUSPENDED
    return receipt.submission


# M1


def test_m1_accepted_work_is_owed_and_armed_before_its_receipt_returns() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 1)
        assert lane.generation().is_owed
        assert in_ms(lane) == 1


def test_m1_running_pass_has_its_successor_committed() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("slow", 600)
        lane.start_delivery()
        assert lane.generation().is_owed
        assert in_ms(lane) == 50
        deployment.run_until_quiet()


# M2


def test_m2_bump_rows_and_alarm_are_one_transaction() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 0)
        before = lane.disk.alarm_writes
        lane.submit("echo", 1)
        record = lane.generation()
        assert (record.dirty, record.processed, record.nonterminal) == (2, 0, 2)
        assert lane.disk.alarm_writes == before, "the alarm stood already"


def test_m2_refused_mutation_writes_nothing() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 0, key="same")
        deployment.run_until_quiet()
        image = lane.disk.image()
        with pytest.raises(Refusal):
            lane.submit("echo", 1, key="same")
        with pytest.raises(Refusal):
            lane.submit("nobody", 1)
        assert lane.disk.image() == image


def test_m2_mutation_while_a_pass_runs_arms_by_the_shortest_delay() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("slow", 600)
        lane.start_delivery()
        lane.disk.alarm_at_ms = deployment.now_ms + OTHER
        lane.submit("echo", 1)
        assert in_ms(lane) == deployment.settings.alarm_delay_ms
        deployment.run_until_quiet()


def test_m2_mutation_forgets_idle_wakes_and_arms_at_once() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 1)
        lane.break_storage(scope="commits")
        deployment.advance(60_000)
        assert lane.generation().idle_wakes > 5
        lane.mend_storage()
        lane.submit("echo", 2)
        assert lane.generation().idle_wakes == 0
        assert in_ms(lane) == 1
        deployment.run_until_quiet()


def test_m2_body_does_not_run_when_its_bump_fails() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 1)
        ran: list[int] = []

        async def body() -> None:
            ran.append(1)

        lane.break_storage(scope="transactions")
        with pytest.raises(StorageUnavailable):
            lane.event(lambda: maintenance.with_mutation(lane.lane, body))
        assert not ran
        assert lane.lane.gates.active == 0
        lane.mend_storage()
        deployment.run_until_quiet()


def test_m2_bump_and_arm_are_committed_before_the_body() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 1)
        deployment.run_until_quiet()
        seen: list[tuple[bool, int]] = []

        async def body() -> None:
            seen.append((lane.generation().is_owed, in_ms(lane)))

        lane.event(lambda: maintenance.with_mutation(lane.lane, body))
        assert seen == [(True, 50)]
        assert in_ms(lane) == 1, "releasing it wakes"
        deployment.run_until_quiet()


@pytest.mark.parametrize("how", ["raises", "is cancelled"])
def test_m2_mutation_is_released_when_its_body_does_not_end_well(how: str) -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 1)
        deployment.run_until_quiet()
        gone = asyncio.Event()

        async def body() -> None:
            if how == "raises":
                raise ValueError(how)
            await gone.wait()

        task = lane.start(lambda: maintenance.with_mutation(lane.lane, body))
        task.cancel()
        deployment.run_until_idle()
        assert lane.lane.gates.active == 0
        assert lane.generation().is_owed
        deployment.run_until_quiet()
        assert not lane.generation().is_owed


def test_m2_active_body_is_paced_and_never_acknowledged_and_resumes_once() -> None:
    with deployed(jitter=0.9) as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 1)
        deployment.run_until_quiet()
        release = asyncio.Event()
        lane.start(lambda: maintenance.with_mutation(lane.lane, release.wait))
        wakes = deployment.advance(60_000)
        assert 60 <= wakes <= 66, "about once a second"
        assert lane.generation().is_owed
        assert lane.generation().idle_wakes <= 1, "waiting for a body is not idle"
        assert in_ms(lane) <= 1_000
        release.set()
        deployment.run_until_idle()
        assert deployment.run_until_quiet() == 1
        assert not lane.generation().is_owed


# M3


def test_m3_recovery_precedes_any_claim() -> None:
    """CH-2: what is settled by recovery stands before the input that follows it."""
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("flaky", 1)
        expired = lane.submit("echo", 2, deadline_ms=40)
        lane.deliver()
        deployment.advance(50)
        lane.submit("echo", 3)
        deployment.run_until_quiet()
        kinds = [(each.kind, each.submission == expired.submission) for each in lane.records()]
        assert kinds.index(("settlement", True)) < kinds.index(("settlement", False))


# M4


def test_m4_caught_up_alarm_costs_no_sql_and_one_kv_read() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 1)
        deployment.run_until_quiet()
        mark = lane.storage.counts()
        report = lane.alarm()
        spent = lane.storage.counts().since(mark)
        assert report is not None
        assert report.phase == "caught-up"
        assert (spent.statements, spent.kv_reads, spent.rows_written) == (0, 1, 0)
        assert lane.alarm_at_ms is None


def test_m4_early_alarm_of_a_lane_that_waits_for_a_clock_is_set_again_to_its_due_time() -> None:
    """S28: moving it later holds; S7: it is not polled."""
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("later", deployment.now_ms + 100)
        lane.deliver()
        due_at_ms = lane.generation().due_at_ms
        assert due_at_ms == lane.alarm_at_ms
        mark = lane.storage.counts()
        lane.alarm()
        assert lane.alarm_at_ms == due_at_ms
        assert lane.storage.counts().since(mark).statements == 0
        deployment.run_until_quiet()


def test_m4_due_time_becomes_a_generation() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("later", deployment.now_ms + 50)
        lane.deliver()
        before = lane.generation()
        assert not before.is_owed
        assert before.due_at_ms is not None
        lane.break_storage(scope="commits")
        deployment.advance(before.due_at_ms - deployment.now_ms)
        after = lane.generation()
        assert after.dirty == before.dirty + 1
        assert after.due_at_ms is None, "a pass that died still owes it"
        lane.mend_storage()
        deployment.run_until_quiet()


def test_m4_begin_counts_and_arms_before_any_work() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 1)
        lane.crash_at("maintenance:begin:after")
        lane.deliver()
        record = lane.generation()
        assert (record.failures, record.idle_wakes) == (1, 1)
        assert in_ms(lane) == 50
        deployment.run_until_quiet()


# M5


def test_m5_mutation_between_begin_and_finish_stays_dirty_and_resumes_exactly_once() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 1)
        pause = lane.pause_at("maintenance:finish:before")
        lane.start_delivery()
        assert pause.is_reached
        second = lane.submit("echo", 2)
        pause.release()
        deployment.run_until_idle()
        record = lane.generation()
        assert (record.dirty, record.processed) == (2, 0), "there was something to do"
        assert deployment.run_until_quiet() == 1
        assert lane.settlement(second.submission).result == 2


def test_m5_generation_that_came_after_begin_is_not_acknowledged() -> None:
    """AL-2: the approval that comes at the last moment of a pass."""
    with deployed() as deployment:
        lane = deployment.conversation("one")
        receipt = lane.submit("ask")
        pause = lane.pause_at("maintenance:finish:before")
        lane.start_delivery()
        lane.approve(receipt.submission, "question")
        assert lane.alarm_at_ms is not None
        pause.release()
        deployment.run_until_idle()
        record = lane.generation()
        assert record.is_owed
        deployment.run_until_quiet()
        assert lane.settlement(receipt.submission).result is True


def test_m5_al_3_mutation_in_flight_is_still_dirty_after_a_pass_that_saw_it() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        submission = suspended(lane)
        pause = lane.pause_at("maintenance:mutation:armed")

        async def body() -> None:
            pass

        task = lane.start(lambda: maintenance.with_mutation(lane.lane, body))
        lane.deliver()
        pause.release()
        deployment.run_until_idle()
        assert task.done()
        assert lane.generation().is_owed
        assert lane.alarm_at_ms is not None
        deployment.run_until_quiet()
        assert lane.status(submission).submission.state is State.SUSPENDED


def test_m5_quiet_lane_clears_its_alarm_and_a_due_one_sets_exactly_its_time() -> None:
    """S3, S25, AL-8: an approval costs nothing while it waits; a clock costs one alarm, at its time."""
    with deployed() as deployment:
        quiet, due = deployment.conversation("quiet"), deployment.conversation("due")
        submission = suspended(quiet)
        for number in range(20):
            quiet.submit("echo", number)
        deployment.run_until_quiet()
        due.submit("later", deployment.now_ms + 30)
        due.deliver()
        assert due.alarm_at_ms == due.generation().due_at_ms
        deployment.run_until_quiet()
        assert deployment.advance(24 * HOUR_MS) == 0
        assert quiet.alarm_at_ms is None
        quiet.approve(submission, "question")
        assert quiet.alarm_at_ms is not None
        deployment.run_until_quiet()
        assert quiet.alarm_at_ms is None
        assert quiet.state().counts[State.SETTLED] == 21


def test_m5_slot_is_the_earliest_of_all_due_times() -> None:
    """S25: a later delay never overwrites an earlier due time."""
    with deployed(Settings(backoff_base_ms=60_000, alarm_delay_min_ms=50)) as deployment:
        lane = deployment.conversation("one")
        lane.submit("flaky", 1)
        expiring = lane.submit("echo", 1, deadline_ms=5_000)
        lane.deliver()
        assert in_ms(lane) <= 5_000
        deployment.advance(5_001)
        assert lane.settlement(expiring.submission).failure["error_type"] == "deadline-exceeded"  # type: ignore[index]
        deployment.run_until_quiet()


# M6


def test_m6_bookkeeping_of_a_pass_never_bumps_dirty() -> None:
    """S6, S1: one pass acknowledges, and there is no other."""
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("steps", 3)
        assert deployment.run_until_quiet() == 1
        record = lane.generation()
        assert (record.dirty, record.processed) == (1, 1)
        assert deployment.advance(10 * 60_000) == 0


# M7


def test_m7_overlapping_passes_do_not_acknowledge_each_others_work() -> None:
    """AL-4: a second delivery while the first runs waits for it, and finds nothing to do."""
    with deployed() as deployment:
        lane = deployment.conversation("one")
        receipt = lane.submit("slow", 600)
        first = lane.start_delivery()
        second = lane.start(lambda: maintenance.on_alarm(lane.lane, 0))
        assert not second.done()
        later = lane.submit("echo", "during")
        deployment.run_until_quiet()
        assert first.done()
        assert second.done()
        assert lane.settlement(receipt.submission).result == "done"
        assert lane.settlement(later.submission).result == "during"
        claims = [each for each in lane.records() if each.kind == "input-applied"]
        assert len(claims) == 2


def test_m7_two_objects_that_call_each_other_do_not_deadlock() -> None:
    with deployed() as deployment:
        one, two = deployment.conversation("one"), deployment.conversation("two")
        for lane in (one, two):
            lane.submit("echo", 1)
        met = asyncio.Event()

        def calls(other: Conversation) -> Any:
            async def body() -> None:
                met.set()
                await met.wait()
                await dispatch.dispatch(other.lane, command(other, "force-pass"))

            return body

        tasks = [
            lane.start(
                lambda lane=lane, other=other: maintenance.with_mutation(lane.lane, calls(other))
            )
            for lane, other in ((one, two), (two, one))
        ]
        deployment.run_until_quiet()
        assert all(task.done() and task.exception() is None for task in tasks)


def command(lane: Conversation, verb: str, **fields: Any) -> str:
    """One command, as the router sends it."""
    if verb == "force-pass":
        fields = {"principal": "operator", "reason": "asked to", **fields}
    return json.dumps({"verb": verb, "conversation": lane.name, **fields})


def submit_command(lane: Conversation, key: str) -> str:
    body = {"agent": "echo", "input": 1}
    return command(lane, "submit", principal="tester", key=key, body=body)


# M8


def test_m8_the_clock_is_read_inside_the_transaction() -> None:
    """S10: an alarm is at least one millisecond ahead of when it is written, whatever was waited for."""
    with deployed() as deployment:
        lane = deployment.conversation("one")
        pause = lane.pause_at("maintenance:dirty:before")
        lane.start(lambda: dispatch.dispatch(lane.lane, submit_command(lane, "a")))
        deployment.advance(OTHER)
        pause.release()
        deployment.run_until_idle()
        assert in_ms(lane) == 1
        pause = lane.pause_at("maintenance:begin:before")
        lane.start_delivery()
        deployment.run(asyncio.sleep(10))
        pause.release()
        deployment.run_until_idle()
        deployment.run_until_quiet()


def test_m8_finish_never_moves_the_alarm_before_the_slot_of_begin() -> None:
    """Parity gap 5; that no interleaving does is checked by the explorer too."""
    with deployed(Settings(pass_submissions_max=1)) as deployment:
        lane = deployment.conversation("one")
        for number in range(3):
            lane.submit("echo", number)
        lane.deliver()
        assert in_ms(lane) == 50, "it yields with work that can run at once"
        deployment.run_until_quiet()


def test_m8_clock_that_steps_back_within_a_pass_does_not_fail_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A machine's clock is put right, or the Object moves to another: the pass took no time, and no less."""
    back_ms = [0]
    true_ms = Deployment.now_ms

    async def handle(_run: Run, value: Any) -> Any:
        back_ms[0] = 2_000
        return value

    def seen_ms(deployment: Deployment) -> int:
        return true_ms.fget(deployment) - back_ms[0]  # type: ignore[misc]

    monkeypatch.setattr(Deployment, "now_ms", property(seen_ms))
    agent = Agent("work", input=Any)
    agent.handler(handle)
    with Deployment([agent], jitter=0.0) as deployment:
        lane = deployment.conversation("one")
        submission = lane.submit("work", 1).submission
        report = lane.deliver()
        assert lane.errors == []
        assert report is not None
        assert (report.settled, report.duration_ms) == (1, 0)
        deployment.run_until_quiet()
        assert lane.settlement(submission).result == 1
        assert not lane.generation().is_owed


def test_m8_slot_that_is_past_due_gives_way_to_the_next_millisecond() -> None:
    with deployed(Settings(pass_submissions_max=1)) as deployment:
        lane = deployment.conversation("one")
        lane.submit("slow", 5_000)
        lane.submit("echo", 1)
        lane.deliver()
        assert in_ms(lane) == 1
        deployment.run_until_quiet()


def test_m8_storm_of_mutations_writes_the_alarm_a_bounded_number_of_times() -> None:
    """S26, S24: wakes coalesce to one generation and one alarm."""
    with deployed(checks_every_event=False) as deployment:
        lane = deployment.conversation("one")
        for number in range(200):
            lane.submit("echo", number)
        assert lane.disk.alarm_writes == 1
        record = lane.generation()
        assert record.dirty == 200
        wakes = deployment.run_until_quiet()
        assert wakes == 4, "64 submissions in a pass"
        assert lane.disk.alarm_writes <= 1 + 2 * wakes


def test_m8_storm_of_mutations_within_a_pass_writes_the_alarm_a_bounded_number_of_times() -> None:
    with deployed(checks_every_event=False) as deployment:
        lane = deployment.conversation("one")
        lane.submit("slow", 600)
        lane.start_delivery()
        before = lane.disk.alarm_writes
        for number in range(200):
            lane.submit("echo", number)
        assert lane.disk.alarm_writes <= before + 1
        deployment.run_until_quiet()
        assert lane.state().counts[State.SETTLED] == 201


# M9


def test_m9_failing_passes_are_paced_by_the_durable_exponent() -> None:
    """Parity gap 2, S40: the delay doubles from pass to pass, also across evictions, up to the cap."""
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 1)
        lane.break_storage(scope="commits")
        delays = []
        for number in range(14):
            deployment.advance(in_ms(lane))
            delays.append(in_ms(lane))
            if number % 2:
                lane.evict()
        assert delays == [
            50,
            100,
            200,
            400,
            800,
            1_600,
            3_200,
            6_400,
            12_800,
            25_600,
            *[30_000] * 4,
        ]
        lane.mend_storage()
        deployment.run_until_quiet()
        assert lane.generation().idle_wakes == 0


@pytest.mark.parametrize(("jitter", "delay_ms"), [(0.0, 100), (0.5, 150), (0.99, 199)])
def test_m9_jitter_spreads_over_the_upper_half(jitter: float, delay_ms: int) -> None:
    with deployed(jitter=jitter) as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 1)
        lane.break_storage(scope="commits")
        deployment.advance(in_ms(lane))
        deployment.advance(in_ms(lane))
        assert in_ms(lane) == delay_ms
        lane.mend_storage()


# M10


def test_m10_failing_pass_lets_its_error_out_and_stays_armed() -> None:
    """AL-7, S19, S43: nothing is acknowledged, nothing needs a client."""
    with deployed() as deployment:
        lane = deployment.conversation("one")
        receipt = lane.submit("echo", 1)
        lane.fail_at("claim:after", StorageUnavailable("Network connection lost."))
        lane.deliver()
        assert [str(error) for error in lane.errors] == ["Network connection lost."]
        assert lane.generation().is_owed
        deployment.run_until_quiet()
        assert lane.settlement(receipt.submission).result == 1
        assert lane.status(receipt.submission).submission.attempts == 0


def test_m10_twenty_failures_and_then_health_converge_with_no_request() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        receipts = [lane.submit("echo", number) for number in range(5)]
        lane.break_storage(scope="commits")
        for _ in range(20):
            deployment.advance(in_ms(lane))
        assert lane.generation().failures == 20
        assert len(lane.errors) == 20
        lane.mend_storage()
        deployment.run_until_quiet()
        assert [lane.settlement(each.submission).result for each in receipts] == [*range(5)]
        assert lane.generation().failures == 0


def test_m10_failing_begin_arms_a_minute_and_lets_its_error_out() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        receipt = lane.submit("echo", 1)
        lane.break_storage(scope="transactions")
        lane.deliver()
        assert len(lane.errors) == 1
        assert in_ms(lane) == 60_000
        lane.mend_storage()
        deployment.run_until_quiet()
        assert lane.settlement(receipt.submission).result == 1


@pytest.mark.parametrize("retry_count", [0, 4, 5, 6])
def test_m10_from_the_fifth_retry_on_a_failed_begin_ends_normally(retry_count: int) -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 1)
        lane.break_storage(scope="transactions")
        lane.deliver(retry_count)
        assert len(lane.errors) == (retry_count < 5)
        assert in_ms(lane) == 60_000
        lane.mend_storage()
        deployment.run_until_quiet()


def test_m10_store_that_refuses_transactions_for_an_hour_strands_nothing() -> None:
    """S123: the pass holds no lock that it can lose."""
    with deployed() as deployment:
        lane = deployment.conversation("one")
        receipt = lane.submit("echo", 1)
        lane.break_storage(scope="transactions")
        assert deployment.advance(HOUR_MS) == 60
        lane.mend_storage()
        deployment.advance(60_001)
        assert lane.settlement(receipt.submission).result == 1


def test_m10_store_that_is_down_for_an_hour_strands_nothing_that_a_request_does_not_wake() -> None:
    """S17, parity gap 7: not even the bare alarm can be written, and the platform gives up; a request repairs.

    The kit counts every failed delivery against the platform's limit, which is the worst case: a store that is down
    breaks the Object's output gate, and the platform does not count that.
    """
    with deployed() as deployment:
        lane = deployment.conversation("one")
        receipt = lane.submit("echo", 1)
        lane.break_storage()
        deployment.advance(HOUR_MS)
        assert len(lane.errors) == 7
        assert lane.alarm_was_lost
        lane.mend_storage()
        lane.visit()
        assert in_ms(lane) == 1
        deployment.run_until_quiet()
        assert lane.settlement(receipt.submission).result == 1


def test_m10_storage_outage_of_five_seconds_costs_no_attempt() -> None:
    """S40."""
    with deployed() as deployment:
        lane = deployment.conversation("one")
        receipt = lane.submit("flaky", 0)
        lane.break_storage(StorageUnavailable("SqlError: Network connection lost"))
        deployment.advance(5_000)
        lane.mend_storage()
        deployment.run_until_quiet()
        row = lane.status(receipt.submission).submission
        assert (row.attempts, row.outcome) == (0, "completed")


def newer(lane: Conversation) -> str:
    """Let newer code have written the record."""
    text = json.dumps({"schema_version": 99, "dirty": "5", "processed": "2", "new": True})
    lane.evict()
    lane.disk.put(wake.RECORD_KEY, text)
    lane.disk.sync()
    return text


def test_m10_record_of_newer_code_is_refused_with_its_bytes_untouched() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 1)
        record = lane.disk.get(wake.RECORD_KEY)
        text = newer(lane)
        lane.deliver()
        assert not lane.errors
        assert in_ms(lane) == HOUR_MS
        answer = lane.event(lambda: dispatch.dispatch(lane.lane, submit_command(lane, "b")))
        assert (answer.status, answer.body["code"]) == (503, "unavailable")
        with pytest.raises(NewerStorage):
            lane.submit("echo", 2)
        assert lane.disk.get(wake.RECORD_KEY) == text
        # A rollback of the code harms nothing.
        assert record is not None
        lane.evict()
        lane.disk.put(wake.RECORD_KEY, record)
        deployment.run_until_quiet()
        assert lane.state().counts[State.SETTLED] == 1


def test_m10_unreadable_record_is_copied_once_and_one_pass_finds_what_is_owed() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        receipt = lane.submit("echo", 1)
        for garbage in ("not json", '{"schema_version": 1}'):
            lane.evict()
            lane.disk.put(wake.RECORD_KEY, garbage)
            lane.force_pass()
            assert lane.generation().is_owed
        assert lane.disk.get(wake.UNREADABLE_KEY) == "not json"
        assert deployment.run_until_quiet() == 1
        assert lane.settlement(receipt.submission).result == 1
        assert lane.generation().nonterminal == 0


def test_m10_unreadable_record_heals_by_its_alarm_alone() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        receipt = lane.submit("echo", 1)
        lane.evict()
        lane.disk.put(wake.RECORD_KEY, "{")
        deployment.run_until_quiet()
        assert lane.settlement(receipt.submission).result == 1
        assert lane.disk.get(wake.UNREADABLE_KEY) == "{"


def test_m10_object_with_tables_and_no_record_owes_one_pass() -> None:
    """Parity gap 3: the first event finds it; the constructor scans nothing."""
    with deployed() as deployment:
        lane = deployment.conversation("one")
        receipt = lane.submit("echo", 1)
        lane.evict()
        lane.disk.delete(wake.RECORD_KEY)
        lane.disk.alarm_at_ms = None
        lane.disk.sync()
        assert lane.storage.counts().statements == 0
        lane.visit()
        deployment.run_until_quiet()
        assert lane.settlement(receipt.submission).result == 1


# M11


def test_m11_lane_without_progress_parks_after_its_wake_budget_and_is_tried_hourly() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 1)
        lane.break_storage(scope="commits")
        while in_ms(lane) < HOUR_MS:
            deployment.advance(in_ms(lane))
        assert lane.wakes == 66
        assert lane.generation().idle_wakes == 66
        assert lane.state().maintenance.is_parked
        assert deployment.advance(10 * HOUR_MS) == 10
        lane.mend_storage()
        deployment.run_until_quiet()
        assert lane.state().counts[State.SETTLED] == 1, "it heals by itself"
        assert not lane.state().maintenance.is_parked


def test_m11_next_mutation_releases_a_parked_lane() -> None:
    with deployed(Settings(idle_wakes_max=8)) as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 1)
        lane.break_storage(scope="commits")
        deployment.advance(10 * 60_000)
        assert lane.state().maintenance.is_parked
        lane.mend_storage()
        lane.force_pass()
        assert in_ms(lane) == 1
        assert not lane.state().maintenance.is_parked
        deployment.run_until_quiet()


def test_m11_wake_budget_of_a_fleet_stays_under_its_ceiling() -> None:
    """S5: lanes with nothing to do cost nothing, and a lane that fails all day costs less than a hundred wakes."""
    with deployed(checks_every_event=False) as deployment:
        for number in range(50):
            lane = deployment.conversation(f"idle-{number}")
            lane.submit("echo", number)
        deployment.run_until_quiet()
        failing = deployment.conversation("failing")
        failing.submit("echo", 1)
        failing.break_storage(scope="commits")
        wakes = deployment.advance(24 * HOUR_MS)
        assert wakes == failing.wakes < 66 + 24
        assert failing.state().maintenance.is_parked
        failing.mend_storage()


# M12


def test_m12_constructor_costs_one_kv_read_and_no_sql() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 1)
        deployment.run_until_quiet()
        lane.evict()
        spent = lane.storage.counts()
        assert (spent.statements, spent.kv_reads, spent.rows_written) == (0, 1, 0)


def test_m12_gate_fills_an_empty_slot_of_a_lane_with_a_need() -> None:
    with deployed() as deployment:
        owed, due = deployment.conversation("owed"), deployment.conversation("due")
        owed.submit("echo", 1)
        due.submit("later", deployment.now_ms + 30)
        due.deliver()
        due_at_ms = due.alarm_at_ms
        for lane in (owed, due):
            lane.evict()
            lane.lose_alarm()
            assert lane.storage.counts().statements == 0
        assert in_ms(owed) == 1
        assert due.alarm_at_ms == due_at_ms
        deployment.run_until_quiet()


@pytest.mark.parametrize("offset_ms", [-HOUR_MS, -1, 1, HOUR_MS])
def test_m12_gate_leaves_an_existing_alarm_alone(offset_ms: int) -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 1)
        lane.evict()
        lane.disk.alarm_at_ms = deployment.now_ms + offset_ms
        _ = lane.lane
        assert in_ms(lane) == offset_ms
        deployment.run_until_quiet()


def test_m12_the_gate_leaves_the_alarm_of_an_unreadable_record_alone() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 1)
        lane.evict()
        lane.disk.put(wake.RECORD_KEY, "{")
        lane.disk.alarm_at_ms = deployment.now_ms + OTHER
        _ = lane.lane
        assert in_ms(lane) == OTHER
        deployment.run_until_quiet()


def test_m12_the_gate_raises_nothing_when_the_store_is_down() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 1)
        lane.evict()
        lane.break_storage()
        _ = lane.lane
        lane.mend_storage()
        deployment.run_until_quiet()


def test_m12_startup_executes_nothing() -> None:
    """S22: due work waits for its alarm."""
    with deployed() as deployment:
        lane = deployment.conversation("one")
        receipt = lane.submit("echo", 1)
        lane.evict()
        deployment.run(asyncio.sleep(60))
        _ = lane.lane
        assert lane.status(receipt.submission).submission.state is State.READY
        deployment.run_until_quiet()


# M13


@pytest.mark.parametrize("stale_ms", [None, 30_001])
def test_m13_request_repairs_a_lost_or_stale_alarm(stale_ms: int | None) -> None:
    """S11, S15, S126."""
    with deployed() as deployment:
        lane = deployment.conversation("one")
        receipt = lane.submit("echo", 1)
        lane.evict()
        _ = lane.lane
        deployment.run(asyncio.sleep(120))
        lane.lose_alarm()
        if stale_ms is not None:
            lane.disk.alarm_at_ms = deployment.now_ms - stale_ms
        lane.visit()
        assert in_ms(lane) == 1
        assert lane.generation().alarm_repaired == 1
        deployment.run_until_quiet()
        assert lane.settlement(receipt.submission).result == 1


def test_m13_alarm_that_is_only_a_little_late_is_left_alone() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 1)
        deployment.run(asyncio.sleep(29))
        lane.visit()
        assert in_ms(lane) < 0
        assert lane.generation().alarm_repaired == 0
        deployment.run_until_quiet()


def test_m13_repair_comes_once_in_an_incarnation() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 1)
        lane.evict()
        _ = lane.lane
        deployment.run(asyncio.sleep(120))
        lane.lose_alarm()
        lane.visit()
        deployment.run(asyncio.sleep(120))
        lane.lose_alarm()
        lane.visit()
        assert lane.generation().alarm_repaired == 1
        assert lane.alarm_at_ms is None
        lane.evict()
        lane.visit()
        assert lane.alarm_at_ms is not None
        deployment.run_until_quiet()


def test_m13_duplicate_submission_repairs_too() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 1, key="a")
        deployment.run(asyncio.sleep(120))
        lane.lose_alarm()
        assert lane.submit("echo", 1, key="a").is_replayed
        assert lane.alarm_at_ms is not None
        assert lane.generation().alarm_repaired == 1
        deployment.run_until_quiet()


def test_m13_a_refused_submission_repairs_too() -> None:
    with deployed(Settings(queue_depth_max=1)) as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 1)
        deployment.run(asyncio.sleep(120))
        lane.lose_alarm()
        answer = lane.event(lambda: dispatch.dispatch(lane.lane, submit_command(lane, "b")))
        assert answer.status == 429
        assert lane.alarm_at_ms is not None
        deployment.run_until_quiet()


def test_m13_request_during_a_pass_repairs_nothing() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("slow", 90_000)
        lane.start_delivery()
        deployment.run(asyncio.sleep(60))
        writes = lane.disk.alarm_writes
        lane.visit()
        assert lane.disk.alarm_writes == writes
        deployment.run_until_quiet()


def test_m13_request_finds_another_deployment_and_wakes_the_lane() -> None:
    """S4, S115: see also test_drain.py."""
    with deployed() as deployment:
        lane = deployment.conversation("one")
        suspended(lane)
        deployment.deploy([*agents(World(deployment=deployment)), next_version()])
        lane.visit()
        assert lane.generation().is_owed
        deployment.run_until_quiet()


def next_version() -> Agent:
    agent = Agent("ask", input=Any, version="2")
    agent.handler(approval_agent().run_handler)
    return agent


# M14


def test_m14_hint_never_counts_and_is_dropped_inside_a_pass() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("slow", 600)
        lane.start_delivery()
        writes, record = lane.disk.alarm_writes, lane.generation()
        lane.event(lambda: maintenance.hasten(lane.lane))
        assert lane.disk.alarm_writes == writes
        assert lane.generation() == record
        deployment.run_until_quiet()


def test_m14_hint_makes_an_alarm_sooner_and_never_later() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 1)
        dirty = lane.generation().dirty
        for offset_ms in (OTHER, 1):
            lane.disk.alarm_at_ms = deployment.now_ms + offset_ms
            lane.event(lambda: maintenance.hasten(lane.lane))
            assert in_ms(lane) == 1
        assert lane.generation().dirty == dirty
        deployment.run_until_quiet()


def test_m14_releasing_the_last_of_two_mutations_wakes() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        suspended(lane)
        first, second = asyncio.Event(), asyncio.Event()
        for event in (first, second):
            lane.start(lambda event=event: maintenance.with_mutation(lane.lane, event.wait))
        first.set()
        deployment.run_until_idle()
        assert in_ms(lane) == 50
        second.set()
        deployment.run_until_idle()
        assert in_ms(lane) == 1
        deployment.run_until_quiet()


# A virgin Object


def test_virgin_object_is_left_as_it_was_found() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        image = lane.disk.image()
        with pytest.raises(Refusal, match="no conversation"):
            lane.state()
        lane.visit()
        with pytest.raises(Refusal):
            lane.submit("nobody")
        lane.alarm()
        assert lane.disk.image() == image
        lane.disk.alarm_at_ms = deployment.now_ms + 5
        lane.deliver()
        assert lane.alarm_at_ms is None
        assert lane.is_virgin


def test_reads_leave_no_trace() -> None:
    """EV-58: a probe and a request that finds nothing wrong write nothing, and no crash within them matters."""
    with deployed() as deployment:
        lane = deployment.conversation("one")
        submission = suspended(lane)
        image = lane.disk.image()
        lane.visit()
        lane.state()
        lane.records()
        lane.status(submission)
        lane.crash(keeps_unsynced=False)
        lane.visit()
        assert lane.disk.image() == image


def test_counters_beyond_doubles_count_on() -> None:
    """Parity gap 9: JavaScript's numbers end at 2**53; a generation does not."""
    with deployed() as deployment:
        lane = deployment.conversation("one")
        suspended(lane)
        lane.evict()
        record = lane.generation().changed(dirty=2**70, processed=2**70)
        lane.disk.put(wake.RECORD_KEY, record.model_dump_json())
        lane.force_pass()
        assert lane.generation().dirty == 2**70 + 1
        deployment.run_until_quiet()
        assert lane.generation().processed == 2**70 + 1


def test_object_of_another_name_is_refused() -> None:
    """S21."""
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("echo", 1)
        lane.name = type(lane.name)("two")
        with pytest.raises(Refusal, match="no conversation"):
            lane.submit("echo", 1)
        lane.name = type(lane.name)("one")
        deployment.run_until_quiet()


# The ten failpoints


def reach_all(lane: Conversation) -> None:
    """Do what passes every maintenance failpoint: admit, let a mutation with a body run, wake."""

    async def body() -> None:
        await asyncio.sleep(0)

    lane.submit("echo", "a", key="a")
    lane.start(lambda: maintenance.with_mutation(lane.lane, body))
    lane.deployment.run_until_quiet()


@pytest.mark.parametrize("keeps_unsynced", [True, False])
@pytest.mark.parametrize("failpoint", MAINTENANCE)
def test_crash_at_a_maintenance_failpoint_converges_by_alarms_alone(
    failpoint: str, *, keeps_unsynced: bool
) -> None:
    """Parity gap 4, AL-9, EV-10, EV-13."""
    with deployed() as deployment:
        lane = deployment.conversation("one")
        first = lane.submit("echo", "first")
        lane.crash_at(failpoint, keeps_unsynced=keeps_unsynced)
        try:
            reach_all(lane)
        except Crashed:
            deployment.run_until_quiet()
        assert lane.armed.reached == [failpoint]
        assert lane.settlement(first.submission).result == "first"
        assert not lane.generation().is_owed
        assert lane.alarm_at_ms is None
        counts = lane.state().counts
        assert counts[State.SETTLED] in {1, 2}
        assert sum(counts.values()) == counts[State.SETTLED]


@pytest.mark.parametrize("failpoint", MAINTENANCE)
def test_error_at_a_maintenance_failpoint_converges_by_alarms_alone(failpoint: str) -> None:
    """Parity gap 6."""
    with deployed() as deployment:
        lane = deployment.conversation("one")
        first = lane.submit("echo", "first")
        lane.fail_at(failpoint, StorageUnavailable("one blip"))
        try:
            reach_all(lane)
        except StorageUnavailable:
            deployment.run_until_quiet()
        assert lane.armed.reached == [failpoint]
        assert lane.lane.gates.active == 0
        assert lane.lane.gates.passing == 0
        assert lane.settlement(first.submission).result == "first"
        assert not lane.generation().is_owed


# Alarms doubled, lost and late, and restarts


@pytest.mark.parametrize("state", ["ready", "suspended", "settled"])
def test_al_4_al_5_double_alarm_changes_nothing(state: str) -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("ask" if state == "suspended" else "echo", 1)
        if state == "settled":
            deployment.run_until_quiet()
        lane.alarm()
        log = lane.records()
        for _ in range(3):
            lane.alarm()
        assert lane.records() == log
        deployment.run_until_quiet()
        assert lane.records() == log


def test_al_1_suspended_lane_has_no_alarm_and_a_forced_one_touches_no_sql() -> None:
    """Parity gap 1: also with rows queued behind the head."""
    with deployed() as deployment:
        lane = deployment.conversation("one")
        submission = suspended(lane)
        lane.submit("echo", 1)
        deployment.run_until_quiet()
        assert lane.alarm_at_ms is None
        log = lane.records()
        mark = lane.storage.counts()
        lane.alarm()
        assert lane.storage.counts().since(mark).statements == 0
        assert lane.records() == log
        assert lane.alarm_at_ms is None
        lane.approve(submission, "question")
        deployment.run_until_quiet()
        assert lane.state().counts[State.SETTLED] == 2


def test_al_6_double_alarm_never_replays_an_unknown_call() -> None:
    calls: list[int] = []
    agent = Agent("charge", input=Any)

    async def charge() -> str:
        calls.append(1)
        raise ConnectionError("no answer")

    @agent.handler
    async def _(run: Run, _value: Any) -> Any:
        return await run.tool("charge", charge)

    with Deployment([agent]) as deployment:
        lane = deployment.conversation("one")
        receipt = lane.submit("charge")
        deployment.run_until_quiet()
        for _ in range(3):
            lane.alarm()
        assert len(calls) == 1
        assert lane.alarm_at_ms is None
        assert lane.status(receipt.submission).submission.state is State.UNKNOWN
        lane.resolve(receipt.submission, "charge", "completed", "paid")
        deployment.run_until_quiet()
        assert lane.settlement(receipt.submission).result == "paid"
        assert len(calls) == 1


def test_rs_1_rs_2_overdue_alarm_after_a_restart_needs_no_request() -> None:
    """S53's good case: the process was down for a day, and every alarm is overdue when it starts."""
    with deployed() as deployment:
        receipts = []
        for number in range(3):
            lane = deployment.conversation(f"lane-{number}")
            receipts.append((lane, lane.submit("echo", number)))
            lane.crash(keeps_unsynced=False)
        deployment.run(asyncio.sleep(86_400))
        deployment.run_until_quiet()
        assert [lane.settlement(each.submission).result for lane, each in receipts] == [0, 1, 2]


def test_s9_rows_read_by_a_pass_do_not_grow_with_history_or_queue() -> None:
    """Parity gap 10; the exact counts are measured under workerd."""

    def rows_read(history: int, queued: int) -> int:
        with deployed(checks_every_event=False) as deployment:
            lane = deployment.conversation("one")
            for number in range(history):
                lane.submit("echo", number)
            deployment.run_until_quiet()
            suspended(lane)
            for number in range(queued):
                lane.submit("echo", number)
            mark = lane.storage.counts()
            deployment.run_until_quiet()
            return lane.storage.counts().since(mark).rows_read

    assert rows_read(0, 1) == rows_read(200, 20) == rows_read(0, 200)


def test_s156_alarm_and_clock_are_one_virtual_clock() -> None:
    """S151, S152: a wake a day ahead is a matter of advancing the clock, and nothing leaks into the next test."""
    start_ms = 4_000_000_000_000
    with deployed(start_ms=start_ms) as deployment:
        lane = deployment.conversation("one")
        receipt = lane.submit("later", start_ms + 1_000)
        assert lane.alarm_at_ms == start_ms + 1
        deployment.advance(86_400_000)
        assert lane.settlement(receipt.submission).result == "done"
        assert lane.alarm_at_ms is None


@pytest.mark.parametrize("seed", range(6))
def test_ch_3_seeded_chaos_on_two_lanes_converges_to_the_same_evidence(seed: int) -> None:
    """CH-1, CH-3: aborts and alarms in random order; the evidence equals that of an undisturbed run."""
    chance = random.Random(20_260_813 + seed)
    plan = [
        ("one", "echo", 1),
        ("two", "steps", 3),
        ("one", "flaky", 2),
        ("two", "final", 0),
        ("one", "steps", 2),
    ]

    def run(*, is_disturbed: bool) -> list[Any]:
        with deployed() as deployment:
            for lane_name, agent, value in plan:
                deployment.conversation(lane_name).submit(agent, value)
            for _ in range(240 if is_disturbed else 0):
                lane = deployment.conversation(chance.choice(["one", "two"]))
                match chance.randrange(4):
                    case 0:
                        lane.crash(keeps_unsynced=chance.random() < 0.5)
                    case 1:
                        lane.alarm()
                    case 2:
                        deployment.advance(chance.randrange(200))
                    case _:
                        place = chance.choice(
                            ["claim:after", "step:after", "settle:before", "settle:after"]
                        )
                        lane.crash_at(place, keeps_unsynced=chance.random() < 0.5)
                        lane.alarm()
                        lane.armed._armed.clear()  # noqa: SLF001 - what was not reached is disarmed
            deployment.run_until_quiet()
            return [[(each.record_id, each.kind) for each in lane.records()] for lane in deployment]

    def scrubbed(evidence: list[Any]) -> list[Any]:
        return [sorted(kind for _, kind in lane) for lane in evidence]

    assert scrubbed(run(is_disturbed=True)) == scrubbed(run(is_disturbed=False))
