"""Streams have so many places, which are free again when a reader has gone; who does not read is cut off."""

import contextlib

import httpx
import pytest

from events.helpers.reading import Following, kinds, path_of
from worker.helpers.client import Client, assert_problem, until

pytestmark = pytest.mark.worker

VARIABLES = {"QUIESCE_EVENTS_SECONDS_MAX": "12", "QUIESCE_STREAMS_MAX": "2"}


def opened(http: httpx.Client, conversation: str) -> httpx.Response:
    return http.send(http.build_request("GET", path_of(conversation)), stream=True)


def status_of_another(client: Client, conversation: str) -> int:
    response = opened(client.http, conversation)
    response.close()
    return response.status_code


def test_too_many_streams_are_refused_and_a_disconnect_frees_a_place(
    client: Client, conversation: str
) -> None:
    """The reader who has gone is noticed when the next heartbeat is written to it."""
    client.settled(conversation, client.accepted(conversation, "echo", 1))
    first, second = (opened(client.http, conversation) for _ in range(2))
    assert (first.status_code, second.status_code) == (200, 200)
    refused = client.http.get(path_of(conversation))
    problem = assert_problem(refused, 429, "rate-limited")
    assert (problem["limit"], problem["maximum"]) == ("STREAMS_MAX", 2)
    assert int(refused.headers["retry-after"]) >= 1
    first.close()
    until(lambda: status_of_another(client, conversation), lambda status: status == 200, 9)
    second.close()
    # Everything else is served all the same.
    client.settled(conversation, client.accepted(conversation, "echo", 2))


def test_a_stream_that_has_ended_has_left_its_place(client: Client, conversation: str) -> None:
    submission = client.accepted(conversation, "echo", 1)
    client.settled(conversation, submission)
    for _ in range(4):
        following = Following(client.http, conversation, submission=submission)
        assert kinds(following.ended())[-1] == "settlement"
    both = [Following(client.http, conversation) for _ in range(2)]
    for following in both:
        assert kinds(following.ended())[-1] == "end"
    assert status_of_another(client, conversation) == 200


@pytest.mark.slow
def test_who_does_not_read_is_cut_off_and_holds_no_place(client: Client, conversation: str) -> None:
    """Twenty megabytes stand in the log, more than any buffer on the way takes."""
    talk = {"count": 100, "size": 200_000}
    client.settled(conversation, client.accepted(conversation, "talker", talk), 60)
    slow = [opened(client.http, conversation) for _ in range(2)]
    assert {each.status_code for each in slow} == {200}
    assert status_of_another(client, conversation) == 429
    until(lambda: status_of_another(client, conversation), lambda status: status == 200, 40)
    for response in slow:
        # Whether the connection breaks or ends in order depends on how much of a chunk had been sent.
        with contextlib.suppress(httpx.HTTPError):
            response.read()
        assert response.num_bytes_downloaded < 20_000_000
