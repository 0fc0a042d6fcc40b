"""`python -m benchmarks.commands`: what one call of a command costs, from its process's start to its end.

CPU seconds are those of the command's process; they hold on a busy machine, where times on the wall do not. The server that it asks runs in
this process, with scripted models.
"""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn
from msgspec import Struct

from owlclaw_ray import load_app
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.testing.in_process import in_process_runtime
from serve.api import build_api

CALLS = 5
"""Of each command; the cheapest one counts, as the others were disturbed more."""
OWLCLAW = (sys.executable, "-P", "-m", "serve.cli")
COMMANDS = (
    "--version",
    "--help",
    "runs --help",
    "runs",
    "runs --json",
    "trigger assistant",
    "trigger assistant --follow",
    "tail {run}",
    "agents",
    "schedules list",
    "approvals list",
    "memory list assistant",
    "mcp list",
    "top --times 1",
    "runs no_such_agent",
    "tail run_00000000000000000000000000",
    "runs --url http://127.0.0.1:9",
    "fly",
)


class Cost(Struct, frozen=True):
    """Of the cheapest call, in seconds, and its exit code."""

    cpu: float
    wall: float
    code: int


async def measure(folder: Path, url: str, arguments: Sequence[str], calls: int = CALLS) -> Cost:
    """Return what `owlclaw` costs with these arguments, run so often in the folder."""
    costs = [await _once(folder, url, arguments) for _ in range(calls)]
    return Cost(min(each.cpu for each in costs), min(each.wall for each in costs), costs[-1].code)


async def measure_all(commands: Sequence[str] = COMMANDS, calls: int = CALLS) -> list[tuple[str, Cost]]:
    """Return what each command costs against a server with the project that `owlclaw init` makes, and one run."""
    with TemporaryDirectory() as name:
        folder = Path(name, "project")
        subprocess.run([*OWLCLAW, "init", folder], check=True, capture_output=True)  # noqa: ASYNC221 - nothing else goes on
        async with _serving(folder) as (url, run):
            texts = [command.format(run=run) for command in commands]
            return [(text, await measure(folder, url, text.split(), calls)) for text in texts]


@asynccontextmanager
async def _serving(folder: Path) -> AsyncIterator[tuple[str, str]]:
    """Yield the URL of a server with the folder's agents, and the id of a run that is over."""
    app, data_dir = load_app("app:app", folder), folder / ".owlclaw"
    async with in_process_runtime(agents_dir=folder / "agents", data_dir=data_dir, app=app) as runtime:
        run = await runtime.trigger("assistant")
        api = build_api(runtime, clock=SystemClock(), body_limit_bytes=1_000_000)
        server = uvicorn.Server(uvicorn.Config(api, port=0, log_level="error", lifespan="off", ws="none"))
        serving = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}", run.run_id
        server.should_exit = True
        await serving


async def _once(folder: Path, url: str, arguments: Sequence[str]) -> Cost:
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *OWLCLAW,
        *arguments,
        cwd=folder,
        env={"OWLCLAW_URL": url, "PATH": "", "HOME": str(folder)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    code = await process.wait()
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall, code)


def main() -> None:
    """Measure, and print a table."""
    print(f"{'CPU s':>6} {'wall s':>7} {'exit':>5}  owlclaw ...")
    for command, cost in asyncio.run(measure_all()):
        print(f"{cost.cpu:6.2f} {cost.wall:7.2f} {cost.code:5}  {command}")


if __name__ == "__main__":
    main()
