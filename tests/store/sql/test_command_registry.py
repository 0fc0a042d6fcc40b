from typing import get_args

from owlclaw_ray.store.commands import Command
from owlclaw_ray.store.sql import batch, command_registry


def test_of_every_command_the_store_knows_what_it_needs_and_what_it_does():
    assert batch
    assert len(get_args(Command)) == 57
    assert set(command_registry._NEEDS) == set(command_registry._EFFECTS) == set(get_args(Command))
