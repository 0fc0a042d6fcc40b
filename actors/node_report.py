"""What a root says of its node. Nothing here is done unless somebody asks."""

from __future__ import annotations

import asyncio
import hashlib
import os
import platform
import shutil
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import psutil
import ray

from actors.node_files import seen_mark
from actors.node_variables import shared_variables
from actors.nodes import used_memory
from actors.plan import RuntimePlan, WorkerPlan
from actors.remote import KEEPER, AgentHandle, NamedActor, calls, in_time, registered
from owlclaw_ray.domain.memory import MemoryHomeKind
from owlclaw_ray.domain.node import Disk, NodeLoad, NodeReport, Versions
from owlclaw_ray.errors import OwlClawError, RuntimeUnavailableError
from owlclaw_ray.ids import DEFAULT_TENANT, RunId
from owlclaw_ray.kernel.file_threads import in_file_thread
from owlclaw_ray.placement.host import HostStatus
from owlclaw_ray.store.queries import RunById

if TYPE_CHECKING:
    from actors.keeper import KeeperActor

_READS = 5
_ANSWER_SECONDS = 1.5
"""For each thing that may hang: a host, the store, a file system. All are asked at once."""
_MAX_FILES = 5_000
_DIGITS = 16
_LEFT_OUT = frozenset({"__pycache__", "node_modules", "venv", "site-packages"})


class NodeInspector:
    """Looks at the node that it is on. What does not answer in time is left out, and holds nothing else up."""

    def __init__(self, plan: RuntimePlan, waiting_calls: Callable[[], dict[str, int]]) -> None:
        """`waiting_calls` returns NodeLoad.waiting_calls."""
        self._plan, self._waiting_calls = plan, waiting_calls
        self._keeper: NamedActor[KeeperActor] = NamedActor(KEEPER, plan.namespace)

    async def load(self, hosts: Sequence[AgentHandle]) -> NodeLoad:
        """Return what the node, with these hosts, has to do."""
        statuses, (seconds, problem) = await asyncio.gather(
            asyncio.gather(*(in_time(calls(host).status(0), _ANSWER_SECONDS) for host in hosts)),
            read_latency(self._read, time.monotonic),
        )
        known: list[HostStatus] = [each for each in statuses if each is not None]
        return NodeLoad(
            hosts=len(hosts),
            agents=sum(each.agents for each in known),
            running=sum(each.running for each in known),
            memory_used=round(used_memory(), 4),
            store_seconds=seconds,
            store_problem=problem,
            waiting_calls=self._waiting_calls(),
        )

    async def agents(self, hosts: Sequence[AgentHandle]) -> int:
        """Return how many agents these hosts hold; raises RuntimeUnavailableError if a living one does not say so in time."""
        return sum(await asyncio.gather(*map(self._agents_of, hosts)))

    async def _agents_of(self, host: AgentHandle) -> int:
        hosted = await in_time(calls(host).hosted(), _ANSWER_SECONDS)
        if hosted is None and await registered(host) is not None:
            raise RuntimeUnavailableError(f"a host did not answer within {_ANSWER_SECONDS:g} s")
        return len(hosted or ())

    async def report(self, hosts: Sequence[AgentHandle], salt: bytes) -> NodeReport:
        """Return everything; `salt` goes into the hashes of secrets, so that only answers to one question can be compared."""
        node: Any = ray._private.worker.global_worker.node  # noqa: SLF001 - no public name
        worker = self._plan.worker
        load, data_dir, ray_dir, application, folder_mark = await asyncio.gather(
            self.load(hosts),
            _disk(worker.data_dir),
            _disk(node.get_temp_dir_path()),
            in_time(
                in_file_thread(application_hash, worker.app_folder, worker.agents_dir, worker.data_dir), _ANSWER_SECONDS
            ),
            in_time(in_file_thread(seen_mark, Path(worker.data_dir)), _ANSWER_SECONDS),
        )
        return NodeReport(
            versions=Versions(
                platform.python_version(),
                ray.__version__,
                version("owlclaw-ray"),
                f"{platform.system()} {platform.machine()}",
            ),
            memory=psutil.virtual_memory().total,
            data_dir=data_dir,
            ray_dir=ray_dir,
            load=load,
            variables=shared_variables(os.environ, salt),  # noqa: TID251 - what the node was started with
            application=application or "",
            shared_files=needs_shared_files(worker),
            folder_mark=folder_mark or "",
        )

    async def _read(self) -> object:
        return await self._keeper.call.read(RunById(DEFAULT_TENANT, RunId("")))


def needs_shared_files(plan: WorkerPlan) -> bool:
    """Return whether anything that other nodes need is a file in the data folder."""
    in_files = plan.memory_home is MemoryHomeKind.FILES
    return in_files or not plan.stored_attempts or plan.stored_artifact_bytes is None


async def read_latency(
    read: Callable[[], Awaitable[object]], monotonic: Callable[[], float]
) -> tuple[float | None, str]:
    """Return how many seconds a read takes, the median of some, or None and why one failed."""
    taken = []
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            for _ in range(_READS):
                began = monotonic()
                await read()
                taken.append(monotonic() - began)
    except OwlClawError as error:
        return None, str(error)
    except TimeoutError:
        if not taken:
            return None, f"no answer within {_ANSWER_SECONDS:g} s"
    return round(median(taken), 6), ""


def application_hash(app_folder: str, agents_dir: str, data_dir: str) -> str:
    """Return a hash of the definitions and the Python files of an application; empty if there are none. It reads files.

    Hidden folders, the data folder and installed packages are left out.
    """
    files = {
        path
        for folder, suffix in ((app_folder, ".py"), (agents_dir, ""))
        if folder
        for path in _files(Path(folder), suffix, Path(data_dir))
    }
    roots = [Path(folder) for folder in (agents_dir, app_folder) if folder]
    digest = hashlib.sha256()
    for name, path in sorted((_name(path, roots), path) for path in files):
        digest.update(name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:_DIGITS] if files else ""


def _name(path: Path, roots: Iterable[Path]) -> str:
    return next(path.relative_to(root).as_posix() for root in roots if path.is_relative_to(root))


def _files(folder: Path, suffix: str, data_dir: Path) -> Iterator[Path]:
    count = 0
    for at, folders, names in os.walk(folder):
        here = Path(at)
        folders[:] = sorted(
            name for name in folders if name[0] != "." and name not in _LEFT_OUT and here / name != data_dir
        )
        for name in sorted(names):
            if name.endswith(suffix) and name[0] != ".":
                count += 1
                if count > _MAX_FILES:
                    return
                yield here / name


async def _disk(path: str) -> Disk:
    usage = await in_time(in_file_thread(shutil.disk_usage, path), _ANSWER_SECONDS)
    return Disk(path, 0, 0) if usage is None else Disk(path, usage.free, usage.total)
