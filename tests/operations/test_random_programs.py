"""Random programs and random events: whatever happens in whatever order, the laws hold and everything settles.

The agent's input is a program of operations; a state machine submits programs, decides, signals, resolves, aborts,
lets time pass, delivers alarms that nobody ordered, and makes the process die at the next commits. The kit checks
the laws of the conversation after every event. On top of that: a quiet lane has no alarm but for what is due; an
uncertain call is made once for each time that somebody allowed it; and in the end, once everything is answered,
everything is settled.

CH-3, CHM-1. The seed is fixed, so that every run is the same.
"""

import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from operations.ground import DAY_MS, agent
from quiesce import Approval, Failed, Retryable, Run, Signal, Timer, ToolFailed
from quiesce.errors import Refusal
from quiesce.ids import SubmissionId
from quiesce.operations import OpenOperation, of_submission
from quiesce.settings import Settings
from quiesce.states import State
from quiesce.testing import Crashed, CrashPlan, Deployment

EXPIRIES_S = st.sampled_from([None, 1, 3_600])
OPERATIONS = st.one_of(
    st.tuples(st.just("step"), st.sampled_from(["value", "retry"])),
    st.tuples(
        st.just("tool"),
        st.sampled_from(["uncertain", "idempotent", "readonly"]),
        st.lists(st.sampled_from(["lost", "expected"]), max_size=2),
    ),
    st.tuples(st.just("approval"), EXPIRIES_S),
    st.tuples(st.just("signal"), st.sampled_from([None, 1_000, 3_600_000])),
    st.tuples(st.just("sleep"), st.sampled_from([0, 40, 5_000, 7_200_000])),
    st.tuples(st.just("first"), st.sampled_from([500, 3_600_000])),
    st.tuples(st.just("inbox")),
    st.tuples(st.just("fail"), st.sampled_from(["once", "for-good"])),
)
PROGRAMS = st.lists(OPERATIONS, min_size=1, max_size=4)
RESOLUTIONS = st.sampled_from(["completed", "failed", "never-happened", "safe-to-retry", "abort"])


class Programs(RuleBasedStateMachine):
    """One conversation, and everything that can happen to it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.allowed: Counter[tuple[str, str]] = Counter()
        self.once: set[tuple[str, int]] = set()
        self.submitted: list[SubmissionId] = []

    @initialize(
        attempts_max=st.sampled_from([2, 8]), policy=st.sampled_from(["fail", "quarantine"])
    )
    def deploy_first(self, attempts_max: int, policy: Any) -> None:
        self.policy = policy
        self.deployment = Deployment(
            self._agents(), Settings(attempts_max=attempts_max, signals_pending_max=3)
        )
        self.lane = self.deployment.conversation("one")

    def _agents(self) -> list[Any]:
        return [agent(self._interpret, "program", on_exhausted=self.policy)]

    async def _interpret(self, run: Run, program: list[list[Any]]) -> list[Any]:
        return [await self._operate(run, place, each) for place, each in enumerate(program)]

    async def _operate(self, run: Run, place: int, operation: list[Any]) -> Any:
        name = f"{operation[0]}-{place}"
        match operation:
            case ["step", what]:
                return await run.step(name, lambda: self._once(run, place, fails=what == "retry"))
            case ["tool", effect, behaviours]:
                return await self._tool(run, name, effect, behaviours)
            case ["approval", expires_in_s]:
                return (await run.approval(name, expires_in_s=expires_in_s)).approved
            case ["signal", timeout_ms]:
                return (await run.signal("news", timeout_ms=timeout_ms)).payload
            case ["sleep", delay_ms]:
                await run.sleep(name, delay_ms=delay_ms)
            case ["first", delay_ms]:
                branches = (
                    Approval(f"allow-{place}"),
                    Signal("stop"),
                    Timer(f"late-{place}", delay_ms=delay_ms),
                )
                return (await run.first(name, *branches)).name
            case ["inbox"]:
                return len(await run.inbox())
            case ["fail", "once"]:
                self._once(run, place, fails=True)
            case ["fail", _]:
                raise Failed("as the program says")
        return None

    def _once(self, run: Run, place: int, *, fails: bool) -> str:
        if fails and (run.submission, place) not in self.once:
            self.once.add((run.submission, place))
            raise Retryable("once")
        return "value"

    async def _tool(self, run: Run, name: str, effect: Any, behaviours: list[str]) -> Any:
        async def call() -> str:
            key = (str(run.submission), name)
            self.calls[key] += 1
            if effect == "uncertain":
                assert self.calls[key] <= 1 + self.allowed[key], f"{name} was called again"
            said = behaviours[self.calls[key] - 1 :][:1]
            if said == ["lost"]:
                raise ConnectionError("lost")
            if said == ["expected"]:
                raise ToolFailed("expected")
            return "done"

        try:
            return await run.tool(name, call, effect=effect)
        except ToolFailed as failure:
            return str(failure)

    # What clients and people do.

    def _act(self, verb: Callable[[], Any]) -> Any:
        """Ask for something: what is refused is refused, and what died is asked for again."""
        with contextlib.suppress(Refusal):
            while True:
                try:
                    return verb()
                except Crashed:
                    continue
        return None

    @rule(program=PROGRAMS, mode=st.sampled_from(["queue", "join"]), deadline=st.booleans())
    def submit(self, program: list[Any], mode: str, deadline: bool) -> None:  # noqa: FBT001
        if len(self.submitted) >= 6:
            return
        terms = {"mode": mode, "deadline_ms": 4 * DAY_MS if deadline else None}
        key = f"key-{len(self.submitted)}"
        receipt = self._act(lambda: self.lane.submit("program", program, key=key, **terms))
        self.submitted.append(receipt.submission)

    def _open(self) -> list[OpenOperation]:
        head = None if self.lane.is_virgin else self.lane.state().head
        if head is None:
            return []
        place = self.lane.status(head).submission.sequence
        return of_submission(self.lane.storage, place)

    @rule(approves=st.booleans())
    def decide(self, approves: bool) -> None:  # noqa: FBT001
        for each in self._open():
            if each.kind == "approval":
                self._decide(each.operation, approves=approves)
                return

    def _decide(self, operation: str, *, approves: bool) -> None:
        head = self._head()
        verb = self.lane.approve if approves else self.lane.deny
        self._act(lambda: verb(head, operation))

    def _head(self) -> SubmissionId:
        head = self.lane.state().head
        assert head is not None
        return head

    @rule(name=st.sampled_from(["news", "stop"]), key=st.integers(0, 5), back=st.integers(0, 5))
    def signal(self, name: str, key: int, back: int) -> None:
        if self.submitted:
            submission = self.submitted[-1 - back % len(self.submitted)]
            self._act(lambda: self.lane.signal(submission, name, key, key=f"key-{key}"))

    @rule(resolution=RESOLUTIONS)
    def resolve(self, resolution: Any) -> None:
        for each in self._open():
            if each.state == "unknown":
                self._resolve(each.operation, resolution)
                return

    def _resolve(self, operation: str, resolution: Any) -> None:
        head = self._head()
        self.allowed[head, operation] += resolution in {"never-happened", "safe-to-retry"}
        result = "found" if resolution == "completed" else None
        self._act(lambda: self.lane.resolve(head, operation, resolution, result))

    @rule(back=st.integers(0, 5))
    def abort(self, back: int) -> None:
        if self.submitted:
            submission = self.submitted[-1 - back % len(self.submitted)]
            self._act(lambda: self.lane.abort(submission))

    @rule()
    def retry(self) -> None:
        if not self.lane.is_virgin and self.lane.state().counts[State.QUARANTINED]:
            head = self._head()
            self._act(lambda: self.lane.retry(head))

    # What the world does.

    @rule(delay_ms=st.sampled_from([1, 60, 1_500, 3_600_000]))
    def advance(self, delay_ms: int) -> None:
        self.deployment.advance(delay_ms)

    @rule()
    def run_until_quiet(self) -> None:
        self.deployment.run_until_quiet(within_ms=1_000_000)

    @rule()
    def alarm_that_nobody_ordered(self) -> None:
        self.lane.alarm()

    @rule(keeps=st.booleans())
    def crash(self, keeps: bool) -> None:  # noqa: FBT001
        self.lane.crash(keeps_unsynced=keeps)

    @rule(
        commits=st.lists(st.integers(1, 8), min_size=1, max_size=2),
        when=st.sampled_from(["before", "after"]),
        keeps=st.booleans(),
    )
    def crash_soon(self, commits: list[int], when: Any, keeps: bool) -> None:  # noqa: FBT001
        self.lane.plan_crash(*(CrashPlan(each, when, keeps) for each in commits))

    @rule()
    def deploy(self) -> None:
        self.deployment.deploy(self._agents())

    # What always holds, and what holds in the end.

    @invariant()
    def quiet_lanes_have_no_alarm_but_for_what_is_due(self) -> None:
        if self.lane.is_virgin:
            return
        record = self.lane.generation()
        if record.is_owed:
            return
        alarm_at_ms, due_at_ms = self.lane.alarm_at_ms, record.due_at_ms
        assert (alarm_at_ms is None) == (due_at_ms is None)
        if alarm_at_ms is not None and due_at_ms is not None:
            # No pass moves its alarm before the slot that its begin armed.
            delay_ms = self.deployment.settings.alarm_delay_ms
            assert due_at_ms <= alarm_at_ms <= due_at_ms + delay_ms

    def teardown(self) -> None:
        self.lane.plan_crash()
        for _ in range(100):
            self.deployment.run_until_quiet()
            if self.lane.is_virgin or self.lane.state().head is None:
                break
            self._answer()
        with self.deployment:
            for submission in self.submitted:
                self.lane.settlement(submission)
            assert self.lane.is_virgin or self.lane.alarm_at_ms is None

    def _answer(self) -> None:
        """Answer whatever the head waits for."""
        if self.lane.state().counts[State.QUARANTINED]:
            self.abort_head()
            return
        for each in self._open():
            if each.state == "unknown":
                self._resolve(each.operation, "completed")
            elif each.kind == "approval":
                self._decide(each.operation, approves=True)
            elif each.kind == "signal":
                head, name = self._head(), str(each.detail["signal"])
                self._act(lambda: self.lane.signal(head, name, "at last"))  # noqa: B023

    def abort_head(self) -> None:
        head = self._head()
        self._act(lambda: self.lane.abort(head))


TestPrograms = Programs.TestCase
TestPrograms.settings = settings(
    max_examples=60,
    stateful_step_count=25,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
