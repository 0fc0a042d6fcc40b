"""A cancellation of a run that the tenant does not have."""

from __future__ import annotations

import pytest

from owlclaw_ray.errors import NotFoundError
from owlclaw_ray.ids import RunId, TenantId
from owlclaw_ray.runtime.api import Runtime


class NothingThere:
    """A store in which the tenant has nothing, and that notes what is asked of it."""

    def __init__(self):
        self.applied = []

    async def read(self, query):
        return None

    async def apply(self, commands):
        self.applied += commands


class OnlyRuns(Runtime):
    """A runtime that has a store and nothing else."""

    def __init__(self, store):
        self._store = store


async def test_a_run_of_others_is_not_found_before_its_agent_is_loaded_and_locked():
    store = NothingThere()

    with pytest.raises(NotFoundError):
        await OnlyRuns(store).cancel(TenantId("acme"), RunId("run_1"))

    assert store.applied == []
