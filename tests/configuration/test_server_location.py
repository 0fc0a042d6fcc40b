"""Programs find a runtime where the runtime itself, by the same file and variables, thinks that it is."""

from pathlib import Path

import pytest

from owlclaw_ray.configuration.server_location import find_runtime
from owlclaw_ray.errors import ConfigurationError
from owlclaw_ray.settings import load_settings


@pytest.mark.parametrize(
    ("text", "environ"),
    [
        (None, {}),
        ("", {}),
        ("http:\n  port: 9000\n", {}),
        ("http:\n  port: '9000'\n  host: '::1'\n", {}),
        ("http:\n  host: localhost\ndata_dir: ~/owls\n", {}),
        ("http:\n", {"OWLCLAW_HTTP__PORT": " 9001 "}),
        ("http:\n  port: 9000\ndata_dir: here\n", {"OWLCLAW_HTTP__PORT": "", "OWLCLAW_DATA_DIR": "/tmp/there"}),
    ],
)
def test_a_runtime_is_where_it_thinks_it_is(tmp_path: Path, text: str | None, environ: dict[str, str]):
    if text is not None:
        (tmp_path / "owlclaw.yaml").write_text(text)

    found, settings = find_runtime(tmp_path, environ), load_settings(tmp_path, environ)

    assert (found.url, found.data_dir) == (settings.http.url, settings.data_dir)


@pytest.mark.parametrize("port", ["web", "0", "65536", "-1", "1.5", "[1]"])
def test_a_port_that_is_none_is_refused_by_both(tmp_path: Path, port: str):
    (tmp_path / "owlclaw.yaml").write_text(f"http:\n  port: {port}\n")

    for read in (find_runtime, load_settings):
        with pytest.raises(ConfigurationError) as caught:
            read(tmp_path, {})
        assert caught.value.problems[0].where == "owlclaw.yaml:2: http.port"


@pytest.mark.parametrize("data_dir", ["''", "5", "[a]"])
def test_a_folder_that_is_none_is_refused(tmp_path: Path, data_dir: str):
    (tmp_path / "owlclaw.yaml").write_text(f"data_dir: {data_dir}\n")

    with pytest.raises(ConfigurationError):
        find_runtime(tmp_path, {})
