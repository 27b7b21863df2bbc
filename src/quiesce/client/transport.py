"""What both clients share of httpx: how a request leaves, and how its answer comes in."""

import httpx

from quiesce.client.address import Address
from quiesce.client.exchange import Lost, Reply, Request

CONNECT_S = 10.0
ANSWER_S = 30.0
"""How long an answer may take beyond what the request waits for."""
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)


def outgoing(
    http: httpx.Client | httpx.AsyncClient, address: Address, request: Request
) -> httpx.Request:
    """Build what httpx sends."""
    headers = {
        "accept": "application/json",
        "user-agent": "quiesce-client",
        **request.headers,
    }
    if address.token is not None:
        headers["authorization"] = f"Bearer {address.token}"
    return http.build_request(
        request.method,
        address.url + request.path,
        params=dict(request.query) or None,
        headers=headers,
        content=request.body,
        timeout=httpx.Timeout(ANSWER_S + request.wait_s, connect=CONNECT_S, pool=CONNECT_S),
    )


def answered(response: httpx.Response) -> Reply:
    """Take in an answer that has been read to its end."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Reply(response.status_code, headers, response.content)


def lost(error: httpx.RequestError) -> Lost:
    """Take in that there was no answer."""
    reason = str(error) or type(error).__name__
    return Lost(reason, was_sent=not isinstance(error, NEVER_SENT))
