"""Agents that only tests have: most tell a server outside what they do, so that their calls can be counted."""

import asyncio
from typing import Any, Literal

import js
from pydantic import BaseModel, ConfigDict

from agents import REGISTRY as DEPLOYED
from agents.charge import make_charge
from agents.outside import get
from quiesce import Agent, Failed, Happened, NeverStarted, Registry, Run


class Wait(BaseModel):
    """What to wait for before the server is told."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["approval", "signal"]
    url: str
    expires_in_s: float | None = None
    timeout_ms: int | None = None


waiter = Agent("waiter", input=Wait, output=dict)


@waiter.handler
async def wait_and_tell(run: Run, wanted: Wait) -> dict[str, Any]:
    """Wait, then take one step that tells the server."""
    if wanted.kind == "approval":
        decision = await run.approval("gate", expires_in_s=wanted.expires_in_s)
        found = {"approved": decision.approved, "expired": decision.expired}
    else:
        received = await run.signal("news", timeout_ms=wanted.timeout_ms)
        found = {"payload": received.payload, "timed_out": received.timed_out}
    await run.step("tell", get, f"{wanted.url}?step=tell")
    return found


class Pay(BaseModel):
    """Whom to pay, and what a second payment would do."""

    model_config = ConfigDict(extra="forbid")

    url: str
    effect: Literal["uncertain", "idempotent", "readonly"] = "uncertain"


payer = Agent("payer", input=Pay, output=Any)


@payer.handler
async def pay(run: Run, wanted: Pay) -> Any:
    """Make one call between two steps."""
    await run.step("before", get, f"{wanted.url}?step=before")
    answer = await run.tool("pay", make_charge, wanted.url, 1, effect=wanted.effect)
    await run.step("after", get, f"{wanted.url}?step=after")
    return answer


prover = Agent("prover", input=Pay, output=Any)


@prover.handler
async def pay_with_proof(run: Run, wanted: Pay) -> Any:
    """Make one call that a reconciler can ask about."""
    return await run.tool("pay", make_charge, wanted.url, 1)


@prover.reconciler("pay")
async def ask_the_server(call: Any) -> Any:
    """Ask the server whether it has been paid."""
    answer = await get(f"{call.arguments[0]}?step=ask")
    return Happened("proven") if answer == "paid" else NeverStarted()


class Collect(BaseModel):
    """Whom to tell of what has joined."""

    model_config = ConfigDict(extra="forbid")

    url: str


collector = Agent("collector", input=Collect, output=list)


@collector.handler
async def collect_and_tell(run: Run, wanted: Collect) -> list[Any]:
    """Wait for a person, take what has joined meanwhile, and tell the server in a step."""
    await run.approval("question")
    joined = [each.input["url"] for each in await run.inbox()]
    await run.step("tell", get, f"{wanted.url}?step=tell")
    return joined


class Storm(BaseModel):
    """Whom to tell before it fails."""

    model_config = ConfigDict(extra="forbid")

    url: str


final = Agent("final", input=Storm, output=Any)


@final.handler
async def fail_after_telling(run: Run, wanted: Storm) -> Any:
    """Tell the server in a step, then fail for good."""
    await run.step("tell", get, f"{wanted.url}?step=tell")
    raise Failed("asked to", error_type="asked-to-fail")


class Nap(BaseModel):
    """How long each nap is, and after how long a timer ends them."""

    model_config = ConfigDict(extra="forbid")

    nap_ms: float
    timer_ms: float
    naps_max: int


napper = Agent("napper", input=Nap, output=int)


@napper.handler
async def nap_until_the_timer(_run: Run, wanted: Nap) -> int:
    """Take short naps until a timer has fired, and return how many those were."""
    fired = asyncio.Event()
    asyncio.get_running_loop().call_later(wanted.timer_ms / 1_000, fired.set)
    for nap in range(wanted.naps_max):
        if fired.is_set():
            return nap
        await asyncio.sleep(wanted.nap_ms / 1_000)
    raise Failed("no timer has fired", error_type="starved")


class Hoard(BaseModel):
    """How many pieces to make, and how large each is."""

    model_config = ConfigDict(extra="forbid")

    count: int
    size: int


hoarder = Agent("hoarder", input=Hoard, output=int)


@hoarder.handler
async def make_pieces_and_keep_none(run: Run, wanted: Hoard) -> int:
    """Take steps whose values are large, drop each of them, and wait for a person."""

    def make(_place: int) -> str:
        return "x" * wanted.size

    for place in range(wanted.count):
        await run.step("piece", make, place)
    await run.approval("gate")
    return wanted.count


class Misuse(BaseModel):
    """What is wrongly asked of JavaScript."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["parse", "fetch"]


misuser = Agent("misuser", input=Misuse, output=Any)


@misuser.handler
async def call_javascript_wrongly(_run: Run, wanted: Misuse) -> Any:
    """Call JavaScript as no program should, and catch nothing."""
    if wanted.kind == "parse":
        return js.JSON.parse("{")
    return await js.fetch("no url at all")


REGISTRY = Registry([*DEPLOYED, waiter, payer, prover, collector, final, napper, hoarder, misuser])
