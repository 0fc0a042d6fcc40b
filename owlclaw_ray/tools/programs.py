"""How the end of a program becomes the end of a tool call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from owlclaw_ray.domain.environment import of_the_runtime
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.tool_call import ToolInvocation
from owlclaw_ray.tools.failure import ToolFailureError
from owlclaw_ray.tools.process import ProgramEnd, ProgramLimits

ALWAYS = ("PATH", "HOME", "TMPDIR", "LANG")
"""What every program gets, where it is set."""
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


def child_environment(environ: Mapping[str, str], allowed: Iterable[str]) -> dict[str, str]:
    """Return the variables of `environ` that a program may see: ALWAYS and the allowed ones, never the runtime's own secrets."""
    names = [name for name in (*ALWAYS, *allowed) if not of_the_runtime(name)]
    return {"PATH": _DEFAULT_PATH} | {name: environ[name] for name in names if name in environ}


GRACE_SECONDS = 5.0
"""What a call may take longer than its program: to kill it, and to return what it wrote by then."""
_STDERR_CHARACTERS = 500


def environment_of(invocation: ToolInvocation, common: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables of a call's programs: the common ones, its skills', and its span as OpenTelemetry names it."""
    traced = {"TRACEPARENT": invocation.traceparent} if invocation.traceparent else {}
    return {**common, **dict(invocation.environment), **traced}


def less_grace(timeout: float) -> float:
    """Return how long a program may run in a call with that limit, so that its end can still be told."""
    return max(timeout - GRACE_SECONDS, timeout / 2)


def said_by(end: ProgramEnd) -> JsonObject:
    """Return what a program wrote, with what is left out of it."""
    said: JsonObject = {"exit_code": end.exit_code, "stdout": end.stdout.text(), "stderr": end.stderr.text()}
    for stream, text in (("stdout", end.stdout), ("stderr", end.stderr)):
        if text.left_out:
            said |= {f"{stream}_bytes": text.total, "truncated": True}
    return said


def check_end(name: str, end: ProgramEnd, limits: ProgramLimits) -> None:
    """Raise ToolFailureError, with what it wrote in the details, if the program was killed (`timeout`) or failed."""
    if end.exit_code is None:
        what = (
            f"{name} did not end within {limits.seconds:g} s and was killed; details hold what it had written by then"
        )
        raise ToolFailureError("timeout", what, details={**said_by(end), "partial": True})
    if end.exit_code != 0:
        code = end.exit_code
        ending = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        last = end.stderr.text().strip()[-_STDERR_CHARACTERS:]
        what = f"{name} {ending}: {last}" if last else f"{name} {ending}"
        raise ToolFailureError("command_failed", what, details=said_by(end))
