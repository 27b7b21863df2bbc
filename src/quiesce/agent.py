"""What an application declares: an Agent, its models, its version, its policies; and the registry.

1. Declaring does no work: validators are built at first use, so that a cold start pays for one agent only.
2. A registry is what one deployment serves. Its digest tells one deployment from another, so that work which
   waits for a version that was missing is looked at again after a deploy.
3. Failures are retried only if the application says so, by raising Retryable.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from quiesce.ids import canonical_json, digest

type Handler = Callable[..., Awaitable[Any]]
type OnExhausted = Literal["fail", "quarantine"]

ERROR_TYPE_MAX = 100
MESSAGE_MAX = 2_000


class Retryable(Exception):
    """Raised by a handler: this attempt failed, and another one may succeed.

    `error_type` names the failure in the settlement when attempts run out.
    """

    def __init__(self, message: str, *, error_type: str = "retryable") -> None:
        super().__init__(message)
        self.error_type = error_type[:ERROR_TYPE_MAX]


class Failed(Exception):
    """Raised by a handler: the submission fails, for good, with this error type and message."""

    def __init__(self, message: str, *, error_type: str = "failed") -> None:
        super().__init__(message)
        self.error_type = error_type[:ERROR_TYPE_MAX]


class ToolFailed(Exception):
    """Raised by a tool: it did not do what was asked, and that is its result.

    It is recorded, and raised again with the same message and error type whenever the Run replays.
    """

    def __init__(self, message: str, *, error_type: str = "tool-failed") -> None:
        super().__init__(message)
        self.error_type = error_type[:ERROR_TYPE_MAX]


@dataclass(frozen=True, slots=True)
class UncertainCall:
    """A tool call that may have happened and left no result, as a reconciler sees it."""

    submission: str
    operation: str
    name: str
    arguments: Any
    """The arguments of the call in their JSON form, a list."""
    call: int
    """Which call of this operation it is, counting from 1."""
    prepared_at_ms: int

    @property
    def idempotency_key(self) -> str:
        """The key that `run.idempotency_key(name)` gave to the handler for this call."""
        return f"{self.submission}:{self.name}"


@dataclass(frozen=True, slots=True)
class Happened:
    """A reconciler's proof: the call had its effect, and this is its result."""

    result: Any


@dataclass(frozen=True, slots=True)
class NeverStarted:
    """A reconciler's proof: the call never reached the other side, and can be made."""

    reason: str = "the reconciler found no trace of the call"


@dataclass(frozen=True, slots=True)
class SafeToRetry:
    """A reconciler's proof: whatever became of the call, making it again does no harm."""

    reason: str = "the reconciler found it safe to make the call again"


@dataclass(frozen=True, slots=True)
class Unproven:
    """A reconciler's honest answer when it cannot prove anything; a person has to say."""

    reason: str = "the reconciler cannot prove what became of the call"


type Reconciliation = Happened | NeverStarted | SafeToRetry | Unproven
type Reconciler = Callable[[UncertainCall], Awaitable[Reconciliation]]


class Agent:
    """A name, an input model, an output model, a version and an async handler.

    `input` and `output` are any types that pydantic validates. `version` names the meaning of the handler's
    operations: change it when a Run that is under way could not go on with the new code.
    `on_exhausted` says what becomes of a submission that used up its attempts: it settles `failed`, or is
    quarantined and holds its lane until an operator releases it.
    `attempt_ms_max` lowers the deployment's deadline for one attempt.
    """

    def __init__(
        self,
        name: str,
        *,
        input: Any,  # noqa: A002 - the word of the contract, read as Agent("refunds", input=Refund)
        output: Any = Any,
        version: str = "1",
        on_exhausted: OnExhausted = "fail",
        attempt_ms_max: int | None = None,
    ) -> None:
        self.name = name
        self.version = version
        self.on_exhausted: OnExhausted = on_exhausted
        self.attempt_ms_max = attempt_ms_max
        self._input = input
        self._output = output
        self._adapters: dict[str, TypeAdapter[Any]] = {}
        self._handler: Handler | None = None
        self._reconcilers: dict[str, Reconciler] = {}

    def handler(self, function: Handler) -> Handler:
        """Declare the coroutine function that runs a submission: `async def handle(run, input)`."""
        self._handler = function
        return function

    def reconciler(self, tool: str) -> Callable[[Reconciler], Reconciler]:
        """Declare how to find out what became of an uncertain call of the named tool.

        The coroutine function takes an UncertainCall, has half a minute, only looks, and answers Happened,
        NeverStarted, SafeToRetry or Unproven. What it raises counts as Unproven.
        """

        def declare(function: Reconciler) -> Reconciler:
            self._reconcilers[tool] = function
            return function

        return declare

    def reconciler_of(self, tool: str) -> Reconciler | None:
        """Return the declared reconciler of a tool, or None."""
        return self._reconcilers.get(tool)

    @property
    def run_handler(self) -> Handler:
        """The declared handler."""
        if self._handler is None:
            message = f"agent {self.name!r} declares no handler: decorate one with @agent.handler"
            raise LookupError(message)
        return self._handler

    @property
    def input_adapter(self) -> TypeAdapter[Any]:
        """The validator of this agent's input, built at first use."""
        if "input" not in self._adapters:
            self._adapters["input"] = TypeAdapter(self._input)
        return self._adapters["input"]

    @property
    def output_adapter(self) -> TypeAdapter[Any]:
        """The serializer of this agent's output, built at first use."""
        if "output" not in self._adapters:
            self._adapters["output"] = TypeAdapter(self._output)
        return self._adapters["output"]


class Registry:
    """The agents that one deployment serves.

    Several versions of one name may stand side by side; the last one listed takes new submissions, the
    others finish what was accepted for them.
    """

    def __init__(self, agents: Iterable[Agent]) -> None:
        self._current: dict[str, Agent] = {}
        self._versions: dict[tuple[str, str], Agent] = {}
        for agent in agents:
            if (agent.name, agent.version) in self._versions:
                message = f"agent {agent.name!r} version {agent.version!r} is registered twice"
                raise ValueError(message)
            _ = agent.run_handler
            self._current[agent.name] = agent
            self._versions[agent.name, agent.version] = agent
        self.deployment = digest(canonical_json(sorted(self._versions)))[:16]

    def current(self, name: str) -> Agent | None:
        """Return the version of the agent that takes new submissions, or None."""
        return self._current.get(name)

    def version(self, name: str, version: str) -> Agent | None:
        """Return the agent at exactly that version, or None if this deployment lacks it."""
        return self._versions.get((name, version))

    def __iter__(self) -> Iterator[Agent]:
        return iter(self._current.values())
