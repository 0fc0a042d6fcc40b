"""Where Ray's own output goes while the runtime is up: out of the way, and to be found after a failure."""

from __future__ import annotations

import atexit
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

from actors.json_lines import JsonLines, converted
from owlclaw_ray.kernel.system_clock import SystemClock

_LOGGER = "ray"
_LOGS = {".log", ".out", ".err"}


@contextmanager
def aside(log: Path, *, as_json: bool = False) -> Iterator[None]:
    """Have what Ray and Serve print in this process written to a file for this user only: most of it warns of what is as it
    should be. As JSON it is one object a line, whatever they print.
    """
    log.touch(0o600)
    file = log.open("w", encoding="utf-8", errors="backslashreplace", buffering=1)
    atexit.register(file.close)
    stream = JsonLines(file, _LOGGER, SystemClock().now) if as_json else file
    if as_json:
        atexit.register(stream.close)
    with redirect_stdout(stream), redirect_stderr(stream):
        yield


def link_logs(link: Path, temp_dir: Path) -> None:
    """Make the link, in the place of an older one or of logs that were kept."""
    if link.is_symlink():
        link.unlink()
    else:
        shutil.rmtree(link, ignore_errors=True)
    link.symlink_to(temp_dir.resolve() / "session_latest" / "logs")


def keep_logs(link: Path, *, as_json: bool = False) -> None:
    """Put the logs in the place of the link to them, because their folder goes away; they are for this user only.

    As JSON all their lines are objects, those of Ray's too that Ray cannot write as such.
    """
    if link.is_symlink() and link.exists():
        logs = link.resolve()
        link.unlink()
        shutil.copytree(logs, link, ignore_dangling_symlinks=True)
        link.chmod(0o700)
        for path in link.rglob("*"):
            path.chmod(0o700 if path.is_dir() else 0o600)
            if as_json and path.suffix in _LOGS and path.is_file():
                _convert(path)


def _convert(path: Path) -> None:
    """Write every line of a file as JSON, without a time if the line says none in a way that is known."""
    lines = path.read_text(encoding="utf-8", errors="backslashreplace").split("\n")
    objects = filter(None, (converted(line, path.stem, None) for line in lines))
    path.write_text("".join(f"{each}\n" for each in objects), encoding="utf-8")
