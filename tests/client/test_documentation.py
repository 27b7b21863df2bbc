"""docs/client.md says what is so: its Python runs, and so does each of its commands, on the Worker.

A block that needs a deployment says so behind its language, so that nobody runs it without one.

Not tested here: the tables, and what `pip` would install.
"""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from quiesce.cli.main import app
from workshop.serving import Server

pytestmark = pytest.mark.worker

PAGE = Path(__file__).resolve().parents[2] / "docs" / "client.md"
BLOCK = re.compile(r"^```(\w+) deployment\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BLOCKS = BLOCK.findall(PAGE.read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def environment(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let the page mean this Worker; the token is the developer's, as on any machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QUIESCE_URL", server.url)
    monkeypatch.delenv("QUIESCE_TOKEN", raising=False)
    monkeypatch.delenv("QUIESCE_CONVERSATION", raising=False)


def test_every_block_of_the_page_runs_in_its_order() -> None:
    ran = 0
    for language, text in BLOCKS:
        if language == "python":
            exec(compile(text, str(PAGE), "exec"), {"__name__": "page"})
            ran += 1
        for line in text.splitlines():
            if language == "sh" and line.startswith("quiesce "):
                result = CliRunner().invoke(app, shlex.split(line)[1:])
                assert result.exit_code == 0, f"{line}\n{result.output}"
                ran += 1
    assert ran >= 10
