"""The outbox: messages owed to a parent, a callback URL or an orphan, written in the transaction that owes them.

1. A message names what it is about, never what it says: that is read from the log when it is sent, so a result is
   stored once.
2. It is owed at once; after a try that failed it is owed again at a durable, growing time.
3. The receiver is idempotent, so a message may be sent twice and is never lost.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from quiesce import agenda
from quiesce.agenda import NEVER_MS, Entry
from quiesce.ids import SubmissionId
from quiesce.operations import OpenOperation
from quiesce.storage import Storage


class MessageKind(StrEnum):
    """Whom a settlement is told to, or that a child which nobody established has to end."""

    PARENT = "parent"
    CALLBACK = "callback"
    ORPHAN = "orphan"


@dataclass(frozen=True, slots=True)
class Message:
    """One message that is owed: the settlement of a submission, to somebody; or to an orphan, its end."""

    kind: MessageKind
    submission: SubmissionId
    at_ms: int
    tries: int = 0
    since_ms: int = 0
    last_error: str | None = None
    conversation: str | None = None
    """Where an orphan lives; everybody else is found in the log."""

    @property
    def subject(self) -> str:
        """What it is known by: one message of a kind for each submission."""
        return f"{self.submission}/{self.kind}"


def _entry(message: Message) -> Entry:
    detail = {
        "tries": message.tries,
        "since_ms": message.since_ms,
        "last_error": message.last_error,
        "conversation": message.conversation,
    }
    return Entry(message.at_ms, "message", message.subject, detail)


def message_of(entry: Entry) -> Message:
    """Read an entry of the agenda as the message that it is."""
    submission, _, kind = entry.subject.partition("/")
    return Message(
        MessageKind(kind),
        SubmissionId(submission),
        entry.at_ms,
        entry.detail["tries"],
        entry.detail["since_ms"],
        entry.detail["last_error"],
        entry.detail["conversation"],
    )


def owe(storage: Storage, kind: MessageKind, submission: SubmissionId, now_ms: int) -> None:
    """Owe a message from now on, in the commit of what it tells."""
    agenda.add(storage, _entry(Message(kind, submission, now_ms, since_ms=now_ms)))


def owe_orphan(storage: Storage, child: OpenOperation, now_ms: int) -> None:
    """Owe its end to a child that is let go before it was established: it would wait for its parent for ever."""
    submission, conversation = child.detail["submission"], child.detail["conversation"]
    message = Message(
        MessageKind.ORPHAN, submission, now_ms, since_ms=now_ms, conversation=conversation
    )
    agenda.add(storage, _entry(message))


def delivered(storage: Storage, message: Message) -> bool:
    """Owe a message no more; returns whether it was still owed."""
    return agenda.remove(storage, _entry(message))


def postpone(storage: Storage, message: Message, at_ms: int, error: str) -> None:
    """Owe a message again at a later time."""
    if agenda.remove(storage, _entry(message)):
        later = replace(message, at_ms=at_ms, tries=message.tries + 1, last_error=error[:300])
        agenda.add(storage, _entry(later))


def bury(storage: Storage, message: Message, error: str) -> None:
    """Give a message up, and keep it for an operator."""
    if agenda.remove(storage, _entry(message)):
        given_up = replace(message, tries=message.tries + 1, last_error=error[:300])
        entry = replace(_entry(given_up), at_ms=NEVER_MS, kind="buried")
        agenda.add(storage, entry)


def revive(storage: Storage, kind: MessageKind, submission: SubmissionId, now_ms: int) -> bool:
    """Owe a message again that was given up; returns whether there was one."""
    entry = agenda.buried(storage, f"{submission}/{kind}")
    if entry is None:
        return False
    agenda.remove(storage, entry)
    owe(storage, kind, submission, now_ms)
    return True
