"""The agents folder: definitions by name, read again when their files change.

Those that all tenants may use are in `<name>/`. What a tenant has of its own is in `@<tenant>/`: definitions in `<name>/`, which go before
shared ones of that name, and tenant.yaml. An agent's definition is looked up by AgentRef.qualified_definition.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.definitions.loader import FILES, load_definition, source_files
from owlclaw_ray.definitions.skills.host_facts import Machine
from owlclaw_ray.definitions.tenant_file import TENANT, TenantFile, load_tenant_file
from owlclaw_ray.domain.agent import AgentDefinition
from owlclaw_ray.domain.callback import ANYWHERE
from owlclaw_ray.domain.principal import TENANT_ID
from owlclaw_ray.errors import DefinitionError, Problem, UnknownAgentError
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId
from owlclaw_ray.kernel.file_threads import in_file_thread

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_TENANT_FOLDER = re.compile(f"@{TENANT_ID}")
_Fingerprint: TypeAlias = tuple[tuple[str, int, int, int], ...]


def find_definitions(agents_dir: Path) -> tuple[str, ...]:
    """Return the names of all definitions, sorted: the folders whose name is a definition's. No folder, no definition."""
    if not agents_dir.is_dir():
        return ()
    return tuple(sorted(each.name for each in agents_dir.iterdir() if _NAME.fullmatch(each.name) and each.is_dir()))


def own_definitions(agents_dir: Path) -> dict[TenantId, tuple[str, ...]]:
    """Return the tenants that have a folder there, sorted, with the names of their definitions in it."""
    if not agents_dir.is_dir():
        return {}
    folders = sorted(each for each in agents_dir.iterdir() if _TENANT_FOLDER.fullmatch(each.name) and each.is_dir())
    tenants = {TenantId(each.name[1:]): find_definitions(each) for each in folders}
    tenants.pop(DEFAULT_TENANT, None)
    return tenants


def definition_folder(agents_dir: Path, name: str) -> Path:
    """Return where the definition is that a qualified name means: the tenant's own folder, or the shared one."""
    tenant, _, plain = name.rpartition("/")
    own = agents_dir / f"@{tenant}" / plain
    return own if tenant and own.is_dir() else agents_dir / plain


def misnamed_definition_problems(agents_dir: Path) -> tuple[Problem, ...]:
    """Return a problem for each folder that holds a definition under a name that no definition can have."""
    if not agents_dir.is_dir():
        return ()
    problems: list[Problem] = []
    for folder in sorted(each for each in agents_dir.iterdir() if not _NAME.fullmatch(each.name) and each.is_dir()):
        if folder.name.startswith("@"):
            problems += _misnamed_of_tenant(folder)
        elif any((folder / name).is_file() for name in FILES):
            right = re.sub(r"[^a-z0-9_-]+", "-", folder.name.lower()).strip("-_")[:64] or "agent"
            fix = f"rename it, such as: mv {shlex.quote(str(folder))} {shlex.quote(str(folder.with_name(right)))}"
            what = f"{folder.name!r} is no agent's name: names are lower-case letters, digits, '_' and '-', at most 64"
            problems.append(Problem(str(folder), what, fix))
    return tuple(problems)


def _misnamed_of_tenant(folder: Path) -> tuple[Problem, ...]:
    if folder.name == f"@{DEFAULT_TENANT}":
        what = "is not read: what the default tenant may use is beside this folder, and owlclaw.yaml has its settings"
        return (Problem(str(folder), what, f"move its definitions to {folder.parent}"),)
    if not _TENANT_FOLDER.fullmatch(folder.name):
        what = f"{folder.name[1:]!r} is no tenant's id: 1 to 63 of a-z, 0-9 and '-', not '-' at its ends"
        return (Problem(str(folder), what, "rename it to @ and the id that `owlclaw tenants list` shows"),)
    return misnamed_definition_problems(folder)


class _Cached(Struct, frozen=True):
    fingerprint: _Fingerprint
    reloads: int
    result: AgentDefinition | DefinitionError


class _Inherited(Struct, frozen=True):
    """What the definitions that a tenant uses inherit."""

    fingerprint: _Fingerprint
    reloads: int
    result: TenantFile | DefinitionError


class DefinitionFolder:
    """Definitions from `agents_dir/<name>/` and `agents_dir/@<tenant>/<name>/`. Implements NamedDefinitions.

    Files are read again only when the time, size or number of a definition's files changed: the next `get` sees an edit,
    what was returned before stays as it was. For callers of one event loop, or of none.
    """

    def __init__(self, agents_dir: Path, defaults: Defaults, machine: Machine | None = None) -> None:
        self._agents_dir, self._defaults, self._machine = agents_dir, defaults, machine
        self._cache: dict[str, _Cached] = {}
        self._tenants: dict[str, _Inherited] = {}
        self._reloads = 0
        """What was read before the last reload is read again."""
        self._looks: dict[str, asyncio.Task[AgentDefinition]] = {}
        """The last one that was begun, for each name."""
        self._next_looks: dict[str, asyncio.Task[AgentDefinition]] = {}
        """Those that begin when the last one is over."""

    def present(self, tenant: TenantId = DEFAULT_TENANT) -> tuple[str, ...]:
        """Return the names of all definitions that the tenant may use, working or not, sorted."""
        shared = find_definitions(self._agents_dir)
        if tenant == DEFAULT_TENANT:
            return shared
        own = find_definitions(self._agents_dir / f"@{tenant}")
        try:
            allowed = self._tenant_file(tenant).may_use
        except DefinitionError:  # all are there, and each of them says what is wrong
            allowed = TenantFile().may_use
        return tuple(sorted({*own, *filter(allowed, shared)}))

    async def names(self, tenant: TenantId = DEFAULT_TENANT) -> tuple[str, ...]:
        """See NamedDefinitions.names. The event loop is not blocked if the files hang."""
        return await in_file_thread(self.present, tenant)

    async def own(self) -> dict[TenantId, tuple[str, ...]]:
        """See NamedDefinitions.own. The event loop is not blocked if the files hang."""
        return await in_file_thread(own_definitions, self._agents_dir)

    def tenants_own(self) -> tuple[tuple[str, ...], tuple[DefinitionError, ...]]:
        """Return the qualified names of the definitions that tenants have of their own, and what is wrong with settings of tenants.

        The definitions of a tenant whose settings are wrong are not among them.
        """
        names: list[str] = []
        wrong: list[DefinitionError] = []
        for tenant, own in own_definitions(self._agents_dir).items():
            try:
                self._tenant_file(tenant)
            except DefinitionError as error:
                wrong.append(error)
            else:
                names += [f"{tenant}/{name}" for name in own]
        return tuple(names), tuple(wrong)

    async def get(self, name: str) -> AgentDefinition:
        """Return the present version; raises UnknownAgentError or DefinitionError. The event loop is not blocked if the files hang.

        All who ask while one look is under way share the next one.
        """
        tenant, plain = _parts(name)
        if not _NAME.fullmatch(plain):
            raise UnknownAgentError(plain, await self.names(tenant))
        look = self._next_looks.get(name)
        if look is None:
            look = self._next_looks[name] = asyncio.create_task(self._look(name, self._looks.get(name)))
            look.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(look)

    async def _look(self, name: str, last: asyncio.Task[AgentDefinition] | None) -> AgentDefinition:
        if last is not None:
            await asyncio.wait([last])
        look = self._looks[name] = self._next_looks.pop(name)
        try:
            return await in_file_thread(self.load, name)
        finally:
            if self._looks[name] is look:
                del self._looks[name]

    def load(self, name: str) -> AgentDefinition:
        """Return what `get` returns, to callers without an event loop."""
        tenant, plain = _parts(name)
        folder = definition_folder(self._agents_dir, name)
        has_settings = self._has_settings(tenant)
        if tenant != DEFAULT_TENANT and not has_settings and folder == self._agents_dir / plain:
            return self.load(plain)
        if not _NAME.fullmatch(plain) or not folder.is_dir():
            self._cache.pop(name, None)
            raise UnknownAgentError(plain, self.present(tenant))
        defaults = self._defaults
        if has_settings:
            settings = self._tenant_file(tenant)
            if folder == self._agents_dir / plain and not settings.may_use(plain):
                raise UnknownAgentError(plain, self.present(tenant))
            defaults = settings.over(defaults)
        if folder != self._agents_dir / plain and defaults.callbacks is not None:
            defaults = replace(defaults, callbacks=ANYWHERE)  # where the tenant's callbacks may go is said in the store
        fingerprint = _fingerprint(folder, self._settings_of(tenant))
        cached, reloads = self._cache.get(name), self._reloads
        if cached is None or cached.fingerprint != fingerprint or cached.reloads != reloads:
            try:
                result: AgentDefinition | DefinitionError = load_definition(folder, defaults, self._machine)
            except DefinitionError as error:
                result = error
            cached = self._cache[name] = _Cached(fingerprint, reloads, result)
        if isinstance(cached.result, DefinitionError):
            raise DefinitionError(cached.result.problems)
        return cached.result

    def _settings_of(self, tenant: TenantId) -> Path:
        return self._agents_dir / f"@{tenant}" / TENANT

    def _has_settings(self, tenant: TenantId) -> bool:
        return tenant != DEFAULT_TENANT and self._settings_of(tenant).exists()

    def _tenant_file(self, tenant: TenantId) -> TenantFile:
        """Return what tenant.yaml says; raises DefinitionError."""
        path = self._settings_of(tenant)
        fingerprint, reloads = _stats([str(path)]), self._reloads
        known = self._tenants.get(tenant)
        if known is None or known.fingerprint != fingerprint or known.reloads != reloads:
            try:
                result: TenantFile | DefinitionError = load_tenant_file(path, self._defaults)
            except DefinitionError as error:
                result = error
            known = self._tenants[tenant] = _Inherited(fingerprint, reloads, result)
        if isinstance(known.result, DefinitionError):
            raise DefinitionError(known.result.problems)
        return known.result

    async def reload(self, name: str) -> None:
        """Read the definition's files even if they look unchanged; raises UnknownAgentError or DefinitionError."""
        self._reloads += 1
        await self.get(name)


def _parts(name: str) -> tuple[TenantId, str]:
    """Return the tenant and the plain name that a qualified name is made of; what cannot be a tenant's id is part of the name."""
    tenant, slash, plain = name.rpartition("/")
    if not slash:
        return DEFAULT_TENANT, name
    return (TenantId(tenant), plain) if re.fullmatch(TENANT_ID, tenant) else (DEFAULT_TENANT, name)


def _fingerprint(folder: Path, *more: Path) -> _Fingerprint:
    return _stats([*(f"{folder}/{name}" for name in source_files(folder)), *map(str, more)])


def _stats(paths: Iterable[str]) -> _Fingerprint:
    found = []
    for path in paths:
        try:
            status = os.stat(path)  # noqa: PTH116 - a caller that asks for a definition waits for a look at each of its files
        except OSError:
            continue
        found.append((path, status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)
