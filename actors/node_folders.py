"""What tenants have in the data folders of all nodes: each may have its own, with copies of memories' indexes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ray
from ray.exceptions import RayError
from typing_extensions import override

from actors.nodes import living_nodes, lost_hosts, on_node
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
        asked = [(node.host, on_node(node.node_id, question, Path(self._data_dir), tenant)) for node in living_nodes()]
        number, unreached = 0, set(lost_hosts())
        for host, answer in asked:
            try:
                number += ray.get(answer, timeout=_SECONDS)
            except (RayError, TimeoutError):
                unreached.add(host)
        return TenantFiles(number, tuple(sorted(unreached)))
