"""How large the product is, and how much of it one run touches: `make size`.

The product is `owlclaw_ray`, `actors`, `serve` and `console`. Lines are lines of files, functions those with `def`, methods and nested
ones included.

One run is followed by doing it: `POST /v1/agents/probe/triggers?wait=…` through the ASGI application of `serve.api`, over
`in_process_runtime` with a new SQLite store, a scripted model and one tool of an application. From the request to its answer, with the run
over, every Python function that is called is noted, in all threads (`sys.setprofile`).

- A class is touched if a method of it was called, or if a function that was called names it (so a reader meets structs, enums, errors).
- A file is touched if a function of it was called, or if a class that is touched is defined there. It counts with all its lines.
- `owlclaw_ray/testing` stands in for the processes and is left out. What stands there in a real runtime, the Ray shells that the same
  run passes, is listed in STATIONS and counts with all its lines and classes.
- Starting the runtime is not part of it, nor is importing modules.

Classes that are merely defined in those files are counted beside: a reader who opens the files sees them, too.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import inspect
import json
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FrameType, ModuleType

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("owlclaw_ray", "actors", "serve", "console")
STAND_INS = "owlclaw_ray/testing/"
STATIONS = (
    "actors/agent.py",
    "actors/directory.py",
    "actors/gateway_link.py",
    "actors/hosts.py",
    "actors/keeper.py",
    "actors/keeper_client.py",
    "actors/keeper_run_updates.py",
    "actors/model_gateway.py",
    "actors/remote_actor.py",
    "actors/plan.py",
    "actors/remote.py",
    "actors/root.py",
    "actors/runtime.py",
    "actors/tool_task.py",
    "actors/tool_worker.py",
)
"""The Ray shells that a trigger, its run, its model calls and its tool call pass."""
WAIT_SECONDS = 60


@dataclass(frozen=True)
class Size:
    """What some files hold."""

    files: int
    lines: int
    classes: int
    functions: int

    @property
    def functions_per_1000_lines(self) -> float:
        """How finely it is cut."""
        return 1000 * self.functions / self.lines


@dataclass(frozen=True)
class OneRun:
    """What one run touches."""

    files: tuple[str, ...]
    files_called: int
    lines: int
    classes: tuple[str, ...]
    classes_in_these_files: int
    functions_called: int


def product_files() -> list[str]:
    """Return the paths of the product's Python files, from the root of the checkout."""
    found = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def size_of(files: list[str]) -> Size:
    """Return what these files hold."""
    lines = classes = functions = 0
    for file in files:
        text = (ROOT / file).read_text(encoding="utf-8")
        lines += len(text.splitlines())
        for node in ast.walk(ast.parse(text)):
            classes += isinstance(node, ast.ClassDef)
            functions += isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return Size(len(files), lines, classes, functions)


class Calls:
    """Notes the code of every Python function that is called while it is on, in threads that start after `installed`."""

    def __init__(self) -> None:
        self.on = False
        self.seen: set[CodeType] = set()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Have all threads that start within, and this one, tell of their calls."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        if self.on and event == "call":
            self.seen.add(frame.f_code)


async def _run_once(folder: Path, calls: Calls) -> None:
    import httpx

    from owlclaw_ray import OwlClaw
    from owlclaw_ray.kernel.system_clock import SystemClock
    from owlclaw_ray.testing.in_process import in_process_runtime
    from serve.api import build_api

    app = OwlClaw("probe")

    @app.tool("look")
    def look(what: str) -> str:
        """Look at something."""
        return f"seen: {what}"

    definition = folder / "agents" / "probe"
    definition.mkdir(parents=True)
    (definition / "SOUL.md").write_text("You are calm.", encoding="utf-8")
    (definition / "IDENTITY.md").write_text("# Probe\n\n## My Capabilities\n- look\n", encoding="utf-8")
    (definition / "agent.yaml").write_text("model: scripted:script.yaml\n", encoding="utf-8")
    turns = [{"tool_calls": [{"name": "probe.look", "arguments": {"what": "disk"}}]}, {"text": "done"}]
    (definition / "script.yaml").write_text(json.dumps({"rules": [{"turns": turns}]}), encoding="utf-8")
    async with in_process_runtime(agents_dir=folder / "agents", data_dir=folder / "data", app=app) as runtime:
        api = build_api(runtime, clock=SystemClock(), body_limit_bytes=1_000_000)
        transport = httpx.ASGITransport(api)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=WAIT_SECONDS) as http:
            calls.on = True
            answer = await http.post(f"/v1/agents/probe/triggers?wait={WAIT_SECONDS}", json={"payload": {"host": "a"}})
            calls.on = False
    result = answer.json().get("result") or {}
    if (result.get("status"), result.get("tools_called")) != ("completed", ["probe.look"]):
        raise SystemExit(f"the run that is followed was not completed with its tool call: {answer.text}")


def one_run() -> OneRun:
    """Do one run and return what it touches; exits with a message if the run fails."""
    calls = Calls()
    with tempfile.TemporaryDirectory() as folder, calls.installed():
        asyncio.run(_run_once(Path(folder), calls))
    modules = {file: module for module in [*sys.modules.values()] if (file := _product_file(module)) is not None}
    functions = {
        (code.co_filename, code.co_firstlineno, code.co_name): code
        for code in calls.seen
        if _path(code.co_filename) in modules and code.co_flags & inspect.CO_OPTIMIZED  # no module, no class body
    }
    classes = {
        each for code in functions.values() for each in _classes_of(code, modules[_path(code.co_filename) or ""])
    }
    called_in = {_path(filename) or "" for filename, _, _ in functions}
    files = {file for file in called_in | {file for file, _ in classes} if not file.startswith(STAND_INS)} | {*STATIONS}
    named = {f"{file}:{name}" for file, name in classes if file in files}
    for station in STATIONS:
        tree = ast.parse((ROOT / station).read_text(encoding="utf-8"))
        named |= {f"{station}:{node.name}" for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    whole = size_of(sorted(files))
    return OneRun(
        tuple(sorted(files)),
        len(files & (called_in | {*STATIONS})),
        whole.lines,
        tuple(sorted(named)),
        whole.classes,
        len(functions),
    )


def _path(filename: str) -> str | None:
    """Return the path from the root of the checkout, if it is a file of the product."""
    path = Path(filename)
    if not path.is_absolute() or not path.is_relative_to(ROOT):
        return None
    relative = path.relative_to(ROOT)
    return relative.as_posix() if relative.parts[0] in PACKAGES else None


def _product_file(module: ModuleType) -> str | None:
    return None if getattr(module, "__file__", None) is None else _path(str(module.__file__))


def _classes_of(code: CodeType, module: ModuleType) -> Iterator[tuple[str, str]]:
    """Yield file and name of the class whose method this is, and of every class of the product that it names."""
    owner: object = module
    for part in code.co_qualname.split(".")[:-1]:
        owner = getattr(owner, part, None)
        if isinstance(owner, type):
            yield from _place(owner)
    for name in code.co_names:
        value = vars(module).get(name)
        yield from _place(value)
        if isinstance(value, ModuleType) and _product_file(value) is not None:
            for attribute in code.co_names:
                yield from _place(vars(value).get(attribute))


def _place(value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, type) and (file := _product_file(sys.modules.get(value.__module__, sys))) is not None:
        yield file, value.__qualname__


def _report(product: Mapping[str, Size], run: OneRun) -> str:
    lines = [f"{'':28}{'files':>8}{'lines':>9}{'classes':>9}{'functions':>11}{'per 1,000 lines':>17}"]
    lines += [
        f"{name:28}{size.files:>8,}{size.lines:>9,}{size.classes:>9,}{size.functions:>11,}{size.functions_per_1000_lines:>17.1f}"
        for name, size in product.items()
    ]
    lines.append(
        f"{'one run, followed':28}{len(run.files):>8,}{run.lines:>9,}{len(run.classes):>9,}{run.functions_called:>11,}"
        f"\n  {run.files_called:,} of these files have a function that is called; they define {run.classes_in_these_files:,} classes"
    )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="How large the product is, and how much of it one run touches.")
    parser.add_argument("--json", action="store_true", help="print all figures, files and classes as JSON")
    parser.add_argument("--files", action="store_true", help="name the files that one run touches")
    chosen = parser.parse_args(arguments)
    files = product_files()
    product = {
        "product": size_of(files),
        **{f"  {package}": size_of([each for each in files if each.startswith(f"{package}/")]) for package in PACKAGES},
    }
    run = one_run()
    if chosen.json:
        sizes = {name.strip(): asdict(size) for name, size in product.items()}
        print(json.dumps({**sizes, "one run": asdict(run)}, indent=2))
        return
    print(_report(product, run))
    if chosen.files:
        print("\n".join(run.files))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
