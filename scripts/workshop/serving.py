"""The Worker under workerd, as a process that Python starts, steers and stops.

`scripts/dev` and the tests share this. What is served is read from wrangler.toml, so it is what a
deployment would upload. Between here and workerd stands `serve.mjs`, which runs Miniflare.

Its parent's death ends the whole chain: Node ends when its stdin does, workerd when Node does.
"""

import contextlib
import json
import os
import select
import signal
import sqlite3
import subprocess
import tempfile
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NotRequired, Self, TypedDict, cast

from workshop import machine, places, snapshots

READY_SECONDS = 120
STOP_SECONDS = 10
CONTROL_SECONDS = 30
NANOSECONDS = 1_000_000_000


class Root(TypedDict):
    """A folder of sources; each file is a module named by its path below it.

    All files of the kind of `main` are taken, or those that `globs` name.
    """

    folder: str
    globs: NotRequired[list[str]]


class Vendored(TypedDict):
    """The folder of vendored packages, and which of its files stay behind."""

    folder: str
    exclude: NotRequired[list[str]]


class Worker(TypedDict):
    """One Worker for serve.mjs. `main` is a .py or a .js module; of two roots the first wins."""

    name: str
    main: str
    roots: list[Root]
    compatibilityDate: str
    compatibilityFlags: list[str]
    vendored: NotRequired[Vendored]
    durableObjects: NotRequired[dict[str, str]]
    bindings: NotRequired[dict[str, str]]
    serviceBindings: NotRequired[dict[str, str]]
    datasets: NotRequired[dict[str, str]]
    port: NotRequired[int]


class CannotServe(Exception):
    """The Worker did not come up; the message says what its processes said last."""


def deployed_worker() -> Worker:
    """The Worker of wrangler.toml, with the flags that this machine's Pyodide bundle needs."""
    config = tomllib.loads(places.WRANGLER_CONFIG.read_text("utf-8"))
    main = places.ROOT / config["main"]
    local = (
        json.loads(places.RUNTIME.read_text("utf-8"))["flags"] if places.RUNTIME.exists() else []
    )
    return Worker(
        name=config["name"],
        main=main.name,
        roots=[Root(folder=str(main.parent))],
        vendored=Vendored(
            folder=str(places.PYTHON_MODULES), exclude=config["python_modules"]["exclude"]
        ),
        compatibilityDate=config["compatibility_date"],
        compatibilityFlags=[*config["compatibility_flags"], *local],
        durableObjects={
            binding["name"]: binding["class_name"]
            for binding in config["durable_objects"]["bindings"]
        },
        bindings={name: str(value) for name, value in config.get("vars", {}).items()},
        datasets={
            each["binding"]: each.get("dataset", each["binding"])
            for each in config.get("analytics_engine_datasets", [])
        },
    )


def workerd_binary() -> Path:
    """The workerd of our npm packages, in the package for this platform."""
    found = sorted(places.NODE_MODULES.glob("@cloudflare/workerd-*/bin/workerd"))
    if not found:
        message = "npm has no workerd for this platform"
        raise CannotServe(message)
    return found[0]


class Server:
    """A running workerd with its Miniflare. Make one with `Server.start`; use it in a `with`."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        persist: Path,
        clock: Path | None,
        log: Path | None,
    ) -> None:
        self.process = process
        self.persist = persist
        self.clock = clock
        self.log = log
        self.url = ""
        self.urls: dict[str, str] = {}
        self.control = ""

    @classmethod
    def start(
        cls,
        workers: Sequence[Worker],
        *,
        persist: Path,
        clock: Path | None = None,
        snapshot: bool = False,
        log: Path | None = None,
        observability: bool = False,
        workerd_arguments: Sequence[str] = (),
        seconds: float = READY_SECONDS,
    ) -> Self:
        """Serves the Workers, the first of them at `url`; returns when all have started.

        `persist` keeps what Objects store. `clock` is a file that moves workerd's clock (see
        `advance`). A `snapshot` of the started Python saves seconds at each start and is made once
        for each state of the sources; it needs the one Python Worker to be the only one. What the
        processes print goes to `log`, or to our stderr. With `observability`, spans and errors are
        kept in SQLite below `persist`/observability, those of alarms among them.
        """
        persist.mkdir(parents=True, exist_ok=True)
        arguments = [f"--pyodide-bundle-disk-cache-dir={places.BUNDLES}", *workerd_arguments]
        if snapshot:
            arguments += snapshots.arguments_for(workers)
        with (
            _config_file(workers, persist, observability=observability) as config,
            contextlib.ExitStack() as files,
        ):
            errors = files.enter_context(log.open("ab")) if log else None
            process = subprocess.Popen(
                [str(machine.find_node()), str(places.SCRIPTS / "serve.mjs"), str(config)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=_runner_environment(arguments, clock),
                # A Ctrl-C at the terminal is for us; we stop the others in order.
                start_new_session=True,
            )
            server = cls(process, persist, clock, log)
            try:
                server._wait_until_ready(seconds)
            except BaseException:
                server.stop()
                raise
        return server

    def _wait_until_ready(self, seconds: float) -> None:
        assert self.process.stdout
        readable, _, _ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline() if readable else b""
        if not line:
            reason = "it ended" if readable else f"it was not ready after {seconds:.0f} s"
            message = f"the Worker did not start: {reason}\n{self.last_words()}".rstrip()
            raise CannotServe(message)
        told_ready = json.loads(line)
        self.url = told_ready["ready"]
        self.urls = told_ready["urls"]
        self.control = told_ready["control"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stops Node and workerd; they are gone when this returns."""
        if self.process.stdin:
            self.process.stdin.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()

    def kill(self) -> None:
        """Ends Node by SIGKILL, as a machine that fails would, and workerd with it."""
        runtime = self.runtime_pid()
        self.process.kill()
        self.process.wait()
        while runtime and _is_alive(runtime):
            time.sleep(0.01)
        self.stop()

    def runtime_pid(self) -> int | None:
        """The pid of workerd, or None while it is being restarted (or where there is no /proc)."""
        return cast("dict[str, int | None]", self._ask("GET", "/pid"))["workerd"]

    def kill_runtime(self, *, seconds: float = READY_SECONDS) -> None:
        """Ends workerd by SIGKILL and waits until its successor answers on the same port."""
        pid = self.runtime_pid()
        assert pid, "workerd is not running"
        os.kill(pid, signal.SIGKILL)
        self.wait_for_restart(pid, seconds=seconds)

    def wait_for_restart(self, old: int, *, seconds: float = READY_SECONDS) -> None:
        """Waits until another workerd than `old` answers requests."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.runtime_pid() not in {None, old} and self.answers():
                return
            time.sleep(0.02)
        message = f"workerd did not come back within {seconds:.0f} s"
        raise CannotServe(message)

    def last_words(self) -> str:
        """The end of what the processes have printed, where that is kept."""
        if self.log is None or not self.log.exists():
            return ""
        return self.log.read_text("utf-8", errors="replace")[-4_000:]

    def answers(
        self,
        path: str = "/healthz",
        headers: Mapping[str, str] | None = None,
        *,
        seconds: float = CONTROL_SECONDS,
    ) -> bool:
        """Whether the Worker answers a request at all, whatever it says."""
        request = urllib.request.Request(self.url + path, headers=dict(headers or {}))
        try:
            with urllib.request.urlopen(request, timeout=seconds):
                return True
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False

    def evict(self, class_name: str, name: str) -> bool:
        """Drops an Object from memory; its storage stays, and the next event builds it anew.

        It waits for what the Object is doing. False if it was not in memory.
        """
        answer = self._ask("POST", "/evict", {"class": class_name, "name": name})
        return cast("dict[str, bool]", answer)["evicted"]

    def object_ids(self, class_name: str) -> list[str]:
        """The ids of all Objects of a class that have stored anything."""
        return cast("list[str]", self._ask("GET", f"/ids?class={class_name}"))

    def advance(self, seconds: float) -> None:
        """Moves workerd's clock forward and wakes it, so that what is due by then happens now."""
        assert self.clock, "this server was started without a clock"
        with self.clock.open("r+b") as file:
            now = int.from_bytes(file.read(8).ljust(8, b"\0"), "little", signed=True)
            file.seek(0)
            # In place: workerd has mapped this very file.
            file.write((now + int(seconds * NANOSECONDS)).to_bytes(8, "little", signed=True))
        self.answers()

    def alarms(self, class_name: str) -> dict[str, int]:
        """The armed alarms of a class: the Object's name and the time in milliseconds."""
        worker = next(iter(self.urls))
        file = self.persist / "do" / f"{worker}-{class_name}" / "metadata.sqlite"
        with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
            rows = database.execute("SELECT actor_name, scheduled_time FROM _cf_ALARM").fetchall()
        return {name: nanoseconds // 1_000_000 for name, nanoseconds in rows}

    def _ask(self, method: str, path: str, body: object = None) -> object:
        request = urllib.request.Request(
            self.control + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
        )
        try:
            with urllib.request.urlopen(request, timeout=CONTROL_SECONDS) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            message = f"{method} {path}: {error.read().decode()}"
            raise CannotServe(message) from None


@contextlib.contextmanager
def _config_file(
    workers: Sequence[Worker], persist: Path, *, observability: bool
) -> Iterator[Path]:
    """serve.mjs's configuration in a file that only we can read: variables may be secrets."""
    config = {
        "nodeModules": str(places.ROOT),
        "persist": str(persist.resolve()),
        "observability": observability,
        "workers": workers,
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(config, file)
        file.flush()
        yield Path(file.name)


def _runner_environment(arguments: Sequence[str], clock: Path | None) -> Mapping[str, str]:
    environment = places.environment(
        MINIFLARE_WORKERD_PATH=str(places.SCRIPTS / "workerd"),
        WORKSHOP_PYTHON=str(places.PYTHON),
        WORKSHOP_WORKERD=str(workerd_binary()),
        WORKSHOP_WORKERD_ARGUMENTS=json.dumps(arguments),
    )
    if clock:
        environment |= {
            "WORKSHOP_CLOCK": str(clock),
            "WORKSHOP_CLOCK_SHIM": str(places.CLOCK_SHIM),
        }
    return environment


def _is_alive(pid: int) -> bool:
    """Whether the process runs; one that is dead but not yet collected does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
