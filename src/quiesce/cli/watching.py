"""`quiesce watch`: one submission, live, until it is settled.

1. It only reads: the submission's event stream, which is taken up again where it breaks, and its status.
2. What is shown of a submission is what its records and its status say, never a guess about what comes next.
3. On a terminal one picture is kept up to date; elsewhere each record and each change is a line; with --json each
   record and, at the end, the settlement is a line.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from pydantic_core import to_json
from rich.console import Group, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.text import Text

from quiesce.cli import screens
from quiesce.cli.session import Session
from quiesce.cli.wording import STATE_STYLES, counted, moment, styled
from quiesce.client import Client, Event, Progress, Record, Settlement, Status, StillOpen

SHOWN_MAX = 300
PICTURE_LINES = 14
"""What the picture takes beside the records."""

type Sight = Event | Status


class Viewer(Protocol):
    """What shows sights to somebody."""

    def see(self, sight: Sight) -> None:
        """Take in one more."""
        ...


def watch(session: Session, submission: str, timeout_s: float | None) -> Settlement:
    """Show a submission until it is settled; raises StillOpen when the time to watch is over."""
    clock = session.client.calls.terms.clock
    deadline_s = None if timeout_s is None else clock() + timeout_s
    if session.is_json:
        return _follow(session, Lines(session), submission, deadline_s)
    if not session.out.is_terminal:
        return _follow(session, Prose(session), submission, deadline_s)
    picture = Picture(session)
    with Live(picture, console=session.out, refresh_per_second=4, transient=False):
        return _follow(session, picture, submission, deadline_s)


def _follow(
    session: Session, viewer: Viewer, submission: str, deadline_s: float | None
) -> Settlement:
    last: Status | None = None
    for sight in sights(session.client, session.conversation, submission, deadline_s):
        viewer.see(sight)
        if isinstance(sight, Settlement):
            return sight
        if isinstance(sight, Status):
            last = sight
    assert last is not None, "the status is seen first"
    raise StillOpen(last)


def sights(
    client: Client, conversation: str, submission: str, deadline_s: float | None
) -> Iterator[Sight]:
    """Yield the status first, then each record and what is shown, the status after each burst, the settlement last.

    While nothing comes the status is looked at as often as the deployment shows that it is there: a retry is no
    record. Nothing but the settlement is yielded last, unless the time to watch is over.
    """
    last = client.status(conversation, submission)
    yield last
    left_s = None if deadline_s is None else max(0.0, deadline_s - client.calls.terms.clock())
    course = client.calls.stream(conversation, submission=submission, timeout_s=left_s)
    for burst in client.follow(course):
        yield from burst
        if not course.is_over():
            yield client.status(conversation, submission)


def shown(progress: Progress) -> str:
    """Write what a Run shows, on one line."""
    value = progress.value
    text = value if isinstance(value, str) else to_json(value).decode()
    return f"… {' '.join(text.split())[:SHOWN_MAX]}"


class Lines:
    """For programs: the API's JSON, one document a line."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def see(self, sight: Sight) -> None:
        """Print what is new."""
        if isinstance(sight, Record | Settlement):
            self.session.emit(sight.document)


@dataclass
class Prose:
    """For a file or a pipe: a line for each record and for each change of what it waits for."""

    session: Session
    said: str = ""

    def see(self, sight: Sight) -> None:
        """Print what is new."""
        if isinstance(sight, Record):
            self.session.show_line(screens.record_line(sight))
        elif isinstance(sight, Progress):
            self.session.show_line(Text(shown(sight), style="dim"))
        elif isinstance(sight, Settlement):
            self.session.show(screens.settlement(sight))
        elif (line := self._line(sight)) != self.said:
            self.said = line
            self.session.show_line(Text(line))

    def _line(self, found: Status) -> str:
        wait = found.waiting_for
        waits = "" if wait is None else f", waits for {screens.wait_line(wait)}"
        failed = f", {counted(found.attempts, 'failed attempt')}" if found.attempts else ""
        return f"{found.submission} is {found.state}{waits}{failed}"


@dataclass
class Picture:
    """For a terminal: where the submission stands above its latest records."""

    session: Session
    status: Status | None = None
    settlement: Settlement | None = None
    records: list[Record] = field(default_factory=list)
    progress: str = ""

    def see(self, sight: Sight) -> None:
        """Take in what is new; the picture is drawn from it a few times a second."""
        match sight:
            case Record():
                self.records.append(sight)
            case Progress():
                self.progress = shown(sight)
            case Status():
                self.status = sight
            case Settlement():
                self.settlement = sight

    def __rich__(self) -> RenderableType:
        room = max(3, self.session.out.height - PICTURE_LINES - bool(self.progress))
        if self.status is None:
            return Text("…", style="dim")
        parts: list[RenderableType] = []
        if self.settlement is None:
            parts.append(screens.status(self.status, self.session.age_s))
        else:
            parts.append(screens.submission_line(self.status))
        if self.records:
            hidden = max(0, len(self.records) - room)
            noun = "record" if len(self.records) == 1 else "records"
            title = f"{len(self.records)} {noun}" + (f", {hidden} earlier" if hidden else "")
            parts.append(Rule(Text(title, style="dim"), style="dim", align="left"))
            parts += [screens.record_line(each) for each in self.records[-room:]]
        if self.progress and self.settlement is None:
            parts.append(Text(self.progress, style="italic", no_wrap=True, overflow="ellipsis"))
        if self.settlement is None:
            parts.append(self._footer(self.status))
        else:
            parts += [Rule(style="dim"), screens.settlement(self.settlement)]
        return Group(*parts)

    def _footer(self, found: Status) -> Text:
        if found.next_attempt_at is not None:
            return Text(
                f"next attempt at {moment(found.next_attempt_at)}; Ctrl-C stops watching",
                style="dim",
            )
        said = "it goes on whether anybody watches or not; Ctrl-C stops watching"
        return Text.assemble(styled(found.state, STATE_STYLES), (f": {said}", "dim"))
