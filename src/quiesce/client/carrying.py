"""How a method that carries out a flow shows itself: as the flow does, but for what it returns."""

import functools
import inspect
from collections.abc import Callable
from typing import Any


def shown_as[F: Callable[..., Any]](method: F, flow: Callable[..., Any], result: str) -> F:
    """Give a method the name, the text and the signature of its flow; `result` says what becomes of its type."""
    functools.update_wrapper(method, flow)
    signature = inspect.signature(flow)
    (inner,) = signature.return_annotation.__args__
    shown = result.format(inspect.formatannotation(inner, "quiesce.client.results"))
    method.__signature__ = signature.replace(return_annotation=shown)  # type: ignore[attr-defined] # as inspect reads it
    return method
