"""What the engine relies on: proofs of how workerd keeps alarms, transactions and syncs, on a bare Object.

If a later workerd breaks one of these, the test says which, before anything subtle does.
"""

import uuid
from typing import Any

import httpx
import pytest

from runtime.helpers.ondisk import until
from worker.helpers.client import Client
from workshop.serving import Server

pytestmark = pytest.mark.worker

MOVES_CLOCK = True
CLASS = "ProbeObject"
GATE_DELAY_MS = 1_000


class Probe:
    """A bare Object of one name."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.name = uuid.uuid4().hex

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        response = self.client.http.post(f"/probe/{self.name}", json={"do": do, **more})
        assert response.status_code == 200, response.text
        return dict(response.json())

    def notes(self) -> list[dict[str, Any]]:
        return list(self.ask("notes")["notes"])

    def delivered(self) -> list[dict[str, Any]]:
        return [note for note in self.notes() if note["what"] == "delivered"]


@pytest.fixture
def probe(client: Client) -> Probe:
    return Probe(client)


def test_an_alarm_set_earlier_inside_its_handler_is_honoured(probe: Probe) -> None:
    probe.ask("tell", in_ms=1, alarms_left=1, alarm_sets_ms=[60_000, 50], alarm_takes_ms=200)
    first, second = until(probe.delivered, lambda found: len(found) == 2)
    assert first["slot_ms"] is None, "the slot of an alarm under delivery reads as empty"
    assert 200 <= second["at_ms"] - first["at_ms"] < 5_000
    assert probe.ask("notes")["slot_ms"] is None


def test_an_alarm_set_inside_a_transaction_rolls_back_with_it(probe: Probe) -> None:
    lost = probe.ask("transaction", in_ms=60_000, fails=True)
    assert "on purpose" in lost.pop("raised")
    assert lost == {"slot_ms": None, "inside": False, "rows": 0}
    kept = probe.ask("transaction", in_ms=60_000, fails=False)
    assert kept["slot_ms"] is not None
    assert (kept["raised"], kept["inside"], kept["rows"]) == (None, True, 1)
    lost = probe.ask("transaction", in_ms=1_000, fails=True)
    assert lost["slot_ms"] == kept["slot_ms"], "a changed alarm keeps its old time exactly"


@pytest.mark.parametrize("syncs", [True, False])
def test_what_was_synced_outlives_a_process_that_ends_in_the_next_breath(
    server: Server, probe: Probe, *, syncs: bool
) -> None:
    """What was committed and not synced is gone: one commit is no boundary, `sync` is."""
    runtime = server.runtime_pid()
    assert runtime is not None
    with pytest.raises(httpx.HTTPError):
        probe.ask("write_then_exit", syncs=syncs)
    server.wait_for_restart(runtime)
    assert probe.ask("rows") == {"rows": int(syncs)}


@pytest.mark.parametrize("gate", ["never", "when-empty", "always"])
def test_an_alarm_that_builds_its_object_is_delivered_once_whatever_the_gate_writes(
    server: Server, probe: Probe, gate: str
) -> None:
    """M12: nothing is lost, and nothing comes twice.

    The gate of a construction that an alarm causes sees the alarm in its slot, so one that fills only an empty slot
    writes nothing. Were it to write, that delivery would be cancelled, and one at the new time come instead.
    """
    probe.ask("tell", in_ms=60_000, gate=gate, gate_delay_ms=GATE_DELAY_MS)
    due_ms = probe.ask("notes")["slot_ms"]
    assert server.evict(CLASS, probe.name)
    server.advance(61)
    until(lambda: server.alarms(CLASS).get(probe.name), lambda at_ms: at_ms is None)
    constructed, delivered = until(probe.notes, lambda notes: len(notes) >= 2)
    assert constructed == {"what": "constructed", "at_ms": constructed["at_ms"], "slot_ms": due_ms}
    assert delivered["what"] == "delivered"
    if gate == "always":
        assert delivered["at_ms"] >= constructed["at_ms"] + GATE_DELAY_MS
    assert probe.notes() == [constructed, delivered]
    assert probe.ask("notes")["slot_ms"] is None


def test_a_gate_that_fills_an_empty_slot_at_a_request_is_delivered_once(
    server: Server, probe: Probe
) -> None:
    probe.ask("tell", gate="when-empty", gate_delay_ms=50)
    assert server.evict(CLASS, probe.name)
    until(probe.delivered, lambda found: len(found) == 1)
    assert probe.ask("notes")["slot_ms"] is None
