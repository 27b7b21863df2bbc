"""`scripts/dev`: the Worker on a developer's machine, until it is told to stop.

It serves through Miniflare and not through `pywrangler dev`, which is a second workerd in front of
the same Miniflare. Measured on one machine: killing that front workerd leaves a server that never
answers again while it says it is ready, a SIGTERM to pywrangler leaves its workerd behind, and the
start takes twice as long. A system whose promise is to survive kills needs a server that does.
Deploying is pywrangler's: `pywrangler deploy` takes the same wrangler.toml and python_modules.

1. One server uses a state folder at a time.
2. workerd, when it dies, comes back on the same port and state without a request (Miniflare's
   doing); so does Node (ours). Alarms that came due meanwhile are then delivered.
3. Whatever happens to this process, the others end with it.
"""

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from workshop import machine, places, setup
from workshop.serving import CannotServe, Server, Worker, deployed_worker
from workshop.steps import Trouble, say

# The token every developer knows. It opens the server on this machine and no deployment.
DEV_TOKEN = "dev"  # noqa: S105 -- it is no secret.
DEV_ROLES = ("operate", "decide", "observe", "submit")

# What the command `quiesce` reads: a shell in which it is used may serve too.
OF_THE_COMMAND = frozenset({"QUIESCE_URL", "QUIESCE_TOKEN", "QUIESCE_CONVERSATION"})
WRONG_SETTINGS = "the settings of this deployment are wrong"

MARKER = ".quiesce-state"
HEALTHY_SECONDS = 10
RESTARTS_MAX = 10
RESTART_DELAY_SECONDS = 0.2


class Stopped(BaseException):
    """A signal asked us to end."""


def main() -> int:
    """Serves until a signal; returns the exit code."""
    options = _parse_arguments()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    try:
        _check_port(options.port)
        with _claimed_state(options.state, reset=options.reset):
            setup.prepare()
            worker = deployed_worker()
            worker["bindings"] = {**worker["bindings"], **_variables()}
            worker["port"] = options.port
            _serve(worker, options.state)
    except Stopped:
        pass
    except Trouble as trouble:
        say(f"scripts/dev: {trouble}")
        return trouble.exit_code
    except CannotServe as error:
        say(f"scripts/dev: {error}")
        return 1
    return 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/dev",
        description="Serve the Worker on this machine, with all the set-up that this needs.",
        epilog="Every QUIESCE_* variable of the environment becomes a variable of the Worker, save those of "
        "the command `quiesce`: QUIESCE_URL, QUIESCE_TOKEN and QUIESCE_CONVERSATION. The "
        "bearer token `dev` is an operator here. Changed sources are served after a restart.",
    )
    parser.add_argument("--port", type=int, default=8787, help="port on 127.0.0.1 (8787)")
    parser.add_argument("--state", type=Path, default=places.STATE, help="folder that keeps state")
    parser.add_argument("--reset", action="store_true", help="empty the state folder first")
    return parser.parse_args()


def _stop(number: int, _frame: object) -> None:
    # Once is enough; a second signal must not interrupt the stopping.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, lambda *_: None)
    raise Stopped(number)


def _check_port(port: int) -> None:
    """Waits a moment for a port that a server killed just now is still giving back."""
    deadline = time.monotonic() + 2
    while True:
        try:
            return machine.check_port(port)
        except Trouble:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)


@contextlib.contextmanager
def _claimed_state(folder: Path, *, reset: bool) -> Iterator[None]:
    """Holds the state folder for this process; empties it when asked and when it is ours."""
    marker = folder / MARKER
    try:
        folder.mkdir(parents=True, exist_ok=True)
        strangers = [entry for entry in folder.iterdir() if entry.name != MARKER]
        if strangers and not marker.exists() and not list(folder.glob("do/quiesce-*")):
            raise Trouble(f"{folder} holds other things than this server's state: name another.")
        descriptor = os.open(marker, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise Trouble(f"The state folder {folder} cannot be written: {error.strerror}.") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Trouble(f"Another scripts/dev is serving the state in {folder}.") from None
        if reset:
            _empty(folder)
        yield
    finally:
        os.close(descriptor)


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.name == MARKER:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _variables() -> dict[str, str]:
    """The QUIESCE_* variables of the environment, with the token of developers let in."""
    variables = {
        name: text
        for name, text in os.environ.items()
        if name.startswith("QUIESCE_") and name not in OF_THE_COMMAND
    }
    try:
        tokens = json.loads(variables.get("QUIESCE_TOKENS") or "{}")
    except ValueError:
        tokens = None
    if not isinstance(tokens, dict):
        raise Trouble("QUIESCE_TOKENS must be a JSON object: token digest to principal and roles.")
    digest = hashlib.sha256(DEV_TOKEN.encode()).hexdigest()
    tokens.setdefault(digest, {"principal": "dev", "roles": DEV_ROLES})
    return variables | {"QUIESCE_TOKENS": json.dumps(tokens)}


def _serve(worker: Worker, state: Path) -> None:
    """Keeps a server running: says once that it is ready, and starts it again when it ends."""
    failures = 0
    told = False
    while True:
        with contextlib.ExitStack() as running:
            try:
                server = running.enter_context(_start(worker, state))
                _wait_until_healthy(server)
            except CannotServe as error:
                failures += 1
                if not told or failures > RESTARTS_MAX:
                    raise
                say(f"scripts/dev: {error}")
            else:
                failures = 0
                if not told:
                    print(f"ready {server.url}", flush=True)
                    told = True
                server.process.wait()
        say("scripts/dev: the server ended by itself; starting it again")
        time.sleep(RESTART_DELAY_SECONDS * 2**failures)


def _start(worker: Worker, state: Path) -> Server:
    """From a snapshot where one can be made: a killed workerd is then back within a second."""
    try:
        return Server.start([worker], persist=state, snapshot=True)
    except CannotServe as error:
        # If the sources are at fault, this fails too and tells the same.
        server = Server.start([worker], persist=state)
        say(f"scripts/dev: serving, but not from a snapshot, as a deployment would: {error}")
        return server


def _wait_until_healthy(server: Server) -> None:
    deadline = time.monotonic() + HEALTHY_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"{server.url}/healthz", timeout=HEALTHY_SECONDS):
                return
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")
            if WRONG_SETTINGS in said:
                raise CannotServe(json.loads(said)["detail"]) from None
            answer = f"{error.code} {said[:500]}"
        except OSError as error:
            answer = str(error)
        if time.monotonic() > deadline:
            message = f"the Worker is not well: /healthz answers {answer}"
            raise CannotServe(message)
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
