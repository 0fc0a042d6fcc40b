"""The checks before Ray starts: settings, application, definitions, port, certificate, keys, data folder."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from owlclaw_ray.app import OwlClaw
from owlclaw_ray.app_loader import application
from owlclaw_ray.configuration.setting_sources import SettingInForce
from owlclaw_ray.counting import counted
from owlclaw_ray.domain.agent import AgentDefinition
from owlclaw_ray.domain.endpoint import RealModel
from owlclaw_ray.domain.tool import ToolDefinition
from owlclaw_ray.domain.tracing import TracingOptions
from owlclaw_ray.errors import ConfigurationError, DefinitionError, Problem, StoreUnavailableError
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.own_packages import namesakes
from owlclaw_ray.secrets.keyring import written_keys
from owlclaw_ray.settings import Settings, read_settings, usable_by_runtime
from owlclaw_ray.store.sql.locations import Location
from serve import pid_file
from serve.server_facts import ServerFacts
from serve.tool_advice import KnownNames, tool_advice

_LOCK = "owlclaw.lock"
_RAY_SECONDS = 5.0
_SERVER_SECONDS = 5.0
_STORE_SECONDS = 3.0
"""How long a start checks the store's pages; `owlclaw doctor` takes more time."""


class PreparedServer(Struct, frozen=True):
    """What was loaded and checked before Ray starts."""

    settings: Settings
    app: OwlClaw
    tools: tuple[ToolDefinition, ...]
    """All tools that agents may have."""
    definitions: tuple[AgentDefinition, ...]
    broken: tuple[DefinitionError, ...]
    """Definitions that cannot be used; the others can."""
    tracing: TracingOptions | None = None
    """Where traces go; None: nowhere."""
    advice: tuple[Problem, ...] = ()
    """Warnings about what works, but not as its author meant."""
    master_keys: str = ""
    """Those of tenants' secrets, as they are written."""
    in_force: tuple[SettingInForce, ...] = ()
    """The settings as operators may see them."""

    @property
    def facts(self) -> ServerFacts:
        """What operators may know of the server's start."""
        unusable = tuple(problem for error in self.broken for problem in error.problems)
        return ServerFacts(self.in_force, self.tools, (*unusable, *self.advice))

    @property
    def scripted(self) -> tuple[str, ...]:
        """Names of definitions whose model is a script."""
        return tuple(each.name for each in self.definitions if each.model.chain[0].startswith("scripted:"))

    @property
    def real_models(self) -> tuple[RealModel, ...]:
        """All models that are not scripts, fallbacks included, with their endpoints."""
        return tuple(dict.fromkeys(found for each in self.definitions for found in each.real_models))


def prepare(folder: Path, environ: Mapping[str, str]) -> PreparedServer:
    """Load and check settings, application and definitions; raises ConfigurationError with what is wrong."""
    from owlclaw_ray.definitions.folder import DefinitionFolder, misnamed_definition_problems
    from owlclaw_ray.definitions.skills.host_facts import Machine
    from owlclaw_ray.telemetry.tracing.destinations import check_installed
    from owlclaw_ray.tools.composition import declared_tools

    read = read_settings(folder, environ)
    settings = usable_by_runtime(read, environ)
    app = application(settings.app, settings.folder)
    tools = declared_tools(app.sources(), settings.host_tools, app.registry.hooks)
    source = DefinitionFolder(settings.agents_dir, settings.defaults, Machine(environ))
    misnamed = misnamed_definition_problems(settings.agents_dir)
    own, wrong = source.tenants_own()
    definitions, broken = [], [*wrong]
    for name in (*source.present(), *own):
        try:
            definitions.append(source.load(name))
        except DefinitionError as error:
            broken.append(error)
    if not definitions:
        what = "none of its definitions can be used" if broken or misnamed else "it has no agent definition"
        problems = [*misnamed, *(problem for error in broken for problem in error.problems)]
        fix = "fix what follows" if problems else "make one with: owlclaw init"
        raise ConfigurationError([Problem(str(settings.agents_dir), what, fix), *problems])
    if unknown := list(price_problems(settings, definitions)):
        raise ConfigurationError(unknown)
    left = list(files_left(settings))
    if unsaid := [problem for problem, said in left if not said]:
        raise ConfigurationError(unsaid)
    advice = (
        *misnamed,
        *artifact_advice(settings),
        *proxy_advice(settings),
        *(problem for problem, _ in left),
        *namesakes(settings.folder),
        *tool_advice(app, KnownNames.of(app, tools, settings, {}), settings, definitions),
    )
    tracing = settings.tracing.options(environ)
    if tracing is not None:
        check_installed(tracing)
    keys = written_keys(settings.secrets.key_file, environ)
    in_force = read.in_force(environ)
    return PreparedServer(settings, app, tools, tuple(definitions), tuple(broken), tracing, advice, keys, in_force)


def files_left(settings: Settings) -> Iterator[tuple[Problem, bool]]:
    """Yield what is in files that nothing reads, because the database is its home, and whether the settings say that it is."""
    imported = "have them imported (owlclaw memory import AGENT FILE), and remove the files"
    for kind, setting, home, pattern, name, then in (
        ("memories", "memory.home", settings.memory.home, "MEMORY.md", "a MEMORY.md", imported),
        ("artifacts", "artifacts.home", settings.artifacts.home, "artifacts/*", "artifacts", "remove the files"),
    ):
        found = () if kind in settings.kept_in_files else settings.data_dir.glob(f"agents/*/*/{pattern}")
        agents = {path.relative_to(settings.data_dir).parts[:3] for path in found}
        if agents:
            has = f"{counted(len(agents), 'agent has', 'agents have')} {name} in files of {settings.data_dir}"
            if home is None:
                what = f"is not set, and {has}, which the database would take the place of"
                yield Problem(setting, what, f"set it to files; or set it to database, and then {then}"), False
            else:
                yield (
                    Problem(setting, f"is {home}, and {has}, which nothing reads", f"set it to files, or {then}"),
                    True,
                )


def proxy_advice(settings: Settings) -> Iterator[Problem]:
    """Yield that the networks of proxies are written where nothing reads them: see deployment.ingress."""
    if settings.http.proxies and settings.ray.address is not None:
        what = "is set, and on a cluster Ray Serve's own proxy listens, which does not tell whom a request came through"
        yield Problem(
            "http.proxies", what, "remove it: what requests say of their origin is believed from nobody there"
        )


def artifact_advice(settings: Settings) -> tuple[Problem, ...]:
    """Return that the place of large artifacts does not answer now. Raises ConfigurationError if they cannot be stored there at all.

    Where the runtime runs on another machine, it is not asked: this one may have no credentials for it.
    """
    from owlclaw_ray.tools.fsspec_artifacts import artifacts_at, check_place

    url = settings.artifacts.url
    if url is None:
        return ()
    if settings.ray.address is not None:
        artifacts_at(url)
        return ()
    try:
        problem = check_place(url)
    except StoreUnavailableError as error:
        fix = "until it does, results that are larger than artifacts.limit_bytes are cut"
        return (Problem("artifacts.url", str(error), fix),)
    if problem:
        what, _, fix = problem.partition(": ")
        raise ConfigurationError([Problem("artifacts.url", f"{url} {what}", fix)])
    return ()


def price_problems(settings: Settings, definitions: Iterable[AgentDefinition]) -> Iterator[Problem]:
    """Yield the models whose price is not known, where budgets limit the cost: these budgets would never be exhausted."""
    from owlclaw_ray.memory.embedders import PREFIX
    from owlclaw_ray.models.litellm_prices import local_prices, price_in
    from owlclaw_ray.models.prices import written_price
    from owlclaw_ray.policy.budgets import unpriced

    def known(model: str) -> bool:
        return bool(written_price(rules, model) or price_in(local_prices(), model))

    rules, embedder = settings.models.price_rules, settings.memory.embedder
    vectors = (embedder.removeprefix(PREFIX),) if embedder.startswith(PREFIX) else ()
    for definition in definitions:
        for model, budget in unpriced(definition.governance.budgets, (*definition.models, *vectors), known):
            fix = f"set models.prices in owlclaw.yaml, such as {{{model}: {{prompt: 0.5, completion: 2}}}}, in dollars for a million tokens"
            what = f"its budget {budget} limits the cost, and the price of {model} is not known"
            yield Problem(f"agent {definition.name}", what, fix)


def check_port(settings: Settings) -> None:
    """Raise ConfigurationError if the HTTP port cannot be listened on."""
    http = settings.http
    with socket.socket(socket.AF_INET6 if ":" in http.host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((http.host, http.port))
        except OSError as error:
            fix = "stop what listens there (owlclaw down, if it is a runtime of this folder), or set OWLCLAW_HTTP__PORT"
            what = f"{http.host}:{http.port} cannot be listened on: {error.strerror}"
            raise ConfigurationError([Problem("http.port", what, fix)]) from error


def check_certificate(settings: Settings) -> str:
    """Return a warning if the certificate expires soon; raise ConfigurationError if it cannot be used."""
    from serve.tls import read_certificate

    now = SystemClock().now()
    if settings.http.tls_certificate is not None and settings.ray.address is not None:
        what = "is set, and on a cluster Ray Serve's own proxy listens, which has no TLS"
        fix = "remove it, and put a proxy that speaks HTTPS in front"
        raise ConfigurationError([Problem("http.tls_certificate", what, fix)])
    certificate = read_certificate(settings.http, now)
    warning = certificate.warning(now) if certificate is not None else ""
    return f"warning: http.tls_certificate: {settings.http.tls_certificate} {warning}" if warning else ""


def check_keys(settings: Settings) -> None:
    """Raise ConfigurationError if others can reach the server, and nobody has a key yet. The store must be there."""
    if not settings.http.is_local and not asyncio.run(_is_access_controlled(settings.store_url)):
        what = f"is {settings.http.host!r}, which others can reach, and there are no keys yet"
        fix = "make the first key with: owlclaw keys create --first, or use 127.0.0.1"
        raise ConfigurationError([Problem("http.host", what, fix)])


async def _is_access_controlled(store_url: str) -> bool:
    from owlclaw_ray.ids import RandomIds
    from owlclaw_ray.store.queries import IsAccessControlled
    from owlclaw_ray.store.sql.factory import open_store

    store = await open_store(store_url, writer=RandomIds().make("preflight"))
    try:
        return await store.read(IsAccessControlled())
    finally:
        await store.close()


def check_ray(settings: Settings) -> None:
    """Raise ConfigurationError if nothing listens at the address of the Ray cluster: Ray itself would try for minutes."""
    address = settings.ray.address or ""
    host, colon, port = address.rpartition(":")
    if not colon or "://" in address or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_RAY_SECONDS).close()
    except (OSError, OverflowError) as error:
        fix = "start the cluster there (owlclaw node --head), or name the address of its head, such as 10.0.0.1:6379"
        raise ConfigurationError([Problem("ray.address", f"nothing answers at {address}: {error}", fix)]) from error


def check_data_dir(settings: Settings) -> None:
    """Create the data folder, for this user only, or restrict an older one; raise ConfigurationError if it cannot be written."""
    try:
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_accessible_to_others(settings) and closable(settings):
            settings.data_dir.chmod(0o700)
        with tempfile.TemporaryFile(dir=settings.data_dir):
            pass
    except OSError as error:
        what = f"{settings.data_dir} cannot be written: {error.strerror}"
        fix = "make it writable, or set OWLCLAW_DATA_DIR to a folder that is"
        raise ConfigurationError([Problem("data_dir", what, fix)]) from error


def check_store(settings: Settings) -> str:
    """Create the store's file if it is new, and return a note about it; raise ConfigurationError if it is damaged.

    Of a store on a server only whether the server answers is checked, if this machine uses it.
    """
    from owlclaw_ray.store.sql.damage import require_sound
    from owlclaw_ray.store.sql.locations import locate, prepare_file

    location = locate(settings.store_url)
    if location.path is None:
        problem = server_problem(location) if settings.ray.address is None else None
        if problem is not None:
            raise ConfigurationError([problem])
        return ""
    found = require_sound(location, location.path, _STORE_SECONDS)
    prepare_file(location, location.path)
    if found.complete:
        return ""
    return f"note: {location.shown} is large; a check of {_STORE_SECONDS:g} s found no damage (owlclaw doctor checks longer)"


def server_problem(location: Location) -> Problem | None:
    """Return what is wrong if nothing listens where the store's server should."""
    if location.address is None:
        return None
    host, port = location.address
    try:
        socket.create_connection((host, port), timeout=_SERVER_SECONDS).close()
    except OSError as error:
        fix = "start PostgreSQL there, or name the server that runs in store_url (OWLCLAW_STORE_URL)"
        return Problem(f"store {location.shown}", f"no server answers at {host}:{port}: {error.strerror or error}", fix)
    return None


def is_accessible_to_others(settings: Settings) -> bool:
    """Return whether other users may enter or list the data folder."""
    return settings.data_dir.is_dir() and settings.data_dir.stat().st_mode & 0o077 != 0


def closable(settings: Settings) -> bool:
    """Return whether a start may restrict the data folder: it is this user's, and does not contain the application."""
    own = settings.data_dir.stat().st_uid == os.geteuid()
    return own and not settings.folder.resolve().is_relative_to(settings.data_dir.resolve())


@contextmanager
def exclusive_data_dir(data_dir: Path) -> Iterator[None]:
    """Lock the data folder for this process; raise ConfigurationError if another runtime holds the lock, which ends with it."""
    path = data_dir / _LOCK
    path.touch(0o600)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            other = pid_file.read(data_dir)
            who = f"process {other.pid} at {other.url}" if other else "another process, which is starting"
            fix = "stop it with: owlclaw down, or set OWLCLAW_DATA_DIR to another folder"
            raise ConfigurationError([Problem("data_dir", f"{data_dir} is in use by {who}", fix)]) from error
        yield
