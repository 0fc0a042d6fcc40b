"""The classes of the parts, each imported when a part of it is to be made: together they are a third of a second of processor time."""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any, TypeVar, cast

from actors.remote import DIRECTORY, EXPORTER, GATEWAY, KEEPER, MCP_POOL, SCHEDULER, PartName

A = TypeVar("A")

_CLASSES: Mapping[PartName[Any], str] = {
    KEEPER: "actors.keeper:KeeperActor",
    GATEWAY: "actors.model_gateway:ModelGatewayActor",
    MCP_POOL: "actors.mcp_pool:McpPoolActor",
    DIRECTORY: "actors.directory:DirectoryActor",
    SCHEDULER: "actors.scheduler:SchedulerActor",
    EXPORTER: "actors.exporter:ExporterActor",
}


def class_of(part: PartName[A]) -> type[A]:
    """Return the class of the actors of that name."""
    return cast("type[A]", resolve_name(_CLASSES[part]))
