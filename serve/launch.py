"""`owlclaw up`: from settings to a runtime that accepts triggers, and back down without losing any."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TextIO

from owlclaw_ray.app import OwlClaw
from owlclaw_ray.app_loader import load_app
from owlclaw_ray.domain.agent import AgentDefinition
from owlclaw_ray.errors import ConfigurationError, DefinitionError, Problem
from owlclaw_ray.settings import Settings, load_settings

DRAIN_SECONDS = 10.0
PID_FILE = "owlclaw.pid"
RAY_LOG = "ray.log"
"""In data_dir: what Ray and Serve say to the process that started them."""
LOGS = "logs"
"""In data_dir: a link to the logs of all of Ray's processes while it runs; the logs themselves after a failure."""
_SHORT_TEMP = "/tmp"  # noqa: S108 - socket paths below it may have 97 characters, and TMPDIR can be long

Announce = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Preparation:
    """Everything that can be wrong without Ray, checked."""

    settings: Settings
    app: OwlClaw
    definitions: tuple[AgentDefinition, ...]
    broken: tuple[DefinitionError, ...]
    """Definitions that cannot be used; the others can."""

    @property
    def scripted(self) -> tuple[str, ...]:
        """Names of definitions that a script and no model answers."""
        return tuple(each.name for each in self.definitions if each.model.chain[0].startswith("scripted:"))

    @property
    def real_models(self) -> tuple[str, ...]:
        """Names of all models that are no scripts, fallbacks included."""
        named = {model for each in self.definitions for model in each.model.chain}
        return tuple(sorted(model for model in named if not model.startswith("scripted:")))


def prepare(folder: Path, environ: Mapping[str, str]) -> Preparation:
    """Load and check settings, application and definitions; raises ConfigurationError with what is wrong."""
    from owlclaw_ray.identity.folder import DefinitionFolder

    settings = load_settings(folder, environ)
    app = load_app(settings.app, settings.folder) if settings.app else OwlClaw("owlclaw")
    source = DefinitionFolder(settings.agents_dir, settings.defaults)
    definitions, broken = [], []
    for name in source.names():
        try:
            definitions.append(source.load(name))
        except DefinitionError as error:
            broken.append(error)
    if not definitions:
        what = "none of its definitions can be used" if broken else "it holds no agent definition"
        problems = [problem for error in broken for problem in error.problems]
        fix = "make one with: owlclaw init"
        raise ConfigurationError([Problem(str(settings.agents_dir), what, fix), *problems])
    return Preparation(settings, app, tuple(definitions), tuple(broken))


def up(folder: Path, environ: Mapping[str, str], announce: Announce) -> int:
    """Start the runtime in this process's name, serve until SIGINT or SIGTERM, drain, and return the exit code.

    `announce` gets one line a stage. Raises ConfigurationError before anything is started.
    """
    prepared = prepare(folder, environ)
    settings = prepared.settings
    _check_port(settings)
    _check_data_dir(settings)
    for error in prepared.broken:
        announce(f"warning: {error}")
    for definition in prepared.definitions:
        for warning in definition.warnings:
            announce(f"warning: {warning}")
    announce(
        f"checked: {len(prepared.definitions)} agent definitions, {len(prepared.app.registry.definitions())} tools"
    )
    stopping = threading.Event()
    scratch = Path(tempfile.mkdtemp(prefix="owl-", dir=_SHORT_TEMP if Path(_SHORT_TEMP).is_dir() else None))
    aloud = partial(_aloud, sys.stdout, announce)
    ray_log, logs = settings.data_dir / RAY_LOG, settings.data_dir / LOGS
    try:
        with _ray_aside(ray_log):
            return _serve(prepared, scratch, aloud, stopping)
    except ConfigurationError:
        raise
    except Exception:
        _keep_logs(logs)
        announce(f"failed; see {ray_log} and the logs in {logs}")
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if logs.is_symlink() and not logs.exists():
            logs.unlink()


def _serve(prepared: Preparation, scratch: Path, announce: Announce, stopping: threading.Event) -> int:
    from actors.environment import ray_environment
    from serve.loopback import free_ports, haproxy_environment

    settings = prepared.settings
    slots = settings.tools.slots or 2 * (os.cpu_count() or 1)
    own_port = {"RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(free_ports(1)[0])}  # two runtimes would share the default
    environment = ray_environment(slots, alone=settings.ray.address is None) | haproxy_environment(scratch) | own_port
    os.environ.update(environment)  # noqa: TID251 - Ray reads its settings from the environment only
    started = time.monotonic()

    import ray
    from ray import serve as ray_serve

    from actors.cluster import Cluster, start_ray
    from serve.deployment import ingress
    from serve.planning import plan_of, tool_definitions

    temp_dir = settings.ray.temp_dir or scratch / "ray"
    if settings.ray.address is None:
        _link_logs(settings.data_dir / LOGS, temp_dir)
    announce("starting Ray …")
    start_ray(
        address=settings.ray.address,
        temp_dir=temp_dir,
        num_cpus=settings.ray.num_cpus,
        tool_slots=slots,
    )
    try:
        announce(f"Ray is up ({time.monotonic() - started:.1f} s); starting the store and the agents' home …")
        plan = plan_of(settings, slots, DRAIN_SECONDS)
        cluster = Cluster(plan, tool_definitions(prepared.app))
        http = settings.http
        ray_serve.start(
            http_options={"host": http.host, "port": http.port, "access_log": False}, logging_config=_quiet()
        )
        cluster.wait_for_store()
        announce(f"store open: {_shown(settings.store_url)}")
        ray_serve.run(
            ingress(plan, http.body_limit_bytes, alone=settings.ray.address is None), name="owlclaw", route_prefix="/"
        )
        cluster.wait_for_agents()
        url = f"http://{http.host}:{http.port}"
        _catch_signals(stopping)
        _write_pid(settings.data_dir, url)
        announce(f"ready in {time.monotonic() - started:.1f} s: {url} (API document: {url}/docs)")
        if prepared.scripted:
            announce(
                f"note: {', '.join(prepared.scripted)} answered by a script, not by a model (see agent.yaml: model)"
            )
        cluster.warm_tools()
        if prepared.real_models:
            for model, variables in cluster.warm_models(prepared.real_models).items():
                announce(f"warning: {model} has no key: set {variables} and start again (owlclaw doctor checks it)")
        stopping.wait()
        announce(f"stopping: runs may end within {DRAIN_SECONDS:.0f} s, what is left resumes at the next start …")
        cluster.stop()
    finally:
        (settings.data_dir / PID_FILE).unlink(missing_ok=True)
        ray_serve.shutdown()  # type: ignore[no-untyped-call]
        ray.shutdown()
    announce("stopped; runs, memories, schedules and ledger are in " + str(settings.data_dir))
    return 0


@contextmanager
def _ray_aside(log: Path) -> Iterator[None]:
    """Have what Ray and Serve print in this process written to a file: most of it warns of what is as it should be."""
    file = log.open("w", encoding="utf-8", buffering=1)
    atexit.register(file.close)
    with redirect_stdout(file), redirect_stderr(file):
        yield


def _aloud(stdout: TextIO, announce: Announce, line: str) -> None:
    with redirect_stdout(stdout):
        announce(line)


def _link_logs(link: Path, temp_dir: Path) -> None:
    """Make the link, in the place of an older one or of logs that were kept."""
    if link.is_symlink():
        link.unlink()
    else:
        shutil.rmtree(link, ignore_errors=True)
    link.symlink_to(temp_dir.resolve() / "session_latest" / "logs")


def _keep_logs(link: Path) -> None:
    """Put the logs in the place of the link to them, because their folder goes away."""
    if link.is_symlink() and link.exists():
        logs = link.resolve()
        link.unlink()
        shutil.copytree(logs, link, ignore_dangling_symlinks=True)


def _quiet() -> dict[str, object]:
    return {"log_level": "WARNING", "enable_access_log": False}


def _catch_signals(stopping: threading.Event) -> None:
    def stop(_number: int, _frame: FrameType | None) -> None:
        stopping.set()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)


def _write_pid(data_dir: Path, url: str) -> None:
    facts = {"pid": os.getpid(), "url": url, "started_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    fresh = data_dir / f"{PID_FILE}.new"
    fresh.write_text(json.dumps(facts))
    fresh.replace(data_dir / PID_FILE)


def _check_port(settings: Settings) -> None:
    http = settings.http
    with socket.socket(socket.AF_INET6 if ":" in http.host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((http.host, http.port))
        except OSError as error:
            fix = "stop what listens there (owlclaw down, if it is a runtime of this folder), or set OWLCLAW_HTTP__PORT"
            what = f"{http.host}:{http.port} cannot be listened on: {error.strerror}"
            raise ConfigurationError([Problem("http.port", what, fix)]) from error


def _check_data_dir(settings: Settings) -> None:
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=settings.data_dir):
            pass
    except OSError as error:
        what = f"{settings.data_dir} cannot be written: {error.strerror}"
        fix = "make it writable, or set OWLCLAW_DATA_DIR to a folder that is"
        raise ConfigurationError([Problem("data_dir", what, fix)]) from error


def _shown(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme.partition('+')[0]}://{rest.rpartition('@')[2]}"
