"""The homes of memories, each as several nodes see it, for the tests of what all homes guarantee."""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.memory import Memory, MemoryLimits
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.ids import MemoryId, RandomIds
from owlclaw_ray.memory.embedders import FixedEmbedder
from owlclaw_ray.memory.file import MemoryFile
from owlclaw_ray.memory.file_home import FileHome
from owlclaw_ray.memory.folders import MemoryFolders
from owlclaw_ray.memory.lance import LanceMemory
from owlclaw_ray.memory.stored_home import StoredHome
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.testing.clock import ManualClock

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TRADER = AgentRef.parse("trader")


def memory(number, content=None, created_at=NOW, tags=()):
    return Memory(MemoryId(f"mem_{number}"), content or f"fact {number}", tuple(tags), created_at, "run_1")


class StoreThread:
    """A store with an event loop of its own, as tool workers reach one through a Keeper."""

    def __init__(self, url):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._guard, self._under_way, self._closed = threading.Lock(), set(), False
        self._store = self._do(open_store(url, writer=f"keeper-{self._thread.ident}"))

    def commit(self, commands):
        return self._do(self._store.apply(commands))

    def read(self, query):
        return self._do(self._store.read(query))

    def close(self):
        """Close it when what is under way has its answer: indexing in the background goes on until then."""
        with self._guard:
            self._closed = True
            under_way = list(self._under_way)
        concurrent.futures.wait(under_way)
        asyncio.run_coroutine_threadsafe(self._store.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work):
        with self._guard:
            if self._closed:
                work.close()
                raise StoreUnavailableError("the store is closed")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._under_way.add(future)
        try:
            return future.result()
        finally:
            with self._guard:
                self._under_way.discard(future)


class Homes:
    """One home, from the nodes of a cluster: each with a local folder of its own, unless the home is that folder."""

    def __init__(self, folder: Path, url: str = ""):
        self.folder, self.url = folder, url
        self.clock = ManualClock(NOW)
        self.stores: dict[str, StoreThread] = {}

    def data_dir(self, node="a"):
        return self.folder / (node if self.url else "shared")

    def home(self, node="a"):
        """Return it as a process of a node sees it. On PostgreSQL every node has a Keeper of its own."""
        if not self.url:
            return FileHome(self.data_dir(node))
        keeper = node if self.url.startswith("postgres") else ""
        if keeper not in self.stores:
            self.stores[keeper] = StoreThread(self.url)
        return StoredHome(self.stores[keeper], self.data_dir(node), self.clock, RandomIds())

    def open(self, node="a", **limits):
        """Return an agent's memory in a process of its own, as it were."""
        return MemoryFile(self.home(node).documents(TRADER), MemoryLimits(**limits))

    def folders(self, node="a"):
        return MemoryFolders(self.data_dir(node), self.clock, home=self.home(node))

    def lance(self, node="a", embedder=None):
        return LanceMemory(self.data_dir(node), FixedEmbedder(embedder), self.clock, home=self.home(node))

    def save(self, text):
        """Save MEMORY.md as a person does who had it open: in an editor, or by an import."""
        if self.url:
            self.folders("person").put_text(TRADER, text)
        else:
            path = self.data_dir() / "agents" / TRADER.folder / "MEMORY.md"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)

    def close(self):
        for each in self.stores.values():
            each.close()


def contents(file):
    return [one.content for one in file.load().memories]


def work(folder, url, name):
    """Remember and archive until killed, and say what is done."""
    file = Homes(Path(folder), url).open(name, memories=10)
    number = 0
    while True:
        file.append(memory(f"{name}{number}", f"the fact of the number {number} of {name}"))
        print(number, flush=True)  # noqa: T201
        number += 1


if __name__ == "__main__":
    work(*sys.argv[1:])
