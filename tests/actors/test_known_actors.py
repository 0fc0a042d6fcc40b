"""Actors looked up by name, without Ray."""

import pytest
from ray.exceptions import RaySystemError

from actors import remote
from actors.remote import KEEPER, KnownActors, NamedActor, named
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.testing.clock import ManualClock


@pytest.fixture
def ray(monkeypatch):
    """The actors that Ray knows by name, and the names that it was asked for."""
    actors, asked = {}, []

    def actor_named(name, namespace):
        asked.append((namespace, name))
        return actors.get(name)

    monkeypatch.setattr(remote, "_actor_named", actor_named)
    return actors, asked


async def test_an_actor_is_looked_up_once_and_who_took_its_name_is_known_seconds_later(ray):
    actors, asked = ray
    actors["proxy"] = "first"
    clock = ManualClock()
    known = KnownActors("serve", clock)

    assert await known.find(["proxy"]) == await known.find(["proxy"]) == {"proxy": "first"}
    assert asked == [("serve", "proxy")]

    actors["proxy"] = "second"
    await clock.advance(10.0)
    assert await known.find(["proxy"]) == {"proxy": "second"}


async def test_an_actor_that_is_not_there_is_asked_for_again_and_one_that_nobody_names_is_forgotten(ray):
    actors, asked = ray
    known = KnownActors("serve", ManualClock())
    assert await known.find(["root"]) == {}
    actors["root"] = "came"
    assert await known.find(["root"]) == {"root": "came"}

    assert await known.find([]) == {}
    await known.find(["root"])

    assert len(asked) == 3


def test_names_are_told_by_namespace_after_one_question(monkeypatch):
    answers = iter([[{"namespace": "serve", "name": "proxy"}, {"namespace": "ours", "name": "keeper@1"}]])
    monkeypatch.setattr("ray.util.list_named_actors", lambda all_namespaces: next(answers) if all_namespaces else [])

    assert named("serve", "ours", "others") == ({"proxy"}, {"keeper@1"}, set())


def test_a_part_that_ray_cannot_look_up_is_away_and_no_error_of_rays_gets_through(monkeypatch):
    def lost(_name, namespace):
        raise RaySystemError("the control store is gone")

    monkeypatch.setattr("ray.get_actor", lost)

    with pytest.raises(RuntimeUnavailableError, match="looking for keeper"):
        NamedActor(KEEPER, "owlclaw", "node-a").call_now(lambda keeper: keeper.ready())
