"""The environment of the runtime, out of sight of the programs that its tools start.

Whoever may see a process may read what it was started with, in `/proc/<pid>/environ`; taking a variable out of `os.environ` does not
change that. So what a process needs no variable for at its start is in the environment of none of ours: the one that starts the runtime
overwrites its own, Ray and all that Ray starts never get it, and our processes take it over from Ray's control store before they do
anything else. They also become undumpable, so that others of the same user read neither their memory nor anything else in `/proc`.

Secrets of the runtime itself, such as the database's password, are entrusted one by one: only the process that uses one asks for it,
and no environment, plan or argument of another has it. This module does not import Ray before Ray runs.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Collection, Mapping
from enum import Enum
from pathlib import Path

import msgspec

from owlclaw_ray.configuration.own_variables import OWN_VARIABLES
from owlclaw_ray.ledger.redaction import named_secrets

_KEY, _NAMESPACE = b"environment", b"owlclaw"
_PLAIN = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|TERM|PWD|HOSTNAME|TZ|LANG|LANGUAGE|TMPDIR|TEMP|TMP|VIRTUAL_ENV|CONDA_PREFIX|SSL_CERT_(?:FILE|DIR)"
    r"|(?:LC|RAY|PYTHON|LD|DYLD|XDG|MALLOC|GLIBC|OMP|MKL|OPENBLAS|NUMEXPR|CUDA|NVIDIA|GRPC|COVERAGE|COV_CORE|PYTEST)(?:_\w+)?"
    r"|PYTHON\w+"
)
"""What a process may need before its first line of Python runs."""
_TOKEN_OF_RAY = re.compile(r"RAY_AUTH_\w+")
"""Ray's own processes know it from nowhere else."""
_PR_SET_DUMPABLE = 4
_ENV_START = 47
"""The place of `env_start` in /proc/self/stat, counted from what follows the program's name; `env_end` comes next."""


def kept_back(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that no process of ours may be started with."""
    secrets = named_secrets(environ)
    return {
        name: value
        for name, value in environ.items()
        if not _TOKEN_OF_RAY.fullmatch(name) and (name in secrets or not _PLAIN.fullmatch(name))
    }


def shown() -> dict[str, str]:
    """Return the variables that another process of ours may be started with."""
    environ = os.environ  # noqa: TID251 - it is the environment of the other process, too
    secret = kept_back(environ)
    return {name: value for name, value in environ.items() if name not in secret}


def erase(names: Collection[str]) -> None:
    """Overwrite the values of these variables in what this process was started with; `os.environ` keeps what it has.

    Nothing happens where there is no /proc.
    """
    if sys.platform != "linux":
        return
    environ = os.environ  # noqa: TID251 - the C library must not go on using the memory that is overwritten
    for name in names:
        if name in environ:
            environ[name] = environ.pop(name)
    status = Path("/proc/self/stat").read_bytes()
    start, end = map(int, status[status.rindex(b")") + 2 :].split()[_ENV_START : _ENV_START + 2])
    wanted = {os.fsencode(name) for name in names}
    place = start
    for entry in ctypes.string_at(start, end - start).split(b"\0"):
        key, equals, value = entry.partition(b"=")
        if equals and key in wanted:
            ctypes.memset(place + len(key) + 1, 0, len(value))
        place += len(entry) + 1


class Entrusted(Enum):
    """A secret of the runtime itself. Each names the actors that ask for it; no other does."""

    STORE_URL = b"store_url"
    """The URL of the database, with its password: the Keeper, which writes, and the exporter, which reads."""
    HATCHET_TOKEN = b"hatchet_token"
    """The Scheduler."""
    SECRETS_KEYS = b"secrets_keys"
    """The master keys of tenants' secrets, as they are written: the Keeper."""


def entrust(secrets: Mapping[Entrusted, str]) -> None:
    """Keep these secrets for the actors that use them, in the place of all that were kept before."""
    from ray.experimental.internal_kv import _internal_kv_put

    for each in Entrusted:
        _internal_kv_put(each.value, secrets.get(each, "").encode(), overwrite=True, namespace=_NAMESPACE)


def entrusted(secret: Entrusted) -> str:
    """Return a secret that the runtime was started with; empty if it has none."""
    from ray.experimental.internal_kv import _internal_kv_get

    kept: bytes | None = _internal_kv_get(secret.value, namespace=_NAMESPACE)
    return (kept or b"").decode()


def store_url(shown: str) -> str:
    """Return the URL by which the store is opened, of which a plan has only what may be shown."""
    return shown if shown.startswith("sqlite") else entrusted(Entrusted.STORE_URL) or shown


def shed() -> None:
    """Have none of OWN_VARIABLES in this process. It was started with them where Ray was: on a cluster that was there before."""
    environ = os.environ  # noqa: TID251 - so that nothing in this process finds them
    present = [name for name in OWN_VARIABLES if name in environ]
    if present:
        erase(present)
        for name in present:
            del environ[name]


def shut() -> None:
    """Have other processes of this user read nothing of this one's memory, environment or files in /proc; root still can."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def hand_over(variables: Mapping[str, str]) -> None:
    """Keep the variables, but for OWN_VARIABLES, for the processes of the Ray cluster that this process has started."""
    from ray.experimental.internal_kv import _internal_kv_put

    told = {name: value for name, value in variables.items() if name not in OWN_VARIABLES}
    _internal_kv_put(_KEY, msgspec.msgpack.encode(told), overwrite=True, namespace=_NAMESPACE)


def take_over(*, starts_runtime: bool = False) -> None:
    """Have the variables that were handed over in `os.environ`, and shut this process; harmless to repeat, and where no Ray runs.

    OWN_VARIABLES are shed, but not by what starts the runtime.
    """
    from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_initialized

    if not _internal_kv_initialized():  # type: ignore[no-untyped-call]
        return
    shut()
    if not starts_runtime:
        shed()
    kept = _internal_kv_get(_KEY, namespace=_NAMESPACE)
    if kept:
        environ = os.environ  # noqa: TID251 - applications and libraries look for their keys there
        for name, value in msgspec.msgpack.decode(kept, type=dict[str, str]).items():
            environ.setdefault(name, value)
