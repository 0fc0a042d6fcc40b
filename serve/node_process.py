"""Ray of a machine as a child process, so that a machine that is told to stop is drained first."""

from __future__ import annotations

import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from types import FrameType

from serve.processes import OrphanReaper

_REAP_SECONDS = 10.0
_DIES_WITH_US = ("setpriv", "--pdeathsig", "TERM")


def run_node(
    command: Sequence[str], drain: Sequence[str], *, environ: Mapping[str, str], asking: Mapping[str, str]
) -> int:
    """Run the command until it ends, and return its exit code, as shells give it.

    At the first SIGTERM or SIGINT run `drain`, in the environment `asking`, and end the command with SIGTERM once that is over, however
    it ended; at the second one at once. If this process is killed, the command is ended too, where util-linux is installed.
    """
    bound = _DIES_WITH_US if shutil.which(_DIES_WITH_US[0]) else ()
    node = subprocess.Popen([*bound, *command], env=environ, process_group=0)  # noqa: S603 - Ctrl-C is for this process
    draining: subprocess.Popen[bytes] | None = None
    times_told = 0

    def stop_after(drained: subprocess.Popen[bytes]) -> None:
        drained.wait()
        node.terminate()

    def told(_number: int, _frame: FrameType | None) -> None:
        nonlocal draining, times_told
        times_told += 1
        if times_told == 1:
            draining = subprocess.Popen(drain, env=asking, process_group=0)  # noqa: S603 - a command of ours
            threading.Thread(target=stop_after, args=(draining,), name="stop-after-drain", daemon=True).start()
        if times_told > 1 and draining is not None:  # it may come while the drain is being started
            draining.kill()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, told)
    reaper = OrphanReaper()
    while True:
        try:
            code = node.wait(_REAP_SECONDS)
        except subprocess.TimeoutExpired:
            reaper.look()
        else:
            break
    if draining is not None:
        draining.kill()
    return code if code >= 0 else 128 - code
