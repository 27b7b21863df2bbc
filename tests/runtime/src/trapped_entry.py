"""The Worker under test: the deployment's own, with traps in its Objects and routes that work them.

`POST /test/{conversation}` carries one control to its Object, `POST /probe/{name}` one to a bare Object that shows
what the platform does, `POST /books/{name}` the name of a check to an Object that holds nothing.
`GET /lives/{id}` says what this process knows of an Object, without asking it. They exist only here.
"""

from typing import Any

import contracted
import probe
import trapped
from pydantic_core import from_json, to_json

from quiesce import router, workerd

ConversationObject = trapped.ConversationObject
ProbeObject = probe.ProbeObject
BookObject = contracted.BookObject
NAMESPACES = {"test": "CONVERSATIONS", "probe": "PROBES", "books": "BOOKS"}
CONTROL_BYTES_MAX = 1_000_000


class Default(router.Worker):
    """The fetch handler of the deployment, and the control routes."""

    agents = trapped.REGISTRY

    async def fetch(self, request: Any) -> Any:
        incoming = workerd.HttpRequest(request)
        _, first, *rest = incoming.path.split("/")
        if first == "lives":
            # Read from this isolate's memory: the Object is not asked, and not built.
            shown = to_json(trapped.LIVES.get(rest[0], trapped.Life()).shown()).decode()
            return workerd.http_response(200, {"content-type": "application/json"}, shown)
        if first not in NAMESPACES:
            return await super().fetch(request)
        raw, _ = await incoming.body(CONTROL_BYTES_MAX)
        namespace = getattr(getattr(self.env, "_env", self.env), NAMESPACES[first])
        headers = {"content-type": "application/json"}
        try:
            text = str(await namespace.getByName(rest[0]).control(raw.decode()))
        except Exception as error:  # noqa: BLE001 - an Object that was ended answers so
            lost = to_json({"lost": f"{type(error).__name__}: {error}"[:2_000]}).decode()
            return workerd.http_response(500, headers, lost)
        assert from_json(text) is not None
        return workerd.http_response(200, headers, text)
