"""What all agents remember, in their home."""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from owlclaw_ray.domain.agent import AgentRef, tenant_folder
from owlclaw_ray.domain.memory import Memory, MemoryLimits, MemoryStats, MemoryTextVersion, Recall
from owlclaw_ray.ids import AgentId, MemoryId, TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.memory.documents import MemoryHome
from owlclaw_ray.memory.file import MemoryFile
from owlclaw_ray.memory.file_home import FileHome
from owlclaw_ray.memory.fusion import rank_by_words

_OPEN_AGENTS = 64
_OPEN_MEMORIES = 50_000
"""What is kept of files that were read, over all agents; one agent's is always kept."""


class MemoryFolders:
    """MEMORY.md and the archive of each agent, in their home: all that can be had without an index.

    Without a `home` they are files, in `data_dir/agents/<agent's folder>/`. Synchronous, and for any number of threads and
    processes; people may edit the files meanwhile. Imports nothing heavy. Every method may raise OSError for what cannot be read or
    written, or that another caller has locked for `patience` seconds: what was not changed then is as it was before; and those that
    change something RuntimeUnavailableError if it is not known whether they did.
    """

    def __init__(
        self,
        data_dir: Path,
        clock: Clock,
        limits: MemoryLimits | None = None,
        patience: float | None = None,
        home: MemoryHome | None = None,
        *,
        retention: Callable[[TenantId], timedelta | None] | None = None,
    ) -> None:
        """`retention` returns how long a tenant's memories are kept, in the place of that of the limits: see MemoryFile."""
        self._data_dir = data_dir
        self._home = home or FileHome(data_dir, patience)
        self._clock = clock
        self._wait_limit = patience
        self._limits = limits or MemoryLimits()
        self._retention = retention or (lambda _: self._limits.retention)
        self._open: OrderedDict[AgentRef, _Open] = OrderedDict()
        self._guard = threading.Lock()

    def folder(self, agent: AgentRef) -> Path:
        """Return where the agent's files are on this node: its index, and its documents if they are files."""
        return self._data_dir / "agents" / agent.folder

    def agents_of(self, tenant: TenantId) -> Sequence[AgentRef]:
        """Return the agents of a tenant that have a folder on this node, but for those whose names are too long to be told from it."""
        folder = self._data_dir / "agents" / tenant_folder(tenant)
        names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
        agents = [AgentRef(tenant, AgentId(unquote(name))) for name in names]
        return [agent for agent, name in zip(agents, names, strict=True) if agent.folder.endswith(f"/{name}")]

    @contextmanager
    def file(self, agent: AgentRef) -> Iterator[MemoryFile]:
        """Give the agent's file to this thread alone."""
        with self._guard:
            opened = self._open.pop(agent, None) or _Open(
                MemoryFile(self._home.documents(agent), self._limits, partial(self._retention, agent.tenant))
            )
            self._open[agent] = opened
            opened.users += 1
        try:
            if not opened.turn.acquire(timeout=-1 if self._wait_limit is None else self._wait_limit):
                raise OSError(errno.EAGAIN, f"another call has it for {self._wait_limit:g} s", opened.file.where)
            try:
                yield opened.file
                opened.memories = opened.file.held
            finally:
                opened.turn.release()
        finally:
            with self._guard:
                opened.users -= 1
                # What was used least recently goes, as far as it is more than is to be kept.
                held = sum(each.memories for each in self._open.values())
                for other, each in list(self._open.items())[:-1]:
                    if len(self._open) <= _OPEN_AGENTS and held <= _OPEN_MEMORIES:
                        break
                    if not each.users:
                        held -= each.memories
                        del self._open[other]

    def memories(self, agent: AgentRef) -> tuple[Memory, ...]:
        """Return all active memories in the order of MEMORY.md, oldest first unless people changed it."""
        with self.file(agent) as file:
            return file.load().memories

    def archived(self, agent: AgentRef) -> tuple[Memory, ...]:
        """Return what is in the archive, in the order of its archiving."""
        with self.file(agent) as file:
            return file.archived()

    def search_archive(
        self, agent: AgentRef, query: str, limit: int, tags: Sequence[str] = (), timezone: str = "UTC"
    ) -> Recall:
        """Return up to `limit` archived memories that share words with the query and carry all of `tags`, best first.

        The query's days are those of the IANA zone.
        """
        among = tuple(memory for memory in self.archived(agent) if set(tags) <= set(memory.tags))
        return Recall(tuple(rank_by_words(query, among, self._clock.now(), limit, ZoneInfo(timezone))))

    def edit(
        self,
        agent: AgentRef,
        memory_id: MemoryId,
        content: str | None = None,
        tags: Sequence[str] | None = None,
        *,
        old_content: str | None = None,
        old_tags: Sequence[str] | None = None,
    ) -> Memory:
        """Give an active memory another content, other tags, or both; return it. Its id and time stay.

        Raises NotFoundError if there is no such active memory, and MemoryChangedError if it does not have `old_content` or
        `old_tags` (in any order), where they are given.
        """
        with self.file(agent) as file:
            return file.edit(memory_id, content, tags, old_content=old_content, old_tags=old_tags)

    def delete(self, agent: AgentRef, memory_id: MemoryId) -> Memory:
        """Remove an active or archived memory for good; return it. Raises NotFoundError if there is none."""
        with self.file(agent) as file:
            return file.delete(memory_id)

    def archive(self, agent: AgentRef, memory_ids: Collection[MemoryId]) -> tuple[Memory, ...]:
        """Move these active memories to the archive; return those that there were. What is archived is not recalled."""
        with self.file(agent) as file:
            return file.archive(memory_ids)

    def text(self, agent: AgentRef) -> bytes:
        """Return MEMORY.md as it stands."""
        with self.file(agent) as file:
            return file.text()

    def put_text(self, agent: AgentRef, text: bytes, base: MemoryTextVersion | None = None) -> tuple[Memory, ...]:
        """Make this text, which a person wrote, the agent's MEMORY.md.

        With a `base`, the version that it was written from: what was appended since then stays at its end, and if anything else
        was changed MemoryTextChangedError is raised and nothing is done. Without one it counts as a copy that an editor saved: what
        it lacks for being an older one is put back, and returned. Raises MemoryTooLargeError if it is over the limit of MEMORY.md.
        """
        with self.file(agent) as file:
            return file.put(text, base)

    def archive_text(self, agent: AgentRef) -> bytes:
        """Return the archive as it stands."""
        with self.file(agent) as file:
            return file.archive_text()

    def put_archive_text(self, agent: AgentRef, text: bytes) -> tuple[MemoryId, ...]:
        """Have in the archive what this one, of this agent in some other home, has; return the memories that are new in it.

        An archive that has nothing yet becomes this text. Else what it lacks is put at its end: nothing in it is changed or removed, a
        memory that it has or that is active stays as it is, and the same text again adds nothing.
        """
        with self.file(agent) as file:
            return file.put_archive(text)

    def stats(self, agent: AgentRef) -> MemoryStats:
        """Return how much the agent remembers, and everything that is wrong with its files."""
        with self.file(agent) as file:
            memories, archived, problems = file.load().memories, file.archived(), file.problems()
            file_bytes, archive_bytes = file.sizes()
        folder = self.folder(agent)
        times = [memory.created_at for memory in memories]
        return MemoryStats(
            active=len(memories),
            archived=len(archived),
            file_bytes=file_bytes,
            archive_bytes=archive_bytes,
            index_bytes=sum(
                _bytes(Path(below, name)) for below, _, names in os.walk(folder / "index") for name in names
            ),
            oldest=min(times, default=None),
            newest=max(times, default=None),
            problems=problems,
        )


class _Open:
    """A file, and who uses it."""

    def __init__(self, file: MemoryFile) -> None:
        self.file = file
        self.turn = threading.Lock()
        self.users = 0
        self.memories = 0


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:
        return 0
