"""A node's pool of MCP servers, with real servers."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psutil
import pytest

from owlclaw_ray.domain.tool import CallProgress
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.tools.mcp.api import McpCall, McpProblem, McpState, McpTrouble
from owlclaw_ray.tools.mcp.options import Address, Command, McpServerOptions
from tests.tools.mcp.conftest import FOLDER, PATH, PLAIN, SDK, alive, plain, pool_of, wait_for_end

DEMO = McpServerOptions("demo", Command(SDK))
NOWHERE = McpServerOptions("nowhere", Command(("/nowhere/server",)))


def text(words):
    return {"content": [{"type": "text", "text": words}], "isError": False}


async def test_tools_are_found_and_called_over_stdio():
    """tool-registry: MCP tools are discovered from the servers of the configuration."""
    async with pool_of(plain(), DEMO) as pool:
        catalog = await pool.until(lambda catalog: len(catalog.tools) == 2)
        echoed = await pool.ask("plain", "echo", {"text": "hello"})
        added = await pool.ask("demo", "add", {"a": 1})
        failed = await pool.ask("demo", "fail", {"why": "so"})

    assert "mcp.plain.echo" in [tool.name for tool in catalog.tools["plain"]]
    assert "mcp.demo.add" in [tool.name for tool in catalog.tools["demo"]]
    assert echoed == text("hello")
    assert added["structuredContent"] == {"result": 2}
    assert failed == text("so") | {"isError": True}


async def test_a_server_is_told_the_span_of_the_call():
    span = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    async with pool_of(plain()) as pool:
        await pool.up("plain")
        told = await pool.call(McpCall("plain", "told", {}, 10.0, DEFAULT_TENANT, traceparent=span))
        untold = await pool.ask("plain", "told")

    assert json.loads(told["content"][0]["text"])["traceparent"] == span
    assert "traceparent" not in untold["content"][0]["text"]


async def test_what_a_server_says_of_a_call_s_progress_is_known_until_its_end(tmp_path):
    async with pool_of(DEMO) as pool:
        await pool.up("demo")
        call = McpCall("demo", "count", {"log": str(tmp_path / "go")}, 60.0, DEFAULT_TENANT, key="key-1")
        counting = asyncio.create_task(pool.call(call))
        while not (said := await pool.progress(["key-1", "key-2"])):
            await asyncio.sleep(0.01)
        (tmp_path / "go").touch()
        answer = await counting

        assert said == {"key-1": CallProgress(3, 4, "three of four")}
        assert answer["structuredContent"] == {"result": "counted"}
        assert await pool.progress(["key-1"]) == {}


async def test_tools_are_found_and_called_over_streamable_http_and_found_again_after_the_server_s_end(web):
    async with pool_of(web.server) as pool:
        await pool.up("web")
        assert (await pool.ask("web", "add", {"a": 1}))["structuredContent"] == {"result": 2}

        web.kill()
        lost = await pool.ask("web", "add", {"a": 1})
        await pool.seen("web", lambda view: view.state is McpState.DOWN)
        absent = await pool.ask("web", "add", {"a": 1}, seconds=0.01)
        web.start()
        await pool.up("web")

        assert lost.trouble in {McpTrouble.LOST, McpTrouble.NOT_SENT}
        assert absent.trouble is McpTrouble.NOT_SENT
        assert (await pool.ask("web", "add", {"a": 2}))["structuredContent"] == {"result": 3}


class Forgetful(BaseHTTPRequestHandler):
    """A server over HTTP, of the protocol's first years, that forgets its first session at the first call."""

    sessions, forgot = 0, False

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Forgetful.forgot |= request["method"] == "tools/call"
        if Forgetful.forgot and self.headers["Mcp-Session-Id"] == "session-1":
            self.answer(404)
            return
        match request["method"]:
            case "initialize":
                Forgetful.sessions += 1
                about = {
                    "protocolVersion": "2025-06-18",
                    "serverInfo": {"name": "f", "version": "1"},
                    "capabilities": {},
                }
                self.answer(200, {"id": request["id"], "result": about})
            case "tools/list":
                tools = [{"name": "read", "inputSchema": {"type": "object"}}]
                self.answer(200, {"id": request["id"], "result": {"tools": tools}})
            case "tools/call":
                self.answer(200, {"id": request["id"], "result": text("hello")})
            case method if "id" in request:
                self.answer(200, {"id": request["id"], "error": {"code": -32601, "message": f"no {method} here"}})
            case _:
                self.answer(202)

    def do_GET(self):
        self.answer(405)

    def do_DELETE(self):
        self.answer(405)

    def answer(self, status, message=None):
        body = b"" if message is None else json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Mcp-Session-Id", f"session-{Forgetful.sessions}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


async def test_a_session_that_a_server_forgot_is_begun_anew():
    with ThreadingHTTPServer(("127.0.0.1", 0), Forgetful) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        async with pool_of(McpServerOptions("web", Address(f"http://127.0.0.1:{server.server_port}/mcp"))) as pool:
            await pool.up("web")
            lost = await pool.ask("web", "read")
            await pool.up("web", starts=2)
            answer = await pool.ask("web", "read")
        server.shutdown()

    assert lost.trouble is McpTrouble.LOST
    assert answer == text("hello")


async def test_a_server_that_cannot_be_started_holds_up_nobody():
    async with pool_of(plain(), NOWHERE) as pool:
        catalog = await pool.until(lambda catalog: catalog.settled)
        view = await pool.seen("nowhere", lambda view: view.state is McpState.DOWN)
        problem = await pool.ask("nowhere", "anything", seconds=0.01)

    assert list(catalog.tools) == ["plain"]
    assert view.problem == "/nowhere/server cannot be started: No such file or directory"
    assert problem.trouble is McpTrouble.NOT_SENT
    assert "nowhere" in problem.message


async def test_a_server_that_is_killed_during_a_call_is_started_again():
    async with pool_of(plain()) as pool:
        await pool.up("plain")
        lost = await pool.ask("plain", "die")
        await pool.up("plain", starts=2)

        assert lost == McpProblem(McpTrouble.LOST, "the MCP server plain went away during the call.")
        assert await pool.ask("plain", "echo", {"text": "again"}) == text("again")


async def test_all_who_use_a_server_share_its_process_and_the_last_one_ends_it(tmp_path):
    log = tmp_path / "starts"
    servers = [plain(name, log) for name in ("one", "two")]
    async with pool_of(*servers, plain("other", tmp_path / "more")) as pool:
        for name in ("one", "two", "other"):
            await pool.up(name)
        answers = await asyncio.gather(*(pool.ask("one", "echo", {"text": str(number)}) for number in range(50)))
        pids = {pool.pid(name) for name in ("one", "two", "other")}

        await pool._leases.give_back(servers[0])
        assert alive(pool.pid("two"))
        pool._leases.take(servers[0])

    assert answers == [text(str(number)) for number in range(50)]
    assert len(pids) == 2
    assert len(log.read_text().splitlines()) == 1
    assert not any(alive(pid) for pid in pids)


@pytest.mark.parametrize("server", [plain(), DEMO])
async def test_tools_that_a_server_adds_are_there_when_it_says_so(server):
    async with pool_of(server) as pool:
        before = await pool.until(lambda catalog: catalog.tools)
        await pool.ask(server.name, "grow")
        after = await pool.until(lambda catalog: catalog.version != before.version)

    added = {tool.name for tool in after.tools[server.name]} - {tool.name for tool in before.tools[server.name]}
    assert added == {f"mcp.{server.name}.grown"}


OBJECT = {"type": "object"}


@pytest.mark.parametrize(
    ("odd", "name", "why"),
    [
        ({"name": "bare"}, "bare", "inputSchema: Field required"),
        ({"name": "list", "inputSchema": {"type": "array"}}, "list", "inputSchema.type: Input should be 'object'"),
        ({"name": "text", "inputSchema": "x"}, "text", "inputSchema: Input should be"),
        ({"name": 7, "inputSchema": OBJECT}, "7", "name: Input should be a valid string"),
        ({"name": "icon", "inputSchema": OBJECT, "icons": "x"}, "icon", "icons: Input should be a valid list"),
        ({"name": "hint", "inputSchema": OBJECT, "annotations": {"readOnlyHint": "maybe"}}, "hint", "annotations"),
        ({"name": "out", "inputSchema": OBJECT, "outputSchema": {"type": "array"}}, "out", "outputSchema"),
        ("no tool", "", "Input should be"),
    ],
)
async def test_one_odd_tool_is_left_out_and_the_others_of_its_server_stay(odd, name, why):
    """tool-registry: a tool that cannot be taken is named, and no reason to do without its server."""
    tools = json.dumps([odd, {"name": "last", "inputSchema": OBJECT}])
    async with pool_of(plain(environment=(("MORE_TOOLS", tools),))) as pool:
        view = await pool.up("plain")
        answer = await pool.ask("plain", "echo", {"text": "hello"})

    left_out = {each.tool: each.why for each in view.left_out}
    assert {"mcp.plain.echo", "mcp.plain.last"} <= set(view.tools)
    assert f"mcp.plain.{name}" not in view.tools
    assert why in left_out[name]
    assert answer == text("hello")


async def test_a_call_that_takes_too_long_is_given_up_and_the_server_told(tmp_path):
    log = tmp_path / "log"
    async with pool_of(DEMO) as pool:
        await pool.up("demo")
        late = await pool.ask("demo", "hang", {"log": str(log)}, seconds=0.2)
        while not log.exists():
            await asyncio.sleep(0)
        assert late.trouble is McpTrouble.LATE
        assert (await pool.view("demo")).running == 0
        assert (await pool.ask("demo", "add", {"a": 1}))["structuredContent"] == {"result": 2}


async def test_a_call_ends_with_the_process_that_waits_for_it(tmp_path):
    """tool-registry: aborting a tool ends it; no process goes on in the background."""
    log = tmp_path / "log"
    worker = subprocess.Popen(["sleep", "3600"])  # noqa: ASYNC220
    async with pool_of(DEMO) as pool:
        await pool.up("demo")
        call = asyncio.create_task(pool.ask("demo", "hang", {"log": str(log)}, caller=worker.pid))
        while (await pool.view("demo")).running == 0:
            await asyncio.sleep(0)
        before = (await pool.view("demo")).calls
        worker.kill()
        worker.wait()
        problem = await call
        view = await pool.view("demo")
        while not log.exists():
            await asyncio.sleep(0)

    assert problem.message == "nobody waits for the call any more."
    assert (before, view.calls, view.running) == (0, 1, 0)
    assert log.read_text() == "cancelled\n"


async def test_a_server_that_answers_nothing_any_more_is_replaced():
    async with pool_of(plain(), connect=2.0) as pool:
        await pool.up("plain")
        hung = pool.pid("plain")
        late = await pool.ask("plain", "hang", seconds=0.1)
        await pool.up("plain", starts=2)

        assert late.trouble is McpTrouble.LATE
        assert not alive(hung)
        assert await pool.ask("plain", "echo", {"text": "again"}) == text("again")


async def test_a_server_that_is_silent_while_it_does_nothing_is_found_out():
    clock = ManualClock()
    async with pool_of(plain(), clock=clock, connect=5.0, health=30.0) as pool:
        await pool.up("plain")
        process = psutil.Process(pool.pid("plain"))
        process.suspend()
        while (await pool.view("plain")).state is McpState.UP:
            await clock.advance(5.0)
        view = await pool.seen("plain", lambda view: view.state is McpState.DOWN)

        assert view.problem == "it gave no sign of life within 5 s"
        assert not process.is_running()


async def test_the_pauses_between_starts_grow():
    clock = ManualClock()
    async with pool_of(NOWHERE, clock=clock, backoff=1.0, backoff_limit=4.0) as pool:
        await clock.settle()
        starts = []
        for _ in range(30):
            starts.append((await pool.view("nowhere")).starts)
            await clock.advance(0.5)

    assert [starts.index(number) / 2 for number in range(1, 6)] == [0.0, 0.5, 1.5, 3.5, 7.5]


async def test_a_server_that_nobody_uses_is_stopped_and_started_for_the_next_call():
    clock = ManualClock()
    async with pool_of(plain(), clock=clock, idle=60.0, health=1_000.0) as pool:
        await pool.up("plain")
        pid = pool.pid("plain")
        await pool.ask("plain", "echo", {"text": "hello"})
        await clock.advance(59.0)
        assert alive(pid)
        await clock.advance(2.0)
        await pool.seen("plain", lambda view: view.state is McpState.IDLE)

        assert not alive(pid)
        assert [tool.name for tool in (await pool.catalog("", 0)).tools["plain"]]
        assert await pool.ask("plain", "echo", {"text": "hello"}) == text("hello")


async def test_a_server_gets_its_own_environment_and_no_other_and_secrets_are_hidden(caplog):
    """tool-registry: a minimal environment; secrets are not passed by default and must be declared."""
    caplog.set_level("DEBUG")
    server = plain(environment=(("KEY", "k-${TOKEN}"), ("LEVEL", "debug")))
    environ = {"TOKEN": "swordfish", "OPENAI_API_KEY": "sk-of-the-runtime", "HOME": "/home/x", "OTHER": "1"}
    async with pool_of(server, environ=environ) as pool:
        await pool.up("plain")
        given = psutil.Process(pool.pid("plain")).environ()
        told = await pool.ask("plain", "secret")
        await pool.ask("plain", "die")
        problem = (await pool.seen("plain", lambda view: view.problem)).problem

    assert {key: value for key, value in given.items() if key != "LC_CTYPE"} == {
        "PATH": PATH,
        "HOME": "/home/x",
        "KEY": "k-swordfish",
        "LEVEL": "debug",
    }
    assert '"KEY": "k-[secret]"' in told["content"][0]["text"]
    assert "it last wrote: key=k-[secret]" in problem
    assert "swordfish" not in f"{told} {problem} {caplog.text} {server}"


async def test_a_secret_that_is_not_set_is_named():
    server = McpServerOptions("web", Address("http://127.0.0.1:9/mcp", (("Authorization", "Bearer ${TOKEN}"),)))
    async with pool_of(server) as pool:
        problem = (await pool.seen("web", lambda view: view.problem)).problem

    assert problem == (
        "mcp.servers.web.headers.Authorization: the variable TOKEN is not set (set it where the runtime is started)"
    )


async def test_everything_that_a_server_started_ends_with_it():
    async with pool_of(plain()) as pool:
        await pool.up("plain")
        answer = await pool.ask("plain", "child")
        child = int(answer["content"][0]["text"])
        assert alive(child)
    wait_for_end(child)


async def test_a_server_that_does_not_end_with_its_stdin_is_told_by_a_signal(tmp_path):
    log = tmp_path / "log"
    async with pool_of(plain()) as pool:
        await pool.up("plain")
        pid = pool.pid("plain")
        await pool.ask("plain", "linger", {"log": str(log)})

    assert log.read_text() == "terminated"
    assert not alive(pid)


async def test_a_server_that_writes_nonsense_is_heard_nevertheless(tmp_path):
    noisy = tmp_path / "noisy.py"
    noisy.write_text("print('Welcome!')\nprint('{\"jsonrpc\": 3}')\n" + (FOLDER / "plain_server.py").read_text())
    server = McpServerOptions("noisy", Command((*PLAIN[:-1], str(noisy))))
    async with pool_of(server) as pool:
        await pool.up("noisy")
        assert await pool.ask("noisy", "echo", {"text": "hello"}) == text("hello")


OWNER = """
import asyncio, os, sys
from owlclaw_ray.testing.clock import ManualClock
from tests.tools.mcp.conftest import plain, pool_of

async def main():
    async with pool_of(plain()) as pool:
        await pool.up("plain")
        child = (await pool.ask("plain", "child"))["content"][0]["text"]
        print(pool.pid("plain"), child, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def test_a_pool_that_is_killed_leaves_no_server_behind():
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    server, child = map(int, owner.stdout.readline().split())
    assert alive(server)
    assert alive(child)

    owner.kill()
    owner.communicate()

    wait_for_end(server)
    wait_for_end(child)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("reconnects", [16, pytest.param(125, marks=pytest.mark.long)])
async def test_reconnects_leave_no_process_and_no_descriptor_behind(tmp_path, reconnects):
    log, servers = tmp_path / "starts", [f"plain{number}" for number in range(8)]
    here = psutil.Process()
    before = {child.pid for child in here.children(recursive=True)}

    async def reconnect(name):
        for _ in range(reconnects):
            view = await pool.view(name)
            os.kill(pool.pid(name), 9) if view.starts % 4 else await pool.ask(name, "die", seconds=60.0)
            await pool.up(name, view.starts + 1)

    several = [plain(name, log, environment=(("NAME", name),)) for name in servers]
    async with pool_of(*several, backoff=0.0, backoff_limit=0.0, connect=60.0) as pool:
        for name in servers:
            await pool.up(name)
        descriptors = here.num_fds()
        await asyncio.gather(*map(reconnect, servers))
        grown = here.num_fds() - descriptors

    started = [int(pid) for pid in log.read_text().split()]
    assert len(started) == len(servers) * (reconnects + 1)
    assert grown <= 2 * len(servers)
    assert {child.pid for child in here.children(recursive=True)} <= before
    assert not any(str(log) in " ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))
