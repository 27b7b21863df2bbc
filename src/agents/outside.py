"""How the reference agents reach servers outside: the runtime's own fetch.

An answer that is not a success is a retryable failure: the server may do better next time.
"""

from quiesce import Retryable

SUCCESS = range(200, 300)


async def get(url: str) -> str:
    """GET a URL and return the body's text; raises Retryable when the answer is not a success."""
    from workers import fetch  # noqa: PLC0415 - the runtime's own module, which a host's tests do not have

    response = await fetch(url)
    if response.status not in SUCCESS:
        message = f"GET {url} answered {response.status}"
        raise Retryable(message, error_type="outside-server")
    return str(await response.text())
