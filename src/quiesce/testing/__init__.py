"""quiesce.testing: a simulated deployment, for this project's tests and for yours.

Objects live on the standard `sqlite3` behind the storage seam, so the same SQL runs as in production. One virtual
clock moves only when it is told to. Alarms are delivered as the platform does it: at least once, never early, with
an empty slot during delivery, retried with growing delays and dropped after seven failures. The process can be
made to die before or after any commit, with or without what was not yet on disk.

    from quiesce.testing import Deployment

    with Deployment([refunds]) as deployment:
        lane = deployment.conversation("order-17")
        receipt = lane.submit("refunds", {"order": "17", "cents": 500})
        deployment.run_until_quiet()
        assert lane.settlement(receipt.submission).outcome == "completed"

To prove that your agent survives a crash anywhere, run it once under `commit_counter()`, and then once for each of
`crash_plans(counter.seen)`: after each crash `run_until_quiet()` must end where the undisturbed run did.
"""

from quiesce.testing.conversation import Conversation
from quiesce.testing.crashing import Crashed, CrashPlan, commit_counter, crash_plans
from quiesce.testing.deployment import Deployment
from quiesce.testing.host import Pause
from quiesce.testing.virtual_time import Deadlock

__all__ = [
    "Conversation",
    "CrashPlan",
    "Crashed",
    "Deadlock",
    "Deployment",
    "Pause",
    "commit_counter",
    "crash_plans",
]
