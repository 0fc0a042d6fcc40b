"""One Ray cluster, with Serve, for all tests of this folder; each test has agents of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import ray
import yaml
from ray import serve as ray_serve

from actors.cluster import NAMESPACE, Cluster, start_ray
from actors.plan import RuntimePlan, WorkerPlan
from owlclaw_ray.app_loader import load_app
from owlclaw_ray.client import SyncClient
from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.domain.placement import Placement
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.settings import HttpSettings
from owlclaw_ray.tools.agents.options import AgentOptions
from owlclaw_ray.tools.code.options import CodeOptions
from owlclaw_ray.tools.composition import declared_tools
from owlclaw_ray.tools.host import HostTools
from owlclaw_ray.tools.mcp.options import Annotations, McpOptions
from serve.deployment import ingress
from serve.loopback import free_ports
from serve.processes import descendants, title_of
from tests.conftest import FRONT, SCRATCH, SLOTS
from tests.tools.mcp.conftest import plain

APP = '''
import os
import time
from pathlib import Path

from owlclaw_ray import OwlClaw, ToolContext

app = OwlClaw("trial")
EFFECTS = Path(__file__).parent / "effects"


@app.handler("act")
def act(what: str, context: ToolContext) -> str:
    """Leave a trace of every execution."""
    with EFFECTS.open("a") as log:
        log.write(f"{context.run_id} {context.call_id} {what}\\n")
    return f"did {what}"


@app.tool("look")
def look(context: ToolContext) -> int:
    with EFFECTS.open("a") as log:
        log.write(f"{context.run_id} {context.call_id} look\\n")
    return os.getpid()


@app.handler("hang", timeout=1)
def hang(context: ToolContext) -> str:
    with EFFECTS.open("a") as log:
        log.write(f"{context.run_id} {context.call_id} hang {os.getpid()}\\n")
    time.sleep(3600)
    return "never"


@app.handler("patient")
def patient(context: ToolContext) -> str:
    """Runs until the test opens the gate."""
    with EFFECTS.open("a") as log:
        log.write(f"{context.run_id} {context.call_id} patient {os.getpid()}\\n")
    while not (EFFECTS.parent / "gate").exists():
        time.sleep(0.02)
    return "the gate is open"


@app.tool("wait", timeout=300)
def wait(gate: str, context: ToolContext) -> str:
    """Runs until the test opens that gate."""
    with EFFECTS.open("a") as log:
        log.write(f"{context.run_id} {context.call_id} wait {os.getpid()}\\n")
    while not (EFFECTS.parent / gate).exists():
        time.sleep(0.02)
    return "the gate is open"


@app.handler("stubborn")
def stubborn(context: ToolContext) -> str:
    """Never lets itself be interrupted."""
    with EFFECTS.open("a") as log:
        log.write(f"{context.run_id} {context.call_id} stubborn {os.getpid()}\\n")
    while True:
        try:
            time.sleep(3600)
        except BaseException:
            continue


@app.handler("raises")
def raises() -> str:
    raise ValueError("the printer is on fire")


@app.event_source("stock")
def stock(agent) -> str:
    path = EFFECTS.parent / f"stock-{agent.agent_id}"
    return path.read_text() if path.exists() else ""


@app.state("slow")
def slow() -> str:
    """Answers when the test opens its gate."""
    (EFFECTS.parent / f"asked-{os.getpid()}").touch()
    while not (EFFECTS.parent / "state-gate").exists():
        time.sleep(0.02)
    return "at last"


@app.state("machine")
def machine() -> dict[str, float]:
    return {"load": os.getloadavg()[0]}
'''


@dataclass
class Trial:
    """The running system and the folders that it works on."""

    folder: Path
    plan: RuntimePlan
    client: SyncClient
    url: str

    def define(self, name: str, *turns: dict[str, object], **options: object) -> str:
        """Write an agent whose script has these turns."""
        folder = self.folder / "agents" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "SOUL.md").write_text("You are calm.")
        (folder / "IDENTITY.md").write_text("# Trial\n\n## My Capabilities\n- look\n")
        (folder / "script.yaml").write_text(yaml.safe_dump({"rules": [{"turns": list(turns)}]}))
        (folder / "agent.yaml").write_text(yaml.safe_dump({"model": "scripted:script.yaml", **options}))
        return name

    def effects(self, run_id: str) -> list[list[str]]:
        """Return what handlers left behind for a run: [call_id, word, …] each."""
        log = self.folder / "effects"
        lines = log.read_text().splitlines() if log.exists() else []
        return [line.split()[1:] for line in lines if line.startswith(run_id)]

    def open_gate(self, gate: str) -> None:
        """Let every `trial.wait` of that gate return, now and later."""
        (self.folder / gate).touch()

    def processes(self, title: str) -> list[psutil.Process]:
        """Return the Ray processes with that title, such as AgentActor."""
        return [each for each in descendants() if title_of(each).startswith(f"ray::{title}")]

    def kill(self, title: str) -> None:
        """Kill -9 every process with that title."""
        for process in self.processes(title):
            os.kill(process.pid, signal.SIGKILL)


def calls(*named: tuple[str, dict[str, object]]) -> dict[str, object]:
    """A script's turn that asks for tools."""
    return {"tool_calls": [{"name": name, "arguments": arguments} for name, arguments in named]}


@pytest.fixture(scope="session")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    folder = tmp_path_factory.mktemp("trial")
    (folder / "trial_app.py").write_text(APP)
    (folder / "agents").mkdir()
    (folder / "data").mkdir()
    (folder / "work").mkdir()
    code_tools = HostTools(
        code=CodeOptions(project=str(folder / "work"), hidden=(str(folder / "data"),)), agents=AgentOptions()
    )
    worker = WorkerPlan(
        "trial_app:app",
        str(folder),
        str(folder / "data"),
        "none",
        NAMESPACE,
        str(folder / "agents"),
        host_tools=code_tools,
        has_mcp=True,
    )
    plan = RuntimePlan(
        worker=worker,
        store_url=f"sqlite:///{folder}/data/owlclaw.db",
        defaults=Defaults(),
        placement=Placement(warm=1, most=6, idle=5.0, heartbeat=0.5, sweep=1.0),
        slots=SLOTS,
        max_concurrent_models=64,
        model_retry=RetryPolicy(base=0.05),
        catch_up_seconds=86_400,
        drain_seconds=5,
        mcp=McpOptions((plain(annotations=Annotations.TRUST),), backoff=0.05),
    )
    start_ray(address=None, temp_dir=SCRATCH / "ray", num_cpus=2, slots=SLOTS)
    cluster = Cluster(plan, declared_tools(load_app("trial_app:app", folder).sources(), code_tools))
    FRONT.start()
    [port] = free_ports(1)
    ray_serve.start(http_options={"host": "127.0.0.1", "port": port, "access_log": False})
    cluster.wait_for_store()
    ray_serve.run(
        ingress(plan, HttpSettings(), [FRONT.name], alone=True, keys_required=False), name="owlclaw", route_prefix="/"
    )
    cluster.wait_for_agents()
    FRONT.wait_until_served(60)
    with SyncClient(FRONT.url, timeout=120) as client:
        yield Trial(folder, plan, client, FRONT.url)
    cluster.stop()
    FRONT.stop()
    ray_serve.shutdown()
    ray.shutdown()
