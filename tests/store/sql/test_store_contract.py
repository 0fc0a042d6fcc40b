from __future__ import annotations

import pytest

from owlclaw_ray.store.command_link import CommandLink, answered
from owlclaw_ray.store.group_commit import GroupCommit
from owlclaw_ray.store.sql.factory import open_store
from tests.contracts.store_contract import StoreContract


class TestSqlStore(StoreContract):
    pass


class LinkedStore:
    """A store whose commands and outcomes pass through a CommandLink; queries go to it directly."""

    def __init__(self, store):
        self._store, commits = store, GroupCommit(store, linger=0)
        self.apply = CommandLink(lambda parcels: answered(commits, parcels)).apply

    def __getattr__(self, name):
        return getattr(self._store, name)


class TestStoreBehindACommandLink(StoreContract):
    """Whatever the contract sends and is answered survives the way there and back."""

    @pytest.fixture
    async def store(self, sqlite_url):
        opened = await open_store(sqlite_url, writer="keeper-1")
        yield LinkedStore(opened)
        await opened.close()
