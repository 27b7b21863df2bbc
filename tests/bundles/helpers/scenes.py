"""Conversations to verify and to export: one with a bit of everything, and ways to break it by hand."""

import random
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agents import REGISTRY
from quiesce.generation import STALE_ALARM_MS
from quiesce.records import CHAIN_START, chain_digest, content_digest
from quiesce.settings import Settings
from quiesce.testing import Conversation, Deployment

TEXT = 'é \x01 \u2028 \U0001f600 \x7f \\ "'


@contextmanager
def deployed(**settings: Any) -> Iterator[Deployment]:
    with Deployment(REGISTRY, Settings(**settings), jitter=0.0) as deployment:
        yield deployment


def talked(deployment: Deployment) -> Conversation:
    """Make a conversation of sixteen records: five settled, one that waits for a person, one queued behind it.

    1 is its creation; 2 to 7 are three echoes, input and settlement each; 8 to 12 are three steps; 13 and 14 fail;
    15 and 16 wait for an approval.
    """
    lane = deployment.conversation("one")
    for number in range(3):
        lane.submit("echo", {"number": number, "text": TEXT, "float": 1e300, "great": 2**70})
    lane.submit("steps", {"count": 3})
    lane.submit("fail", {"kind": "final"})
    deployment.run_until_quiet()
    lane.submit("approval", {"question": "?"})
    lane.submit("echo", TEXT)
    deployment.run_until_quiet()
    assert [each.sequence for each in lane.records()] == list(range(1, 17))
    assert lane.alarm_at_ms is None
    # From here on no alarm can be on its way.
    deployment.advance(2 * STALE_ALARM_MS)
    return lane


@contextmanager
def put_back(lane: Conversation) -> Iterator[None]:
    """Put a conversation back as it was, so that what a test broke breaks nothing else."""
    database, was_lost = lane.disk.connection, lane.alarm_was_lost
    kept = sqlite3.connect(":memory:")
    lane.disk.sync()
    database.execute("COMMIT")
    database.backup(kept)
    database.execute("BEGIN")
    try:
        yield
    finally:
        database.execute("COMMIT")
        kept.backup(database)
        database.execute("BEGIN")
        lane.disk.sync()
        kept.close()
        lane.alarm_was_lost = was_lost


def tamper(lane: Conversation, sql: str, *params: Any) -> None:
    """Change rows behind the Object's back, whatever its tables allow."""
    database = lane.disk.connection
    database.execute("PRAGMA ignore_check_constraints = 1")
    changed = database.execute(sql, params).rowcount
    database.execute("PRAGMA ignore_check_constraints = 0")
    assert changed > 0, sql
    lane.disk.sync()


def forge(lane: Conversation) -> None:
    """Compute every digest and the chain anew, as somebody would who can write all of a log."""
    database, chain = lane.disk.connection, CHAIN_START
    rows = database.execute(
        "SELECT sequence, record_id, kind, submission, epoch, payload, created_at_ms, digest"
        " FROM records ORDER BY sequence"
    ).fetchall()
    for sequence, identity, kind, owner, epoch, payload, at_ms, stored in rows:
        digest = (
            stored if payload is None else content_digest(identity, kind, owner, epoch, payload)
        )
        chain = chain_digest(chain, sequence, digest, at_ms)
        database.execute(
            "UPDATE records SET digest = ?, chain = ? WHERE sequence = ?", (digest, chain, sequence)
        )
    lane.disk.sync()


AGENTS: tuple[tuple[str, Any], ...] = (
    ("echo", 1),
    ("steps", {"count": 3}),
    ("fail", {"kind": "final"}),
    ("fail", {"kind": "retryable", "times": 2}),
    ("approval", {"question": "?"}),
    ("sleep", {"ms": 40}),
)


def meddle(lane: Conversation, chance: random.Random) -> None:
    """Let one thing happen to a conversation: work, a decision, an abort, an alarm, time."""
    open_ = [each for each in lane.state().counts.items() if each[1] and each[0] != "settled"]
    match chance.randrange(8):
        case 0 | 1 if sum(count for _, count in open_) < 12:
            lane.submit(*chance.choice(AGENTS))
        case 2:
            head = lane.state().head
            wait = None if head is None else lane.status(head).waiting_for
            if head is not None and wait is not None and wait.kind == "approval":
                lane.approve(head, "question")
        case 3:
            head = lane.state().head
            if head is not None:
                lane.abort(head)
        case 4:
            lane.force_pass()
        case 5 if lane.alarm_at_ms is not None:
            lane.start_delivery()
        case _:
            lane.deployment.advance(chance.choice((1, 1, 1, 30, 600)))
