"""The closed set of refusals, and Corruption.

1. A *Refusal* answers a caller who asked for what the law forbids. It wrote nothing.
2. *Corruption* says that stored state breaks a law. It is never repaired in silence.
3. Anything else that is raised is a bug, or the work of an application.

Status codes stand in one table in `wire.py`; this module does not know HTTP.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class RefusalCode(StrEnum):
    """Every reason for which a caller can be refused."""

    INVALID_REQUEST = "invalid-request"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not-found"
    METHOD_NOT_ALLOWED = "method-not-allowed"
    IDEMPOTENCY_CONFLICT = "idempotency-conflict"
    ALREADY_SETTLED = "already-settled"
    DECISION_CONFLICT = "decision-conflict"
    NOT_WAITING = "not-waiting"
    JOINED_TO_HOST = "joined-to-host"
    GONE = "gone"
    INPUT_TOO_LARGE = "input-too-large"
    UNSUPPORTED_MEDIA_TYPE = "unsupported-media-type"
    UNKNOWN_AGENT = "unknown-agent"
    QUEUE_FULL = "queue-full"
    RATE_LIMITED = "rate-limited"
    CORRUPTION = "corruption"
    UNAVAILABLE = "unavailable"
    DATABASE_FULL = "database-full"


class FailureType(StrEnum):
    """The failures of a settlement that Quiesce itself declares, beside the application's own types."""

    ATTEMPTS_EXHAUSTED = "attempts-exhausted"
    ATTEMPT_DEADLINE = "attempt-deadline"
    DEADLINE_EXCEEDED = "deadline-exceeded"
    RESULT_TOO_LARGE = "result-too-large"
    DIVERGED = "diverged"
    BUDGET_EXHAUSTED = "budget-exhausted"


class Refusal(Exception):
    """A caller asked for what the law forbids; nothing was written.

    `code` is one of the closed set, `detail` a sentence for the person who reads it, and `facts` the JSON
    values that a program needs: `limit`, `actual` and `maximum` where there is a limit, the recorded
    decision where there is a conflict.
    """

    def __init__(
        self, code: RefusalCode, detail: str, facts: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.facts: Mapping[str, Any] = facts or {}


class Corruption(Exception):
    """Stored state breaks a law: `law` names it, `found` says what stands there instead."""

    def __init__(self, law: str, found: str) -> None:
        super().__init__(f"{law}; found {found}")
        self.law = law
        self.found = found


class NewerStorage(Exception):
    """The Object was written by newer code than this; its bytes are left untouched."""


class StorageUnavailable(Exception):
    """The store did not answer, or the platform is resetting the Object. It says nothing about the work."""


class IncarnationEnded(BaseException):
    """This incarnation is dead: nothing may catch that and go on. Only a simulated Object raises it."""


class IllegalMove(Exception):
    """A submission was asked to leave a state that it is not in, or by an attempt that no longer owns it."""


def limit_exceeded(code: RefusalCode, limit: str, actual: int, maximum: int) -> Refusal:
    """Build the refusal of a limit: which one, how much was asked for, how much is allowed."""
    return Refusal(
        code,
        f"{limit} allows {maximum}, this would make {actual}",
        {"limit": limit, "actual": actual, "maximum": maximum},
    )
