"""The environment of Ray is set here, before any test module can import it."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings

from actors.environment import ray_environment
from serve.loopback import haproxy_environment

SCRATCH = Path(tempfile.mkdtemp(prefix="owl-", dir="/tmp"))
TOOL_SLOTS, QUICK_SLOTS = 4, 2

os.environ.update(ray_environment(TOOL_SLOTS + QUICK_SLOTS, alone=True) | haproxy_environment(SCRATCH))  # noqa: TID251 - Ray reads nothing else
atexit.register(shutil.rmtree, SCRATCH, ignore_errors=True)

settings.register_profile("owlclaw", deadline=None)
settings.register_profile("long", settings.get_profile("owlclaw"), max_examples=2_000)
settings.load_profile("owlclaw")
