"""`<data_dir>/owlclaw.pid`: which process serves this data, and where."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import psutil
from msgspec import Struct

from owlclaw_ray.errors import ConfigurationError, Problem

NAME = "owlclaw.pid"
RAY_TOKEN = "ray.token"  # noqa: S105 - a name
"""The file beside it, while a runtime has a Ray of its own: who has this token may use that Ray."""
_CLOCK_SLACK_SECONDS = 2.0


class PidFile(Struct, frozen=True):
    """A server as it wrote itself down."""

    pid: int
    url: str
    started_at: datetime

    def write(self, data_dir: Path) -> Path:
        """Write the file in one step, over an older one if there is one, and return its path."""
        path = data_dir / NAME
        temporary = path.with_suffix(f".{self.pid}")
        temporary.touch(0o600)
        temporary.write_text(
            json.dumps({"pid": self.pid, "url": self.url, "started_at": self.started_at.isoformat()}), encoding="utf-8"
        )
        return temporary.replace(path)

    def process(self) -> psutil.Process | None:
        """Return the process, or None if it ended; another one that has its pid now is younger than the file."""
        try:
            process = psutil.Process(self.pid)
            ended = process.status() == psutil.STATUS_ZOMBIE
            younger = process.create_time() > self.started_at.timestamp() + _CLOCK_SLACK_SECONDS
        except psutil.NoSuchProcess:
            return None
        return None if ended or younger else process


def read(data_dir: Path) -> PidFile | None:
    """Return what the file says, None without one; raises ConfigurationError if it is not a pid file."""
    path = data_dir / NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return PidFile(int(content["pid"]), str(content["url"]), datetime.fromisoformat(content["started_at"]))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError) as error:
        what = f"is no pid file ({type(error).__name__}: {error})"
        raise ConfigurationError([Problem(str(path), what, "remove it if nothing is running")]) from error
