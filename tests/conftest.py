"""The environment of Ray is set here, before any test module can import it."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest
from hypothesis import settings

from actors.environment import ray_environment
from actors.plan import ToolSlots
from serve.front import Front
from serve.loopback import free_ports
from tests.worlds import agents, stores, world  # noqa: F401 - fixtures

SCRATCH = Path(tempfile.mkdtemp(prefix="owl-", dir="/tmp"))
SLOTS = ToolSlots(alone=4)
FRONT = Front("127.0.0.1", free_ports(1)[0], SCRATCH)
"""In front of the one server process of the session; who starts Serve starts it."""

os.environ.update(ray_environment(SLOTS.alone + SLOTS.quick, alone=True) | FRONT.environment)  # noqa: TID251 - Ray reads nothing else
atexit.register(shutil.rmtree, SCRATCH, ignore_errors=True)

IN_MEMORY, ROOM = Path("/dev/shm"), 6_000_000_000
if IN_MEMORY.is_dir() and min(shutil.disk_usage(IN_MEMORY).free, psutil.virtual_memory().available) > ROOM:
    # The folders of tests, with their databases, go where a write reaches no disk and fsync costs nothing.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))  # noqa: TID251 - pytest reads nothing else

settings.register_profile("owlclaw", deadline=None, max_examples=25)
settings.register_profile("long", settings.get_profile("owlclaw"), max_examples=250)
settings.load_profile("owlclaw")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that share the session's Ray: they run one after another, beside those that start their own."""
    for item in items:
        if "trial" in getattr(item, "fixturenames", ()):
            item.add_marker("one_cluster")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape the half characters that tests log: reports are sent between processes as UTF-8."""
    report = yield
    report.sections = [(title, text.encode(errors="backslashreplace").decode()) for title, text in report.sections]
    return report
