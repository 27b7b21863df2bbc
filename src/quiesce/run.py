"""The durable Run: what a handler is given.

1. Every attempt calls the handler again from the top. An operation that stands in the log returns its recorded
   value without running; on the first attempt and on every replay the value has its JSON form.
2. What may have an effect outside is prepared on disk before it is called. If it leaves no result it is never
   called again by itself, unless its tool says that calling twice is harmless.
3. What must wait opens its wait in one commit and ends the attempt: waiting spends no attempt, and nothing runs.
4. A call under way is not cut off because another branch of the handler waits; only an abort or a deadline does
   that.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from quiesce import children, joining, trace_context, waiting
from quiesce.agent import Failed, ToolFailed
from quiesce.children import ChildOutcome
from quiesce.conversation_log import Tail
from quiesce.diagnostics import WORDS_MAX, type_of, words_of
from quiesce.errors import FailureType, IncarnationEnded
from quiesce.fence import Fence, Unwind, UnwindReason
from quiesce.ids import SubmissionId, canonical_json, parse_json
from quiesce.joining import JoinedInput
from quiesce.journal import Journal, Operation
from quiesce.ledger import Submission
from quiesce.operations import OpenOperation, OperationKind, OperationState, close, open_
from quiesce.records import StepCompleted, ToolPrepared, ToolSettled
from quiesce.waiting import Approval, Decision, Received, Signal, Timer, WaitSpec, Won

type Effect = Literal["uncertain", "idempotent", "readonly"]


PASSES = (
    Unwind,
    IncarnationEnded,
    asyncio.CancelledError,
    SystemExit,
    KeyboardInterrupt,
    GeneratorExit,
)
"""What may pass through a call without being its failure."""


class Run:
    """The logical execution of one submission, as its handler sees it."""

    def __init__(self, fence: Fence, journal: Journal, claimed: Submission) -> None:
        self._fence = fence
        self._journal = journal
        self._claimed = claimed
        self._calls: set[asyncio.Task[Any]] = set()
        self._harmless: set[asyncio.Task[Any]] = set()
        """The calls under way of which nobody need know how they end."""
        self.attempt = claimed.attempts + claimed.interruptions
        """Which try this is, counting from 1: the failed attempts, the interrupted ones in a row, and this one."""

    @property
    def submission(self) -> SubmissionId:
        """The submission that this Run executes."""
        return self._fence.submission

    @property
    def traceparent(self) -> str | None:
        """The `traceparent` header for what this Run calls, the same on every attempt; None without a trace."""
        return trace_context.onward(self._claimed.traceparent, self.submission, "/run")

    def idempotency_key(self, name: str) -> str:
        """Return a key for an outside system: the same on every attempt, and unlike any other Run's."""
        return f"{self.submission}:{name}"

    def progress(self, value: Any) -> None:
        """Show a JSON value to whoever streams this submission's events. It is not recorded, and may be lost."""
        self._fence.lane.publish(self.submission, parse_json(canonical_json(value)))

    async def step(
        self,
        name: str,
        function: Callable[..., Any],
        *arguments: Any,
        key: str | None = None,
        timeout_ms: int | None = None,
    ) -> Any:
        """Run `function(*arguments)`, plain or async, and record what it returns.

        Only success is recorded: a crash between the act and the record runs it again, and what it raises is the
        handler's to deal with. For what must not happen twice use `tool`. `timeout_ms` raises TimeoutError.
        """
        operation = self._ask("step", name, key, list(arguments))
        completed = self._journal.find(operation.id, "completed")
        if completed is not None:
            assert isinstance(completed, StepCompleted)
            return completed.value
        step = self._step(operation, function, arguments, timeout_ms)
        return await self._undisturbed(step, has_effect=False)

    async def _step(
        self,
        operation: Operation,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        timeout_ms: int | None,
    ) -> Any:
        value = self._stored_form(await _call(function, arguments, timeout_ms), operation)
        completed = StepCompleted(
            operation=operation.id, arguments_digest=operation.arguments_digest, value=value
        )
        lane = self._fence.lane
        await lane.failpoints.reach("step:before")
        self._fence.commit_result(
            lambda end, now_ms: self._fence.append(
                end, (operation.id, "completed"), completed, now_ms
            )
        )
        await lane.failpoints.reach_after("step:after", lane.storage)
        return value

    async def tool(
        self,
        name: str,
        function: Callable[..., Any],
        *arguments: Any,
        effect: Effect = "uncertain",
        fails_with: tuple[type[Exception], ...] = (),
        key: str | None = None,
        timeout_ms: int | None = None,
    ) -> Any:
        """Call `function(*arguments)`, which may have an effect outside, and record how it ended.

        `effect` says what a second call would do. *uncertain*: it could happen twice, so a call that left no result
        is reconciled or becomes unknown, and is never made again by itself. *idempotent*: it is made again.
        *readonly*: it is made again, and leaves no record before it has a result.
        ToolFailed, and the types listed in `fails_with`, are results: recorded, and raised as ToolFailed here and
        on every replay. Any other exception leaves an uncertain call without a result; the others are tried again.
        """
        operation = self._ask_stored("tool", name, key, list(arguments))
        settled = self._journal.find(operation.id, "settled")
        if settled is not None:
            assert isinstance(settled, ToolSettled)
            return _result_of(settled)
        expected: tuple[type[Exception], ...] = (ToolFailed, *fails_with)

        def call() -> Awaitable[Any]:
            return _call(function, arguments, timeout_ms)

        made = self._tool(operation, call, effect, expected)
        return _result_of(await self._undisturbed(made, has_effect=effect != "readonly"))

    async def _tool(
        self,
        operation: Operation,
        call: Callable[[], Awaitable[Any]],
        effect: Effect,
        expected: tuple[type[Exception], ...],
    ) -> ToolSettled:
        prepared = None if effect == "readonly" else await self._prepare(operation, effect)
        value: Any = None
        failure: dict[str, Any] | None = None
        try:
            returned = await call()
        except expected as error:
            failure = {"error_type": type_of(error), "message": words_of(error)}
        except PASSES:
            raise
        except BaseException as error:
            detail = f"tool {operation.id!r} raised {type_of(error)}: {words_of(error)}"
            is_uncertain = effect == "uncertain"
            reason = UnwindReason.UNCERTAIN if is_uncertain else UnwindReason.RETRY
            raise self._fence.unwind(reason, detail[:WORDS_MAX]) from error
        else:
            value = self._stored_form(returned, operation)
        settled = ToolSettled(
            operation=operation.id,
            arguments_digest=operation.arguments_digest,
            value=value,
            failure=failure,
        )
        await self._settle(operation, prepared, settled)
        return settled

    async def _prepare(self, operation: Operation, effect: Effect) -> OpenOperation | None:
        """Put on disk that the call is about to be made; an idempotent call that stands there is made again."""
        call = self._journal.last_call(operation.id)
        resolved = self._journal.find(operation.id, f"resolved-{call}")
        is_open = call > 0 and resolved is None
        if is_open and effect != "idempotent":
            detail = f"call {call} of {operation.id!r} left no result"
            raise self._fence.unwind(UnwindReason.UNCERTAIN, detail)
        lane, fence = self._fence.lane, self._fence
        call = call if is_open else call + 1

        def step(end: Tail, now_ms: int) -> OpenOperation:
            prepared = OpenOperation(
                submission_sequence=fence.sequence,
                operation=operation.id,
                kind=OperationKind.TOOL,
                state=OperationState.PREPARED,
                arguments_digest=operation.arguments_digest,
                opened_at_ms=now_ms,
                due_at_ms=None,
                detail={"name": operation.name, "effect": effect, "call": call},
            )
            if not is_open:
                payload = ToolPrepared(
                    operation=operation.id,
                    effect="idempotent" if effect == "idempotent" else "uncertain",
                    call=call,
                    arguments_digest=operation.arguments_digest,
                    arguments=operation.arguments,
                )
                fence.append(end, (operation.id, f"prepared-{call}"), payload, now_ms)
                open_(lane.storage, prepared)
            return prepared

        await lane.failpoints.reach("prepare:before")
        prepared = fence.commit(step)
        await fence.sync()
        await lane.failpoints.reach("prepare:after")
        return prepared

    async def _settle(
        self, operation: Operation, prepared: OpenOperation | None, settled: ToolSettled
    ) -> None:
        lane, fence = self._fence.lane, self._fence

        def step(end: Tail, now_ms: int) -> None:
            fence.append(end, (operation.id, "settled"), settled, now_ms)
            if prepared is not None:
                close(lane.storage, prepared)

        await lane.failpoints.reach("step:before")
        fence.commit_result(step)
        if prepared is not None and prepared.detail["effect"] == "uncertain":
            # Lost with the process, a result that was there would leave the call unknown.
            await fence.sync()
        await lane.failpoints.reach_after("step:after", lane.storage)

    async def approval(
        self,
        name: str,
        *,
        reason: str = "",
        expires_in_s: float | None = None,
        key: str | None = None,
    ) -> Decision:
        """Ask a person to decide; denial and expiry are answers like any other."""
        spec = Approval(name, reason=reason, expires_in_s=expires_in_s, key=key)
        decision = await self._wait(spec)
        assert isinstance(decision, Decision)
        return decision

    async def signal(
        self, name: str, *, timeout_ms: int | None = None, key: str | None = None
    ) -> Received:
        """Wait for a signal of this name; one that came before is received at once, in the order of arrival."""
        received = await self._wait(Signal(name, timeout_ms=timeout_ms, key=key))
        assert isinstance(received, Received)
        return received

    async def sleep(self, name: str, *, delay_ms: int, key: str | None = None) -> int:
        """Sleep for a time; returns how many milliseconds it was. One alarm, at that time, and nothing before."""
        slept_ms = await self._wait(Timer(name, delay_ms=delay_ms, key=key))
        assert isinstance(slept_ms, int)
        return slept_ms

    async def sleep_until(self, name: str, *, at_ms: int, key: str | None = None) -> int:
        """Sleep until an instant, in milliseconds since the epoch; returns how many milliseconds it was."""
        slept_ms = await self._wait(Timer(name, at_ms=at_ms, key=key))
        assert isinstance(slept_ms, int)
        return slept_ms

    async def first(self, name: str, *branches: WaitSpec, key: str | None = None) -> Won:
        """Wait for whichever of several waits ends first; the others are closed in the commit that decides.

        Takes Approval, Signal and Timer values, whose names must differ.
        """
        self._fence.check()
        return waiting.await_first(self._fence, self._journal, name, key, branches)

    async def _wait(self, spec: WaitSpec) -> Decision | Received | int:
        self._fence.check()
        return waiting.await_one(self._fence, self._journal, spec)

    async def inbox(self, *, key: str | None = None) -> list[JoinedInput]:
        """Take in the submissions that want to join this Run: those of `mode: join` directly behind it.

        They must be of the same agent and principal; the first other submission ends the run of them. Each is
        delivered once, and settles when this Run does, with the same outcome and result.
        """
        operation = self._ask("inbox", "inbox", key, [])
        return joining.read_inbox(self._fence, self._journal, operation)

    async def delegate(
        self, agent: str, value: Any, *, name: str | None = None, key: str | None = None
    ) -> ChildOutcome:
        """Have another agent work on `value` in a conversation of its own, and wait until that has settled.

        However often the Run is replayed there is one child. It never runs before this Run has recorded it, and
        this Run settles after it: an abort here aborts the child first. How it settled is a value, failed or not.
        `name` defaults to the agent's; children in parallel need names or keys that differ.
        """
        operation = self._ask_stored("child", name or agent, key, [agent, value])
        return children.delegate(self._fence, self._journal, self._claimed, operation)

    def _ask(self, kind: str, name: str, key: str | None, arguments: list[Any]) -> Operation:
        self._fence.check()
        return self._journal.ask(kind, name, key, arguments)

    def _ask_stored(self, kind: str, name: str, key: str | None, arguments: list[Any]) -> Operation:
        """Ask for an operation whose arguments stand in its record: they are bounded as values are."""
        operation = self._ask(kind, name, key, arguments)
        self._check_size("the arguments", operation.arguments_bytes, operation)
        return operation

    def _stored_form(self, value: Any, operation: Operation) -> Any:
        try:
            text = canonical_json(value)
        except ValueError as error:
            message = f"the value of {operation.kind} {operation.id!r} has no JSON form: {error}"
            raise Failed(message, error_type="TypeError") from None
        self._check_size("the value", len(text.encode()), operation)
        return parse_json(text)

    def _check_size(self, what: str, size: int, operation: Operation) -> None:
        maximum = self._fence.lane.settings.value_bytes_max
        if size > maximum:
            message = f"{what} of {operation.kind} {operation.id!r}: {size} bytes, VALUE_BYTES_MAX allows {maximum}"
            raise Failed(message, error_type=FailureType.RESULT_TOO_LARGE)

    async def _undisturbed(self, call: Any, *, has_effect: bool) -> Any:
        """Run a call so that the end of the branch which awaits it does not cut it off."""
        task = asyncio.ensure_future(call)
        self._calls.add(task)
        if not has_effect:
            self._harmless.add(task)
            task.add_done_callback(self._harmless.discard)
        task.add_done_callback(self._forget_call)
        return await asyncio.shield(task)

    def _forget_call(self, task: asyncio.Task[Any]) -> None:
        """Keep of the calls that have ended only those that raised: a result may be large."""
        if not task.cancelled() and task.exception() is None:
            self._calls.discard(task)

    async def finish_calls(self) -> list[BaseException]:
        """Return when no call is under way any more; what they raised may have been seen by no branch."""
        while running := self.calls_under_way():
            await asyncio.wait(running)
        raised = [task.exception() for task in self._calls if not task.cancelled()]
        return [error for error in raised if error is not None]

    def calls_under_way(self) -> list[asyncio.Task[Any]]:
        """Return the calls that have not ended."""
        return [task for task in self._calls if not task.done()]

    def give_up_calls(self) -> None:
        """Cut off the calls under way that have no effect outside: the handler has ended without them."""
        for task in self._harmless:
            task.cancel()

    def cancel_calls(self) -> None:
        """Cut off the calls under way: an abort or a deadline has come."""
        for task in self._calls:
            task.cancel()


async def _call(
    function: Callable[..., Any], arguments: tuple[Any, ...], timeout_ms: int | None
) -> Any:
    value = function(*arguments)
    if not inspect.isawaitable(value):
        return value
    if timeout_ms is None:
        return await value
    return await asyncio.wait_for(value, timeout_ms / 1_000)


def _result_of(settled: ToolSettled) -> Any:
    if settled.failure is None:
        return settled.value
    failure = settled.failure
    raise ToolFailed(failure["message"], error_type=failure["error_type"])
