"""A bundle of a simulated conversation: what its lines hold, how far it reads ahead, and what is read meanwhile.

Parity: EV-58. Not tested here: HTTP, which is in test_in_workerd.py, and what the program that checks bundles
finds, for which there is test_verify_bundle.py.
"""

import io
import json
import random

import pytest

import verify_bundle
from agents import REGISTRY
from bundles.helpers.asking import ask, export, lines, parts, verify
from bundles.helpers.scenes import TEXT, deployed, meddle, put_back, talked, tamper
from quiesce import bundle, events, exporting, verbs
from quiesce.errors import Refusal, RefusalCode
from quiesce.events import Answered
from quiesce.ids import canonical_json
from quiesce.settings import Settings
from quiesce.testing import Deployment

pytestmark = pytest.mark.slow


def problems_of(text: str) -> list[str]:
    return verify_bundle.verify(io.BytesIO(text.encode())).problems


def test_a_bundle_holds_every_submission_and_every_record_between_its_header_and_its_end() -> None:
    with deployed() as deployment:
        lane = talked(deployment)
        records, head = lane.records(), lane.state().head
        header, *rest = lines(export(lane))
        tail = {"sequence": 16, "digest": records[-1].chain}
        assert header == {
            "type": "header",
            "format": "quiesce-bundle",
            "version": 1,
            "conversation": "one",
            "exported_at": header["exported_at"],
            "tail": tail,
        }
        submissions, told, end = rest[:7], rest[7:-1], rest[-1]
        assert [each["type"] for each in rest] == ["submission"] * 7 + ["record"] * 16 + ["end"]
        assert [each["sequence"] for each in submissions] == list(range(1, 8))
        assert submissions[5]["submission"] == head
        assert [each["state"] for each in submissions] == ["settled"] * 5 + ["suspended", "ready"]
        assert [
            (each["record_id"], each["payload"], each["digest"], each["chain"], each["submission"])
            for each in told
        ] == [
            (each.record_id, each.payload, each.digest, each.chain, each.submission)
            for each in records
        ]
        assert end == {"type": "end", "records": 16, "submissions": 7, "tail": tail}
        assert problems_of(export(lane)) == []


def test_an_input_that_is_no_record_yet_is_in_its_submission_s_line_and_nowhere_else() -> None:
    with deployed() as deployment:
        *applied, waiting = [
            each for each in lines(export(talked(deployment))) if each["type"] == "submission"
        ]
        assert {each["input"] for each in applied} == {None}
        assert waiting["input"] == canonical_json(TEXT)


def test_a_bundle_tells_nobody_s_principal_or_key() -> None:
    with deployed() as deployment:
        lane = talked(deployment)
        lane.submit("echo", 1, principal="somebody", key="a-key-of-theirs")
        text = export(lane)
        assert "somebody" not in text
        assert "a-key-of-theirs" not in text


def test_an_export_leaves_no_trace_however_often_it_is_made() -> None:
    """EV-58: it is read only, and a lost alarm stays as it is."""
    with deployed() as deployment:
        lane = talked(deployment)
        image = lane.disk.image()
        assert export(lane) == export(lane)
        assert lane.disk.image() == image
        with put_back(lane):
            lane.submit("echo", "owed")
            lane.lose_alarm()
            export(lane)
            assert lane.alarm_at_ms is None


def test_what_is_not_there_has_no_bundle_and_stays_so() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        status, _, _ = deployment.run(ask(lane, verbs.Export(conversation="one")))
        assert status == 404
        assert lane.is_virgin


def test_rows_go_out_as_they_stand_and_a_verifier_says_what_is_wrong_with_them() -> None:
    with deployed() as deployment:
        lane = talked(deployment)
        with put_back(lane):
            tamper(lane, "UPDATE records SET payload = '{' WHERE sequence = 9")
            tamper(
                lane, "UPDATE submissions SET state = 'lost', accepted_at_ms = -1 WHERE id <> ''"
            )
            text = export(lane)
        assert len(lines(text)) == 25
        assert any("record 9 does not have the digest" in each for each in problems_of(text))


def test_what_was_purged_is_in_the_bundle_without_its_payload() -> None:
    with deployed(retention_ms=1_000) as deployment:
        lane = talked(deployment)
        deployment.advance(10_000)
        text = export(lane)
        found = [each for each in lines(text) if each["type"] == "record"]
        assert sum(each["payload"] is None for each in found) == 13
        assert all(("purged_at_ms" in each) == (each["payload"] is None) for each in found)
        checked = verify_bundle.verify(io.BytesIO(text.encode()))
        assert (checked.problems, checked.purged) == ([], 13)


def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LINES_MIN", "LINES_MAX"):
        monkeypatch.setattr(exporting, name, 2)


def test_a_part_is_made_when_the_one_before_it_was_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow its reader is, one part is all that is ever kept for it."""
    small_parts(monkeypatch)
    with deployed() as deployment:
        lane = talked(deployment)
        asked: list[str] = []

        async def counted(question: verbs.Export) -> Answered:
            asked.append(question.part)
            return await ask(lane, question)

        async def read() -> list[int]:
            first = await counted(verbs.Export(conversation="one"))
            return [len(asked) async for _ in bundle.read(first, counted)]

        assert deployment.run(read()) == list(range(1, 14))
        assert asked == ["header"] + ["submissions"] * 4 + ["records"] * 8


def test_a_part_is_bounded_by_bytes_and_holds_one_line_at_least() -> None:
    with deployed() as deployment:
        lane = deployment.conversation("one")
        lane.submit("approval", {"question": "?"})
        deployment.run_until_quiet()
        for _ in range(4):
            lane.submit("echo", "x" * 600_000)
        found = list(parts(lane))
        submissions = [text for text in found if '"type":"submission"' in text]
        assert [text.count("\n") for text in submissions] == [2, 1, 1, 1]
        assert max(map(len, found)) < exporting.BYTES_MIN


def test_five_thousand_records_come_in_parts_of_a_bounded_size() -> None:
    with Deployment(
        REGISTRY, Settings(queue_depth_max=2_000), jitter=0.0, checks_every_event=False
    ) as deployment:
        lane = deployment.conversation("one")
        for _ in range(5):
            for number in range(500):
                lane.submit("echo", number)
            deployment.run_until_quiet()
        found = list(parts(lane))
        assert max(text.count("\n") for text in found) <= exporting.LINES_MIN + 1
        text = "".join(found)
        assert text.count('"type":"record"') == 5_001
        assert problems_of(text) == []


def test_work_that_goes_on_meanwhile_is_behind_the_header_s_tail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between two parts anything may happen; each bundle agrees with itself, and with the one before it."""
    small_parts(monkeypatch)
    chance = random.Random(7)
    with deployed(retention_ms=1_000) as deployment:
        lane = talked(deployment)
        chains: dict[int, str] = {}
        late = 0
        for _ in range(20):
            text = ""
            for part in parts(lane):
                text += part
                if chance.random() < 0.3:
                    meddle(lane, chance)
            assert problems_of(text) == []
            header, *rest = lines(text)
            records = [each for each in rest if each["type"] == "record"]
            late += records[-1]["sequence"] > header["tail"]["sequence"]
            for each in records:
                assert chains.setdefault(each["sequence"], each["chain"]) == each["chain"]
        assert late > 8
        assert verify(lane)["ok"]


@pytest.mark.parametrize(
    ("lost", "is_whole"), [(1, True), (bundle.TRIES_MAX - 1, True), (bundle.TRIES_MAX, False)]
)
def test_a_part_that_is_lost_is_asked_for_again_and_then_given_up(
    lost: int, *, is_whole: bool
) -> None:
    """What is given up ends without its end, which the verifier says."""
    with deployed() as deployment:
        lane = talked(deployment)
        left = lost

        async def losing(question: verbs.Export) -> Answered:
            nonlocal left
            if question.part == "records" and left:
                left -= 1
                if left % 2:
                    raise Refusal(RefusalCode.UNAVAILABLE, "the Object was reset")
                return events.UNAVAILABLE, {}, "{}"
            return await ask(lane, question)

        async def read() -> str:
            first = await losing(verbs.Export(conversation="one"))
            return "".join([text async for text in bundle.read(first, losing)])

        text = deployment.run(read())
        # Only the time in the header is another.
        assert (text.split("\n")[1:] == export(lane).split("\n")[1:]) == is_whole
        assert problems_of(text)[:1] == (
            [] if is_whole else ["line 8: the bundle ends here without its end: it is not whole"]
        )


def test_a_part_that_is_refused_ends_the_bundle_without_its_end() -> None:
    with deployed() as deployment:
        lane = talked(deployment)

        async def refusing(question: verbs.Export) -> Answered:
            if question.part == "records":
                return 404, {}, json.dumps({"code": "not-found"})
            return await ask(lane, question)

        async def read() -> str:
            first = await refusing(verbs.Export(conversation="one"))
            return "".join([text async for text in bundle.read(first, refusing)])

        assert '"type":"end"' not in deployment.run(read())
