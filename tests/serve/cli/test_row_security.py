"""`owlclaw doctor` says when PostgreSQL does not keep tenants' rows apart."""

import pytest

from tests.serve.cli.conftest import Run
from tests.store.sql.conftest import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]
pytestmark = pytest.mark.postgres


@pytest.fixture
def doctor(cli: Run, monkeypatch: pytest.MonkeyPatch):
    def output_for(url: str) -> str:
        monkeypatch.setenv("OWLCLAW_STORE_URL", url)
        return cli("doctor").output.replace("\n", " ")

    return output_for


def test_a_superuser_is_warned_of(doctor, postgres_server, postgres_url):
    said = "WARN store: PostgreSQL does not keep tenants' rows apart by itself: its user owlclaw is a superuser"
    assert said in doctor(postgres_server.url("owlclaw"))


def test_an_ordinary_user_is_fine(doctor, postgres_url):
    found = doctor(postgres_url)
    assert "OK   store" in found
    assert "apart by itself" not in found
