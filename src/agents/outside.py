"""How the reference agents reach servers outside: the runtime's own fetch.

An answer that is not a success, and no answer at all, is a retryable failure: the server may do better next time.
"""

from typing import Any

from pydantic_core import from_json, to_json

from quiesce import Retryable

SUCCESS = range(200, 300)


async def get(url: str) -> str:
    """GET a URL and return the body's text; raises Retryable when the answer is not a success."""
    from workers import fetch  # noqa: PLC0415 - the runtime's own module, which a host's tests do not have

    try:
        response = await fetch(url)
    except OSError as error:
        message = f"GET {url} had no answer: {error}"
        raise Retryable(message, error_type="outside-server") from None
    if response.status not in SUCCESS:
        message = f"GET {url} answered {response.status}"
        raise Retryable(message, error_type="outside-server")
    return str(await response.text())


async def post(url: str, value: Any) -> tuple[int, Any]:
    """POST a JSON value; returns the answer's status, and its body as JSON, or as text if it is none."""
    from workers import fetch  # noqa: PLC0415 - the runtime's own module, which a host's tests do not have

    headers = {"content-type": "application/json"}
    response = await fetch(url, method="POST", body=to_json(value).decode(), headers=headers)
    text = str(await response.text())
    try:
        return response.status, from_json(text)
    except ValueError:
        return response.status, text
