"""A parent's conversation and its child's under real workerd, and the crashes that are tried on both."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from children.family import child_of, root_of
from quiesce.ids import ConversationId, submission_id
from runtime.helpers import outside
from runtime.helpers.ondisk import Seen, until
from runtime.helpers.stage import PRINCIPAL, REASON, Stage
from worker.helpers.client import Client
from workshop.serving import Server

type NewPair = Callable[[], Pair]
type Role = Literal["parent", "child"]
STEPS = 2
LOSES_THE_REQUEST = ("admit:before", "maintenance:dirty:before")

ADMIT = {
    "maintenance:dirty:before": 1,
    "admit:before": 1,
    "admit:after": 1,
    "maintenance:dirty:after": 1,
}
DIRTY = {"maintenance:dirty:before": 1, "maintenance:dirty:after": 1}
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
DELIVERY = {"deliver:before": 1, "deliver:after": 1}


def together(*parts: Mapping[str, int]) -> dict[str, int]:
    """Add up how often each failpoint is passed."""
    total: dict[str, int] = {}
    for part in parts:
        for point, times in part.items():
            total[point] = total.get(point, 0) + times
    return total


@dataclass(frozen=True)
class Scenario:
    """One kind of family: what is delegated, whether it is aborted, and where its Objects pass."""

    name: str
    child: str
    is_aborted: bool
    passes: Mapping[Role, Mapping[str, int]]


SCENARIOS = {
    each.name: each
    for each in (
        Scenario(
            "steps",
            "steps",
            is_aborted=False,
            passes={
                "parent": together(
                    ADMIT, PASS, CLAIM, RELEASE, DELIVERY, DELIVERY, DIRTY, PASS, CLAIM, SETTLE
                ),
                "child": together(ADMIT, DIRTY, PASS, CLAIM, STEP, STEP, SETTLE, DELIVERY),
            },
        ),
        Scenario(
            "abort",
            "approval",
            is_aborted=True,
            passes={
                "parent": together(
                    *(ADMIT, PASS, CLAIM, RELEASE, DELIVERY, DELIVERY),
                    *(DIRTY, PASS, DELIVERY, DIRTY, PASS),
                ),
                "child": together(ADMIT, DIRTY, PASS, CLAIM, RELEASE, DIRTY, PASS, DELIVERY),
            },
        ),
    )
}


@dataclass(frozen=True)
class Crash:
    """One passage of one failpoint in one Object of a scenario, counting from 0."""

    scenario: str
    role: Role
    point: str
    passage: int

    def __str__(self) -> str:
        return f"{self.scenario}-{self.role}-at-{self.point}-{self.passage}"

    @property
    def loses_the_request(self) -> bool:
        """Whether what the client had asked for was not yet durable."""
        return self.role == "parent" and self.point in LOSES_THE_REQUEST and self.passage == 0


def all_crashes() -> Iterator[Crash]:
    """Every passage of every failpoint in both Objects of every scenario."""
    for scenario in SCENARIOS.values():
        for role, passes in scenario.passes.items():
            for point, times in passes.items():
                for passage in range(times):
                    yield Crash(scenario.name, role, point, passage)


@dataclass
class Pair:
    """A parent's conversation and its child's."""

    parent: Stage
    child: Stage
    has_sent_abort: bool = False

    @classmethod
    def make(cls, server: Server, client: Client, outside_server: outside.Outside) -> "Pair":
        """Make a conversation, and derive where the child of its first submission will live."""
        parent = Stage(server, client, outside_server)
        root = submission_id(ConversationId(parent.name), PRINCIPAL, "key")
        name, submission = child_of(root, "child", PRINCIPAL, root=parent.name)
        child = Stage(server, client, outside_server, name=name, submissions=[submission])
        return cls(parent, child)

    def stage(self, role: Role) -> Stage:
        """Return one of the two."""
        return self.parent if role == "parent" else self.child

    def start(self, child: str) -> str:
        """POST the delegation."""
        value: Any = {"question": "May it?"}
        if child == "steps":
            value = {"count": STEPS, "url": self.parent.url}
        if child == "charge":
            value = {"url": self.parent.url, "amount": 1}
        return self.parent.submit("parent", {"child": child, "input": value})

    def is_waiting(self) -> bool:
        """Say whether both wait for a person, and owe nothing."""
        seen = (self.parent.look(), self.child.look())
        return all(each.states == ["suspended"] and each.is_quiet for each in seen)

    def abort(self) -> None:
        """POST the parent's abort."""
        answer = self.parent.post("abort", {"reason": REASON})
        assert answer.status_code in {200, 202}, answer.text
        self.has_sent_abort = True

    def until_settled(self) -> tuple[Seen, Seen]:
        """Read both files until all is settled and quiet, and check the laws within and between them."""
        parent, child = self.parent.until_settled(), self.child.until_settled()
        times = {
            (role, each.kind): each.created_at_ms
            for role, seen in (("parent", parent), ("child", child))
            for each in seen.records
        }
        if ("child", "input-applied") in times:
            assert times["parent", "child-started"] <= times["child", "input-applied"]
        assert times["child", "settlement"] <= times["parent", "child-joined"]
        assert times["parent", "child-joined"] <= times["parent", "settlement"]
        assert parent.count("child-joined") == parent.count("child-requested") == 1
        assert len(child.submissions) == 1
        return parent, child


def bring_to(pair: Pair, crash: Crash, action: str) -> None:
    """Run a scenario until the trap at the passage has acted."""
    scenario, stage = SCENARIOS[crash.scenario], pair.stage(crash.role)
    stage.arm(crash.point, action, crash.passage)

    def has_come() -> bool:
        return bool(stage.life()["sprung"])

    pair.parent.in_background(lambda: pair.start(scenario.child))
    if scenario.is_aborted:
        until(lambda: has_come() or pair.is_waiting(), bool)
        if not has_come():
            pair.parent.in_background(pair.abort)
    until(has_come, bool)


def check_the_end(pair: Pair, crash: Crash) -> None:
    """Bring a crashed family to its end: only what was not durable is asked for again."""
    scenario = SCENARIOS[crash.scenario]
    if crash.loses_the_request:
        pair.start(scenario.child)
    if scenario.is_aborted and not pair.parent.look().count("abort-requested"):
        until(pair.is_waiting, bool)
        pair.abort()
    parent, child = pair.until_settled()
    outcome = "aborted" if scenario.is_aborted else "completed"
    assert [each.outcome for each in parent.settlements] == [outcome]
    assert [each.outcome for each in child.settlements] == [outcome]
    if scenario.name == "steps":
        check_calls(pair, crash)


def check_calls(pair: Pair, crash: Crash) -> None:
    """A step ran once; the one whose result the crash took along ran once more."""
    calls = pair.parent.calls
    assert set(calls) == {str(number) for number in range(STEPS)}
    again = {name: times for name, times in calls.items() if times > 1}
    may_be_taken = crash.role == "child" and crash.point in {
        "step:before",
        "step:after",
        "settle:before",
    }
    assert not again or (may_be_taken and list(again.values()) == [2]), calls


__all__ = ["SCENARIOS", "Crash", "NewPair", "Pair", "all_crashes", "root_of"]
