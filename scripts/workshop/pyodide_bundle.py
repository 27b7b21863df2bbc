"""Builds the Pyodide bundle that workerd would otherwise download.

workerd carries its own half of the Python runtime and fetches the other half, Pyodide, at its
first start. Where nothing can be fetched, the same bytes are at hand in the npm package `pyodide`;
what is missing is the envelope and the edits that workerd's sandbox needs. The laws kept here:

1. The version is read out of the workerd binary and compared with the package. It is never assumed.
2. Every edit is counted. A count that differs stops the build, because an edit that silently
   finds nothing would show up much later as a Worker that cannot start.
3. The file is written beside its final name and moved there, so a half-written bundle never exists.

Runs under the host environment (it needs pycapnp): `python -m workshop.pyodide_bundle`.
"""

import argparse
import json
import mmap
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

# workerd's module bundle, by ordinals: a list of modules, each with a name, one of four bodies, a
# type, and two fields that Pyodide does not use. The ordinals are the wire format; the id is free.
SCHEMA = """
@0xd2a1c4e97b3f5a68;
struct Bundle { modules @0 :List(Module); }
struct Module {
  name @0 :Text;
  union { src @1 :Data; wasm @4 :Data; data @5 :Data; json @6 :Text; }
  type @2 :Type;
  tsDeclaration @3 :Text;
  compileCache @7 :Data;
}
enum Type { bundle @0; builtin @1; internal @2; }
"""

# The version of the bundle called `dev` stands in workerd's table of releases right after the
# compatibility flag that selects it.
WANTED_VERSION = re.compile(rb"pythonWorkersDevPyodide\0+(\d+\.\d+\.\d+)\0")

PRELUDE = """\
import {
  addEventListener, getRandomValues, location, monotonicDateNow, newWasmModule,
  patchedLoadLibData, wasmInstantiate,
} from "pyodide-internal:builtin_wrappers";
export { _createPyodideModule };
"""

LOAD_LIBRARY = """\
function loadLibData(){
  const libData = patchedLoadLibData(Module, libName, flags.rpath);
  return flags.loadAsync ? Promise.resolve(libData) : libData;
}
function replacedLoadLibData(){"""

NO_EVAL = '(()=>{throw new Error("eval is not available in a Worker")})()'


class BundleError(Exception):
    """The bundle cannot be built from this package for this workerd."""


@dataclass(frozen=True)
class Edit:
    """One replacement in Pyodide's glue code, and how often it must occur."""

    old: str
    new: str
    count: int


# Each names the workerd function that stands in for something that the sandbox forbids: compiling
# WebAssembly, reading a clock that does not move, drawing randomness before a request, loading
# libraries from a network, and evaluating text.
EDITS = (
    Edit("new WebAssembly.Module(", "newWasmModule(", 4),
    Edit("WebAssembly.instantiate", "wasmInstantiate", 3),
    Edit("Date.now", "monotonicDateNow", 22),
    Edit("crypto.getRandomValues(", "getRandomValues(Module, ", 1),
    Edit("function loadLibData(){", LOAD_LIBRARY, 1),
    Edit("getMemory(", "Module.getMemoryPatched(Module, libName, ", 1),
    Edit("eval(func)", NO_EVAL, 2),
    Edit("eval(data)", NO_EVAL, 1),
    Edit("eval(UTF8ToString(ptr))", NO_EVAL, 3),
)


def wanted_version(workerd: Path) -> str:
    """The Pyodide version that this workerd binary is built for."""
    with workerd.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as binary:
        found = {match.group(1).decode() for match in WANTED_VERSION.finditer(binary)}
    if len(found) != 1:
        message = (
            f"cannot tell which Pyodide this workerd wants: found {sorted(found) or 'nothing'}"
        )
        raise BundleError(message)
    return found.pop()


def check_version(package: Path, workerd: Path) -> str:
    """The version of both, or an error that names the two when they differ."""
    wanted = wanted_version(workerd)
    present = json.loads((package / "package.json").read_text("utf-8"))["version"]
    if wanted != present:
        message = (
            f"workerd wants Pyodide {wanted}, but package.json pins pyodide {present}; "
            f'set "pyodide": "{wanted}" there and lock again'
        )
        raise BundleError(message)
    return wanted


def edit_glue(source: str) -> str:
    """Pyodide's JavaScript with every edit applied exactly as often as it must be."""
    wrong = [
        f"{edit.old!r} {source.count(edit.old)} times instead of {edit.count}"
        for edit in EDITS
        if source.count(edit.old) != edit.count
    ]
    if wrong:
        message = "pyodide.asm.mjs is not the one these edits were made for: " + "; ".join(wrong)
        raise BundleError(message)
    for edit in EDITS:
        source = source.replace(edit.old, edit.new)
    return PRELUDE + source


def encode(package: Path) -> bytes:
    """The three modules of the bundle as one Cap'n Proto message."""
    import capnp  # noqa: PLC0415 -- the bootstrap Python reads this file without the package.

    with tempfile.TemporaryDirectory() as folder:
        schema_file = Path(folder, "bundle.capnp")
        schema_file.write_text(SCHEMA, "utf-8")
        schema = capnp.load(str(schema_file))
    glue = edit_glue((package / "pyodide.asm.mjs").read_text("utf-8"))
    contents = (
        ("pyodideRuntime-internal:pyodide.asm", "src", glue.encode()),
        (
            "pyodideRuntime-internal:pyodide.asm.wasm",
            "wasm",
            (package / "pyodide.asm.wasm").read_bytes(),
        ),
        (
            "pyodideRuntime-internal:python_stdlib.zip",
            "data",
            (package / "python_stdlib.zip").read_bytes(),
        ),
    )
    bundle = schema.Bundle.new_message()
    for module, (name, kind, content) in zip(
        bundle.init("modules", len(contents)), contents, strict=True
    ):
        module.name = name
        module.type = "internal"
        setattr(module, kind, content)
    return bytes(bundle.to_bytes())


def main() -> int:
    """Builds the bundle named on the command line; says why when it cannot."""
    parser = argparse.ArgumentParser(description="Build workerd's Pyodide bundle.")
    parser.add_argument("--package", type=Path, required=True, help="the npm package pyodide")
    parser.add_argument("--workerd", type=Path, required=True, help="the workerd binary")
    parser.add_argument("--output", type=Path, required=True, help="the bundle to write")
    options = parser.parse_args()
    try:
        version = check_version(options.package, options.workerd)
        content = encode(options.package)
    except BundleError as error:
        print(error, file=sys.stderr)
        return 1
    options.output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = options.output.with_suffix(".unfinished")
    unfinished.write_bytes(content)
    unfinished.replace(options.output)
    print(f"Pyodide {version}: {len(content) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
