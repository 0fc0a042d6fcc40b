"""On whose behalf vectors are asked for."""

from __future__ import annotations

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.ids import TenantId
from owlclaw_ray.memory.lance import LanceMemory
from owlclaw_ray.testing.clock import ManualClock
from tests.memory.homes import NOW, memory
from tests.paid_embeddings import Provider

ACME, BEAR = (AgentRef.parse("trader", TenantId(tenant)) for tenant in ("acme", "bear"))


class Noting(Provider):
    """Notes whose texts came."""

    def __init__(self):
        super().__init__()
        self.came = []

    def ask(self, request):
        self.came += [(request.tenant, text) for text in request.texts]
        return super().ask(request)


def test_texts_go_to_the_provider_on_behalf_of_the_tenant_whose_agent_has_them(tmp_path):
    provider, clock = Noting(), ManualClock(NOW)
    store = LanceMemory(tmp_path, provider.embedders(clock), clock)
    for number in range(3):
        for agent in (ACME, BEAR):
            store.remember(agent, memory(number, f"{agent.tenant} likes {number}"))
    store.settle()
    for agent in (ACME, BEAR):
        store.recall(agent, f"what does {agent.tenant} like", 3)

    assert {tenant for tenant, _ in provider.came} == {"acme", "bear"}
    assert all(tenant in text for tenant, text in provider.came if text != "dimension")
