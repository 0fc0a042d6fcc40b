from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from serve.connections import connections
from serve.loopback import haproxy_environment

CONFIGURATION = """global
    maxconn 14096
    nbthread 4
frontend prometheus
    bind :9101
frontend http_frontend
    bind *:8404
"""


@pytest.mark.parametrize(
    ("streams", "files", "most", "for_streams"),
    [
        (10_000, 1_000_000, 14_096, 10_000),
        (10_000, 20_000, 9_750, 9_238),
        (2, 1_000_000, 4_098, 2),
        (10_000, 4_096, 1_798, 1_286),
        (10_000, 64, 1_024, 512),
    ],
)
def test_streams_leave_connections_to_others_and_what_is_open_fits_the_limit_of_files(
    streams: int, files: int, most: int, for_streams: int
):
    found = connections(streams, files)

    assert (found.most, found.streams) == (most, for_streams)
    assert found.most - found.streams >= 512


def test_haproxy_takes_so_many_connections_and_keeps_no_files_for_pipes(tmp_path: Path):
    environment = haproxy_environment(tmp_path, 14_096)
    configuration = tmp_path / "haproxy.cfg"
    configuration.write_text(CONFIGURATION)

    for _ in range(2):
        checked = subprocess.run(
            [environment["RAY_SERVE_HAPROXY_BINARY_PATH"], "-c", "-f", str(configuration)],
            capture_output=True,
            text=True,
            check=False,
        )

    assert environment["RAY_SERVE_HAPROXY_MAXCONN"] == "14096"
    assert configuration.read_text().splitlines()[1:4] == ["    maxconn 14096", "    maxpipes 64", "    nbthread 4"]
    assert "bind 127.0.0.1:9101" in configuration.read_text()
    assert "Fatal" not in checked.stderr
