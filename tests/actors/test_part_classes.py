import pytest

from actors.part_classes import class_of
from actors.remote import PARTS
from actors.remote_actor import RemoteActor


@pytest.mark.parametrize("part", PARTS)
def test_each_part_has_a_class_of_actors_that_is_named_after_it(part):
    found = class_of(part)

    assert issubclass(found, RemoteActor)
    assert str(part).replace("_", "") in found.__name__.lower()
