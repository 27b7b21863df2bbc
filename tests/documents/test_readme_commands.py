"""The README's POST and GET work as they are written, but for the address.

Not tested here: the README's two commands themselves; this runs inside the second, and `scripts/dev` is the first.
"""

import json
import re
import subprocess
from pathlib import Path

import pytest

from worker.conftest import worker_with
from workshop import serving

README = Path(__file__).parents[2] / "README.md"
SHELL_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8787"

pytestmark = pytest.mark.worker


def test_the_commands_of_the_readme_work(tmp_path: Path) -> None:
    commands = [
        block
        for block in SHELL_BLOCK.findall(README.read_text(encoding="utf-8"))
        if block.startswith("curl")
    ]
    assert len(commands) == 2
    worker = worker_with({})
    with serving.Server.start([worker], persist=tmp_path / "state", snapshot=True) as server:
        answers = [
            subprocess.run(
                ["bash", "-c", command.replace(ADDRESS, server.url)],
                check=True,
                capture_output=True,
                text=True,
                timeout=60,
            ).stdout
            for command in [commands[0], commands[0], commands[1]]
        ]
    receipt, again, page = map(json.loads, answers)
    assert receipt["submission"].startswith("sub_")
    assert again["submission"] == receipt["submission"]
    assert [item["submission"] for item in page["items"]] == [receipt["submission"]]
