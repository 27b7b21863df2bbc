"""Event streams over HTTP: nothing is lost and nothing comes twice, whatever is cut, reset or evicted.

Not tested here: that there are so many places (test_places), and what needs no runtime (test_following).

Parity: PW-2, PW-7, NC-5.
"""

import random
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from events.helpers.reading import (
    Event,
    Following,
    events_of,
    ids,
    kinds,
    path_of,
    read_all,
    read_until,
)
from worker.helpers.client import Client, assert_problem, until
from workshop.serving import Server

pytestmark = pytest.mark.worker

VARIABLES = {
    "QUIESCE_EVENTS_SECONDS_MAX": "8",
    "QUIESCE_STREAMS_MAX": "1000",
    "QUIESCE_ATTEMPT_MS_MAX": "3000",
}
READERS = 50


def own_ids(client: Client, conversation: str, submission: str) -> list[int]:
    records = client.records(conversation)
    return [each["sequence"] for each in records if each.get("submission") == submission]


def test_every_record_comes_once_in_order_as_the_log_has_it(
    client: Client, conversation: str
) -> None:
    submission = client.accepted(conversation, "steps", {"count": 3})
    client.settled(conversation, submission)
    events = read_until(client.http, conversation, 6)
    records = [each for each in events if each.kind == "record"]
    assert [each.data for each in records] == client.records(conversation)
    assert [each.id for each in records] == [str(each.data["sequence"]) for each in records]
    assert events[0] == Event("message", None, None, 1_000)


def cut_somewhere(
    http: httpx.Client, path: str, after: str | None, bytes_max: int
) -> tuple[list[Event], bool]:
    """Read so many bytes, hang up, and keep the events that were whole; says whether the stream had ended."""
    headers = {} if after is None else {"last-event-id": after}
    text = b""
    with http.stream("GET", path, headers=headers) as response:
        assert response.status_code == 200, response.read()
        for chunk in response.iter_raw():
            text += chunk
            if len(text) >= bytes_max:
                break
        is_whole = len(text) < bytes_max
    if not is_whole:
        text = text[:bytes_max].rpartition(b"\n\n")[0] + b"\n\n"
    return list(events_of(iter(text.decode().split("\n")))), is_whole


def read_in_pieces(url: str, path: str, seed: int) -> list[Event]:
    """Read a stream to its settlement, cut at random places, as a browser would take it up again."""
    chance = random.Random(seed)
    found: list[Event] = []
    after: str | None = None
    with Client(url) as client:
        while not found or found[-1].kind != "settlement":
            events, _ = cut_somewhere(client.http, path, after, chance.randint(40, 9_000))
            found += [each for each in events if each.kind in {"record", "settlement"}]
            named = [each.id for each in events if each.id is not None]
            after = named[-1] if named else after
    return found


@pytest.mark.slow
def test_streams_that_are_cut_anywhere_lose_and_double_nothing(
    server: Server, client: Client, conversation: str
) -> None:
    """Fifty readers, each cut at places of its own, some while the work still runs."""
    talk = {"count": 40, "pause_ms": 60, "size": 200}
    submission = client.accepted(conversation, "talker", talk)
    path = f"{path_of(conversation)}?submission={submission}"
    with ThreadPoolExecutor(10) as pool:
        read = list(pool.map(lambda seed: read_in_pieces(server.url, path, seed), range(READERS)))
    wanted = own_ids(client, conversation, submission)
    assert len(wanted) == 42
    settlement = client.settled(conversation, submission)
    for events in read:
        assert ids(events) == wanted
        assert kinds(events) == ["record"] * 42 + ["settlement"]
        assert events[-1].data == settlement


@pytest.mark.parametrize(
    ("agent", "value", "outcome"),
    [
        ("echo", 1, "completed"),
        ("talker", {"count": 2, "raises": True}, "failed"),
        ("fail", {"kind": "final"}, "failed"),
        ("approval", {"question": "really?"}, "aborted"),
    ],
)
def test_a_stream_that_is_kept_to_a_submission_ends_with_its_settlement(
    client: Client, conversation: str, agent: str, value: object, outcome: str
) -> None:
    """Scenario S89: also when a step raises. The second reading finds it settled already."""
    before = client.accepted(conversation, "echo", "before")
    submission = client.accepted(conversation, agent, value)
    following = Following(client.http, conversation, submission=submission)
    if outcome == "aborted":
        until(lambda: client.status(conversation, submission)["state"], lambda s: s == "suspended")
        path = f"/v1/conversations/{conversation}/submissions/{submission}/abort"
        assert client.http.post(path, json={"reason": "enough"}).status_code == 202
    live = following.ended()
    client.accepted(conversation, "echo", "behind")
    later = read_all(client.http, conversation, submission=submission)
    for events in (live, later):
        assert ids(events) == own_ids(client, conversation, submission)
        assert kinds(events)[-2:] == ["record", "settlement"]
        assert events[-1].data == client.settled(conversation, submission)
        assert events[-1].data["outcome"] == outcome
        assert events[-2].data["kind"] == "settlement"
        assert before not in {each.data["submission"] for each in events if each.kind == "record"}
    # One who was cut off between the record and the settlement gets the settlement alone.
    last = str(ids(live)[-1])
    assert kinds(read_all(client.http, conversation, after=last, submission=submission)) == [
        "settlement"
    ]


def test_progress_comes_in_between_and_without_an_id(client: Client, conversation: str) -> None:
    client.settled(conversation, client.accepted(conversation, "echo", "so that it is there"))
    following = Following(client.http, conversation)
    submission = client.accepted(conversation, "talker", {"count": 5, "pause_ms": 150})
    client.settled(conversation, submission)
    events = following.ended()
    shown = [each for each in events if each.kind == "progress"]
    assert [each.data["value"] for each in shown] == [{"about": number} for number in range(5)]
    assert {each.data["submission"] for each in shown} == {submission}
    assert {each.id for each in shown} == {None}
    order = kinds(events)
    assert order.index("progress") < len(order) - 1 - order[::-1].index("record")
    assert ids(events) == [each["sequence"] for each in client.records(conversation)]


def test_a_quiet_stream_has_heartbeats_and_ends_when_its_time_is_over(
    client: Client, conversation: str
) -> None:
    submission = client.accepted(conversation, "approval", {"question": "?"})
    until(lambda: client.status(conversation, submission)["state"], lambda s: s == "suspended")
    events = read_all(client.http, conversation, submission=submission)
    assert Event(":", "nothing new") in events
    assert events[-1] == Event("end", {"reason": "lifetime"}, None, 1_000)
    assert "settlement" not in kinds(events)
    again = Following(client.http, conversation, submission=submission, after=str(ids(events)[-1]))
    path = f"/v1/conversations/{conversation}/submissions/{submission}/approvals/question"
    assert client.http.post(path, json={"decision": "deny"}).status_code == 200
    rest = again.ended()
    assert kinds(rest)[-1] == "settlement"
    assert ids(events) + ids(rest) == own_ids(client, conversation, submission)


def test_a_reset_of_the_object_is_not_seen_by_the_reader(client: Client, conversation: str) -> None:
    """An attempt that ignores its deadline has its Object aborted under the open stream."""
    submission = client.accepted(conversation, "fail", {"kind": "hang", "times": 1})
    following = Following(client.http, conversation, submission=submission)
    events = following.ended()
    assert Event(":", "the conversation is being reached again") in events
    assert kinds(events) == ["record", "record", "settlement"]
    assert ids(events) == own_ids(client, conversation, submission)
    assert events[-1].data["result"] == {"attempt": 2}


def test_an_eviction_of_the_object_is_not_seen_by_the_reader(
    server: Server, client: Client, conversation: str
) -> None:
    """The platform evicts what is idle, and between two questions of a stream its Object is."""
    first = client.accepted(conversation, "echo", 1)
    client.settled(conversation, first)
    following = Following(client.http, conversation)
    following.until("record")
    client.settled(conversation, client.accepted(conversation, "echo", 2))
    following.until_records(5)
    assert server.evict("ConversationObject", conversation)
    client.settled(conversation, client.accepted(conversation, "echo", 3))
    events = following.ended()
    assert kinds(events)[-1] == "end"
    assert ids(events) == [each["sequence"] for each in client.records(conversation)]
    assert len(ids(events)) == 7


@pytest.mark.slow
def test_a_stream_is_taken_up_where_a_killed_runtime_has_left_it(
    server: Server, client: Client, conversation: str
) -> None:
    submission = client.accepted(conversation, "talker", {"count": 20, "pause_ms": 200})
    events = read_until(client.http, conversation, 5, submission=submission)
    broken = Following(client.http, conversation, submission=submission, after=str(ids(events)[-1]))
    broken.until("record")
    server.kill_runtime()
    with pytest.raises((httpx.HTTPError, AssertionError)):
        broken.ended()
    seen = ids(events) + ids(broken.events)
    rest = read_until(client.http, conversation, 99, after=str(seen[-1]), submission=submission)
    assert kinds(rest)[-1] == "settlement"
    assert seen + ids(rest) == own_ids(client, conversation, submission)


def test_a_place_that_the_log_does_not_have_is_refused(client: Client, conversation: str) -> None:
    submission = client.accepted(conversation, "echo", 1)
    client.settled(conversation, submission)
    end = client.records(conversation)[-1]["sequence"]
    for place in (str(end + 1), "x", "", "-1", "1.0"):
        response = client.http.get(path_of(conversation), headers={"last-event-id": place})
        assert_problem(response, 400, "invalid-request")
    response = client.http.get(path_of(conversation), params={"after": end + 1})
    problem = assert_problem(response, 400, "invalid-request")
    assert (problem["actual"], problem["maximum"]) == (end + 1, end)


def test_what_is_not_there_has_no_events(client: Client, conversation: str) -> None:
    assert_problem(client.http.get(path_of(conversation)), 404, "not-found")
    client.accepted(conversation, "echo", 1)
    for submission in ("sub_" + "0" * 32, "nothing"):
        response = client.http.get(path_of(conversation), params={"submission": submission})
        assert_problem(response, 404, "not-found")


def test_a_stream_is_for_observers_and_a_head_opens_none(
    server: Server, client: Client, conversation: str
) -> None:
    client.accepted(conversation, "echo", 1)
    for token, status in ((None, 401), ("only-submit", 403), ("kept", 403), ("only-observe", 200)):
        with Client(server.url, token) as caller:
            response = caller.http.head(path_of(conversation))
            assert response.status_code == status
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-store"
