"""What `owlclaw up` finds out before it starts Ray."""

import asyncio
import socket
from contextlib import closing
from datetime import timedelta

import pytest

from owlclaw_ray.errors import ConfigurationError
from owlclaw_ray.settings import load_settings
from serve.cli.keys import _create_first
from serve.cli.project_checks import check_project
from serve.launch import _warm
from serve.preflight import check_certificate, check_keys, check_ray, prepare, proxy_advice
from tests.certificates import make_certificate
from tests.definitions.writing import write_definition


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


def others(folder, **more):
    (folder / ".owlclaw").mkdir(exist_ok=True)
    return load_settings(folder, {"OWLCLAW_HTTP__HOST": "0.0.0.0", "OWLCLAW_HTTP__INSECURE": "true", **more})


def test_a_server_for_others_is_refused_until_there_is_a_key(tmp_path):
    found = others(tmp_path)
    check_keys(load_settings(tmp_path, {}))

    with pytest.raises(
        ConfigurationError,
        match=r"http\.host: is '0\.0\.0\.0', .*make the first key with: owlclaw keys create --first",
    ):
        check_keys(found)

    asyncio.run(_create_first(tmp_path, "first", None))
    check_keys(found)


def test_proxies_that_a_cluster_does_not_ask_for_are_warned_of(tmp_path):
    proxies = {"OWLCLAW_HTTP__PROXIES": '["10.0.0.0/8"]'}

    def told(environ):
        return [each.where for each in proxy_advice(load_settings(tmp_path, environ))]

    assert told({**proxies, "OWLCLAW_RAY__ADDRESS": "auto"}) == ["http.proxies"]
    assert told(proxies) == told({"OWLCLAW_RAY__ADDRESS": "auto"}) == []


def test_a_certificate_is_checked_and_told_when_it_expires_soon_and_refused_on_a_cluster(tmp_path):
    files = make_certificate(tmp_path, life=timedelta(days=3))
    tls = {"OWLCLAW_HTTP__TLS_CERTIFICATE": str(files.certificate), "OWLCLAW_HTTP__TLS_KEY": str(files.key)}

    assert check_certificate(load_settings(tmp_path, {})) == ""
    assert check_certificate(load_settings(tmp_path, tls)).startswith(
        f"warning: http.tls_certificate: {files.certificate} expires in 2 days"
    )
    with pytest.raises(ConfigurationError, match="Ray Serve's own proxy listens, which has no TLS"):
        check_certificate(load_settings(tmp_path, {**tls, "OWLCLAW_RAY__ADDRESS": "auto"}))
    make_certificate(tmp_path, life=timedelta(hours=-1))
    with pytest.raises(ConfigurationError, match="expired at"):
        check_certificate(load_settings(tmp_path, tls))


@pytest.mark.parametrize(
    ("days", "level", "said"),
    [(3, "WARN", "expires in 2 days"), (90, "OK", "for localhost, 127.0.0.1"), (0, "FAIL", "expired at")],
)
def test_the_doctor_tells_how_the_certificate_is(tmp_path, days, level, said):
    files = make_certificate(tmp_path, life=timedelta(days=days, seconds=-1))
    tls = {"OWLCLAW_HTTP__TLS_CERTIFICATE": str(files.certificate), "OWLCLAW_HTTP__TLS_KEY": str(files.key)}

    [found] = [
        each
        for each in check_project(tmp_path, tls)
        if each.subject == "certificate" or "http.tls" in each.message or "http.tls" in each.subject
    ]

    assert found.level.value == level
    assert said in found.message


def test_a_misspelt_model_and_one_without_its_key_are_told_when_all_is_ready(tmp_path):
    own = "model: openai/qwen3\napi_base: http://127.0.0.1:1/v1\napi_key_env: GPU_KEY\n"
    write_definition(tmp_path / "agents" / "own", agent=own)
    write_definition(tmp_path / "agents" / "typo", agent="model: openai/gpt-4o-mni\n")
    asked, told = [], []

    def models(real):
        asked.extend((each.model, each.endpoint and each.endpoint.api_key) for each in real)
        return {"openai/qwen3": "GPU_KEY"}

    _warm(prepare(tmp_path, {}), lambda: None, models, told.append)

    assert asked == [("openai/qwen3", "${GPU_KEY}"), ("openai/gpt-4o-mni", None)]
    assert [each for each in told if each.startswith("warning: ")] == [
        "warning: openai/gpt-4o-mni: litellm knows no such model; did you mean gpt-4o-mini?",
        "warning: openai/qwen3 has no key: set GPU_KEY and start again (owlclaw doctor checks it)",
    ]


def test_memories_in_files_are_not_left_behind_unless_the_settings_say_where_memories_are(tmp_path):
    write_definition(tmp_path / "agents" / "own", agent="model: scripted:echo\n")
    postgres = {"OWLCLAW_STORE_URL": "postgresql://owlclaw@127.0.0.1/owlclaw"}
    assert prepare(tmp_path, postgres)
    file = tmp_path / ".owlclaw" / "agents" / "default" / "own" / "MEMORY.md"
    file.parent.mkdir(parents=True)
    file.write_text("## tea\n")

    with pytest.raises(
        ConfigurationError, match=r"memory\.home: is not set, and 1 agent has a MEMORY\.md in .*owlclaw memory import"
    ):
        prepare(tmp_path, postgres)

    assert prepare(tmp_path, {})
    assert not prepare(tmp_path, {**postgres, "OWLCLAW_MEMORY__HOME": "files"}).advice
    [said] = prepare(tmp_path, {**postgres, "OWLCLAW_MEMORY__HOME": "database"}).advice
    assert str(said).startswith("memory.home: is database, and 1 agent has a MEMORY.md in files of ")


def test_artifacts_in_files_are_not_left_behind_unless_the_settings_say_where_artifacts_are(tmp_path):
    write_definition(tmp_path / "agents" / "own", agent="model: scripted:echo\n")
    postgres = {"OWLCLAW_STORE_URL": "postgresql://owlclaw@127.0.0.1/owlclaw"}
    folder = tmp_path / ".owlclaw" / "agents" / "default" / "own" / "artifacts"
    folder.mkdir(parents=True)
    assert prepare(tmp_path, postgres), "a folder without artifacts is nothing"
    for number in range(2):
        (folder / f"artifact_{number}.txt").write_text("long")

    with pytest.raises(
        ConfigurationError, match=r"artifacts\.home: is not set, and 1 agent has artifacts in .*set it to files; or"
    ):
        prepare(tmp_path, postgres)

    assert not prepare(tmp_path, {}).advice
    assert not prepare(tmp_path, {**postgres, "OWLCLAW_ARTIFACTS__HOME": "files"}).advice
    for environ in ({}, postgres):
        [said] = prepare(tmp_path, {**environ, "OWLCLAW_ARTIFACTS__HOME": "database"}).advice
        assert str(said).startswith("artifacts.home: is database, and 1 agent has artifacts in files of ")


def test_a_place_for_large_artifacts_that_cannot_be_is_refused_and_one_that_is_away_is_not(tmp_path, monkeypatch):
    write_definition(tmp_path / "agents" / "own", agent="model: scripted:echo\n")

    def with_artifacts_at(url):
        return prepare(tmp_path, {"OWLCLAW_ARTIFACTS__URL": url})

    with pytest.raises(ConfigurationError, match=r"artifacts\.url: file://.*/none does not exist.*make the folder"):
        with_artifacts_at(f"file://{tmp_path}/none")
    assert not (tmp_path / "none").exists()
    assert with_artifacts_at(f"file://{tmp_path}").advice == ()

    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{probe.getsockname()[1]}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "quite-secret")
        [advice] = with_artifacts_at("s3://bucket").advice

    assert str(advice).startswith("artifacts.url: s3://bucket cannot be used: ")
    assert "results that are larger than artifacts.limit_bytes are cut" in str(advice)
