"""A PostgreSQL server for clusters to share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from owlclaw_ray.testing.postgres import PostgresServer, find_binaries


@pytest.fixture(scope="module")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    binaries = find_binaries()
    if binaries is None:
        if "CI" in os.environ:  # noqa: TID251
            pytest.fail("CI promises PostgreSQL")
        pytest.skip("needs PostgreSQL's server binaries")
    with PostgresServer(tmp_path_factory.mktemp("postgres") / "pg", binaries) as server:
        yield server.url()
