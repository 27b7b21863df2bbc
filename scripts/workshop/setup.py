"""The set-up of this repository, as a list of steps: from a Python and a Node to a served Worker.

Every version stands in a lock file. What this module decides is only *where* the two halves of the
Python runtime come from: workerd is asked once to fetch its official Pyodide bundle. Where it
cannot, the bundle is built from the npm package, and the two compatibility flags that make workerd
accept it are added to what is served here; the deployment never has them.
"""

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from workshop import machine, places, serving
from workshop.steps import Recorder, Step, StepFailed, Trouble, perform_all, say

OFFLINE = "The registries of PyPI and npm must be reachable; check the network and run this again."
LOCAL_FLAGS = ("python_workers_development", "experimental")
OFFICIAL_SECONDS = 60


def prepare(*, tests: bool = False) -> None:
    """Makes everything that serving needs, and with `tests` what testing and deploying need."""
    perform_all([*SERVING_STEPS, *(TESTING_STEPS if tests else ())])
    _mark_as_synced()


def _lock(group: str) -> Path:
    return places.REQUIREMENTS / f"{group}.lock"


def locked_version(group: str, package: str) -> str:
    """The version of a package that a lock file pins."""
    match = re.search(
        rf"^{re.escape(package)}==(\S+)", _lock(group).read_text("utf-8"), re.MULTILINE
    )
    assert match, f"{_lock(group)} does not pin {package}"
    return match.group(1)


def _get_uv(recorder: Recorder) -> None:
    """A venv of its own, or, where Debian left out the module for it, a folder filled by pip."""
    target = places.UV.parent.parent
    shutil.rmtree(target, ignore_errors=True)
    install = ["install", "--quiet", "--require-hashes", "-r", str(_lock("bootstrap"))]
    try:
        recorder.run([sys.executable, "-m", "venv", target])
        recorder.run([target / "bin" / "python", "-m", "pip", *install])
    except StepFailed:
        say("  uv: no usable venv module, trying pip alone")
        shutil.rmtree(target, ignore_errors=True)
        recorder.run([sys.executable, "-m", "pip", *install, "--target", target])


def _make_environment(recorder: Recorder) -> None:
    """The host's packages, and a path file in place of an install that would copy sources."""
    python = machine.find_python() or _download_python(recorder)
    say(f"  environment: with {python}")
    _make_venv(recorder, places.VENV, python, "host")
    site = next(places.VENV.glob("lib/python*/site-packages"))
    (site / "workshop.pth").write_text(
        f"{places.ROOT / 'src'}\n{places.ROOT / 'scripts'}\n", "utf-8"
    )


def _download_python(recorder: Recorder) -> str:
    """Nothing on the machine will do; uv can bring an interpreter where it can download."""
    wanted = ".".join(map(str, machine.PYTHON_NEWEST))
    try:
        recorder.run([places.UV, "python", "install", "--no-bin", wanted])
    except StepFailed:
        raise Trouble(
            "Python 3.12, 3.13 or 3.14 is needed, none was found, and uv could not download one: "
            "install it, or set UV_PYTHON to its path."
        ) from None
    return wanted


def _make_venv(recorder: Recorder, venv: Path, python: Path | str, group: str) -> None:
    recorder.run([places.UV, "venv", "--quiet", "--clear", "--python", python, venv])
    python_in_venv = str(venv / "bin" / "python")
    install = ["pip", "sync", "--require-hashes", "--python", python_in_venv, str(_lock(group))]
    recorder.run([places.UV, *install])


def _get_npm_packages(recorder: Recorder) -> None:
    """Exactly the lock file; no package may run anything of its own."""
    npm = machine.find_npm()
    recorder.run(
        [npm, "--prefix", places.ROOT, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    )


def _vendor_packages(recorder: Recorder) -> None:
    """What the Worker imports, for Pyodide's own ABI, which the `pyodide` package names.

    `pywrangler sync` would do the same with an interpreter built for WebAssembly that it downloads.
    pip needs none to choose the same wheels, takes them from the lock, and so vendors the same
    bytes on every machine.
    """
    about = json.loads((places.NODE_MODULES / "pyodide" / "pyodide-lock.json").read_text("utf-8"))
    python = ".".join(about["info"]["python"].split(".")[:2])
    unfinished = places.WORKSHOP / "python_modules.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    recorder.run([
        *(places.PYTHON, "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps"),
        *("--only-binary=:all:", "--require-hashes", "-r", _lock("worker")),
        *("--implementation", "cp", "--python-version", python),
        *("--abi", f"cp{python.replace('.', '')}"),
        *("--platform", f"pyemscripten_{about['info']['abi_version']}_wasm32"),
        *("--target", unfinished),
    ])  # fmt: skip
    shutil.rmtree(places.PYTHON_MODULES, ignore_errors=True)
    unfinished.rename(places.PYTHON_MODULES)


def _choose_runtime(recorder: Recorder) -> None:
    """Lets workerd fetch its official bundle once; where it cannot, builds the same from npm."""
    places.BUNDLES.mkdir(exist_ok=True)
    places.RUNTIME.unlink(missing_ok=True)
    if _official_bundle_serves(recorder.log):
        say("  runtime: workerd has the official Pyodide bundle")
        places.RUNTIME.write_text(json.dumps({"flags": []}), "utf-8")
        return
    say("  runtime: the official Pyodide bundle cannot be fetched; building it from npm")
    recorder.run([
        *(places.PYTHON, "-m", "workshop.pyodide_bundle"),
        *("--package", places.NODE_MODULES / "pyodide"),
        *("--workerd", serving.workerd_binary()),
        *("--output", places.LOCAL_BUNDLE),
    ])  # fmt: skip
    places.RUNTIME.write_text(json.dumps({"flags": LOCAL_FLAGS}), "utf-8")


def _official_bundle_serves(log: Path) -> bool:
    with tempfile.TemporaryDirectory(dir=places.WORKSHOP) as folder:
        source = Path(folder, "source")
        source.mkdir()
        (source / "entry.py").write_text("from workers import WorkerEntrypoint\n", "utf-8")
        worker = serving.deployed_worker()
        worker |= {"name": "probe", "main": "entry.py", "roots": [{"folder": str(source)}]}
        worker |= {"durableObjects": {}}
        try:
            serving.Server.start(
                [worker], persist=Path(folder, "state"), log=log, seconds=OFFICIAL_SECONDS
            ).stop()
        except serving.CannotServe:
            return False
    return True


def _compile_clock(recorder: Recorder) -> None:
    source = places.SCRIPTS / "clock_shim.c"
    flags = ["-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC"]
    recorder.run([machine.find_compiler(), *flags, "-o", places.CLOCK_SHIM, source, "-ldl"])


def _get_pywrangler(recorder: Recorder) -> None:
    _make_venv(recorder, places.WORKSHOP / "pywrangler", places.PYTHON, "deploy")


def _mark_as_synced() -> None:
    """Tells pywrangler that `python_modules` is up to date, as its own sync would have done.

    It compares the age of its marks with that of pyproject.toml; ours follow the lock's contents.
    """
    for folder in (places.PYTHON_MODULES, places.VENV_WORKERS):
        folder.mkdir(exist_ok=True)
        (folder / "pyvenv.cfg").touch()
        (folder / ".synced").write_text(locked_version("deploy", "workers-py"), "utf-8")


def _npm_inputs() -> Iterable[str | Path]:
    return (places.ROOT / "package.json", places.ROOT / "package-lock.json", sys.platform)


def _inputs(*parts: str | Path) -> Callable[[], Iterable[str | Path]]:
    return lambda: parts


UV_STEP = Step(
    name="uv",
    purpose="uv from PyPI",
    inputs=_inputs(_lock("bootstrap")),
    perform=_get_uv,
    outputs=(places.UV,),
    remedy=f"Python needs its venv module or pip (Debian: apt-get install python3-venv). {OFFLINE}",
)

SERVING_STEPS = (
    UV_STEP,
    Step(
        name="environment",
        purpose="the host's Python packages in .venv",
        inputs=_inputs(_lock("host"), str(places.ROOT)),
        perform=_make_environment,
        outputs=(places.PYTHON, places.VENV / "bin" / "pytest"),
        remedy=OFFLINE,
    ),
    Step(
        name="npm",
        purpose="wrangler, Miniflare, workerd, Pyodide and a Node from npm",
        inputs=_npm_inputs,
        perform=_get_npm_packages,
        outputs=(places.NODE_MODULES / ".bin" / "wrangler", places.NODE_MODULES / "pyodide"),
        remedy=OFFLINE,
        require=machine.find_npm,
    ),
    Step(
        name="vendor",
        purpose="the Worker's Python packages in python_modules",
        inputs=lambda: (_lock("worker"), *_npm_inputs()),
        perform=_vendor_packages,
        outputs=(places.PYTHON_MODULES / "pydantic", places.PYTHON_MODULES / "workers"),
        remedy=OFFLINE,
    ),
    Step(
        name="runtime",
        purpose="workerd's Pyodide bundle",
        inputs=lambda: (places.SCRIPTS / "pyodide_bundle.py", *_npm_inputs()),
        perform=_choose_runtime,
        outputs=(places.RUNTIME,),
        remedy="Pin in package.json the `pyodide` that the message names, then run scripts/lock.",
    ),
)

TESTING_STEPS = (
    Step(
        name="clock",
        purpose="the clock that tests can move",
        inputs=_inputs(places.SCRIPTS / "clock_shim.c"),
        perform=_compile_clock,
        outputs=(places.CLOCK_SHIM,),
        remedy="A C compiler with its headers is needed (Debian: apt-get install gcc libc6-dev).",
        require=machine.find_compiler,
    ),
    Step(
        name="pywrangler",
        purpose="pywrangler, which deploys",
        inputs=_inputs(_lock("deploy"), str(places.ROOT)),
        perform=_get_pywrangler,
        outputs=(places.WORKSHOP / "pywrangler" / "bin" / "pywrangler",),
        remedy=OFFLINE,
    ),
)
