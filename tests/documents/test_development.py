"""`scripts/dev` says at once which setting is wrong, and takes the variables of the command for none.

Not tested here: that it serves, and keeps serving; that was looked at, and the other tests serve in the same way.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

SERVE = Path(__file__).parents[2] / "scripts" / "dev"

pytestmark = pytest.mark.worker


def test_a_misspelt_setting_ends_it_with_a_sentence_about_that_setting_alone(
    tmp_path: Path,
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    of_the_command = {
        "QUIESCE_URL": "http://127.0.0.1:1",
        "QUIESCE_TOKEN": "t",
        "QUIESCE_CONVERSATION": "c",
    }
    served = subprocess.run(
        [sys.executable, SERVE, "--port", str(port), "--state", tmp_path / "state"],
        env={**os.environ, **of_the_command, "QUIESCE_RATE_BRUST": "3"},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert served.returncode == 1
    assert "ready" not in served.stdout
    assert served.stderr.splitlines()[-1] == (
        "scripts/dev: the settings of this deployment are wrong: QUIESCE_RATE_BRUST: there is no such setting"
        " (QUIESCE_RATE_BURST may be meant)"
    )
    assert served.stderr.count('"status":503') <= 2
