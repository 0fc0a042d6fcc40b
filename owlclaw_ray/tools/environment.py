"""The environment of the programs that tools start: what is allowed by name, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from owlclaw_ray.domain.environment import of_the_runtime

ALWAYS = ("PATH", "HOME", "TMPDIR", "LANG")
"""What every program gets, where it is set."""
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


def child_environment(environ: Mapping[str, str], allowed: Iterable[str]) -> dict[str, str]:
    """Return the variables of `environ` that a program may see: ALWAYS and the allowed ones, never the runtime's own secrets."""
    names = [name for name in (*ALWAYS, *allowed) if not of_the_runtime(name)]
    return {"PATH": _DEFAULT_PATH} | {name: environ[name] for name in names if name in environ}
