"""How results look on a terminal, 80 columns wide or wider."""

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from textwrap import wrap
from typing import Any, Literal

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from quiesce.cli.wording import (
    FRESHNESS_STYLES,
    OUTCOME_STYLES,
    STATE_STYLES,
    counted,
    duration,
    json_block,
    json_line,
    moment,
    plain,
    short_moment,
    styled,
)
from quiesce.client.results import (
    AgentDescription,
    BrokenLaw,
    Cost,
    Explanation,
    Lane,
    Maintenance,
    Record,
    Settlement,
    Status,
    Verification,
    Wait,
)

SHORT_ID = 12
"""So much of a submission's id is enough to tell it from its neighbours."""

type Age = Callable[[datetime], float]
type Fact = tuple[str, RenderableType | None]


def facts(pairs: Iterable[Fact]) -> Table:
    """Lay out names and what stands for each; what is None is left out."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        if value is not None:
            grid.add_row(name, value)
    return grid


def indented(renderable: RenderableType) -> Padding:
    """Set something in by two columns."""
    return Padding(renderable, (0, 0, 0, 2), expand=False)


def command_line(command: str | None) -> tuple[RenderableType, ...]:
    """Show the command that moves a wait; it can be copied, also where it takes more than one line."""
    return () if command is None else (indented(Command(plain(command))),)


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a shell, broken as a shell allows it."""

    text: str

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        lines = wrap(
            self.text, options.max_width - 2, break_long_words=False, break_on_hyphens=False
        )
        yield Text(" \\\n".join(lines), style="cyan")


def listing(*columns: str) -> Table:
    """Make a table without lines; identifiers fold rather than lose their end."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", show_edge=False)
    for column in columns:
        is_whole = column == "submission"
        justify: Literal["left", "right"] = "right" if column == "#" else "left"
        table.add_column(column, overflow="fold", no_wrap=is_whole, justify=justify)
    return table


def submission_line(found: Status | Explanation) -> Text:
    """Name a submission, its place in the queue and its agent."""
    return Text.assemble(
        (plain(found.submission), "bold"), f"  #{found.sequence}, agent {plain(found.agent)}"
    )


def wait_line(wait: Wait) -> str:
    """Say in a few words what is waited for."""
    name = wait.operation or wait.name
    said = wait.kind if name is None else f"{wait.kind} {name}"
    if wait.name is not None and wait.kind == "signal":
        said = f"signal {wait.name}"
    if wait.behind is not None:
        said = f"behind {wait.behind[:SHORT_ID]}…"
    return plain(said)


def wait_detail(wait: Wait, age: Age) -> str:
    """Say what is waited for, since when and until when."""
    said = f"{wait_line(wait)}, for {duration(age(wait.since))}"
    return said if wait.until is None else f"{said}, until {moment(wait.until)}"


def command_for(conversation: str, submission: str, wait: Wait | None) -> str | None:
    """Return the command that a person would move this wait with."""
    if wait is None:
        return None
    end = f"-c {shlex.quote(conversation)} {submission}"
    match wait.kind:
        case "approval":
            return f"quiesce approve {end} {wait.operation}"
        case "signal":
            return f"quiesce signal {end} {wait.name or wait.operation} null"
        case "resolution":
            return f"quiesce resolve {end} completed {wait.operation} --result JSON"
        case "operator":
            return f"quiesce retry {end}"
        case _:
            return None


def cost_line(cost: Cost) -> str:
    """Say what something has cost."""
    return (
        f"{counted(cost.wakes, 'wake')}, {counted(cost.rows_read, 'row')} read, {cost.rows_written} written,"
        f" {cost.active_ms} ms, ${cost.usd:.6f}"
    )


def submissions(found: Iterable[Status]) -> Table:
    """List submissions."""
    table = listing("#", "submission", "agent", "state", "waits for")
    for each in found:
        state = styled(each.state, STATE_STYLES)
        if each.settlement is not None:
            state = styled(each.settlement.outcome, OUTCOME_STYLES)
        waits = "" if each.waiting_for is None else wait_line(each.waiting_for)
        if each.tombstone is not None:
            state, waits = styled(each.tombstone.outcome, OUTCOME_STYLES), "purged"
        if each.attempts:
            waits = f"{waits} ({counted(each.attempts, 'failed attempt')})".strip()
        table.add_row(str(each.sequence), plain(each.submission), plain(each.agent), state, waits)
    return table


def status(found: Status, age: Age) -> RenderableType:
    """Show one submission."""
    wait = found.waiting_for
    move = command_for(found.conversation, found.submission, wait)
    shown = facts(
        [
            ("conversation", plain(found.conversation)),
            ("state", styled(found.state, STATE_STYLES)),
            ("waits for", None if wait is None else wait_detail(wait, age)),
            ("attempts", _attempts(found)),
            ("cost", None if found.settlement is not None else cost_line(found.cost)),
        ]
    )
    parts: list[RenderableType] = [submission_line(found), indented(shown), *command_line(move)]
    if found.settlement is not None:
        parts.append(settlement(found.settlement))
    return Group(*parts)


def _attempts(found: Status) -> str | None:
    if not found.attempts and not found.interruptions:
        return None
    said = f"{found.attempts} failed"
    if found.interruptions:
        said = f"{said}, {found.interruptions} interrupted in a row"
    if found.next_attempt_at is not None:
        said = f"{said}, next at {moment(found.next_attempt_at)}"
    return said


def settlement(found: Settlement) -> RenderableType:
    """Show how a submission ended."""
    failure = found.failure
    effects = (
        "some may have happened, and nobody knows" if found.effects_may_have_happened else None
    )
    done = plain(", ".join(found.completed_operations)) if found.completed_operations else None
    why = None if failure is None else plain(f"{failure.error_type}: {failure.message}")
    shown = facts(
        [
            ("settled", moment(found.settled_at)),
            ("failure", why),
            ("effects", effects),
            ("done before", done),
            ("cost", cost_line(found.cost)),
            ("result", json_block(found.result) if found.is_completed else None),
        ]
    )
    return Group(styled(found.outcome, OUTCOME_STYLES), indented(shown))


def explanation(found: Explanation) -> RenderableType:
    """Show why one submission is where it is."""
    freshness = styled(found.freshness, FRESHNESS_STYLES)
    move = command_for(found.conversation, found.submission, found.waiting_for)
    others = ", ".join(
        f"{each.kind} {each.operation} ({each.state})" for each in found.open_operations
    )
    until = None if found.waiting_for is None else moment(found.waiting_for.until) or None
    shown = facts(
        [
            ("state", styled(found.state, STATE_STYLES)),
            ("why", plain(found.why)),
            ("moved by", plain(found.moved_by)),
            ("until", until),
            ("age", Text.assemble(duration(found.age_ms / 1_000), ", ", freshness)),
            ("open", plain(others) if len(found.open_operations) > 1 else None),
        ]
    )
    return Group(submission_line(found), indented(shown), *command_line(move))


def owed(found: Iterable[Explanation]) -> Table:
    """List what is open in several conversations."""
    table = listing("conversation", "submission", "waits for", "age")
    for each in found:
        wait = each.waiting_for
        age = Text(duration(each.age_ms / 1_000), style=FRESHNESS_STYLES.get(each.freshness, ""))
        table.add_row(
            plain(each.conversation),
            plain(each.submission),
            Text(
                plain(each.why) if wait is None else wait_line(wait),
                style=STATE_STYLES.get(each.state, ""),
            ),
            age,
        )
    return table


def record_line(record: Record) -> Text:
    """Write one record of the log on one line, as much as fits."""
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{record.sequence:>5}  ", style="dim")
    line.append(f"{short_moment(record.created_at)}  ", style="dim")
    line.append(f"{plain(record.kind):<21}", style="bold")
    line.append("purged" if record.payload is None else brief(record.payload))
    return line


def brief(payload: Any) -> str:
    """Say what matters of a record's payload; `quiesce records --json` has the rest."""
    if not isinstance(payload, dict):
        return json_line(payload)
    said = [
        f"{plain(name.removesuffix('_ms'))}={_value(name, value)}"
        for name, value in payload.items()
        if not _says_nothing(value) and not name.endswith("_digest") and name != "cost"
    ]
    return " ".join(said)


def _says_nothing(value: Any) -> bool:
    return value is None or value is False or value in ("", [], {})


def _value(name: str, value: Any) -> str:
    if name.endswith("_at_ms") and isinstance(value, int):
        return short_moment(datetime.fromtimestamp(value / 1_000, UTC))
    return plain(value) if isinstance(value, str) and " " not in value else json_line(value)


def lane(found: Lane, age: Age) -> RenderableType:
    """Show a lane."""
    counts = ", ".join(f"{count} {plain(state)}" for state, count in found.counts.items() if count)
    blocked = None if found.blocked_on is None else wait_detail(found.blocked_on, age)
    move = command_for(found.conversation, found.head or "", found.blocked_on)
    return Group(
        Text(plain(found.conversation), style="bold"),
        indented(
            facts(
                [
                    ("submissions", counts or "none"),
                    ("head", None if found.head is None else plain(found.head)),
                    ("blocked on", blocked),
                    ("generation", _generation(found)),
                    ("alarm", moment(found.alarm_at) or "none: nothing to wake up for"),
                    ("due", moment(found.due_at) or None),
                    ("parked", _parked(found)),
                    ("last pass", _last_pass(found)),
                    ("cost", cost_line(found.cost)),
                ]
            )
        ),
        *command_line(move),
    )


def _generation(found: Lane | Maintenance) -> str:
    generation = found.generation
    said = "owed a pass" if generation.is_owed else "caught up"
    return f"{generation.processed} of {generation.dirty} processed, {said}"


def _parked(found: Lane | Maintenance) -> Text | None:
    said = "it woke up often without progress, and is tried once an hour"
    return Text(said, style="bold red") if found.parked else None


def _last_pass(found: Lane | Maintenance) -> str | None:
    report = found.last_pass
    if report is None:
        return None
    return plain(
        ", ".join(
            f"{name} {report[name]}" for name in ("at", "settled", "reason") if name in report
        )
    )


def maintenance(found: Maintenance) -> RenderableType:
    """Show the generation record and the alarm."""
    return facts(
        [
            ("generation", _generation(found)),
            ("alarm", moment(found.alarm_at) or "none"),
            ("due", moment(found.due_at) or None),
            ("open", str(found.nonterminal)),
            ("failures", str(found.failures) if found.failures else None),
            ("parked", _parked(found)),
            ("last pass", _last_pass(found)),
        ]
    )


def verification(found: Verification) -> RenderableType:
    """Show whether a conversation keeps its laws, and which it breaks."""
    checked, tail = found.checked, found.tail
    read = f"{counted(checked.records, 'record')} and {counted(checked.submissions, 'submission')} checked"
    if found.ok:
        sound = Text.assemble((plain(found.conversation), "bold"), " is ", ("sound", "bold green"))
        return Text.assemble(sound, f": {read}, tail {tail.sequence} {plain(tail.digest)}")
    title = Text.assemble((plain(found.conversation), "bold"), " breaks ", ("its laws", "bold red"))
    table = listing("law", "where", "found")
    for each in found.problems:
        law, found_instead = Text(plain(each.law), style="bold"), Text(plain(each.found))
        table.add_row(law, Text(_place(each)), found_instead)
    rest = (Text("and there are more", style="dim"),) if found.truncated else ()
    return Group(Text.assemble(title, f": {read}"), indented(table), *map(indented, rest))


def _place(broken: BrokenLaw) -> str:
    if broken.sequence is not None:
        return f"record {broken.sequence}"
    return "" if broken.submission is None else plain(broken.submission)


def agents(found: Iterable[AgentDescription]) -> Table:
    """List agents with what they take."""
    table = listing("agent", "version", "takes")
    for each in found:
        table.add_row(plain(each.name), plain(each.version), plain(_takes(each)))
    return table


def _takes(agent: AgentDescription) -> str:
    schema = agent.input_schema
    if not schema:
        return "any JSON"
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return str(schema.get("type", "JSON of its schema"))
    required = schema.get("required", ())
    fields = [
        f"{name}{'' if name in required else '?'}: {_type(what)}"
        for name, what in properties.items()
    ]
    return "{" + ", ".join(fields) + "}"


def _type(schema: object) -> str:
    if not isinstance(schema, dict):
        return "any"
    if "enum" in schema:
        return "|".join(map(str, schema["enum"]))
    branches = [_type(each) for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    return str(schema.get("type") or "|".join(branches) or "any")
