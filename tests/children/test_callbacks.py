"""Settlement callbacks: to allowed origins only, signed, retried durably, and given up where a person sees it.

The receiver is a simulated one here; test_callbacks_in_workerd has a real server.
"""

import asyncio
import hashlib
import hmac
import json
from itertools import pairwise
from typing import Any

import pytest

from children.family import TERMS, echo, family
from operations.ground import DAY_MS, HOUR_MS, deployed, pass_time, refused
from quiesce import agenda
from quiesce.callbacks import SIGNATURE_HEADER, problem_with, sign
from quiesce.deliver import CALLBACK_TRIES_MAX
from quiesce.errors import RefusalCode, StorageUnavailable
from quiesce.generation_record import Cost
from quiesce.records import CallbackEnded
from quiesce.settings import Settings, parse_settings
from quiesce.settlement_shape import cost_body, timestamp
from quiesce.states import State
from quiesce.testing import Conversation
from quiesce.testing.network import Post, SimulatedOutside

pytestmark = pytest.mark.slow

URL = "https://example.com/hook?x=1"
SECRET = TERMS["callback_secret"]


def ended(lane: Conversation) -> list[CallbackEnded]:
    """Return what is recorded of callbacks."""
    parsed = [each.parsed() for each in lane.records()]
    return [each for each in parsed if isinstance(each, CallbackEnded)]


def verify(post: Post, secret: str = SECRET) -> int:
    """Check a signature as a receiver would, without our code; returns its time in seconds."""
    parts = dict(part.split("=", 1) for part in post.headers["quiesce-signature"].split(","))
    signed = f"{parts['t']}.{post.body}".encode()
    expected = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    assert hmac.compare_digest(expected, parts["v1"])
    return int(parts["t"])


def test_a_settlement_is_posted_signed_and_recorded() -> None:
    with family(**TERMS) as (deployment, lane):
        root = lane.submit("echo", {"a": "ü"}, callback_url=URL).submission
        deployment.run_until_quiet()
        (post,) = deployment.network.posts
        assert post.url == URL
        assert verify(post) == deployment.now_ms // 1_000
        assert post.headers["idempotency-key"] == f"{root}/callback"
        assert post.headers["content-type"] == "application/json"
        settled_at_ms = lane.status(root).submission.settled_at_ms
        assert json.loads(post.body) == {
            "type": "settlement",
            "conversation": "one",
            "submission": root,
            "outcome": "completed",
            "result": {"a": "ü"},
            "failure": None,
            "settled_at": timestamp(settled_at_ms),
            "cost": cost_body(Cost(**lane.settlement(root).cost)),
        }
        (record,) = ended(lane)
        assert (record.submission, record.is_delivered, record.tries) == (root, True, 1)
        assert lane.alarm_at_ms is None


@pytest.mark.parametrize("agent", ["fail", "ask"])
def test_a_failed_and_an_aborted_settlement_are_told_too(agent: str) -> None:
    with family(**TERMS) as (deployment, lane):
        root = lane.submit(agent, "no", callback_url=URL).submission
        deployment.run_until_quiet()
        if agent == "ask":
            assert deployment.network.posts == []
            lane.abort(root)
            deployment.run_until_quiet()
        body = json.loads(deployment.network.posts[0].body)
        assert body["outcome"] == ("failed" if agent == "fail" else "aborted")


def test_no_callback_is_made_for_who_has_not_asked() -> None:
    with family(**TERMS) as (deployment, lane):
        lane.submit("echo", 1)
        deployment.run_until_quiet()
        assert deployment.network.posts == []


@pytest.mark.parametrize("answer", [500, 302, 404, None])
def test_a_callback_without_a_success_is_tried_again_with_growing_delays(
    answer: int | None,
) -> None:
    times: list[int] = []
    with family(**TERMS) as (deployment, lane):

        def answers(_post: Post) -> int:
            times.append(deployment.now_ms)
            if len(times) > 5:
                return 200
            if answer is None:
                raise StorageUnavailable("no answer")
            return answer

        deployment.network.answers = answers
        lane.submit("echo", 1, callback_url=URL)
        deployment.run_until_quiet()
        assert len(times) == 6
        delays = [later - earlier for earlier, later in pairwise(times)]
        for exponent, delay_ms in enumerate(delays):
            assert 50 * 2**exponent <= delay_ms <= 100 * 2**exponent + 60
        assert len({each.headers["idempotency-key"] for each in deployment.network.posts}) == 1
        assert len({each.body for each in deployment.network.posts}) == 1
        assert [each.tries for each in ended(lane)] == [6]
        for post in deployment.network.posts:
            verify(post)


def test_the_signature_of_a_later_try_has_the_time_of_that_try() -> None:
    with family(**TERMS) as (deployment, lane):
        deployment.network.answers = lambda _post: 500
        lane.submit("echo", 1, callback_url=URL)
        deployment.advance(HOUR_MS)
        times = [verify(each) for each in deployment.network.posts]
        assert times == sorted(times)
        assert times[-1] - times[0] > 600


def test_a_receiver_that_is_down_for_half_an_hour_is_told() -> None:
    with family(**TERMS) as (deployment, lane):
        deployment.network.answers = lambda _post: 503
        lane.submit("echo", 1, callback_url=URL)
        deployment.advance(HOUR_MS // 2)
        assert ended(lane) == []
        deployment.network.answers = lambda _post: 200
        deployment.run_until_quiet()
        assert [each.is_delivered for each in ended(lane)] == [True]


def test_a_callback_survives_eviction_between_its_tries() -> None:
    with family(**TERMS) as (deployment, lane):
        deployment.network.answers = lambda _post: 500
        lane.submit("echo", 1, callback_url=URL)
        for _ in range(20):
            deployment.advance(5_000)
            lane.crash(keeps_unsynced=False)
        tries = len(deployment.network.posts)
        assert 5 < tries < CALLBACK_TRIES_MAX
        deployment.network.answers = lambda _post: 200
        deployment.run_until_quiet()
        assert [each.tries for each in ended(lane)] == [tries + 1]


def test_a_callback_that_fails_for_good_is_buried_and_an_operator_can_revive_it() -> None:
    with family(**TERMS) as (deployment, lane):
        deployment.network.answers = lambda _post: 410
        root = lane.submit("echo", 1, callback_url=URL).submission
        deployment.run_until_quiet()
        assert len(deployment.network.posts) == CALLBACK_TRIES_MAX
        (record,) = ended(lane)
        assert (record.is_delivered, record.tries, record.last_error) == (False, 16, "answered 410")
        assert lane.alarm_at_ms is None
        assert deployment.advance(DAY_MS) == 0
        assert lane.settlement(root).outcome == "completed"
        assert agenda.buried(lane.storage, f"{root}/callback") is not None
        deployment.network.answers = lambda _post: 200
        lane.retry(root, "the receiver is back")
        deployment.run_until_quiet()
        assert [each.is_delivered for each in ended(lane)] == [False, True]
        assert agenda.buried(lane.storage, f"{root}/callback") is None
        assert len({each.headers["idempotency-key"] for each in deployment.network.posts}) == 1
        with refused(RefusalCode.ALREADY_SETTLED):
            lane.retry(root)


def test_a_callback_can_be_given_up_twice() -> None:
    with family(**TERMS) as (deployment, lane):
        deployment.network.answers = lambda _post: 500
        root = lane.submit("echo", 1, callback_url=URL).submission
        deployment.run_until_quiet()
        lane.retry(root)
        deployment.run_until_quiet()
        assert [each.is_delivered for each in ended(lane)] == [False, False]
        assert lane.alarm_at_ms is None


def test_a_callback_that_hangs_is_cut_off_and_holds_no_other_work_for_long() -> None:
    import asyncio  # noqa: PLC0415 - only this receiver hangs

    with family(**TERMS) as (deployment, lane):
        lane.submit("echo", 1, callback_url=URL)

        class Hanging:
            async def ask(self, _conversation: str, _text: str) -> str:
                raise StorageUnavailable("nobody")

            async def post(self, url: str, body: str, headers: Any) -> int:
                deployment.network.posts.append(Post(url, body, headers))
                await asyncio.sleep(DAY_MS)
                return 200

        lane.lane.outside = Hanging()
        started_ms = deployment.now_ms
        second = lane.submit("echo", 2).submission
        deployment.advance(15_000)
        assert lane.settlement(second).outcome == "completed"
        assert len(deployment.network.posts) == 2 or deployment.now_ms - started_ms < 21_000


def test_ten_callbacks_are_all_told() -> None:
    """More than are sent at once."""
    with family(**TERMS) as (deployment, lane):
        for number in range(10):
            lane.submit("echo", number, callback_url=URL)
        deployment.run_until_quiet()
        assert sorted(json.loads(each.body)["result"] for each in deployment.network.posts) == list(
            range(10)
        )
        assert len(ended(lane)) == 10


def test_a_receiver_that_hangs_holds_the_queue_for_one_try_however_many_are_owed_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is submitted meanwhile waits for eight that are sent at once, and not for all of them in turn."""
    tried: list[str] = []

    async def hang(_outside: SimulatedOutside, url: str, *_: Any) -> int:
        tried.append(url)
        await asyncio.sleep(600)
        return 200

    monkeypatch.setattr(SimulatedOutside, "post", hang)
    with deployed(echo, **TERMS) as (deployment, lane):
        deployment.checks_every_event = False
        for number in range(64):
            lane.submit("work", number, callback_url=URL)
        lane.deliver()
        assert lane.state().counts[State.SETTLED] == 64
        tried.clear()
        assert lane.delivery_at_ms is not None
        pass_time(deployment, lane.delivery_at_ms - deployment.now_ms)
        behind = lane.submit("work", "behind").submission
        asked_ms = deployment.now_ms
        lane.deliver()
        assert len(tried) <= 8
        deployment.advance(1_000)
        assert lane.settlement(behind).result == "behind"
        settled_ms = lane.status(behind).submission.settled_at_ms
        assert settled_ms - asked_ms <= 12_000


def test_a_duplicate_that_follows_a_lost_answer_has_the_same_key_and_body() -> None:
    with family(**TERMS) as (deployment, lane):

        def answers(_post: Post) -> int:
            if len(deployment.network.posts) == 1:
                raise StorageUnavailable("it arrived, and nobody knows")
            return 200

        deployment.network.answers = answers
        lane.submit("echo", 1, callback_url=URL)
        deployment.run_until_quiet()
        first, second = deployment.network.posts
        assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
        assert first.body == second.body
        assert len(ended(lane)) == 1


def test_an_origin_that_is_no_longer_allowed_is_not_called() -> None:
    with family(**TERMS) as (deployment, lane):
        lane.submit("ask", 1, callback_url=URL)
        deployment.run_until_quiet()
        deployment.settings = Settings()
        lane.evict()
        state = lane.state()
        assert state.head is not None
        lane.abort(state.head)
        deployment.run_until_quiet()
        assert deployment.network.posts == []
        assert [each.is_delivered for each in ended(lane)] == [False]


ALLOWED = Settings(
    callback_origins=(
        "https://example.com",
        "https://example.com:8443",
        "http://localhost:9",
        "http://127.0.0.1:9",
        "http://[::1]:9",
        "http://10.0.0.7",
        "http://box.internal",
        "http://localhost.",
        "http://169.254.169.254",
        "http://[::ffff:127.0.0.1]",
    ),
    callback_secret=SECRET,
)


@pytest.mark.parametrize(
    "url", ["https://example.com", "https://EXAMPLE.com/a", "https://example.com:8443/?q#f"]
)
def test_a_listed_origin_is_allowed(url: str) -> None:
    assert problem_with(url, ALLOWED) is None


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com",
        "https://example.com:444",
        "https://www.example.com",
        "https://example.com.evil.org",
        "https://evil.org/https://example.com",
        "https://evil.org#@example.com",
        "https://example.com@evil.org",
        "https://user:word@example.com",
        "https://@example.com",
        "https://example.com\\@evil.org",
        "https://example.com\\.evil.org",
        "//example.com",
        "example.com",
        "ftp://example.com",
        "javascript:alert(1)",
        "https://",
        "https://example.com:99999",
        "https://[::1",
        "",
    ],
)
def test_whatever_is_not_a_listed_origin_is_refused(url: str) -> None:
    assert problem_with(url, ALLOWED) is not None


@pytest.mark.parametrize(
    "origin", [each for each in ALLOWED.callback_origins if "example" not in each]
)
def test_a_private_address_is_refused_although_it_is_listed_unless_the_deployment_says_so(
    origin: str,
) -> None:
    assert "private" in (problem_with(f"{origin}/hook", ALLOWED) or "")
    allowed = ALLOWED.model_copy(update={"callback_private": True})
    assert problem_with(f"{origin}/hook", allowed) is None


def test_a_callback_url_that_is_not_allowed_is_refused_at_admission_and_writes_nothing() -> None:
    with family(**TERMS) as (_, lane):
        with refused(RefusalCode.INVALID_REQUEST) as facts:
            lane.submit("echo", 1, callback_url="https://evil.org")
        assert facts["errors"][0]["field"] == "callback_url"
        assert lane.is_virgin


def test_the_same_key_with_another_callback_is_a_conflict() -> None:
    with family(**TERMS) as (_, lane):
        lane.submit("echo", 1, key="k", callback_url=URL)
        with refused(RefusalCode.IDEMPOTENCY_CONFLICT) as facts:
            lane.submit("echo", 1, key="k")
        assert facts["differing"] == ["callback_url"]


def test_the_signature_is_the_documented_one() -> None:
    """A fixed vector: HMAC-SHA256 of "1767225600.{}" under the key "secret"."""
    mac = hmac.new(b"secret", b"1767225600.{}", hashlib.sha256).hexdigest()
    assert sign("secret", "{}", 1_767_225_600_999) == f"t=1767225600,v1={mac}"
    assert SIGNATURE_HEADER == "quiesce-signature"


@pytest.mark.parametrize("secret", ["", "too-short"])
def test_origins_need_a_secret_that_is_long_enough(secret: str) -> None:
    with pytest.raises(ValueError, match="CALLBACK_SECRET"):
        parse_settings(
            {
                "QUIESCE_CALLBACK_ORIGINS": '["https://example.com"]',
                "QUIESCE_CALLBACK_SECRET": secret,
            }
        )


def test_the_callback_settings_are_parsed_from_the_environment() -> None:
    settings = parse_settings(
        {
            "QUIESCE_CALLBACK_ORIGINS": '["https://example.com"]',
            "QUIESCE_CALLBACK_SECRET": SECRET,
            "QUIESCE_CALLBACK_PRIVATE": "true",
        }
    )
    assert settings.callback_origins == ("https://example.com",)
    assert settings.callback_private
