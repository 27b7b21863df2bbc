"""Which callback URLs are allowed, and how a settlement callback is signed.

1. A callback goes only to an origin that the deployment lists, and never to a private address unless the
   deployment says so. A name that resolves to one cannot be seen from here: list origins that you trust.
2. A callback is signed with HMAC-SHA256 over its time and its body, so that its receiver can tell that it came from
   here and is not old.
"""

import hmac
import ipaddress
from urllib.parse import urlsplit

from quiesce.settings import Settings

SIGNATURE_HEADER = "quiesce-signature"
_PRIVATE_NAMES = ("localhost", ".localhost", ".local", ".internal")


def problem_with(url: str, settings: Settings) -> str | None:
    """Say what is wrong with a callback URL, or None when it may be used."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"it is no URL: {error}"
    host = (parts.hostname or "").lower()
    if parts.scheme not in {"https", "http"} or not host or parts.username is not None:
        return "it must be an http or https URL with a host and without credentials"
    netloc = host if ":" not in host else f"[{host}]"
    origin = f"{parts.scheme}://{netloc}" + ("" if port is None else f":{port}")
    if origin not in settings.callback_origins:
        return f"its origin {origin} is not among CALLBACK_ORIGINS of this deployment"
    if not settings.callback_private and _is_private(host):
        return "it names a private address, which CALLBACK_PRIVATE does not allow"
    return None


def _is_private(host: str) -> bool:
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        name = host.removesuffix(".")
        return name.endswith(_PRIVATE_NAMES) or name == _PRIVATE_NAMES[0]


def sign(secret: str, body: str, now_ms: int) -> str:
    """Sign a body: `t=<seconds>,v1=<hex HMAC-SHA256 of "<seconds>.<body>">`."""
    seconds = now_ms // 1_000
    mac = hmac.new(secret.encode(), f"{seconds}.{body}".encode(), "sha256").hexdigest()
    return f"t={seconds},v1={mac}"
