"""Checks the signature of an assertion with the keys of Cloudflare Access, and gets these where they are published.

1. The keys of an isolate are shared by all its requests. No request awaits what another has begun, because the
   runtime would cut it off with that other: it looks again and again, for as long as an answer may take.
2. An answer is bounded in time and in size, comes from the very address that is set, and replaces the keys whole.
3. Where a signature cannot be checked, nobody is let in, and the refusal is `unavailable`.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import js
from pyodide.ffi import JsException, jsnull, to_js

from quiesce import keyring, reporting, workerd
from quiesce.access import unauthenticated
from quiesce.assertions import Assertion
from quiesce.errors import Refusal, RefusalCode
from quiesce.keyring import Key, Ring, Step, next_step, parse_keys
from quiesce.telemetry import Line

OK = 200
LOOK_AGAIN_S = 0.025
SCHEME = "RSASSA-PKCS1-v1_5"


class Keys:
    """The keys of this isolate."""

    _ring: ClassVar[Ring] = Ring()
    _imported: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    async def require(cls, assertion: Assertion, url: str, clock: Callable[[], int]) -> None:
        """Check the signature of an assertion.

        Raises Refusal: `unauthenticated` where it does not hold, `unavailable` where that cannot be told.
        """
        key = await cls._key(assertion.key_id, url, clock)
        try:
            signature, signed = to_js(assertion.signature), to_js(assertion.signed)
            is_genuine = await js.crypto.subtle.verify(SCHEME, key, signature, signed)
        except JsException:
            is_genuine = False
        if is_genuine is not True:
            raise unauthenticated()

    @classmethod
    async def _key(cls, key_id: str, url: str, clock: Callable[[], int]) -> Any:
        while True:
            match next_step(cls._ring, key_id, clock()):
                case Step.USE:
                    return cls._imported[key_id]
                case Step.ASK:
                    await cls._ask(url, clock)
                case Step.WAIT:
                    await asyncio.sleep(LOOK_AGAIN_S)
                case Step.REFUSE:
                    raise unauthenticated()
                case Step.FAIL:
                    message = "the keys of Cloudflare Access could not be had; the request may be repeated"
                    facts = {"retry_after_s": keyring.RETRY_MS // 1_000}
                    raise Refusal(RefusalCode.UNAVAILABLE, message, facts)

    @classmethod
    async def _ask(cls, url: str, clock: Callable[[], int]) -> None:
        cls._ring = cls._ring.asking(clock())
        try:
            imported = await _imported(parse_keys(await _published(url)))
        except (JsException, OSError, ValueError) as error:
            cls._ring = cls._ring.failed(clock())
            facts = {"url": url, "message": str(error)[: reporting.MESSAGE_MAX]}
            line = Line("keys-unavailable", clock(), None, None, facts)
            workerd.log(reporting.text_of(line))
        else:
            cls._imported = imported
            cls._ring = cls._ring.given(frozenset(imported), clock())


async def _published(url: str) -> bytes:
    """GET what is published.

    Raises ValueError for what is no answer of the right size, and whatever the platform raises.
    """
    signal = js.AbortSignal.timeout(keyring.ASKING_MS_MAX)
    # A redirect is not followed: it would let another address say which keys are ours.
    options = {"redirect": "manual", "signal": signal}
    response = await js.fetch(url, to_js(options, dict_converter=js.Object.fromEntries))
    read = bytearray()
    stream = response.body
    if response.status != OK or stream is None or stream is jsnull:
        raise ValueError(f"the answer was {response.status}")
    reader = stream.getReader()
    while not (chunk := await reader.read()).done:
        read += chunk.value.to_bytes()
        if len(read) > keyring.KEYS_BYTES_MAX:
            await reader.cancel("the answer is too large")
            raise ValueError(f"the answer is larger than {keyring.KEYS_BYTES_MAX} bytes")
    return bytes(read)


async def _imported(keys: Mapping[str, Key]) -> dict[str, Any]:
    """Make each key one that the runtime can check with.

    Raises ValueError where it takes none of them.
    """
    imported: dict[str, Any] = {}
    scheme = _object({"name": SCHEME, "hash": "SHA-256"})
    may_be_read_back = False
    for key_id, key in keys.items():
        published = _object({"kty": key.kty, "n": key.n, "e": key.e})
        try:
            imported[key_id] = await js.crypto.subtle.importKey(
                "jwk", published, scheme, may_be_read_back, to_js(["verify"])
            )
        except JsException:
            continue
    if not imported:
        raise ValueError("the runtime takes none of the keys")
    return imported


def _object(values: Mapping[str, str]) -> Any:
    return to_js(dict(values), dict_converter=js.Object.fromEntries)
