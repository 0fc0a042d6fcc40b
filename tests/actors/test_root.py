"""What a root tells the parts that it makes, without Ray."""

import pickle

import pytest

from actors.root import RootActor
from owlclaw_ray.configuration.hatchet import TOKEN_VARIABLE
from owlclaw_ray.settings import load_settings
from serve.runtime_plan import hatchet_plan, plan_of
from tests.hatchet_engine.engine import token_for

TOKEN = token_for("https://hatchet.example.org", "engine.example.org:7077")


@pytest.fixture
def told(monkeypatch):
    """What actors were made with, by the names of their classes."""
    told = {}
    monkeypatch.setattr("actors.root.make", lambda kind, *arguments, **_: told.setdefault(kind.__name__, arguments))
    monkeypatch.setattr("actors.root.full_name", lambda name: name)
    monkeypatch.setattr("actors.root.configure", lambda _: None)
    monkeypatch.setattr("actors.root.restarted", lambda: True)
    monkeypatch.setattr("actors.liveness.here", lambda: "node_1")
    return told


async def test_the_engines_token_is_told_to_the_scheduler_alone(told, tmp_path):
    (tmp_path / "agents").mkdir()
    settings = load_settings(tmp_path, {TOKEN_VARIABLE: TOKEN})

    root = RootActor(plan_of(settings), (), hatchet_plan(settings))
    await root.retire()

    assert told.keys() > {"AgentActor", "KeeperActor", "ModelGatewayActor"}
    assert [name for name, arguments in told.items() if TOKEN.encode() in pickle.dumps(arguments)] == ["SchedulerActor"]
