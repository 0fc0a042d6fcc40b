"""litellm's own calls, in bare processes as many as cores: what it leaves room for is the baseline of runs through it."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from benchmarks.processes import clean_environment, stop

AT_ONCE = 32
_START_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class LiteLLMCost:
    """What pairs of calls (the first and the second of a run) took."""

    pairs: int
    pairs_per_second: float
    """Of all processes together."""
    cpu_ms_per_pair: float
    """Of the calling processes."""


def measure_litellm(folder: Path, environment: Mapping[str, str], seconds: float) -> LiteLLMCost:
    """Repeat the two requests that the stub wrote down in `folder`, in a process a core, for so many seconds."""
    command = [sys.executable, "-m", "benchmarks.litellm_calls", str(folder), str(seconds)]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, env={**clean_environment(), **environment}, cwd=folder)
        for _ in range(os.cpu_count() or 1)
    ]
    try:
        said = [process.communicate(timeout=_START_SECONDS + seconds)[0] for process in processes]
    finally:
        for process in processes:
            stop(process, grace=1.0)
    found = [orjson.loads(line) for line in said]
    return LiteLLMCost(
        pairs=sum(each["pairs"] for each in found),
        pairs_per_second=sum(each["pairs"] / each["wall_seconds"] for each in found),
        cpu_ms_per_pair=statistics.fmean(1_000 * each["cpu_seconds"] / each["pairs"] for each in found),
    )


async def _call_for(folder: Path, seconds: float) -> dict[str, float]:
    import litellm

    requests = [_arguments(orjson.loads((folder / name).read_bytes())) for name in ("first.json", "second.json")]
    await _pair(litellm, requests)
    pairs, started, cpu = 0, time.monotonic(), time.process_time()

    async def keep_calling() -> None:
        nonlocal pairs
        while time.monotonic() - started < seconds:
            await _pair(litellm, requests)
            pairs += 1

    await asyncio.gather(*(keep_calling() for _ in range(AT_ONCE)))
    wall = time.monotonic() - started
    return {"pairs": pairs, "wall_seconds": wall, "cpu_seconds": time.process_time() - cpu}


async def _pair(litellm: Any, requests: list[dict[str, Any]]) -> None:
    for arguments in requests:
        await litellm.acompletion(**arguments)


def _arguments(body: dict[str, Any]) -> dict[str, Any]:
    return {
        "model": f"openai/{body['model']}",
        "messages": body["messages"],
        "tools": body["tools"],
        "timeout": 60.0,
        "num_retries": 0,
        "max_retries": 0,
        "drop_params": True,
    }


def _quiet() -> None:
    import litellm

    litellm.suppress_debug_info = True
    litellm.success_callback, litellm.failure_callback, litellm.callbacks = [], [], []


if __name__ == "__main__":
    _quiet()
    print(orjson.dumps(asyncio.run(_call_for(Path(sys.argv[1]), float(sys.argv[2])))).decode())
