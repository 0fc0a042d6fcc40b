"""What `owlclaw up` finds out before it starts Ray."""

import socket

import pytest

from owlclaw_ray.errors import ConfigurationError
from owlclaw_ray.settings import load_settings
from serve.preflight import check_ray


def settings(folder, address):
    (folder / "agents").mkdir(exist_ok=True)
    (folder / "owlclaw.yaml").write_text("app: app:app\nagents_dir: agents\n")
    postgres = {"OWLCLAW_STORE_URL": "postgresql://owlclaw@127.0.0.1/owlclaw"}
    return load_settings(folder, {"OWLCLAW_RAY__ADDRESS": address, **postgres} if address else {})


def test_a_cluster_that_does_not_answer_is_refused_before_ray_tries_for_minutes(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        with pytest.raises(ConfigurationError, match=f"ray.address: nothing answers at {address}"):
            check_ray(settings(tmp_path, address))


def test_a_cluster_that_answers_and_addresses_that_only_ray_can_read_pass(tmp_path):
    with socket.socket() as head:
        head.bind(("127.0.0.1", 0))
        head.listen()
        for address in (f"127.0.0.1:{head.getsockname()[1]}", "auto", None):
            check_ray(settings(tmp_path, address))
