"""Settings that are wrong stop a deployment with a sentence that names them; no tokens is a closed deployment."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from workshop import serving

pytestmark = pytest.mark.worker


def answers(folder: Path, variables: dict[str, str]) -> Iterator[httpx.Client]:
    worker = serving.deployed_worker()
    worker["bindings"] = variables
    with (
        serving.Server.start(
            [worker], persist=folder / "state", log=folder / "log", snapshot=True
        ) as server,
        httpx.Client(base_url=server.url, headers={"authorization": "Bearer dev"}) as client,
    ):
        yield client


@pytest.fixture
def misconfigured(tmp_path: Path) -> Iterator[httpx.Client]:
    wrong = {
        "QUIESCE_ATTEMPTS_MAX": "many",
        "QUIESCE_BACKOFF_BASE_SM": "100",
        "QUIESCE_TOKENS": '{"00": {"principal": 5}}',
    }
    yield from answers(tmp_path, wrong)


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[httpx.Client]:
    yield from answers(tmp_path, {})


def test_wrong_settings_are_named_by_every_route(misconfigured: httpx.Client) -> None:
    for path in ("/healthz", "/v1/agents", "/v1/conversations/a"):
        response = misconfigured.get(path)
        assert response.status_code == 503
        assert response.json()["code"] == "unavailable"
        for name in ("QUIESCE_ATTEMPTS_MAX", "QUIESCE_BACKOFF_BASE_SM", "QUIESCE_TOKENS"):
            assert name in response.json()["detail"]
        assert int(response.headers["retry-after"]) >= 1


def test_without_tokens_nobody_is_let_in(closed: httpx.Client) -> None:
    assert closed.get("/healthz").status_code == 200
    for path in ("/v1/agents", "/v1/conversations/a"):
        assert closed.get(path).status_code == 401
