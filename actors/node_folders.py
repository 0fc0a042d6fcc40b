"""What tenants have in the data folders of all nodes: each may have its own, with copies of memories' indexes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from typing_extensions import override

from owlclaw_ray.ids import TenantId
from owlclaw_ray.runtime.tenant_places import count_files, remove_files
from owlclaw_ray.runtime.tenant_removal import TenantFiles, TenantPlace

_SECONDS = 60.0
"""How long the nodes have. One whose first worker starts needs some seconds."""


class NodeFolders(TenantPlace):
    """The data folders of all nodes that Ray can reach; the names of others are told, unless Ray has forgotten them."""

    name = "files of data_dir"

    def __init__(self, data_dir: str) -> None:
        self._data_dir = data_dir

    @override
    def remove(self, tenant: TenantId) -> TenantFiles:
        return self._ask(remove_files, tenant)

    @override
    def left(self, tenant: TenantId) -> TenantFiles:
        return self._ask(count_files, tenant)

    def _ask(self, question: Callable[[Path, TenantId], int], tenant: TenantId) -> TenantFiles:
        nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        alive = [(node["NodeManagerHostname"], node["NodeID"]) for node in nodes if node["Alive"]]
        asked = [(host, _answer_of(node_id, question, Path(self._data_dir), tenant)) for host, node_id in alive]
        number, unreached = 0, {node["NodeManagerHostname"] for node in nodes} - {host for host, _ in alive}
        for host, answer in asked:
            try:
                number += ray.get(answer, timeout=_SECONDS)
            except (RayError, TimeoutError):
                unreached.add(host)
        return TenantFiles(number, tuple(sorted(unreached)))


def _answer_of(node_id: str, question: Callable[[Path, TenantId], int], data_dir: Path, tenant: TenantId) -> Any:
    where = NodeAffinitySchedulingStrategy(node_id, soft=False)
    task: Any = ray.remote(question).options(num_cpus=0, max_retries=1, scheduling_strategy=where)
    return task.remote(data_dir, tenant)
