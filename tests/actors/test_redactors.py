import pytest

from actors.redactors import node_redactor
from owlclaw_ray.domain.tracing import Destination, TracingOptions
from owlclaw_ray.tools.mcp.options import Address, Command, McpOptions, McpServerOptions
from tests.actors.plans import plan_in
from tests.hatchet_engine.engine import token_for

TOKEN = token_for("https://hatchet.example.org", "engine.example.org:7077")
PASSWORD = "p@ss-word"
URL = "postgresql://owl:p%40ss-word@db/owl"


@pytest.mark.parametrize("secret", [TOKEN, PASSWORD])
def test_what_settings_hold_of_secrets_does_not_leave_the_node(secret):
    plan = plan_in()

    assert secret not in str(node_redactor(plan, URL).redact({"error": f"it printed {secret} twice: {secret}"}))


@pytest.mark.parametrize(
    "options",
    [
        {"mcp": McpOptions((McpServerOptions("shelf", Command(("shelf",), (("A", "${ODDLY_NAMED}"),))),))},
        {"mcp": McpOptions((McpServerOptions("shelf", Address("http://shelf/?a=${ODDLY_NAMED}")),))},
        {"tracing": TracingOptions(Destination.OTLP, "http://traces", headers=(("a", "Bearer ${ODDLY_NAMED}"),))},
    ],
)
def test_what_the_configuration_takes_from_the_environment_does_not_leave_the_node(options, monkeypatch):
    monkeypatch.setenv("ODDLY_NAMED", "hush-hush")

    found = node_redactor(plan_in("/nowhere", **options), URL).redact({"error": "it printed hush-hush"})

    assert found == {"error": "it printed [redacted:ODDLY_NAMED]"}
