"""The engine is at the wire what its double is taken to be."""

import pytest

from owlclaw_ray.kernel.system_clock import SystemClock
from tests.hatchet_engine.wire_contract import EngineSide, EngineWireContract


class Engine(EngineSide):
    """Time passes by itself, and what comes is waited for."""

    def now(self):
        return SystemClock().now()

    def pass_by(self, _seconds):
        pass


class TestEngine(EngineWireContract):
    @pytest.fixture
    def side(self, options):
        side = Engine(options.api_url, options.grpc_address, options.token, options.tenant_id)
        side.register_workflow()
        yield side
        for row in side.listed(limit=1_000).json()["rows"]:
            side.delete(row["metadata"]["id"])
        side.close()
