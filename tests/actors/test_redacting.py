import pytest

from actors.plan import RuntimePlan, WorkerPlan
from actors.redacting import node_redactor
from owlclaw_ray.engine.directory import Placement
from owlclaw_ray.engine.retry import RetryPolicy
from owlclaw_ray.identity.defaults import Defaults
from tests.hatchet_engine.engine import token_for

TOKEN = token_for("https://hatchet.example.org", "engine.example.org:7077")
PASSWORD = "p@ss-word"


@pytest.mark.parametrize("secret", [TOKEN, PASSWORD])
def test_what_settings_hold_of_secrets_does_not_leave_the_node(secret):
    plan = RuntimePlan(
        worker=WorkerPlan("", "", "", "none", "test"),
        store_url="postgresql://owl:p%40ss-word@db/owl",
        defaults=Defaults(),
        placement=Placement(),
        tool_slots=1,
        max_concurrent_models=1,
        model_retry=RetryPolicy(),
        catch_up_seconds=1,
        drain_seconds=1,
    )

    assert secret not in str(node_redactor(plan).redact({"error": f"it printed {secret} twice: {secret}"}))
