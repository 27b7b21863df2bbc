"""An explorer of interleavings: every order in which the actors of one Object can take their steps.

An *actor* is one event of the Object: a delivery of its alarm, an overlapping duplicate of one, an admission, or a
mutation with a body. It runs until the next failpoint and stands there until the explorer lets it go on, so that
what lies between two failpoints is one step, and holds at most one transaction. A *move* lets one actor take a
step, begins an actor, ends the incarnation, or lets time pass.

The search is depth first and stateless: each schedule is played from the beginning. A state that was seen before is
not gone on from; a state is what is stored, what is in the slot, what the incarnation remembers, where each actor
stands and what its pass began with, with every time taken relative to now. Wherever a schedule is cut, its actors
run to their ends, alarms come until all is quiet, and everything must be processed and settled: so owed leads to
processed from every state that was seen.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from typing import Any

from quiesce import Agent, Run, admission, ledger, maintenance, wake
from quiesce.generation_record import GenerationRecord, parse_record
from quiesce.ids import SubmissionId, digest
from quiesce.lane import Lane
from quiesce.settings import Settings
from quiesce.states import State
from quiesce.storage import Storage
from quiesce.testing import Deployment

STOPS = frozenset(
    {
        "maintenance:dirty:after",
        "maintenance:mutation:finished",
        "maintenance:ensure:before",
        "maintenance:ensure:after",
        "maintenance:begin:before",
        "maintenance:begin:after",
        "maintenance:finish:before",
        "maintenance:finish:after",
        "claim:before",
        "claim:after",
        "step:before",
        "step:after",
        "settle:before",
        "settle:after",
        "body:begun",
        "body:written",
    }
)
"""Where an actor stops. `dirty:before` is the same place as not having begun, `mutation:armed` as `dirty:after`."""
MOVES_MAX = 200
"""No schedule within the bounds is nearly as long."""
LATE_MS = 2_000
"""Enough for the successor that begin armed to be past due."""

LEAN_STOPS = STOPS - {
    "maintenance:ensure:after",
    "claim:before",
    "settle:before",
    "body:begun",
}
"""Without the places from which the next stop is reached without a write."""
SPARSE_STOPS = LEAN_STOPS - {
    "maintenance:finish:after",
    "maintenance:mutation:finished",
    "claim:after",
}
"""For the widest bound: what is left out here, every other bound explores."""
_STOPS_TOLD = {STOPS: ", every stop", LEAN_STOPS: "", SPARSE_STOPS: ", fewer stops"}
SETTINGS = Settings(backoff_base_ms=1_000)
WAITED_PASSES_SEEN = 1
"""With this base, from the second pass that waits for a body on, all waits are the same second."""


@dataclass(frozen=True)
class Bounds:
    """How often each thing may happen in one schedule."""

    admissions: int = 0
    bodies: int = 0
    duplicates: int = 0
    crashes: int = 0
    delays: int = 0
    steps: int = 0
    """How many steps each handler takes."""
    broken_bodies: bool = False
    """Whether bodies raise after what they wrote."""
    stops: frozenset[str] = LEAN_STOPS

    def told(self) -> str:
        """Say what may happen, in words."""
        named = [(each.name, getattr(self, each.name)) for each in fields(self)]
        counts = [f"{value} {name}" for name, value in named if value and name != "stops"]
        return ", ".join(counts) + _STOPS_TOLD[self.stops]


@dataclass
class Actor:
    """One event under way: where it stands, and what its pass began with."""

    kind: str
    place: str = "begun"
    gate: "asyncio.Future[None] | None" = None
    task: "asyncio.Task[Any] | None" = None
    generation: int = 0
    active_at_begin: int = 0
    idle_at_begin: int = 0
    armed_at_ms: int | None = None
    tail_at_begin: int = 0
    has_begun_pass: bool = False

    @property
    def is_done(self) -> bool:
        return self.task is not None and self.task.done()

    @property
    def is_body_over(self) -> bool:
        """Whether its body has been released."""
        return self.is_done or self.place.startswith("maintenance:ensure")


_actor: ContextVar[Actor | None] = ContextVar("actor", default=None)


class Gates:
    """Failpoints at which the actor that reaches one stands until it is let go on."""

    def __init__(self, stops: frozenset[str]) -> None:
        self.is_open = False
        self._stops = stops

    async def reach(self, name: str) -> None:
        actor = _actor.get()
        if actor is None or self.is_open or name not in self._stops:
            return
        actor.place = name
        actor.gate = asyncio.get_running_loop().create_future()
        await actor.gate

    async def reach_after(self, name: str, storage: Storage) -> None:
        # Without the sync: an incarnation may end between a commit and its way to the disk.
        del storage
        await self.reach(name)


class BodyFailed(Exception):
    """A mutation's body raised."""


@functools.lru_cache(maxsize=1_000)
def _parsed(text: str) -> GenerationRecord:
    return parse_record(text)


@functools.cache
def walker(steps: int) -> Agent:
    """Declare an agent that takes some steps."""
    agent = Agent("walk", input=Any)

    @agent.handler
    async def _(run: Run, value: Any) -> Any:
        for number in range(steps):
            await run.step(f"step-{number}", lambda: None)
        return value

    return agent


@functools.cache
def first_image() -> bytes:
    """Return the disk of a conversation with one accepted submission."""
    with Deployment([walker(0)], SETTINGS) as deployment:
        lane = deployment.conversation("one")
        lane.submit("walk", 0, key="first")
        return lane.disk.image()


@dataclass
class Schedule:
    """One schedule being played."""

    bounds: Bounds
    deployment: Deployment = field(init=False)
    actors: list[Actor] = field(default_factory=list)
    used: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.deployment = Deployment([walker(self.bounds.steps)], SETTINGS)
        self.deployment.jitter = lambda: 0.5  # type: ignore[method-assign]
        self.lane = self.deployment.conversation("one")
        self.lane.disk.restore(first_image())
        self.gates = Gates(self.bounds.stops)
        self.lane.failpoints = self.gates

    def close(self) -> None:
        self.gates.is_open = True
        self.lane.close()
        self.deployment.loop.set_exception_handler(lambda _loop, _context: None)
        self.deployment.loop.close()

    # Moves.

    def moves(self) -> list[str]:
        """Return what can happen next, in a fixed order."""
        found = [f"step {place}" for place, each in enumerate(self.actors) if each.gate is not None]
        delivering = any(each.kind == "alarm" and not each.is_done for each in self.actors)
        if not delivering and self.lane.delivery_at_ms is not None:
            found.append("alarm")
        budgets = {
            "duplicate": self.bounds.duplicates,
            "admit": self.bounds.admissions,
            "body": self.bounds.bodies,
            "crash keeping": self.bounds.crashes,
            "crash losing": self.bounds.crashes,
            "delay": self.bounds.delays,
        }
        for name, budget in budgets.items():
            if self.used.get(name.split()[0], 0) < budget:
                found.append(name)
        if not self._runs:
            found = [each for each in found if not each.startswith(("crash", "delay"))]
        return found

    @property
    def _runs(self) -> bool:
        return any(not each.is_done for each in self.actors)

    def do(self, move: str) -> None:
        """Let one thing happen."""
        verb, _, argument = move.partition(" ")
        self.used[verb] = self.used.get(verb, 0) + 1
        match verb:
            case "step":
                self._step(self.actors[int(argument)])
            case "alarm":
                self._deliver()
            case "duplicate":
                self._begin("duplicate", lambda: maintenance.on_alarm(self.lane.lane, 0))
            case "admit":
                self._begin("admit", self._admit)
            case "body":
                self._begin("body", lambda: maintenance.with_mutation(self.lane.lane, self._body))
            case "crash":
                self.lane.crash(keeps_unsynced=argument == "keeping")
                for actor in self.actors:
                    actor.gate = None
            case "delay":
                self.deployment.run(asyncio.sleep(LATE_MS / 1_000))

    def _step(self, actor: Actor) -> None:
        gate, actor.gate = actor.gate, None
        assert gate is not None
        gate.set_result(None)
        self._settle_down(actor)

    def _deliver(self) -> None:
        at_ms = self.lane.delivery_at_ms
        assert at_ms is not None
        delay_ms = at_ms - self.deployment.now_ms
        if delay_ms > 0:
            self.deployment.run(asyncio.sleep(delay_ms / 1_000))
        actor = Actor("alarm")
        self.actors.append(actor)
        token = _actor.set(actor)
        actor.task = self.lane.start_delivery()
        _actor.reset(token)
        self._settle_down(actor)

    def _begin(self, kind: str, work: Callable[[], Awaitable[Any]]) -> None:
        actor = Actor(kind)
        self.actors.append(actor)
        token = _actor.set(actor)
        actor.task = self.lane.start(work)
        _actor.reset(token)
        self._settle_down(actor)

    def _settle_down(self, moved: Actor) -> None:
        self.deployment.run_until_idle()
        for actor in self.actors:
            is_new = actor.place == "maintenance:begin:after" and not actor.has_begun_pass
            if is_new and actor.gate is not None:
                actor.has_begun_pass = True
                actor.generation = self.record.dirty
                actor.active_at_begin = self.lane.lane.gates.active
                actor.idle_at_begin = self.record.idle_wakes - 1
                actor.armed_at_ms = self.lane.alarm_at_ms
                actor.tail_at_begin = len(self._record_ids())
        if (
            moved.kind == "body"
            and moved.place == "maintenance:dirty:after"
            and not moved.generation
        ):
            moved.generation = self.record.dirty

    async def _admit(self) -> None:
        number = self.used["admit"]
        request = admission.Request(self.lane.name, "tester", f"admit-{number}", "walk", number)
        await admission.admit(self.lane.lane, request)

    async def _body(self) -> None:
        """Write work in a step of its own, which nothing but this mutation's generation announces."""
        lane = self.lane.lane
        number = sum(each.kind == "body" for each in self.actors)
        await self.gates.reach("body:begun")
        lane.storage.commit(lambda: insert_row(lane, f"body-{number}", self.deployment.now_ms))
        await lane.storage.sync()
        await self.gates.reach("body:written")
        if self.bounds.broken_bodies:
            raise BodyFailed

    # What is seen.

    @property
    def record(self) -> GenerationRecord:
        text = self.lane.disk.get(wake.RECORD_KEY)
        assert text is not None
        return _parsed(text)

    def _record_ids(self) -> tuple[str, ...]:
        found = self.lane.disk.connection.execute("SELECT record_id FROM records ORDER BY sequence")
        return tuple(row[0] for row in found)

    def fingerprint(self) -> tuple[Any, ...]:
        """Return everything that what happens next depends on."""
        now_ms, record = self.deployment.now_ms, self.record

        def ago(at_ms: int | None) -> int | None:
            return None if at_ms is None else at_ms - now_ms

        rows = self.lane.disk.connection.execute(
            "SELECT sequence, state, owner, epoch, attempts, interruptions, not_before_ms, claimed_tail"
            " FROM submissions"
        ).fetchall()
        present = self.lane.lane if self.lane.is_built else None
        owners = [
            (
                *row[:2],
                row[2] and (present is not None and row[2] == present.incarnation),
                *row[3:6],
            )
            for row in rows
        ]
        actors = sorted(
            (
                each.kind,
                each.place,
                each.gate is not None,
                record.dirty - each.generation if each.has_begun_pass or each.generation else None,
                each.active_at_begin,
                each.idle_at_begin,
                ago(each.armed_at_ms),
                each.tail_at_begin,
            )
            for each in self.actors
            if not each.is_done
        )
        gates = None if present is None else present.gates
        memory = gates and (
            gates.active,
            gates.passing,
            min(gates.waited_passes, WAITED_PASSES_SEEN),
        )
        stored = (
            record.dirty,
            record.processed,
            record.idle_wakes,
            record.failures,
            record.nonterminal,
        )
        return (
            stored,
            ago(record.due_at_ms),
            ago(self.lane.delivery_at_ms),
            tuple(owners),
            tuple(ago(row[6]) for row in rows),
            self._record_ids(),
            self.lane.disk.is_synced,
            repr(actors),
            memory,
            tuple(sorted((k, v) for k, v in self.used.items() if k not in {"step", "alarm"})),
        )

    # Laws.

    def check(self, before: "Seen") -> None:
        """Check what must hold after every step."""
        assert not self.lane.errors, f"a pass failed: {self.lane.errors}"
        after = self.seen()
        record, slot_ms = self.record, self.lane.alarm_at_ms
        unbegun = any(
            each.kind == "alarm" and not each.is_done and not each.has_begun_pass
            for each in self.actors
        )
        if record.is_owed and not unbegun:
            assert slot_ms is not None, "owed, and neither armed nor about to begin"
        if after.processed > before.processed:
            self._check_acknowledgement(before, after)
        if slot_ms is not None and slot_ms != before.slot_ms:
            self._check_alarm(before, slot_ms)
        is_quiet = not record.is_owed and record.due_at_ms is None
        # After a crash the platform brings a delivery that was under way again; it will find nothing to do.
        if is_quiet and not self._runs and before.verb == "step":
            assert slot_ms is None, "only stable waits, and an alarm"

    def _check_acknowledgement(self, before: "Seen", after: "Seen") -> None:
        finisher = before.mover
        assert finisher is not None
        assert after.processed <= finisher.generation, "acknowledged what it did not see at begin"
        assert finisher.active_at_begin == 0, "acknowledged although a body was active at begin"
        for each in self.actors:
            if each.kind == "body" and not each.is_done and 0 < each.generation <= after.processed:
                assert each.is_body_over, "acknowledged the generation of a body that still runs"

    def _check_alarm(self, before: "Seen", slot_ms: int) -> None:
        now_ms, mover = self.deployment.now_ms, before.mover
        is_restored = before.verb == "crash"
        assert slot_ms > now_ms or is_restored, "an alarm at now or before"
        if mover is None or not mover.has_begun_pass or before.slot_ms is None:
            return
        armed_at_ms = mover.armed_at_ms
        assert armed_at_ms is not None
        paced = mover.idle_at_begin > 0
        if armed_at_ms > now_ms and not paced and before.was_begun:
            assert slot_ms >= min(armed_at_ms, before.slot_ms), (
                "an earlier write inside the handler"
            )

    def seen(self, move: str = "") -> "Seen":
        verb, _, argument = move.partition(" ")
        mover = self.actors[int(argument)] if verb == "step" else None
        return Seen(
            self.record.processed,
            self.lane.alarm_at_ms,
            verb,
            mover,
            was_begun=mover is not None and mover.has_begun_pass,
        )

    def converge(self) -> None:
        """Let everything run to its end, then alarms until quiet: all is processed and settled."""
        self.gates.is_open = True
        for actor in self.actors:
            if actor.gate is not None:
                gate, actor.gate = actor.gate, None
                gate.set_result(None)
        self.deployment.run_until_idle()
        self.deployment.run_until_quiet(wakes_max=60)
        record = self.record
        assert record.processed == record.dirty, "owed for ever"
        assert self.lane.alarm_at_ms is None, "quiet, and an alarm"
        counts = self.lane.state().counts
        assert {state for state in State if counts[state]} == {State.SETTLED}, counts
        self.lane.check_laws()
        for actor in self.actors:
            if actor.task is not None and actor.task.done() and not actor.task.cancelled():
                error = actor.task.exception()
                assert error is None or isinstance(error, BodyFailed), error


@dataclass(frozen=True)
class Seen:
    """What was there before a move, and who moved."""

    processed: int
    slot_ms: int | None
    verb: str
    mover: Actor | None
    was_begun: bool


def insert_row(lane: Lane, key: str, now_ms: int) -> None:
    """Insert a ready submission as a mutation of several steps would: its generation was counted before."""
    rows = lane.storage.execute("SELECT max(sequence) + 1 FROM submissions")
    ledger.insert(
        lane.storage,
        {
            "sequence": rows[0][0],
            "id": SubmissionId("sub_" + digest(key)[:32]),
            "principal": "tester",
            "idempotency_key": key,
            "agent": "walk",
            "agent_version": "1",
            "mode": "queue",
            "input": '"body"',
            "input_digest": digest('"body"'),
            "terms": '{"callback_url":null,"deadline_ms":null,"mode":"queue"}',
            "accepted_at_ms": now_ms,
            "state": State.READY.value,
            "state_since_ms": now_ms,
        },
    )


@dataclass
class Explored:
    """How much was explored."""

    states: int = 0
    moves: int = 0
    schedules: int = 0
    deepest: int = 0


def explore(bounds: Bounds, states_max: int = 1_000_000) -> Explored:
    """Play every schedule within the bounds, checking the laws after every step."""
    explored = Explored()
    visited: set[tuple[Any, ...]] = set()
    pending: list[tuple[str, ...]] = [()]
    while pending:
        assert len(visited) < states_max, "the bound is too wide to be explored"
        path = pending.pop()
        schedule = Schedule(bounds)
        try:
            path = _play(schedule, path, visited, pending, explored)
        except AssertionError as error:
            error.add_note(f"within {bounds.told()}")
            raise
        finally:
            schedule.close()
        explored.schedules += 1
        explored.deepest = max(explored.deepest, len(path))
    explored.states = len(visited)
    return explored


def _play(
    schedule: Schedule,
    path: tuple[str, ...],
    visited: set[tuple[Any, ...]],
    pending: list[tuple[str, ...]],
    explored: Explored,
) -> tuple[str, ...]:
    for move in path[:-1]:
        schedule.do(move)
    last, done = path[-1:], path[:-1]
    try:
        while True:
            if last:
                before = schedule.seen(last[0])
                schedule.do(last[0])
                done += last
                schedule.check(before)
                explored.moves += 1
            assert len(done) < MOVES_MAX, "a schedule that never ends"
            moves = schedule.moves()
            state = schedule.fingerprint()
            if not moves or state in visited:
                break
            visited.add(state)
            pending.extend((*done, other) for other in moves[1:])
            last = (moves[0],)
        schedule.converge()
    except AssertionError as error:
        error.add_note("after " + ", ".join(done))
        raise
    return done
