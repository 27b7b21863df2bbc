"""The deployment with a dataset that keeps its points, and with parts of its telemetry that can be broken.

`POST /test` takes a JSON list: the parts that raise from now on. `GET /test` returns the points that were written.
Both act on the isolate, which holds the Worker and every Object.
"""

from typing import Any

from pydantic_core import from_json, to_json

from agents import REGISTRY
from quiesce import conversation_object, router, workerd
from quiesce.observing import Observer

BROKEN: set[str] = set()
POINTS: list[Any] = []
FAILURES: list[str] = []


def may_fail(part: str) -> None:
    if part in BROKEN:
        FAILURES.append(part)
        message = f"{part} is broken"
        raise RuntimeError(message)


class Dataset:
    """What a binding of Analytics Engine is to its Worker."""

    def writeDataPoint(self, point: Any) -> None:  # noqa: N802 - the platform's name
        may_fail("dataset")
        POINTS.append(point.to_py())


class Environment:
    """The bindings that telemetry looks for."""

    ANALYTICS = Dataset()


class BrokenSpan:
    """A traced span of which nothing works."""

    isTraced = True  # noqa: N815 - the platform's name

    def setAttributes(self, _facts: Any) -> None:  # noqa: N802 - the platform's name
        may_fail("spans")

    def end(self) -> None:
        may_fail("spans")


class BrokenTracing:
    """A tracer whose spans are broken, or which is broken itself."""

    def startSpan(self, _name: str) -> BrokenSpan:  # noqa: N802 - the platform's name
        may_fail("tracing")
        return BrokenSpan()

    def withActiveSpan(self, _span: Any, _act: Any) -> BrokenSpan:  # noqa: N802 - the platform's name
        may_fail("spans")
        return BrokenSpan()


class WatchedObserver(Observer):
    """The deployed observer, whose log and tracer may be broken."""

    @property
    def _log(self) -> Any:
        may_fail("log")
        return super()._log

    @property
    def _tracing(self) -> Any:
        return BrokenTracing() if BROKEN & {"tracing", "spans"} else super()._tracing


class ConversationObject(conversation_object.ConversationObject):
    """One conversation of this deployment."""

    agents = REGISTRY

    def reporter(self, _env: Any) -> Observer:
        return WatchedObserver(Environment())


class Default(router.Worker):
    """The fetch handler of the deployment, and the lever."""

    agents = REGISTRY

    async def fetch(self, request: Any) -> Any:
        incoming = workerd.HttpRequest(request)
        if incoming.path != "/test":
            return await super().fetch(request)
        if incoming.method == "POST":
            raw, _ = await incoming.body(1_000)
            BROKEN.clear()
            BROKEN.update(from_json(raw))
        shown = to_json({"points": POINTS, "failures": FAILURES}).decode()
        return workerd.http_response(200, {"content-type": "application/json"}, shown)
