"""Trace context as the W3C has it: read from a request, kept with its submission, and carried on.

1. A `traceparent` is taken as it is specified or not at all: what breaks its grammar is ignored, and refuses
   nothing. One of a later version is read by the rules of version 00, which is what is written here.
2. What is carried on has the same trace and flags, and a parent of its own, which is derived and not drawn: the
   same call of the same submission has the same one, however often it is made.
3. Of the flags only *sampled* and *random* are known, and the others are carried on as zero. `tracestate` is not
   carried on: it belongs to whoever wrote it, and means nothing here.
"""

import re

from quiesce.ids import digest

TRACEPARENT = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})-(?!0{32})(?P<trace>[0-9a-f]{32})-(?!0{16})(?P<parent>[0-9a-f]{16})"
    r"-(?P<flags>[0-9a-f]{2})(?P<rest>-[ -~]*)?"
)
HEADER = "traceparent"
HEADER_MAX = 512
KNOWN_FLAGS = 0x03


def read(header: str | None) -> str | None:
    """Read a `traceparent` header and write it anew as version 00; None when there is none, or no lawful one."""
    if header is None or len(header) > HEADER_MAX:
        return None
    found = TRACEPARENT.fullmatch(header)
    if found is None or (found["version"] == "00" and found["rest"] is not None):
        return None
    flags = int(found["flags"], 16) & KNOWN_FLAGS
    return f"00-{found['trace']}-{found['parent']}-{flags:02x}"


def trace_id(traceparent: str | None) -> str | None:
    """Return which trace a kept `traceparent` belongs to."""
    return None if traceparent is None else traceparent.split("-")[1]


def onward(traceparent: str | None, submission: str, call: str) -> str | None:
    """Return the `traceparent` of one call that a submission makes; None where it belongs to no trace."""
    if traceparent is None:
        return None
    version, trace, parent, flags = traceparent.split("-")
    own = digest(f"{submission}/{parent}/{call}")[:16]
    return f"{version}-{trace}-{own}-{flags}"
