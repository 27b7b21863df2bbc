"""An Object whose storage the contract of the books is checked on."""

import traceback
from typing import Any

from pydantic_core import to_json
from workers import DurableObject

from contract.books import CONTRACT
from quiesce import workerd
from quiesce.storage import Storage

CHECKS = {check.__name__: check for check in CONTRACT}


class BookObject(DurableObject):
    """An Object that holds nothing until a check writes to it."""

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        self.storage = workerd.WorkerdStorage(ctx)

    async def control(self, name: str) -> str:
        """Run one check of the contract; says what broke it, or nothing."""

        async def open_storage() -> Storage:
            return self.storage

        try:
            await CHECKS[name](open_storage)
        except Exception:  # noqa: BLE001 - whatever a check raises is its answer
            return to_json({"broken": traceback.format_exc(limit=-4)[-4_000:]}).decode()
        return to_json({"broken": None}).decode()
