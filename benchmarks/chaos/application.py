"""The application of a chaos session. Every execution of its tools leaves two lines in a log that the runtime knows nothing of.

The session copies this file into the folder that it serves.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from owlclaw_ray import OwlClaw, ToolContext

app = OwlClaw("chaos")
EFFECTS = Path(__file__).parent / "effects.log"


def _note(phase: str, tool: str, context: ToolContext, execution: str) -> None:
    """Append one line in one write, so that lines of many processes never mix and a killed process leaves whole lines."""
    line = {
        "phase": phase,
        "tool": tool,
        "run_id": context.run_id,
        "call_id": context.call_id,
        "execution": execution,
        "pid": os.getpid(),
        "wall_ns": time.time_ns(),
        "monotonic_ns": time.monotonic_ns(),
    }
    log = os.open(EFFECTS, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(log, json.dumps(line).encode() + b"\n")
    finally:
        os.close(log)


@contextmanager
def _noted(tool: str, context: ToolContext) -> Iterator[None]:
    execution = f"{os.getpid()}-{time.monotonic_ns()}-{context.call_id}"
    _note("start", tool, context, execution)
    yield
    _note("end", tool, context, execution)


@app.tool("look")
def look(milliseconds: int, context: ToolContext) -> str:
    """Look at something: may be repeated freely."""
    with _noted("chaos.look", context):
        time.sleep(milliseconds / 1_000)
    return "seen"


@app.handler("put", effect="idempotent")
def put(milliseconds: int, context: ToolContext) -> str:
    """Set something: a repetition under the same key changes nothing more."""
    with _noted("chaos.put", context):
        time.sleep(milliseconds / 1_000)
    return "set"


@app.handler("pay")
def pay(milliseconds: int, context: ToolContext) -> str:
    """Do what must not be done twice."""
    with _noted("chaos.pay", context):
        time.sleep(milliseconds / 1_000)
    return "paid"


@app.state("meter")
def meter() -> dict[str, int]:
    """Return something to read."""
    return {"pid": os.getpid()}
