"""What a call to a deployment can end in, other than its result.

1. `Refused`: the deployment said no, and why; it wrote nothing.
2. `Unreachable`: there was no answer. What was asked for may have been recorded, unless it says otherwise.
3. `Unreadable`: there was an answer, and it is none that a deployment gives.
4. `StillOpen`: the time to wait is over, and the submission goes on without anybody who waits.

`BadArgument` is of another kind: it says before anything is sent that no request can carry what was given.
"""

from collections.abc import Mapping
from typing import Any

from quiesce.client.results import Status


class BadArgument(ValueError):
    """No request can carry this; nothing was sent."""


class QuiesceError(Exception):
    """A call had no result."""


class Refused(QuiesceError):
    """The deployment refused: `code` is one of its closed set, `facts` what it names beside the sentence.

    `facts` holds `limit`, `actual` and `maximum` where there is a limit, and the recorded decision or the
    settlement where there is a conflict. `problem` is the whole document.
    """

    def __init__(
        self, problem: Mapping[str, Any], status: int, retry_after_s: float | None
    ) -> None:
        self.problem = problem
        self.code = str(problem["code"])
        self.status = status
        self.title = str(problem.get("title", self.code))
        self.detail = str(problem.get("detail", self.title))
        self.retry_after_s = retry_after_s
        super().__init__(f"{self.code} ({status}): {self.detail}")

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the refusal names beside its sentence."""
        common = {"type", "title", "status", "detail", "code"}
        return {name: value for name, value in self.problem.items() if name not in common}


class Unreachable(QuiesceError):
    """There was no answer; `may_have_arrived` says whether the request may have reached the deployment."""

    def __init__(self, reason: str, *, may_have_arrived: bool) -> None:
        self.reason = reason
        self.may_have_arrived = may_have_arrived
        super().__init__(reason)


class Unreadable(QuiesceError):
    """Something answered that is no deployment of Quiesce, or one that breaks its contract."""

    def __init__(self, status: int, reason: str) -> None:
        self.status = status
        self.reason = reason
        super().__init__(f"HTTP {status}: {reason}")


class StillOpen(QuiesceError):
    """The submission was not settled in time; `status` is where it stood then."""

    def __init__(self, status: Status) -> None:
        self.status = status
        wait = status.waiting_for
        what = "" if wait is None else wait.operation or wait.name or wait.behind or ""
        waits = "" if wait is None else f", waiting for {wait.kind} {what}".rstrip()
        super().__init__(f"{status.submission} is still {status.state}{waits}")
