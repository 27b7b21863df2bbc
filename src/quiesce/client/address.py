"""Where a deployment is and who asks: the URL and the token, from arguments or from the environment.

1. What is given wins over the environment, and the environment over the defaults.
2. The token that every developer knows is sent to this machine only, never to a deployment.
3. A token is shown by nothing that prints an address.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Literal
from urllib.parse import urlsplit

from quiesce.client.errors import BadArgument

URL_VARIABLE = "QUIESCE_URL"
TOKEN_VARIABLE = "QUIESCE_TOKEN"  # noqa: S105 - the name of a variable
URL_DEFAULT = "http://127.0.0.1:8787"
DEVELOPERS_TOKEN = "dev"  # noqa: S105 - `scripts/dev` lets it in, and no deployment does

type TokenSource = Literal["given", "environment", "developer", "none"]


@dataclass(frozen=True, slots=True)
class Address:
    """A deployment, and the token to show to it."""

    url: str
    """Without a slash at its end."""
    token: str | None = field(repr=False)
    token_source: TokenSource

    @property
    def is_loopback(self) -> bool:
        """Whether the deployment is on this machine."""
        return _is_loopback(self.url)

    @property
    def is_encrypted(self) -> bool:
        """Whether nobody between here and there can read the token."""
        return self.url.startswith("https://")


def resolve(
    url: str | None = None, token: str | None = None, environment: Mapping[str, str] = os.environ
) -> Address:
    """Decide which deployment is meant, and by which token.

    Raises BadArgument for a URL or a token that no request can carry.
    """
    chosen = (url or environment.get(URL_VARIABLE) or URL_DEFAULT).rstrip("/")
    _check_url(chosen)
    named = environment.get(TOKEN_VARIABLE)
    if token:
        address = Address(chosen, token, "given")
    elif named:
        address = Address(chosen, named, "environment")
    elif _is_loopback(chosen):
        address = Address(chosen, DEVELOPERS_TOKEN, "developer")
    else:
        address = Address(chosen, None, "none")
    if address.token is not None and not (address.token.isascii() and address.token.isprintable()):
        raise BadArgument("a token is printable ASCII, without line ends")
    return address


def _check_url(url: str) -> None:
    example = f"a URL looks like {URL_DEFAULT} or https://quiesce.example.com"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise BadArgument(f"{url!r} is no URL ({error}); {example}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise BadArgument(f"{url!r} is no http or https URL; {example}")
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise BadArgument(f"a URL names no query, fragment or user; {example}")


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
