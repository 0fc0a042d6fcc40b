"""The whole double: both servers over one set of records."""

from __future__ import annotations

import base64
import json
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from types import TracebackType
from typing import Self

import grpc

from tests.hatchet_engine.grpc_side import Gate, GrpcSide
from tests.hatchet_engine.records import Records, ScheduledRun
from tests.hatchet_engine.rest_side import RestSide

TENANT = "707d0855-80ab-4e1f-a156-f1c4546cbf52"


def token_for(api_url: str, grpc_address: str, tenant: str = TENANT) -> str:
    """Return a token as the engine issues it; nobody checks its signature."""
    claims = {"sub": tenant, "server_url": api_url, "grpc_broadcast_address": grpc_address}
    parts = ({"alg": "ES256", "kid": "double"}, claims)
    head, body = (base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in parts)
    return f"{head}.{body}.c2lnbmF0dXJlLW9mLXRoZS1kb3VibGU"


class HatchetEngine:
    """Listens on free loopback ports from `with` to the end of the block."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self.records = Records(now)
        self.token = ""
        self._now = now

    def __enter__(self) -> Self:
        self.rest = RestSide(self.records, TENANT)
        self.gate = Gate()
        self.grpc = GrpcSide(self.records, self.gate, TENANT)
        self.come_back()
        self.token = self.rest.token = self.gate.token = token_for(self.api_url, self.grpc_address)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.go_down()

    @property
    def api_url(self) -> str:
        """Where its REST API is."""
        return f"http://127.0.0.1:{self.rest.port}"

    @property
    def grpc_address(self) -> str:
        """Where its gRPC services are."""
        return f"127.0.0.1:{self.grpc.port}"

    def go_down(self) -> None:
        """Refuse connections; what it knows stays."""
        self.rest.stop()
        self.grpc.stop()

    def come_back(self) -> None:
        """Listen where it listened before."""
        self.rest.start()
        self.grpc.start()

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Be down for a block."""
        self.go_down()
        yield
        self.come_back()

    @property
    def alarms(self) -> list[ScheduledRun]:
        """The schedules that have not rung, of all installations, the earliest first."""
        return self.records.listed({})

    def lose(self, run: ScheduledRun) -> None:
        """Forget a schedule, as if it never was."""
        self.records.delete(run.id)

    def ring_again(self, run: ScheduledRun) -> None:
        """Start a run of the schedule once more."""
        self.records.start(run)

    def forget_workers(self) -> None:
        """Know no worker any more, those that listen included."""
        with self.records.changed:
            self.records.workers.clear()

    def fail_calls(self, method: str, *codes: grpc.StatusCode) -> None:
        """Answer the next calls of a gRPC method with these codes."""
        self.gate.failures[method] = deque(codes)
