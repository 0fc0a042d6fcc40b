"""What of an actor's class is loaded to call it."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
import ray

from actors.handles import named_actor
from actors.remote_actor import RemoteActor


class Loading:
    """Ray, which loads the class of an actor to make a handle of it."""

    def __init__(self):
        self.loaded: list[str] = []
        self.meanwhile = lambda: None

    def load_actor_class(self, job_id, descriptor):
        self.loaded.append(descriptor)
        return f"the class of {descriptor}"

    def get_actor(self, name, *, namespace):
        self.meanwhile()
        if name == "nobody":
            raise ValueError(name)
        return self.load_actor_class("job", f"{name} in {namespace}")


@pytest.fixture
def loading(monkeypatch):
    loading = Loading()
    monkeypatch.setattr(ray._private.worker, "global_worker", SimpleNamespace(function_actor_manager=loading))
    monkeypatch.setattr(ray, "get_actor", loading.get_actor)
    return loading


def test_a_handle_has_what_is_called_of_it_and_its_class_is_not_loaded(loading):
    of_handle = [named_actor("keeper", "owlclaw")]
    load = loading.load_actor_class
    of_handle.append(named_actor("keeper", "owlclaw"))

    assert loading.loaded == []
    assert loading.load_actor_class is load  # which is not wrapped again with each look
    for each in of_handle:
        assert issubclass(each, RemoteActor)
        assert each.answer
        assert each.__ray_call__


def test_the_classes_that_others_load_meanwhile_or_later_are_theirs(loading):
    found = []
    other = threading.Thread(target=lambda: found.append(loading.load_actor_class("job", "replica")))
    loading.meanwhile = lambda: (other.start(), other.join())

    named_actor("keeper", "owlclaw")
    found.append(loading.load_actor_class("job", "proxy"))

    assert found == ["the class of replica", "the class of proxy"]


def test_a_name_that_nobody_has_leaves_the_next_class_alone(loading):
    with pytest.raises(ValueError, match="nobody"):
        named_actor("nobody", "owlclaw")

    assert loading.load_actor_class("job", "proxy") == "the class of proxy"
