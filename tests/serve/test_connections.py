from __future__ import annotations

import pytest

from serve.connections import connections


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
