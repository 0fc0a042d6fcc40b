"""Settings as they are in force: each with where it comes from, and no secret among them."""

from __future__ import annotations

import base64
import json
import typing
from pathlib import Path

from pydantic import BaseModel, SecretStr

from owlclaw_ray.configuration.section import CONFIDENTIAL
from owlclaw_ray.configuration.setting_sources import NOT_SHOWN, SettingSource
from owlclaw_ray.settings import FileSettings, read_settings

CANARY = "canary7secret"
FILE = f"""\
store_url: postgresql://shop:{CANARY}@db.example/shop?password={CANARY}
http:
  port: 9000
mcp:
  servers:
    files:
      command: npx
      args: [--token, {CANARY}]
      env: {{FILES_TOKEN: "${{FILES_TOKEN}}", OTHER: {CANARY}}}
    web:
      url: https://web.example/mcp?key={CANARY}
      headers: {{X-Api: "Basic {CANARY} ${{WEB_TOKEN}}"}}
    mail:
      url: https://web.example/mcp?user=ada@corp.example&key={CANARY}
models:
  providers:
    openai:
      api_key: ${{OPENAI_API_KEY}}
      extra_headers: {{X-Other: {CANARY}}}
tracing:
  endpoint: http://user:{CANARY}@traces.example:4318
  headers: {{X-Trace: {CANARY}}}
ledger:
  redact: [{CANARY}]
webhooks:
  sources:
    github:
      agent: triage
      secret: ${{GITHUB_SECRET}}
      payload: {{about: "{{body}}", password: {CANARY}}}
"""
ENVIRON = {
    "OWLCLAW_HTTP__PORT": "9100",
    "OWLCLAW_LOG__LEVEL": "debug",
    "OWLCLAW_MODELS__PRICES": '{"own-*": {"prompt": 1, "completion": 2}}',
    "OPENAI_API_KEY": CANARY,
}
HARMLESS = {
    "mcp.servers.tenants",
    "tools.code.tenants",
    "access.issuers.sign_in.client_id", "access.issuers.sign_in.scopes", "access.sign_in.public_url", "webhooks.sources.tenant",
    "webhooks.sources.tenant_secrets",
    "access.issuers.agents_claim", "access.issuers.algorithms", "access.issuers.audience", "access.issuers.issuer",
    "access.issuers.jwks_url", "access.issuers.name", "access.issuers.name_claim", "access.issuers.roles", "access.issuers.scopes",
    "access.issuers.scopes_claim", "access.issuers.tenant", "access.issuers.tenant_claim", "access.issuers.tenants", "app",
    "artifacts.url", "budgets.cheaper", "budgets.name", "budgets.tools", "budgets.zone", "fallback", "hatchet.api_url",
    "hatchet.grpc_address", "hatchet.namespace", "hatchet.tls_server_name", "http.allowed_hosts", "http.cors_origins", "http.host",
    "http.proxies", "mcp.servers.command", "mcp.servers.tags", "mcp.servers.tools.tags", "mcp.servers.url", "memory.embedder",
    "model", "models.context_windows", "models.limits.models", "models.limits.property_names", "models.limits.refused",
    "models.providers.api_base", "models.providers.api_key", "models.providers.api_key_env", "models.providers.api_version",
    "models.providers.key_secret", "models.routes", "permissions.allow", "permissions.ask", "permissions.deny",
    "permissions.not_by_submitter", "permissions.two_people", "ray.address", "store_url", "tools.agents.definitions",
    "tools.agents.grant", "tools.code.env", "tools.code.sensitive_paths", "tracing.endpoint", "webhooks.callbacks.allowed_networks",
    "webhooks.callbacks.previous_secret", "webhooks.callbacks.secret", "webhooks.sources.agent", "webhooks.sources.callback_url",
    "webhooks.sources.dedupe", "webhooks.sources.focus", "webhooks.sources.payload", "webhooks.sources.previous_secret",
    "webhooks.sources.secret", "webhooks.sources.session", "webhooks.sources.signature.digest_key",
    "webhooks.sources.signature.header", "webhooks.sources.signature.prefix", "webhooks.sources.signature.signed",
    "webhooks.sources.signature.timestamp_header", "webhooks.sources.signature.timestamp_key", "webhooks.sources.task_type",
    "webhooks.sources.user", "webhooks.sources.when",
}  # fmt: skip
"""Settings with free text in which nobody may write a secret, that only name where one is, or whose addresses are shown without logins."""


def in_force(folder: Path, text: str, environ: dict[str, str]):
    (folder / "owlclaw.yaml").write_text(text)
    read = read_settings(folder, environ)
    return read, {each.path: each for each in read.in_force(environ)}


def test_each_setting_says_where_it_comes_from(tmp_path):
    read, found = in_force(tmp_path, FILE, ENVIRON)

    assert read.problems == ()
    told = {path: (each.value, each.source, each.where) for path, each in found.items()}
    assert told["http.port"] == (9100, SettingSource.VARIABLE, "OWLCLAW_HTTP__PORT")
    assert told["http.host"] == ("127.0.0.1", SettingSource.DEFAULT, "")
    assert told["log.level"] == ("debug", SettingSource.VARIABLE, "OWLCLAW_LOG__LEVEL")
    assert told["mcp.servers.files.command"] == ("npx", SettingSource.FILE, "owlclaw.yaml:7")
    assert told["mcp.servers.files.timeout_seconds"] == (None, SettingSource.DEFAULT, "")
    assert told["models.prices.own-*.prompt"] == (1.0, SettingSource.VARIABLE, "OWLCLAW_MODELS__PRICES")
    assert told["data_dir"] == (str(tmp_path / ".owlclaw"), SettingSource.DEFAULT, "")
    assert told["store_url"] == ("postgresql+asyncpg://db.example/shop", SettingSource.FILE, "owlclaw.yaml:1")


def test_there_is_no_setting_that_is_left_out(tmp_path):
    _, found = in_force(tmp_path, "", {})

    assert {each.partition(".")[0] for each in found} == {*FileSettings.model_fields}


def test_no_text_in_which_a_secret_may_be_written_is_shown(tmp_path):
    said = {
        "sub": "707d0855-80ab-4e1f-a156-f1c4546cbf52",
        "server_url": "http://127.0.0.1:1",
        "grpc_broadcast_address": "127.0.0.1:2",
    }
    claims = base64.urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")
    _, found = in_force(tmp_path, FILE, ENVIRON | {"OWLCLAW_HATCHET__TOKEN": f"eyJ9.{claims}.{CANARY}"})

    assert CANARY not in str([*found.values()])
    assert found["hatchet.token"].value == NOT_SHOWN
    assert found["mcp.servers.files.args"].value == [NOT_SHOWN, NOT_SHOWN]
    assert found["mcp.servers.files.env"].value == {"FILES_TOKEN": "${FILES_TOKEN}", "OTHER": NOT_SHOWN}
    assert found["mcp.servers.web.headers"].value == {"X-Api": "${WEB_TOKEN}"}
    assert found["mcp.servers.web.url"].value == "https://web.example/mcp"


def test_whoever_adds_a_setting_with_free_text_says_whether_a_secret_may_be_in_it():
    texts = dict(_texts(FileSettings))

    assert {path for path, confidential in texts.items() if not confidential} == HARMLESS


def _texts(model: type[BaseModel], path: tuple[str, ...] = ()):
    for name, info in model.model_fields.items():
        inner, here = _section_in(info.annotation), (*path, name)
        if inner is not None:
            yield from _texts(inner, here)
        elif _has_text(info.annotation):
            yield ".".join(here), CONFIDENTIAL in info.metadata or SecretStr in typing.get_args(info.annotation)


def _section_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in typing.get_args(annotation) if (found := _section_in(each))), None)


def _has_text(annotation: object) -> bool:
    if typing.get_origin(annotation) is typing.Literal:
        return False
    return annotation in {str, SecretStr, typing.Any} or any(_has_text(each) for each in typing.get_args(annotation))
