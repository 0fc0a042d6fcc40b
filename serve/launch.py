"""`owlclaw up`: starts the runtime, serves until a signal, and stops without losing a trigger."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout, suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import urlsplit

from actors.json_lines import json_line
from owlclaw_ray.configuration.own_variables import OWN_VARIABLES
from owlclaw_ray.configuration.server_location import DEFAULT_HOST
from owlclaw_ray.counting import counted
from owlclaw_ray.domain.access_key import KEY_VARIABLE
from owlclaw_ray.domain.endpoint import RealModel
from owlclaw_ray.errors import ConfigurationError, OwlClawError, RuntimeUnavailableError, UnauthenticatedError
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.models.litellm_prices import misspelling_hint
from owlclaw_ray.own_packages import import_path
from serve import ray_output
from serve.connections import connections
from serve.front import Front
from serve.loopback import free_ports
from serve.pid_file import NAME, RAY_TOKEN, PidFile
from serve.preflight import (
    PreparedServer,
    check_certificate,
    check_data_dir,
    check_keys,
    check_port,
    check_ray,
    check_store,
    exclusive_data_dir,
    prepare,
)
from serve.processes import adopt_orphans, end_descendants
from serve.ray_watch import RayWatch
from serve.shutdown import StopSignals, StopStep, run_stop_steps
from serve.tls import read_certificate
from serve.tool_advice import added

if TYPE_CHECKING:
    from actors.cluster import Cluster
    from owlclaw_ray.settings import Settings

RAY_LOG = "ray.log"
"""In data_dir: what Ray and Serve print in the process that started them."""
LOGS = "logs"
"""In data_dir: a link to the logs of Ray's processes while it runs; the logs themselves after a failure."""
SCRATCH = "scratch"
"""In data_dir: a link to the temporary folder while it runs."""
_SHORT_TEMP = "/tmp"  # noqa: S108 - socket paths below it may have 97 characters, and TMPDIR can be long
_PREFIX = "owl-"

LOST_RAY = 75
"""The exit code if Ray has died: EX_TEMPFAIL of sysexits.h, "try again later"."""
INTERRUPTED = 130
_DRAIN_MARGIN, _FRONT_SECONDS, _SERVE_SECONDS, _RAY_SECONDS = 25.0, 5.0, 20.0, 20.0
"""How long each step of a stop may take; the first after the time that runs have to finish."""
_EXIT_SECONDS = 30
_TELL_SECONDS = 5.0
_LINK_SECONDS = 5.0
_SAID = {"warning": "warning", "note": "info"}
"""The levels of lines for people that begin with one."""
_ENDS = ("failed", "ended")
_SERVED_SECONDS = 120.0

Announce = Callable[[str], None]

logger = logging.getLogger(__name__)


def up(folder: Path, environ: Mapping[str, str], announce: Announce, *, links: bool = False) -> int:
    """Start the runtime, serve until SIGINT or SIGTERM, drain, and return the exit code.

    A second signal, or the loss of Ray, ends this process at once, with everything that it started. `announce` gets one line
    for each stage, with `links` also a link that signs in to the console: for terminals, which keep no log. Raises
    ConfigurationError before anything is started.
    """
    prepared = prepare(folder, environ)
    console = _console if prepared.settings.http.is_local else _locked_console
    if prepared.settings.log.format != "json":
        return _run(
            prepared, announce, partial(_linked_console, console, environ.get(KEY_VARIABLE)) if links else console
        )
    try:
        return _run(prepared, lambda line: announce(_as_json(line)), console)
    except KeyboardInterrupt:
        return INTERRUPTED
    except OwlClawError as error:
        announce(_as_json(str(error), "error"))
    except Exception:  # noqa: BLE001 - it is reported, with its trace
        announce(_as_json("failed", "error", exception=traceback.format_exc()))
    return 1


def _console(url: str) -> str:
    """Return what is said of the console, without a secret."""
    return f"{url}/console"


def _locked_console(url: str) -> str:
    """Return the same where a key is needed."""
    return f"{_console(url)} (sign in with: owlclaw console)"


def _linked_console(plain: Callable[[str], str], key: str | None, url: str) -> str:
    """Return what is said of the console where a link may be said: one that signs in with the key, if a key is needed."""
    from owlclaw_ray.client import SyncClient
    from serve.console_link import console_link

    try:
        with SyncClient(url, api_key=key or None, timeout=_LINK_SECONDS, attempts=1) as client:
            link = console_link(client)
    except UnauthenticatedError:
        return _locked_console(url)
    except OwlClawError as error:
        logger.info("there is no link to the console: %s", error)
        return plain(url)
    return f"{link} (signs in once, within a minute)" if "#" in link else link


def _run(prepared: PreparedServer, announce: Announce, console: Callable[[str], str]) -> int:
    data_dir, as_json = prepared.settings.data_dir, prepared.settings.log.format == "json"
    check_data_dir(prepared.settings)
    with exclusive_data_dir(data_dir):
        check_port(prepared.settings)
        check_ray(prepared.settings)
        for said in (check_certificate(prepared.settings), check_store(prepared.settings)):
            if said:
                announce(said)
        check_keys(prepared.settings)
        _tell_findings(prepared, announce)
        scratch = _new_scratch(data_dir)
        stdout = sys.stdout

        def announce_to_user(line: str) -> None:
            with redirect_stdout(stdout):
                announce(line)

        life = ServerLifecycle(data_dir, scratch, announce_to_user, as_json=as_json)
        life.signals.install()
        life.announce_stop()
        adopt_orphans()
        try:
            with ray_output.aside(data_dir / RAY_LOG, as_json=as_json):
                return _serve(prepared, life, console)
        except ConfigurationError:
            raise
        except KeyboardInterrupt:
            life.told.wait(_TELL_SECONDS)
            raise
        except Exception:
            ray_output.keep_logs(data_dir / LOGS, as_json=as_json)
            announce(f"failed; see {data_dir / RAY_LOG} and the logs in {data_dir / LOGS}")
            raise
        finally:
            life.clean_up()
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(_EXIT_SECONDS)  # Ray's exit handlers may wait for processes that have ended


class ServerLifecycle:
    """What must be announced and removed however `owlclaw up` ends."""

    def __init__(self, data_dir: Path, scratch: Path, announce: Announce, *, as_json: bool) -> None:
        """`announce` reaches the user also while Ray's output is redirected. `as_json`: the form of logs that are kept."""
        self._as_json, self._data_dir, self.scratch, self._announce = as_json, data_dir, scratch, announce
        self.signals = StopSignals(
            lambda: self.exit(INTERRUPTED, "stopped at once; what was accepted resumes at the next start")
        )
        self.front: Front | None = None
        self.started, self.told = threading.Event(), threading.Event()
        """Triggers are accepted; a stop before that was announced."""
        self._ending = threading.RLock()

    def announce(self, line: str) -> None:
        """Announce a line, one thread at a time; behind the line that says why this process ends there is no other."""
        with self._ending:
            self._announce(line)

    def announce_stop(self) -> None:
        """Announce a stop during the start as soon as it is requested, in a thread: a signal handler may not print."""

        def tell() -> None:
            self.signals.asked.wait()
            if not self.started.is_set():
                self.announce("stopping: the start is given up …")
            self.told.set()

        threading.Thread(target=tell, name="tell-of-a-stop", daemon=True).start()

    def lose(self, part: str) -> None:
        """End this process because a part of Ray has ended: Ray can only be started as a whole."""
        if self.signals.asked.is_set():
            self.exit(0, f"stopped at once, because {part} has ended; what was accepted resumes at the next start")
        with suppress(OSError):
            ray_output.keep_logs(self._data_dir / LOGS, as_json=self._as_json)
        self.exit(
            LOST_RAY,
            f"ended: {part} has ended, and nothing can run without it. What was accepted is in the store and resumes at the next "
            f"start: owlclaw up (exit code {LOST_RAY}; logs: {self._data_dir / LOGS})",
        )

    def exit(self, code: int, line: str) -> NoReturn:
        """End this process without waiting for anything, with everything that it started."""
        with self._ending:  # never released: a second thread waits until the process has ended
            try:
                self.announce(line)
                self.clean_up()
                sys.stdout.flush()
            finally:
                os._exit(code)

    def clean_up(self) -> None:
        """Kill this runtime's remaining processes, and remove the files that exist only while it runs."""
        if self.front is not None:
            self.front.give_up()
        end_descendants()
        (self._data_dir / NAME).unlink(missing_ok=True)
        (self._data_dir / RAY_TOKEN).unlink(missing_ok=True)
        shutil.rmtree(self.scratch, ignore_errors=True)
        (self._data_dir / SCRATCH).unlink(missing_ok=True)
        logs = self._data_dir / LOGS
        if logs.is_symlink() and not logs.exists():
            logs.unlink()


def _new_scratch(data_dir: Path) -> Path:
    """Create the temporary folder, with a link to it in the data folder, and remove that of a runtime that was killed."""
    link = data_dir / SCRATCH
    if link.is_symlink() and link.readlink().name.startswith(_PREFIX):
        shutil.rmtree(link.readlink(), ignore_errors=True)
    link.unlink(missing_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_SHORT_TEMP if Path(_SHORT_TEMP).is_dir() else None))
    link.symlink_to(scratch)
    return scratch


def _tell_findings(prepared: PreparedServer, announce: Announce) -> None:
    for error in prepared.broken:
        announce(f"warning: {error}")
    for definition in prepared.definitions:
        for warning in definition.warnings:
            announce(f"warning: {warning}")
    for problem in prepared.advice:
        announce(f"warning: {problem}")
    agents, tools = counted(len(prepared.definitions), "agent definition"), counted(len(added(prepared.tools)), "tool")
    announce(f"checked: {agents}, {tools} beside the runtime's own")
    if prepared.tracing is not None:
        announce(f"traces go to {prepared.tracing.destination.value}: {urlsplit(prepared.tracing.url).netloc}")


def _serve(prepared: PreparedServer, life: ServerLifecycle, console: Callable[[str], str]) -> int:
    settings, signals = prepared.settings, life.signals
    grace = settings.shutdown.grace_seconds
    life.front = front = _front(settings, life) if settings.ray.address is None else None
    json_logs = settings.log.format == "json"
    token = settings.data_dir / RAY_TOKEN
    secrets = _make_environment(settings.tools.warm, front, token, json_logs=json_logs)

    import ray
    from ray import serve as ray_serve

    from actors.logs import LogPlan, configure

    if json_logs:
        configure(LogPlan(settings.log.level, settings.log.format))
    watch = RayWatch(life.lose)
    last: list[StopStep] = []
    try:
        cluster = _start(prepared, life, front, watch, secrets)
        last.append(StopStep("draining runs", cluster.stop, grace + _DRAIN_MARGIN))
        url = settings.http.url if front is None else front.url
        life.announce(f"console: {console(url)}")
        _warm(prepared, cluster.warm_tools, cluster.warm_models, life.announce)
        signals.asked.wait()
        life.announce(f"stopping: runs have {grace:g} s to finish, the others resume at the next start …")
    finally:
        signals.only_note()
        if front is not None:
            last.append(StopStep("closing the port", front.stop, _FRONT_SECONDS))
        elif ray.is_initialized():
            last.append(StopStep("stopping Ray Serve", ray_serve.shutdown, _SERVE_SECONDS))
        late = run_stop_steps(last)
        watch.stop()
        late += run_stop_steps([StopStep("stopping Ray", ray.shutdown, _RAY_SECONDS)])
    end = f"stopped; runs, memories, schedules and ledger are in {settings.data_dir}"
    if late:
        life.exit(0, f"{' and '.join(late)} took too long and was cut short\n{end}")
    life.announce(end)
    return 0


def _start(
    prepared: PreparedServer, life: ServerLifecycle, front: Front | None, watch: RayWatch, secrets: Mapping[str, str]
) -> Cluster:
    """Return when triggers are accepted; raises KeyboardInterrupt if the stop is requested before."""
    from ray import serve as ray_serve

    from actors.cluster import Cluster, start_ray
    from actors.node_files import check_files, files_of
    from actors.nodes import check_nodes, is_connected, living_nodes
    from actors.secrets import hand_over
    from serve.deployment import ingress, serve_logging
    from serve.runtime_plan import entrusted_of, hatchet_plan, plan_of, slots_of

    settings, announce, started = prepared.settings, life.announce, time.monotonic()
    temp_dir, http = settings.ray.temp_dir or life.scratch / "ray", settings.http
    temp_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    if front is not None:
        ray_output.link_logs(settings.data_dir / LOGS, temp_dir)
        front.start()
    announce("starting Ray …")
    with life.signals.signals_deferred():
        start_ray(
            address=settings.ray.address,
            temp_dir=temp_dir,
            num_cpus=settings.ray.num_cpus,
            slots=slots_of(settings),
        )
    if front is not None:
        hand_over(secrets)
        watch.own_processes()
    else:
        watch.cluster(is_connected)
    nodes = check_nodes(settings.store_url)
    announce(f"Ray is up ({time.monotonic() - started:.1f} s); starting the store and the agents …")
    plan = plan_of(settings, prepared.tracing)
    if problems := check_files(files_of(plan), living_nodes()):
        raise ConfigurationError(problems)
    cluster = Cluster(plan, prepared.tools, hatchet_plan(settings), entrusted_of(settings, prepared.master_keys))
    host, port = (http.host, http.port) if front is None else (DEFAULT_HOST, free_ports(1)[0])
    ray_serve.start(
        http_options={"host": host, "port": port, "access_log": False, "location": "HeadOnly"},
        logging_config=serve_logging(settings.log.format),
    )
    cluster.wait_for_store()
    scheme, _, place = settings.store_url.partition("://")
    announce(f"store open: {scheme.partition('+')[0]}://{place.rpartition('@')[2]}")
    hosts = () if front is None else (front.name, *front.names)
    ray_serve.run(
        ingress(
            plan,
            http,
            hosts,
            alone=front is not None,
            keys_required=not http.is_local,
            replicas=1 if front is not None else None,
            nodes=nodes,
            facts=prepared.facts,
        ),
        name="owlclaw",
        route_prefix="/",
    )
    for problem in cluster.wait_for_agents():
        announce(f"warning: {problem}")
    if front is not None:
        front.wait_until_served(_SERVED_SECONDS)
    life.signals.only_note()
    life.signals.check()
    life.started.set()
    url = http.url if front is None else front.url
    PidFile(os.getpid(), url, SystemClock().now()).write(settings.data_dir)
    document = f"{url}/docs" if http.is_local else f"{url}/openapi.json"
    announce(f"ready in {time.monotonic() - started:.1f} s: {url} (API document: {document})")
    return cluster


def _front(settings: Settings, life: ServerLifecycle) -> Front:
    http = settings.http
    possible = connections(http.streams)
    if possible.streams < http.streams:
        what = f"{possible.streams:,} event streams may be open at once, because this process may open only {possible.files:,} files"
        if "streams" in http.model_fields_set:
            fix = "lower http.streams, or raise the hard limit of open files (ulimit -Hn; LimitNOFILE= of systemd, --ulimit of docker)"
            life.announce(f"warning: {what}, and http.streams asks for {http.streams:,}: {fix}")
        else:
            logger.info("%s", what)
    certificate = read_certificate(http, SystemClock().now())
    return Front(
        http.host,
        http.port,
        life.scratch,
        most_connections=possible.most,
        per_address=http.connections_per_address,
        proxies=http.proxies,
        certificate=partial(read_certificate, http) if certificate else None,
        names=(*http.allowed_hosts, *certificate.names) if certificate else (),
    )


def _make_environment(warm_workers: int, front: Front | None, token: Path, *, json_logs: bool) -> dict[str, str]:
    """Set the variables that Ray reads at its start, and remove secrets, which its processes would inherit and show.

    A Ray of our own lets in whoever has its token: a new one, in the file `token` of this user, for Ray would leave one for ever in a
    file that others can read.
    Return the secrets, which our processes get in another way. A Ray cluster that is already running has its own environment.
    """
    from actors.environment import attached_environment, ray_environment
    from actors.secrets import erase, kept_back, shut

    environment = os.environ  # noqa: TID251 - Ray reads its settings from the environment only
    if written := environment.get("PYTHONPATH"):
        environment["PYTHONPATH"] = import_path(written)
    secrets = kept_back(environment)
    erase(secrets)
    shut()
    for name in (*OWN_VARIABLES, KEY_VARIABLE):  # those are handed over in another way, this one is for commands
        secrets.pop(name, None)
        environment.pop(name, None)
    if front is not None:
        for name in secrets:
            del environment[name]
        environment.pop("RAY_AUTH_TOKEN", None)
        token.unlink(missing_ok=True)
        token.touch(0o600)
        token.write_text(token_hex(32))
        environment |= front.environment | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    else:
        environment |= attached_environment(environment)
    environment |= ray_environment(warm_workers, alone=front is not None, json_logs=json_logs)
    return secrets


def _warm(
    prepared: PreparedServer,
    tools: Callable[[], None],
    models: Callable[[tuple[RealModel, ...]], Mapping[str, str]],
    announce: Announce,
) -> None:
    if prepared.scripted:
        announce(f"note: {', '.join(prepared.scripted)} answered by a script, not by a model (see agent.yaml: model)")

    def warm_tools() -> None:
        began = time.monotonic()
        try:
            tools()
        except RuntimeUnavailableError as error:
            logger.info("cannot check whether tool workers are ready: %s", error)
        else:
            announce(f"tool workers are ready ({time.monotonic() - began:.1f} s later)")

    threading.Thread(target=warm_tools, name="warm-tools", daemon=True).start()
    for asked in prepared.real_models:
        if doubt := misspelling_hint(asked):
            announce(f"warning: {asked.model}: {doubt}")
    if not prepared.real_models:
        return
    try:
        keyless = models(prepared.real_models)
    except RuntimeUnavailableError as error:
        announce(f"warning: cannot check whether the models have keys: {error}")
        return
    for model, variables in keyless.items():
        announce(f"warning: {model} has no key: set {variables} and start again (owlclaw doctor checks it)")


def _as_json(line: str, level: str = "", **more: str) -> str:
    """Return a line for people as a line of the log, at the level that it begins with."""
    said = next((each for each in _SAID if line.startswith(f"{each}: ")), "")
    level = level or _SAID.get(said) or ("error" if line.startswith(_ENDS) else "info")
    event = line.removeprefix(f"{said}: ") if said else line
    return json_line(event, __name__, SystemClock().now(), level=level, **more)
