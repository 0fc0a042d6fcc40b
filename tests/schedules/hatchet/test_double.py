"""The double is at the wire what the engine is."""

from datetime import timedelta

import pytest

from tests.hatchet_engine.engine import TENANT, HatchetEngine
from tests.hatchet_engine.wire_contract import EngineSide, EngineWireContract
from tests.schedules.hatchet.world import START


class Double(EngineSide):
    """Time passes when the test says so."""

    def __init__(self):
        self._time = START
        self.engine = HatchetEngine(self.now)
        self.engine.__enter__()
        super().__init__(self.engine.api_url, self.engine.grpc_address, self.engine.token, TENANT)

    def now(self):
        return self._time

    def pass_by(self, seconds):
        for _ in range(int(seconds)):
            self._time += timedelta(seconds=1)
            self.engine.records.ring()

    def hang_up(self, worker_id, tasks):
        super().hang_up(worker_id, tasks)
        self.engine.records.wait_until(lambda: not self.engine.records.worker(worker_id).listening)

    def close(self):
        super().close()
        self.engine.go_down()


class TestDouble(EngineWireContract):
    @pytest.fixture
    def side(self):
        side = Double()
        side.register_workflow()
        yield side
        side.close()
