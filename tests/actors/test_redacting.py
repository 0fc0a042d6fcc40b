import pytest

from actors.redacting import node_redactor
from tests.actors.plans import plan_in
from tests.hatchet_engine.engine import token_for

TOKEN = token_for("https://hatchet.example.org", "engine.example.org:7077")
PASSWORD = "p@ss-word"


@pytest.mark.parametrize("secret", [TOKEN, PASSWORD])
def test_what_settings_hold_of_secrets_does_not_leave_the_node(secret):
    plan = plan_in(store_url="postgresql://owl:p%40ss-word@db/owl")

    assert secret not in str(node_redactor(plan).redact({"error": f"it printed {secret} twice: {secret}"}))
