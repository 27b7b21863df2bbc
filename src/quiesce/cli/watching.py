"""`quiesce watch`: one submission, live, until it is settled.

1. It only reads: the log behind what it has seen, and the settlement by long polls.
2. What is shown of a submission is what its records and its status say, never a guess about what comes next.
3. On a terminal one picture is kept up to date; elsewhere each record and each change is a line; with --json each
   record and, at the end, the settlement is a line.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from rich.console import Group, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.text import Text

from quiesce.cli import screens
from quiesce.cli.session import Session
from quiesce.cli.wording import STATE_STYLES, moment, styled
from quiesce.client import Client, Record, Settlement, Status, StillOpen

PAGE = 200
WAIT_S_MIN, WAIT_S_MAX = 1, 5
"""A change is seen at once only if it settles; while nothing changes, the rest is looked for less often."""
PICTURE_LINES = 14
"""What the picture takes beside the records."""

type Sight = Record | Status | Settlement


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
    for sight in sights(session.client, session.conversation, submission):
        viewer.see(sight)
        if isinstance(sight, Settlement):
            return sight
        if isinstance(sight, Status):
            last = sight
        is_over = deadline_s is not None and session.client.calls.terms.clock() >= deadline_s
        if is_over and last is not None:
            raise StillOpen(last)
    raise AssertionError("sights end with a settlement")


def sights(client: Client, conversation: str, submission: str) -> Iterator[Sight]:
    """Yield the status first, then each record and each reading of the status, and the settlement last."""
    seen, wait_s = 0, WAIT_S_MIN
    before = client.status(conversation, submission)
    yield before
    while True:
        page = client.records_page(conversation, after=seen, page_size=PAGE)
        own = [record for record in page.items if record.submission == submission]
        yield from own
        if page.items:
            seen = page.items[-1].sequence
        if page.next is not None:
            continue
        now = client.poll(conversation, submission, wait_s=wait_s)
        if isinstance(now, Settlement):
            yield from _rest(client, conversation, submission, seen)
            yield now
            return
        yield now
        has_changed = bool(own) or now.state != before.state or now.attempts != before.attempts
        wait_s = WAIT_S_MIN if has_changed else min(WAIT_S_MAX, wait_s + 1)
        before = now


def _rest(client: Client, conversation: str, submission: str, seen: int) -> Iterator[Record]:
    for record in client.records(conversation, after=seen, page_size=PAGE):
        if record.submission == submission:
            yield record


class Lines:
    """For programs: the API's JSON, one document a line."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def see(self, sight: Sight) -> None:
        """Print what is new."""
        if not isinstance(sight, Status):
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
        elif isinstance(sight, Settlement):
            self.session.show(screens.settlement(sight))
        elif (line := self._line(sight)) != self.said:
            self.said = line
            self.session.show_line(Text(line))

    def _line(self, found: Status) -> str:
        wait = found.waiting_for
        waits = "" if wait is None else f", waits for {screens.wait_line(wait)}"
        failed = f", {found.attempts} failed attempts" if found.attempts else ""
        return f"{found.submission} is {found.state}{waits}{failed}"


@dataclass
class Picture:
    """For a terminal: where the submission stands above its latest records."""

    session: Session
    status: Status | None = None
    settlement: Settlement | None = None
    records: list[Record] = field(default_factory=list)

    def see(self, sight: Sight) -> None:
        """Take in what is new; the picture is drawn from it a few times a second."""
        match sight:
            case Record():
                self.records.append(sight)
            case Status():
                self.status = sight
            case Settlement():
                self.settlement = sight

    def __rich__(self) -> RenderableType:
        room = max(3, self.session.out.height - PICTURE_LINES)
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
