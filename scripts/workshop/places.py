"""Where everything is. Only the repository's own folders, never one of the machine's."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts" / "workshop"
REQUIREMENTS = ROOT / "requirements"

# What the workshop makes. One folder, so that deleting it starts everything from nothing.
WORKSHOP = ROOT / ".workshop"
STAMPS = WORKSHOP / "stamps"
LOGS = WORKSHOP / "logs"
STATE = WORKSHOP / "state"
BUNDLES = WORKSHOP / "pyodide"
SNAPSHOTS = WORKSHOP / "snapshots"
CLOCK_SHIM = WORKSHOP / "clock_shim.so"
RUNTIME = WORKSHOP / "runtime.json"
UV = WORKSHOP / "uv" / "bin" / "uv"

# What tools insist on finding in the root of a project.
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
NODE_MODULES = ROOT / "node_modules"
PYTHON_MODULES = ROOT / "python_modules"
VENV_WORKERS = ROOT / ".venv-workers"

WRANGLER_CONFIG = ROOT / "wrangler.toml"
LOCAL_BUNDLE = BUNDLES / "pyodide_dev.capnp.bin"


def environment(**more: str) -> dict[str, str]:
    """The environment of the tools: ours come first, and none reports home or asks a question."""
    path = [str(VENV / "bin"), str(UV.parent), str(NODE_MODULES / ".bin"), os.environ["PATH"]]
    return {
        **os.environ,
        "PATH": os.pathsep.join(path),
        "VIRTUAL_ENV": str(VENV),
        "CLOUDFLARE_CF_FETCH_ENABLED": "false",
        "WRANGLER_SEND_METRICS": "false",
        "WRANGLER_LOG_PATH": str(LOGS),
        "XDG_CONFIG_HOME": str(WORKSHOP / "config"),
        **more,
    }
