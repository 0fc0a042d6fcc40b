"""The reference servers of the protocol, as npm and PyPI have them, through the pool and the tools that agents call."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager

import psutil
import pytest

from owlclaw_ray.tools.mcp.api import McpProblem
from owlclaw_ray.tools.mcp.options import Address, Command, McpServerOptions
from serve.loopback import free_ports
from serve.processes import lives
from tests.tools.mcp.conftest import pool_of

pytestmark = [pytest.mark.mcp_servers, pytest.mark.timeout(600)]
NPM = {"server-everything": "2026.8.31", "server-filesystem": "2026.8.31"}
ENVIRON = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}  # noqa: TID251
TRIES = 60.0


@pytest.fixture(scope="session")
def npm(tmp_path_factory):
    """A folder with the servers that npm has; it is filled once, whichever of the processes that run tests is the first."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed: the servers of npm are not tried")
    shared = tmp_path_factory.getbasetemp()
    folder = (shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared) / "npm"  # noqa: TID251
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            wanted = [f"@modelcontextprotocol/{name}@{version}" for name, version in NPM.items()]
            command = [
                "npm",
                "install",
                "--no-audit",
                "--no-fund",
                "--ignore-scripts",
                "--prefix",
                str(folder),
                *wanted,
            ]
            installed = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
            if installed.returncode:
                pytest.skip(f"npm could not install the servers: {installed.stderr[-500:]}")
            (folder / "done").touch()
    return folder / "node_modules" / "@modelcontextprotocol"


def of_npm(npm, name, *arguments, **variables):
    program = ("node", str(npm / name / "dist" / "index.js"), *arguments)
    return McpServerOptions("real", Command(program, tuple(variables.items())))


def of_pypi(module, *arguments):
    assert importlib.util.find_spec(module), f"{module} is missing: pip install -e '.[dev]'"
    variables = tuple((name, ENVIRON[name]) for name in ENVIRON.keys() & {"PYTHONPATH"})
    return McpServerOptions("real", Command((sys.executable, "-m", module, *arguments), variables))


@asynccontextmanager
async def started(server):
    """A pool whose only server is up."""
    async with pool_of(server, environ=ENVIRON, connect=TRIES) as pool:
        await pool.up("real")
        yield pool


async def said(pool, tool, **arguments):
    answer = await pool.ask("real", tool, arguments, TRIES)
    assert not isinstance(answer, McpProblem), answer
    assert not answer.get("isError"), answer
    return answer["content"][0].get("text")


async def offered(pool):
    """The names of the server's tools, of which none is left out for what it says of itself."""
    view = await pool.view("real")
    assert view.left_out == ()
    return {name.removeprefix("mcp.real.") for name in view.tools}


async def comes_back(pool):
    before = (await pool.view("real")).starts
    children = psutil.Process(pool.pid("real")).children(recursive=True)
    os.kill(pool.pid("real"), 9)
    await pool.up("real", before + 1)
    psutil.wait_procs(children, timeout=TRIES)
    assert not any(map(lives, children))


async def test_everything_over_stdio(npm):
    async with started(of_npm(npm, "server-everything")) as pool:
        assert {"echo", "get-sum", "get-tiny-image"} <= await offered(pool)
        assert "猫" in await said(pool, "echo", message="猫")
        assert "5" in await said(pool, "get-sum", a=2, b=3)
        await comes_back(pool)
        assert "again" in await said(pool, "echo", message="again")


@contextmanager
def everything_over_http(npm, port):
    program = ["node", str(npm / "server-everything" / "dist" / "index.js"), "streamableHttp"]
    process = subprocess.Popen(
        program, env={**ENVIRON, "PORT": str(port)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


async def test_everything_over_http(npm):
    port = free_ports(1)[0]
    server = McpServerOptions("real", Address(f"http://127.0.0.1:{port}/mcp"))
    with everything_over_http(npm, port):
        running = started(server)
        pool = await running.__aenter__()
        assert {"echo", "get-sum"} <= await offered(pool)
        assert "猫" in await said(pool, "echo", message="猫")
    try:
        assert isinstance(await pool.ask("real", "echo", {"message": "gone"}, TRIES), McpProblem)
        with everything_over_http(npm, port):
            await pool.up("real", 2)
            assert "again" in await said(pool, "echo", message="again")
    finally:
        await running.__aexit__(None, None, None)


async def test_the_filesystem(npm, tmp_path):
    (tmp_path / "note.txt").write_text("茶")
    async with started(of_npm(npm, "server-filesystem", str(tmp_path))) as pool:
        assert {"read_text_file", "write_file", "list_directory"} <= await offered(pool)
        assert await said(pool, "read_text_file", path=str(tmp_path / "note.txt")) == "茶"
        await said(pool, "write_file", path=str(tmp_path / "new.txt"), content="new")
        assert (await pool.ask("real", "read_text_file", {"path": "/etc/passwd"}, TRIES))["isError"]
        await comes_back(pool)
    assert (tmp_path / "new.txt").read_text() == "new"


async def test_the_time():
    async with started(of_pypi("mcp_server_time", "--local-timezone=UTC")) as pool:
        assert await offered(pool) == {"get_current_time", "convert_time"}
        told = await said(pool, "convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Shanghai")
        assert "20:00" in told
        await comes_back(pool)


async def test_git(tmp_path):
    for command in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "茶", "--allow-empty"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)  # noqa: ASYNC221
    async with started(of_pypi("mcp_server_git", "--repository", str(tmp_path))) as pool:
        assert {"git_status", "git_log", "git_commit"} <= await offered(pool)
        assert "茶" in await said(pool, "git_log", repo_path=str(tmp_path))
        await comes_back(pool)


async def test_fetch():
    async with started(of_pypi("mcp_server_fetch")) as pool:
        assert await offered(pool) == {"fetch"}
        answer = await pool.ask("real", "fetch", {"url": f"http://127.0.0.1:{free_ports(1)[0]}/"}, TRIES)
        assert isinstance(answer, McpProblem) or answer["isError"], "nothing listens there"
        await comes_back(pool)
