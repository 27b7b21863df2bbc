"""Becomes workerd, with the arguments and the fate that its usual parents cannot give it.

Miniflare starts this in place of workerd (see the script `workerd` beside it). The process is
replaced, so the pid that Miniflare watches and kills stays workerd's own. What is added:

1. the folder of Pyodide bundles, without which workerd downloads 13 MB at each start;
2. further arguments, for snapshots;
3. the clock shim, so that only workerd's clock can be moved and everything else stays in real time;
4. death with the parent: a Node killed by SIGKILL cannot stop its workerd, and one that lingers
   holds the port and the databases.
"""

import ctypes
import json
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Asks the kernel to kill this process when its parent is gone (Linux only)."""
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have died before the kernel was asked; then nothing would ever be sent.
    if os.getppid() != parent:
        sys.exit(1)


def main() -> None:
    """Replaces this process by workerd."""
    binary = os.environ["WORKSHOP_WORKERD"]
    command, *rest = sys.argv[1:] or ["--help"]
    arguments = [binary, command]
    if command == "serve":
        arguments += json.loads(os.environ.get("WORKSHOP_WORKERD_ARGUMENTS", "[]"))
        die_with_parent()
    clock = os.environ.get("WORKSHOP_CLOCK")
    if clock:
        os.environ["LD_PRELOAD"] = os.environ["WORKSHOP_CLOCK_SHIM"]
        os.environ["WORKSHOP_CLOCK_FILE"] = clock
    os.execv(binary, [*arguments, *rest])  # noqa: S606 -- becoming workerd is what this is for.


main()
