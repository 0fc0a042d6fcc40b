"""What a root tells the parts that it makes, without Ray."""

import pickle

import pytest

from actors.root import RootActor
from owlclaw_ray.configuration.own_variables import STORE_URL_VARIABLE, TOKEN_VARIABLE
from owlclaw_ray.settings import load_settings
from serve.runtime_plan import entrusted_of, hatchet_plan, plan_of
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


@pytest.mark.parametrize(
    ("variable", "value", "secret"),
    [
        (TOKEN_VARIABLE, TOKEN, TOKEN),
        (STORE_URL_VARIABLE, "postgresql://owl:swordfish%2F4711@db:5433/owl?sslmode=require", "swordfish"),
        (STORE_URL_VARIABLE, "postgresql:///owl?host=db&user=owl&password=swordfish", "swordfish"),
        (STORE_URL_VARIABLE, "postgresql://owl:sword@fish@db/owl", "fish"),
    ],
)
async def test_no_actor_is_told_a_secret_of_the_runtime_when_it_is_made(told, tmp_path, variable, value, secret):
    (tmp_path / "agents").mkdir()
    settings = load_settings(tmp_path, {variable: value})
    assert secret in repr((entrusted_of(settings, ""), settings.store_url))

    root = RootActor(plan_of(settings), (), hatchet_plan(settings))
    await root.retire()

    assert told.keys() > {"AgentActor", "KeeperActor", "ModelGatewayActor"}
    assert [name for name, arguments in told.items() if secret.encode() in pickle.dumps(arguments)] == []
    assert secret not in repr((root._plan, root._hatchet))


def test_a_plan_says_where_a_database_is(tmp_path):
    found = plan_of(
        load_settings(tmp_path, {STORE_URL_VARIABLE: "postgresql://owl:swordfish@db:5433/owl?sslmode=require"})
    )

    assert found.store_url == "postgresql+asyncpg://db:5433/owl"
