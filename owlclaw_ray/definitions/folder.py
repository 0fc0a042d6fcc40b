"""The agents folder: definitions by name, read again when their files change."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.definitions.loader import FILES, load_definition, source_files
from owlclaw_ray.definitions.skills.host_facts import Machine
from owlclaw_ray.domain.agent import AgentDefinition
from owlclaw_ray.errors import DefinitionError, Problem, UnknownAgentError
from owlclaw_ray.kernel.file_threads import in_file_thread

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_Fingerprint: TypeAlias = tuple[tuple[str, int, int, int], ...]


def find_definitions(agents_dir: Path) -> tuple[str, ...]:
    """Return the names of all definitions, sorted: the folders whose name is a definition's. No folder, no definition."""
    if not agents_dir.is_dir():
        return ()
    return tuple(sorted(each.name for each in agents_dir.iterdir() if _NAME.fullmatch(each.name) and each.is_dir()))


def misnamed_definition_problems(agents_dir: Path) -> tuple[Problem, ...]:
    """Return a problem for each folder that holds a definition under a name that no definition can have."""
    if not agents_dir.is_dir():
        return ()
    problems: list[Problem] = []
    for folder in sorted(each for each in agents_dir.iterdir() if not _NAME.fullmatch(each.name) and each.is_dir()):
        if any((folder / name).is_file() for name in FILES):
            right = re.sub(r"[^a-z0-9_-]+", "-", folder.name.lower()).strip("-_")[:64] or "agent"
            fix = f"rename it, such as: mv {shlex.quote(str(folder))} {shlex.quote(str(folder.with_name(right)))}"
            what = f"{folder.name!r} is no agent's name: names are lower-case letters, digits, '_' and '-', at most 64"
            problems.append(Problem(str(folder), what, fix))
    return tuple(problems)


class _Cached(Struct, frozen=True):
    fingerprint: _Fingerprint
    reloads: int
    result: AgentDefinition | DefinitionError


class DefinitionFolder:
    """Definitions from `agents_dir/<name>/`. Implements Definitions.

    Files are read again only when the time, size or number of a definition's files changed: the next `get` sees an edit,
    what was returned before stays as it was. For callers of one event loop, or of none.
    """

    def __init__(self, agents_dir: Path, defaults: Defaults, machine: Machine | None = None) -> None:
        self._agents_dir, self._defaults, self._machine = agents_dir, defaults, machine
        self._cache: dict[str, _Cached] = {}
        self._reloads = 0
        """What was read before the last reload is read again."""
        self._looks: dict[str, asyncio.Task[AgentDefinition]] = {}
        """The last one that was begun, for each name."""
        self._next_looks: dict[str, asyncio.Task[AgentDefinition]] = {}
        """Those that begin when the last one is over."""

    def present(self) -> tuple[str, ...]:
        """Return the names of all definitions, usable or not, sorted."""
        return find_definitions(self._agents_dir)

    async def names(self) -> tuple[str, ...]:
        """Return the names of all definitions, sorted. The event loop is not blocked if the files hang."""
        return await in_file_thread(self.present)

    async def get(self, name: str) -> AgentDefinition:
        """Return the present version; raises UnknownAgentError or DefinitionError. The event loop is not blocked if the files hang.

        All who ask while one look is under way share the next one.
        """
        if not _NAME.fullmatch(name):
            raise UnknownAgentError(name, await self.names())
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
        folder = self._agents_dir / name
        if not _NAME.fullmatch(name) or not folder.is_dir():
            self._cache.pop(name, None)
            raise UnknownAgentError(name, self.present())
        fingerprint, reloads = _fingerprint(folder), self._reloads
        cached = self._cache.get(name)
        if cached is None or cached.fingerprint != fingerprint or cached.reloads != reloads:
            try:
                result: AgentDefinition | DefinitionError = load_definition(folder, self._defaults, self._machine)
            except DefinitionError as error:
                result = error
            cached = self._cache[name] = _Cached(fingerprint, reloads, result)
        if isinstance(cached.result, DefinitionError):
            raise DefinitionError(cached.result.problems)
        return cached.result

    async def reload(self, name: str) -> None:
        """Read the definition's files even if they look unchanged; raises UnknownAgentError or DefinitionError."""
        self._reloads += 1
        await self.get(name)


def _fingerprint(folder: Path) -> _Fingerprint:
    found = []
    for name in source_files(folder):
        path = f"{folder}/{name}"
        try:
            status = os.stat(path)  # noqa: PTH116 - a caller that asks for a definition waits for a look at each of its files
        except OSError:
            continue
        found.append((path, status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)
