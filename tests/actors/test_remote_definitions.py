"""Definitions as an agent's process knows them: asked of the Directory, tenant by tenant."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from actors.agent import RemoteDefinitions
from owlclaw_ray.domain.agent import AgentDefinition, ModelChoice
from owlclaw_ray.testing.clock import ManualClock
from tests.actors.steered import SteeredActors

SHARED = AgentDefinition("watch", "v1", "", "shared", "", "", ModelChoice(("test",)))
OWN = replace(SHARED, version="own", soul="of Acme")


class Parts(SteeredActors):
    """A Directory with these definitions, by qualified names."""

    def __init__(self):
        super().__init__()
        self.there = {"watch": SHARED, "acme/watch": OWN, "other/watch": SHARED}

    def answer(self, part, method, *arguments):
        name, known_version = arguments
        found = self.there[name]
        return None if found.version == known_version else replace(found)


@pytest.fixture
def parts(monkeypatch):
    parts = Parts()
    monkeypatch.setattr("actors.agent.NamedActor", parts.named_actor)
    return parts


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def definitions(parts, clock):
    return RemoteDefinitions("trial", clock)


async def test_what_a_tenant_has_not_of_its_own_is_kept_once(definitions):
    shared = await definitions.get("watch")

    assert await definitions.get("other/watch") is shared
    assert (await definitions.get("acme/watch")).soul == "of Acme"


async def test_what_is_said_of_one_definition_is_forgotten_for_all_tenants(definitions, parts):
    for name in parts.there:
        await definitions.get(name)
    parts.there |= {name: replace(each, version="v2", soul="new") for name, each in parts.there.items()}

    definitions.forget("watch")

    assert {(await definitions.get(name)).soul for name in parts.there} == {"new"}


async def test_while_the_directory_is_away_a_tenant_gets_its_own_definition_or_waits(definitions, parts, clock):
    for name in ("watch", "acme/watch"):
        await definitions.get(name)
    parts.dead.add(("directory", ""))
    await clock.advance(2)

    assert (await definitions.get("acme/watch")).soul == "of Acme"
    asked = len(parts.asked)
    waiting = asyncio.create_task(definitions.get("other/watch"))
    while len(parts.asked) < asked + 3:
        await clock.advance(0.2)
    assert not waiting.done()
    parts.dead.clear()
    await clock.advance(0.2)
    assert (await waiting).soul == "shared"
