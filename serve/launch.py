"""`owlclaw up`: from settings to a runtime that accepts triggers, and back down without losing any."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TextIO
from urllib.parse import urlsplit

from owlclaw_ray.adapters.system_clock import SystemClock
from owlclaw_ray.configuration.hatchet import TOKEN_VARIABLE
from owlclaw_ray.errors import ConfigurationError, RuntimeUnavailableError
from serve import ray_output
from serve.connections import connections
from serve.pid_file import NAME, PidFile
from serve.preflight import Preparation, check_data_dir, check_port, check_ray, check_store, prepare, sole_use

DRAIN_SECONDS = 10.0
RAY_LOG = "ray.log"
"""In data_dir: what Ray and Serve say to the process that started them."""
LOGS = "logs"
"""In data_dir: a link to the logs of all of Ray's processes while it runs; the logs themselves after a failure."""
_SHORT_TEMP = "/tmp"  # noqa: S108 - socket paths below it may have 97 characters, and TMPDIR can be long

Announce = Callable[[str], None]


def up(folder: Path, environ: Mapping[str, str], announce: Announce) -> int:
    """Start the runtime in this process's name, serve until SIGINT or SIGTERM, drain, and return the exit code.

    `announce` gets one line a stage. Raises ConfigurationError before anything is started.
    """
    prepared = prepare(folder, environ)
    data_dir = prepared.settings.data_dir
    check_data_dir(prepared.settings)
    with sole_use(data_dir):
        check_port(prepared.settings)
        check_ray(prepared.settings)
        if said := check_store(prepared.settings):
            announce(said)
        _tell_findings(prepared, announce)
        _interrupt_on_signals()
        scratch = Path(tempfile.mkdtemp(prefix="owl-", dir=_SHORT_TEMP if Path(_SHORT_TEMP).is_dir() else None))
        ray_log, logs = data_dir / RAY_LOG, data_dir / LOGS
        aloud = partial(_aloud, sys.stdout, announce)
        try:
            with ray_output.aside(ray_log):
                return _serve(prepared, scratch, aloud)
        except ConfigurationError:
            raise
        except Exception:
            ray_output.keep_logs(logs)
            announce(f"failed; see {ray_log} and the logs in {logs}")
            raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            if logs.is_symlink() and not logs.exists():
                logs.unlink()


def _tell_findings(prepared: Preparation, announce: Announce) -> None:
    for error in prepared.broken:
        announce(f"warning: {error}")
    for definition in prepared.definitions:
        for warning in definition.warnings:
            announce(f"warning: {warning}")
    added = sum("builtin" not in each.tags for each in prepared.tools)
    announce(f"checked: {len(prepared.definitions)} agent definitions, {added} tools")
    if prepared.tracing is not None:
        announce(f"traces go to {prepared.tracing.destination.value}: {urlsplit(prepared.tracing.url).netloc}")


def _serve(prepared: Preparation, scratch: Path, announce: Announce) -> int:
    settings = prepared.settings
    alone = settings.ray.address is None
    http = settings.http
    possible = connections(http.streams)
    if possible.streams < http.streams:
        announce(
            f"warning: {possible.streams:,} event streams may be open at once, not {http.streams:,} (http.streams): this process may "
            "open too few files; raise the limit with: ulimit -n"
        )
    _make_environment(settings.tools.warm, scratch, possible.most, alone=alone)
    started = time.monotonic()

    import ray
    from ray import serve as ray_serve

    from actors.cluster import Cluster, start_ray
    from actors.nodes import check_nodes
    from serve.deployment import ingress
    from serve.planning import hatchet_plan, plan_of, slots_of

    temp_dir = settings.ray.temp_dir or scratch / "ray"
    temp_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    if alone:
        ray_output.link_logs(settings.data_dir / LOGS, temp_dir)
    announce("starting Ray …")
    interrupted = _stop_on_signals()
    try:
        start_ray(
            address=settings.ray.address,
            temp_dir=temp_dir,
            num_cpus=settings.ray.num_cpus,
            slots=slots_of(settings),
        )
        _interrupt_on_signals()
        if interrupted.is_set():
            raise KeyboardInterrupt
        nodes = check_nodes(settings.store_url)
        announce(f"Ray is up ({time.monotonic() - started:.1f} s); starting the store and the agents' home …")
        plan = plan_of(settings, DRAIN_SECONDS, prepared.tracing)
        cluster = Cluster(plan, prepared.tools, hatchet_plan(settings))
        ray_serve.start(
            http_options={"host": http.host, "port": http.port, "access_log": False, "location": "HeadOnly"},
            logging_config=_quiet(),
        )
        cluster.wait_for_store()
        announce(f"store open: {_shown(settings.store_url)}")
        ray_serve.run(
            ingress(plan, http, alone=alone, replicas=nodes),
            name="owlclaw",
            route_prefix="/",
        )
        for problem in cluster.wait_for_agents():
            announce(f"warning: {problem}")
        stopping = _stop_on_signals()
        url = http.url
        PidFile(os.getpid(), url, SystemClock().now()).write(settings.data_dir)
        announce(f"ready in {time.monotonic() - started:.1f} s: {url} (API document: {url}/docs)")
        _warm(prepared, cluster.warm_tools, cluster.warm_models, announce)
        stopping.wait()
        announce(f"stopping: runs may end within {DRAIN_SECONDS:.0f} s, what is left resumes at the next start …")
        cluster.stop()
    finally:
        (settings.data_dir / NAME).unlink(missing_ok=True)
        if ray.is_initialized():
            ray_serve.shutdown()  # type: ignore[no-untyped-call]
            ray.shutdown()
    announce("stopped; runs, memories, schedules and ledger are in " + str(settings.data_dir))
    return 0


def _make_environment(warm_workers: int, scratch: Path, most_connections: int, *, alone: bool) -> None:
    """Set what Ray reads at its start, and leave out what its processes, which inherit the environment, need not know."""
    from actors.environment import ray_environment
    from serve.loopback import haproxy_environment

    environment = os.environ  # noqa: TID251 - Ray reads its settings from the environment only
    environment |= ray_environment(warm_workers, alone=alone) | haproxy_environment(scratch, most_connections)
    environment.pop(TOKEN_VARIABLE, None)


def _warm(
    prepared: Preparation,
    tools: Callable[[], None],
    models: Callable[[tuple[str, ...]], Mapping[str, str]],
    announce: Announce,
) -> None:
    if prepared.scripted:
        announce(f"note: {', '.join(prepared.scripted)} answered by a script, not by a model (see agent.yaml: model)")
    tools()
    if not prepared.real_models:
        return
    try:
        keyless = models(prepared.real_models)
    except RuntimeUnavailableError as error:
        announce(f"warning: whether the models have keys is not known: {error}")
        return
    for model, variables in keyless.items():
        announce(f"warning: {model} has no key: set {variables} and start again (owlclaw doctor checks it)")


def _aloud(stdout: TextIO, announce: Announce, line: str) -> None:
    with redirect_stdout(stdout):
        announce(line)


def _quiet() -> dict[str, object]:
    return {"log_level": "WARNING", "enable_access_log": False}


def _interrupt_on_signals() -> None:
    """Have SIGINT and SIGTERM interrupt the start from now on; while Ray itself starts, that would crash it."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)


def _stop_on_signals() -> threading.Event:
    """Return an event that SIGINT or SIGTERM sets from now on."""
    stopping = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopping.set()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    return stopping


def _shown(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme.partition('+')[0]}://{rest.rpartition('@')[2]}"
