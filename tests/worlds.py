from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from owlclaw_ray.domain.model import ModelReply, ModelRequest
from owlclaw_ray.domain.run import Usage
from owlclaw_ray.domain.tool import ToolCall
from owlclaw_ray.ids import ToolCallId
from tests.world import World, new_stores


@dataclass
class Agents:
    """A folder of agent definitions to write."""

    folder: Path

    def define(self, name: str = "watch", *, model: str = "scripted:echo", **options: object) -> Path:
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "SOUL.md").write_text("You are calm.")
        (folder / "IDENTITY.md").write_text("# Watch\n\n## My Capabilities\n- look\n")
        (folder / "agent.yaml").write_text(yaml.safe_dump({"model": model, **options}))
        return folder

    def script(self, *turns: dict[str, object], name: str = "watch", **options: object) -> Path:
        folder = self.define(name, model="scripted:script.yaml", **options)
        (folder / "script.yaml").write_text(yaml.safe_dump({"rules": [{"turns": list(turns)}]}))
        return folder


@pytest.fixture
def agents(tmp_path: Path) -> Agents:
    return Agents(tmp_path / "agents")


@pytest.fixture(scope="module")
def stores():
    return new_stores()


@pytest.fixture
async def world(stores) -> AsyncIterator[World]:
    """A world of which one node runs."""
    made = World(*stores)
    await made.nodes[0].start()
    yield made
    await made.end()


def calls(*named: tuple[str, dict[str, object]]) -> dict[str, object]:
    """A script's turn that asks for tools."""
    return {"tool_calls": [{"name": name, "arguments": arguments} for name, arguments in named]}


@dataclass
class Model:
    """A ModelClient that a test steers: `decide` gets the request and returns a reply, or waits, or raises."""

    decide: Callable[[ModelRequest], object]
    requests: list[ModelRequest] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    def serves(self, model: str) -> bool:
        return True

    async def load(self) -> None:
        pass

    async def complete(self, request: ModelRequest, model: str) -> ModelReply:
        self.requests.append(request)
        self.asked.set()
        decided = self.decide(request)
        if asyncio.iscoroutine(decided):
            decided = await decided
        assert isinstance(decided, ModelReply)
        return decided


def says(text: str) -> ModelReply:
    return ModelReply(text, (), "test", Usage(10, 5))


def asks(*wanted: tuple[str, str], ids: tuple[str, ...] = ()) -> ModelReply:
    made = [
        ToolCall(ToolCallId(ids[index] if ids else f"c{index}"), name, arguments)
        for index, (name, arguments) in enumerate(wanted)
    ]
    return ModelReply("", tuple(made), "test", Usage(10, 5))
