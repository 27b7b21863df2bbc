"""What the router asks an Object to do: one closed model for each verb, carried as one JSON string."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from quiesce.wire import PAGE_DEFAULT, ResolutionBody, SubmitBody


class _Command(BaseModel):
    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", ser_json_inf_nan="constants"
    )

    conversation: str
    caller: str = ""
    """The principal whose rate this counts against; nobody's where it only goes on with what was asked before."""


class Submit(_Command):
    """Admit work."""

    verb: Literal["submit"] = "submit"
    principal: str
    key: str
    body: SubmitBody
    traceparent: str | None = None


class ReadStatus(_Command):
    """Read one submission."""

    verb: Literal["status"] = "status"
    submission: str
    if_none_match: str | None = None


class ReadSettlement(_Command):
    """Read a settlement, waiting for it at most `wait_ms`."""

    verb: Literal["settlement"] = "settlement"
    submission: str
    wait_ms: int = 0


class ListSubmissions(_Command):
    """Read a page of submissions."""

    verb: Literal["submissions"] = "submissions"
    after: int = 0
    limit: int = PAGE_DEFAULT
    state: str | None = None


class ReadLane(_Command):
    """Read the lane."""

    verb: Literal["lane"] = "lane"


class ReadMaintenance(_Command):
    """Read the generation record and the alarm."""

    verb: Literal["maintenance"] = "maintenance"


class ForcePass(_Command):
    """Owe the lane a pass."""

    verb: Literal["force-pass"] = "force-pass"
    principal: str
    reason: str


class ReadRecords(_Command):
    """Read a page of the log."""

    verb: Literal["records"] = "records"
    after: int = 0
    limit: int = PAGE_DEFAULT


class Watch(_Command):
    """Ask what stands behind a place in the log, waiting for it at most `wait_ms`."""

    verb: Literal["watch"] = "watch"
    stream: str = ""
    """Which event stream asks: drawn when it is opened."""
    submission: str | None = None
    place: int = 0
    wait_ms: int = 0
    is_first: bool = True


class StopWatching(_Command):
    """Free the place of an event stream whose reader has gone."""

    verb: Literal["stop-watching"] = "stop-watching"
    stream: str


class Retry(_Command):
    """Let a submission go on at once that is quarantined, or waits for its next attempt."""

    verb: Literal["retry"] = "retry"
    principal: str
    submission: str
    reason: str


class Abort(_Command):
    """Ask for a submission's abort; an operator `skips` the head of the queue."""

    verb: Literal["abort"] = "abort"
    principal: str
    submission: str
    reason: str
    detaches: bool
    skips: bool = False


class Decide(_Command):
    """Decide an approval."""

    verb: Literal["decide"] = "decide"
    principal: str
    submission: str
    operation: str
    choice: Literal["approved", "denied"]
    reason: str


class Resolve(_Command):
    """Say what became of an unknown call."""

    verb: Literal["resolve"] = "resolve"
    principal: str
    submission: str
    operation: str
    body: ResolutionBody


class DeliverSignal(_Command):
    """Deliver a signal."""

    verb: Literal["signal"] = "signal"
    principal: str
    submission: str
    signal: str
    key: str
    payload: Any


class Explain(_Command):
    """Explain every open submission, or one."""

    verb: Literal["explain"] = "explain"
    submission: str | None = None
    after: int = 0
    limit: int = PAGE_DEFAULT


class Verify(_Command):
    """Hold the whole conversation against its laws."""

    verb: Literal["verify"] = "verify"


class Export(_Command):
    """Read one part of a bundle of the whole conversation."""

    verb: Literal["export"] = "export"
    part: Literal["header", "submissions", "records"] = "header"
    place: int = 0
    """Behind which submission or record this part begins."""
    until: int = 0
    """The last submission or record of this part, fixed when the part before it ended."""
    digest: str = ""
    """The chain up to and with that record."""
    submissions: int = 0
    """How many submissions the bundle holds so far."""
    records: int = 0
    """How many records it holds so far."""


type Command = (
    Submit
    | ReadStatus
    | ReadSettlement
    | ListSubmissions
    | ReadLane
    | ReadMaintenance
    | ForcePass
    | ReadRecords
    | Retry
    | Abort
    | Decide
    | Resolve
    | DeliverSignal
    | Explain
    | Verify
    | Export
    | Watch
    | StopWatching
)
COMMANDS: TypeAdapter[Command] = TypeAdapter(
    Annotated[Command, Field(discriminator="verb")], config=ConfigDict(defer_build=True)
)
