"""A runtime that others can reach: by its one port, with a key, under TLS; and nothing else of it listens for them."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress

import httpx
import psutil
import pytest
import yaml

from serve.pid_file import RAY_TOKEN
from serve.processes import command_line
from tests.certificates import make_certificate

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

STRANGER = """
import sys

from ray._raylet import GcsClient

print(len(GcsClient(address=sys.argv[1]).get_all_node_info(timeout=20)), "nodes")
"""
"""What somebody does who reaches Ray's control store."""


def exposed(installation):
    """The name of each process of the runtime with each socket of it that others than this machine reach."""
    found = set()
    for process in [psutil.Process(installation.process.pid), *installation.family()]:
        with suppress(psutil.Error):  # it ended meanwhile
            name = process.name()
            for each in process.net_connections(kind="inet"):
                waits = each.status == psutil.CONN_LISTEN or (each.status == psutil.CONN_NONE and each.laddr)
                if waits and each.laddr.ip.removeprefix("::ffff:") not in {"127.0.0.1", "::1"}:
                    found.add((name, each.laddr.port))
    return found


def control_store(installation):
    for process in installation.family():
        for word in command_line(process):
            if word.startswith("--gcs-address="):
                return word.partition("=")[2]
    raise AssertionError("no raylet")


def stranger(address, **variables):
    """What the stranger is told, with these variables beside those that Ray has no token from."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}  # noqa: TID251
    command = [sys.executable, "-c", STRANGER, address]
    said = subprocess.run(command, env=environ | variables, capture_output=True, text=True, timeout=120, check=False)
    return said.stdout + said.stderr


def test_others_reach_the_api_alone_by_tls_and_with_a_key(installation, tmp_path):
    (tmp_path / "tls").mkdir()
    files = make_certificate(tmp_path / "tls")
    path = installation.folder / "owlclaw.yaml"
    settings = yaml.safe_load(path.read_text())
    settings["http"] |= {"host": "0.0.0.0", "tls_certificate": "tls/tls.crt", "tls_key": "tls/tls.key"}
    path.write_text(yaml.safe_dump(settings))
    installation.define("watch", {"turns": [{"text": "done"}]})

    with pytest.raises(
        AssertionError, match=r"others can reach, and there are no keys yet.*owlclaw keys create --first"
    ):
        installation.up()
    installation.said.clear()
    key = installation.owlclaw("keys", "create", "--first").strip()
    installation.up()

    url = f"https://localhost:{installation.port}"
    with httpx.Client(base_url=url, verify=files.trusting) as http:
        assert http.get("/v1/runs").status_code == 401
        kept = http.get("/v1/runs", headers={"Authorization": f"Bearer {key}"})
        assert kept.status_code == 200
        assert kept.headers["strict-transport-security"]
        assert http.get("/docs").status_code == 404
        assert http.get("/healthz", headers={"Host": "evil.example"}).status_code == 421
    installation.variables = {"OWLCLAW_URL": url, "OWLCLAW_API_KEY": key, "SSL_CERT_FILE": str(files.authority)}
    installation.owlclaw("trigger", "watch")
    del installation.variables["OWLCLAW_URL"]
    assert "watch" in installation.owlclaw("runs"), "the folder's own runtime is found, by the name of its certificate"

    assert exposed(installation) == {("haproxy", installation.port)}

    token, address = installation.folder / ".owlclaw" / RAY_TOKEN, control_store(installation)
    assert token.stat().st_mode & 0o077 == 0
    assert "1 nodes" in stranger(address, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(token))
    for wrong in ({"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}):
        assert "nodes" not in stranger(address, **wrong).split("\n")[0], "Ray lets nobody in without its token"

    assert installation.interrupt() == 0
    assert not token.exists()
