"""Cloudflare Access as the Worker meets it: assertions that are signed, and a server that publishes the keys."""

import base64
import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

ISSUER = "https://team.cloudflareaccess.com"
AUDIENCE = "f" * 64
OTHER_AUDIENCE = "0" * 64


def encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def encoded_json(value: Any) -> str:
    return encoded(json.dumps(value).encode())


@cache
def private_key(_key_id: str) -> rsa.RSAPrivateKey:
    """Return the key of this name: always the same one."""
    return rsa.generate_private_key(public_exponent=65_537, key_size=2_048)


def published(key_id: str) -> dict[str, Any]:
    """Write a public key as Access publishes it."""
    numbers = private_key(key_id).public_key().public_numbers()
    modulus, exponent = (
        encoded(number.to_bytes((number.bit_length() + 7) // 8))
        for number in (numbers.n, numbers.e)
    )
    return {
        "kid": key_id,
        "kty": "RSA",
        "alg": "RS256",
        "use": "sig",
        "n": modulus,
        "e": exponent,
    }


def claims(**changed: Any) -> dict[str, Any]:
    """Make the claims of a person who has just come through Access; None takes a claim away."""
    now = int(time.time())
    made = {
        "aud": [AUDIENCE],
        "email": "ann@example.com",
        "exp": now + 3_600,
        "iat": now,
        "nbf": now,
        "iss": ISSUER,
        "type": "app",
        "sub": "7335d417",
        **changed,
    }
    return {name: value for name, value in made.items() if value is not None}


def assertion(
    key_id: str = "first",
    *,
    said: Mapping[str, Any] | None = None,
    head: Mapping[str, Any] | None = None,
    signer: str | None = None,
) -> str:
    """Sign an assertion: by the key that it names, unless by `signer`."""
    header = {"alg": "RS256", "kid": key_id, "typ": "JWT", **(head or {})}
    signed = f"{encoded_json(header)}.{encoded_json(dict(said or claims()))}"
    key = private_key(signer or key_id)
    signature = key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{signed}.{encoded(signature)}"


@dataclass
class KeyServer:
    """Who publishes the keys: it counts, and answers as it is told."""

    url: str = ""
    keys: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200
    text: bytes | None = None
    """What is answered in place of the keys."""
    location: str | None = None
    delay_s: float = 0
    calls: int = 0
    most_at_once: int = 0
    at_once: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        with self.lock:
            self.calls += 1
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            yield
        finally:
            with self.lock:
                self.at_once -= 1


@contextlib.contextmanager
def serve_keys() -> Iterator[KeyServer]:
    """Serve on a free port of this machine."""
    told = KeyServer(keys=[published("first")])
    is_over = threading.Event()

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with told.counted():
                is_over.wait(told.delay_s)
                body = json.dumps({"keys": told.keys}).encode() if told.text is None else told.text
                with contextlib.suppress(OSError):
                    self.send_response(told.status)
                    if told.location is not None:
                        self.send_header("location", told.location)
                    self.send_header("content-length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        server.daemon_threads = True
        told.url = f"http://127.0.0.1:{server.server_address[1]}/cdn-cgi/access/certs"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield told
        finally:
            is_over.set()
            server.shutdown()
            thread.join()


def variables(keys_url: str, callers: Mapping[str, Any]) -> dict[str, str]:
    """Write the settings of a deployment behind Access."""
    return {
        "QUIESCE_ACCESS_KEYS_URL": keys_url,
        "QUIESCE_ACCESS_ISSUER": ISSUER,
        "QUIESCE_ACCESS_AUDIENCES": json.dumps([AUDIENCE]),
        "QUIESCE_ACCESS_CALLERS": json.dumps(callers),
    }
