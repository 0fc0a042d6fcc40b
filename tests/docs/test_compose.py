"""docker-compose.yml is a compose file, and says the same as its page and the code. It is not started here."""

import re

import pytest
import yaml
from compose_spec import PyCompose

from owlclaw_ray.settings import load_settings
from tests.docs.snippets import ROOT, code, snippets, table
from tests.hatchet_engine.engine import TENANT, token_for

TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
SERVICES = yaml.safe_load(TEXT)["services"]
VARIABLE = re.compile(r"\$\{(\w+)[^}]*\}")
PAGE = (ROOT / "docs/hatchet.md").read_text(encoding="utf-8")


def environment(service):
    return SERVICES[service].get("environment", {})


def test_it_fits_the_schema_of_compose_files():
    merged = yaml.safe_dump(yaml.safe_load(TEXT))

    spec = PyCompose.from_yaml(merged).to_spec()

    assert set(spec.services) == set(SERVICES)


def test_a_misspelt_key_would_not_fit():
    broken = yaml.safe_load(TEXT)
    broken["services"]["hatchet"]["enviroment"] = {}

    with pytest.raises(ValueError, match="enviroment"):
        PyCompose.from_yaml(yaml.safe_dump(broken)).to_spec()


def test_only_loopback_is_listened_on_and_every_port_is_documented():
    published = [(name, port) for name, service in SERVICES.items() for port in service.get("ports", [])]
    documented = [(code(service), code(port)) for service, port, _ in table("docs/hatchet.md", "service")]

    assert [(name, f"127.0.0.1:{port}:{port}") for name, port in documented] == published
    assert all(f"`{name}`" in PAGE for name in SERVICES)


def test_every_secret_is_a_documented_variable_without_which_nothing_starts():
    documented = [code(variable) for variable, _ in re.findall(r"^   \| (`\w+`) \| (.+) \|$", PAGE, re.MULTILINE)]

    assert set(documented) == set(VARIABLE.findall(TEXT))
    assert all(":?" in each[0] for each in re.finditer(r"\$\{[^}]*\}", TEXT))
    secret = re.compile(r"PASSWORD|SECRET|SALT|KEY$|AUTH$")
    for name in SERVICES:
        named = {key: value for key, value in environment(name).items() if secret.search(key)}
        assert all(VARIABLE.fullmatch(str(value)) for value in named.values()), name


def test_services_reach_one_another_by_names_ports_and_users_that_there_are():
    hosts = re.findall(r"(?:@|//)([a-z][a-z-]*):(\d+)", TEXT)
    ports = {
        "postgres": {"5432"},
        "clickhouse": {"8123", "9000"},
        "minio": {"9000"},
        "localhost": {"8888", "8733", "3000", "9000"},
    }
    assert hosts
    assert all(port in ports[host] for host, port in hosts)
    for service in SERVICES.values():
        assert set(service.get("depends_on", {})) <= SERVICES.keys()
        assert all("healthcheck" in SERVICES[needed] for needed in service.get("depends_on", {}))
    users = set(re.findall(r"postgresql://(\w+):", TEXT))
    assert users == {environment("postgres")["POSTGRES_USER"]}
    databases = {*re.findall(r"CREATE DATABASE (\w+);", TEXT), environment("postgres")["POSTGRES_DB"]}
    assert set(re.findall(r"postgres:5432/(\w+)", TEXT)) == databases - {"owlclaw"}
    langfuse = environment("langfuse")
    assert langfuse["CLICKHOUSE_USER"] == environment("clickhouse")["CLICKHOUSE_USER"]
    assert langfuse["REDIS_HOST"] in SERVICES
    assert langfuse["LANGFUSE_S3_EVENT_UPLOAD_ACCESS_KEY_ID"] == environment("minio")["MINIO_ROOT_USER"]
    of_browsers = "LANGFUSE_S3_MEDIA_UPLOAD_ENDPOINT"
    shared = {key: value for key, value in environment("langfuse-worker").items() if key != of_browsers}
    assert langfuse.items() >= shared.items()
    assert langfuse[of_browsers] == "http://localhost:9000"


def test_every_image_says_its_version():
    tags = {name: service["image"].partition(":")[2] for name, service in SERVICES.items()}

    assert all(re.match(r"v?\d|RELEASE\.\d", tag) for tag in tags.values()), tags


def test_what_the_engine_says_of_itself_is_what_it_listens_on_and_what_the_page_says(tmp_path):
    engine = environment("hatchet")
    token = token_for(engine["SERVER_URL"], engine["SERVER_GRPC_BROADCAST_ADDRESS"])
    (snippet,) = [each for each in snippets("yaml") if each.document.name == "hatchet.md"]
    (tmp_path / "owlclaw.yaml").write_text(snippet.text)

    settings = load_settings(tmp_path, {"OWLCLAW_HATCHET__TOKEN": token})

    assert settings.hatchet.claims["server_url"] == "http://localhost:8888"
    assert settings.hatchet.claims["grpc_broadcast_address"] == f"localhost:{engine['SERVER_GRPC_PORT']}"
    assert (settings.hatchet.tls == "none") == (engine["SERVER_GRPC_INSECURE"] == "t")
    assert settings.store_url.endswith(f"127.0.0.1:5432/{environment('postgres')['POSTGRES_DB']}")
    assert f"--tenant-id {TENANT}" in PAGE
    assert f"{engine['SERVER_URL']} " in PAGE
    assert SERVICES["hatchet"]["volumes"] == ["hatchet:/config"]
    assert "--config /config" in PAGE


def test_every_route_and_setting_of_the_page_exists(api):
    routes = re.findall(r"`(GET|POST) (/v1/[^`]+)`", PAGE)
    assert routes
    assert all(method.lower() in api.openapi()["paths"][path] for method, path in routes)
    keys = {code(key) for key, *_ in table("docs/configuration.md", "key")}
    named = set(re.findall(r"`(hatchet\.\w+)`", PAGE))
    assert named
    assert named <= keys
