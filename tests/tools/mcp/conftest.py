"""Pools of real servers."""

import os
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.secrets.api import no_secrets
from owlclaw_ray.tools.mcp.api import McpCall, McpState
from owlclaw_ray.tools.mcp.options import Address, Command, McpOptions, McpServerOptions
from owlclaw_ray.tools.mcp.pool import McpPool
from serve.loopback import free_ports

FOLDER = Path(__file__).parent
PLAIN = (sys.executable, "-I", "-S", str(FOLDER / "plain_server.py"))
SDK = (sys.executable, str(FOLDER / "sdk_server.py"))
PATH = os.environ["PATH"]  # noqa: TID251
QUICK = {"backoff": 0.01, "backoff_limit": 0.02}


def plain(name="plain", log=None, **options):
    own = {"environment": options.pop("environment", ())}
    argv = PLAIN if log is None else (*PLAIN, str(log))
    return McpServerOptions(name, Command(argv, folder=str(FOLDER), **own), **options)


class Pool(McpPool):
    """A pool that tests can wait for."""

    async def ask(self, server, tool, arguments=None, seconds=10.0, caller=0):
        return await self.call(McpCall(server, tool, arguments or {}, seconds, DEFAULT_TENANT, caller))

    async def until(self, holds):
        """Return the catalog as soon as it is as it should be."""
        catalog = await self.catalog("", 30.0)
        while not holds(catalog):
            catalog = await self.catalog(catalog.version, 30.0)
            assert catalog is not None
        return catalog

    async def up(self, name, starts=1):
        """Return the server's view as soon as it is up, for the time of that number at least."""
        return await self.seen(name, lambda view: view.state is McpState.UP and view.starts >= starts)

    async def seen(self, name, holds):
        """Return the server's view as soon as it is as it should be."""
        while not holds(view := await self.view(name)):
            await self._connections[name]._turned.wait()
        return view

    async def view(self, name):
        (found,) = [each for each in await self.servers() if each.name == name]
        return found

    @property
    def held_for_tenants(self):
        return len(self._of_tenants._all)

    def pid(self, name):
        return self._connections[name].process.pid


@asynccontextmanager
async def pool_of(*servers, environ=None, clock=None, secret=no_secrets, **options):
    options = McpOptions(servers, **(QUICK | options))
    environ = {"PATH": PATH} | (environ or {})
    pool = Pool(
        options, environ=environ, clock=clock or SystemClock(), jitter=lambda: 0.0, incarnation="test", secret=secret
    )
    await pool.start()
    try:
        yield pool
    finally:
        await pool.stop()


def alive(pid):
    """Return whether a process of that id runs."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for_end(pid):
    while alive(pid):
        os.sched_yield()


class Web:
    """A real server over streamable HTTP, that can be killed and started again."""

    def __init__(self, *words):
        self.port, self.words = free_ports(1)[0], words
        self.server = McpServerOptions("web", Address(f"http://127.0.0.1:{self.port}/mcp"))
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [*SDK, str(self.port), *self.words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture(params=["stream", "json"])
def web(request):
    web = Web(request.param)
    yield web
    web.kill()
