import pytest

from tests.memory.homes import Homes
from tests.store.sql.conftest import postgres_server, postgres_url, sqlite_url

__all__ = ["postgres_server", "postgres_url", "sqlite_url"]


@pytest.fixture(params=["files", "sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def homes(request, tmp_path):
    """Each home of memories in turn."""
    fixtures = {"files": "", "sqlite": "sqlite_url", "postgresql": "postgres_url"}
    name = fixtures[request.param]
    made = Homes(tmp_path, request.getfixturevalue(name) if name else "")
    yield made
    made.close()
