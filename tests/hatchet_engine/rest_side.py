"""The engine's REST API: what sets, lists and removes one-time schedules, and pauses workers."""

from __future__ import annotations

import json
import re
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, TypeAlias
from urllib.parse import parse_qs, urlsplit

from tests.hatchet_engine.records import Records, RunState, ScheduledRun, UnknownError

_PAGE = 50
"""What a page has when nobody says how much."""
_MOST = 100
"""What it has at most, whoever asks for more."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error status; if the effect is wanted nevertheless, it comes after the request was done."""

    status: int
    after_the_effect: bool = False


@dataclass(frozen=True, slots=True)
class Silence:
    """The request is taken, and never answered."""


@dataclass(frozen=True, slots=True)
class Raw:
    """A 200 with this body."""

    body: bytes


Misbehaviour: TypeAlias = Refusal | Silence | Raw


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """What a client asked."""

    method: str
    path: str
    query: dict[str, list[str]]
    body: Any


class RestSide:
    """The listening server, a thread for each connection."""

    def __init__(self, records: Records, tenant: str) -> None:
        self.records, self.tenant, self.token = records, tenant, ""
        self.faults: deque[Misbehaviour] = deque()
        """For the next requests, in order."""
        self.fault: Misbehaviour | None = None
        """For all others."""
        self.calls: list[RecordedCall] = []
        self.over = threading.Event()
        self.port = 0
        self._server: _Server | None = None

    def start(self) -> None:
        """Listen, on the port of before if there was one."""
        self.over.clear()
        self._server = _Server(("127.0.0.1", self.port), self)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), name="hatchet-rest", daemon=True).start()

    def stop(self) -> None:
        """Hang up on everybody, and refuse connections."""
        self.over.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.hang_up()
            self._server.server_close()
            self._server = None

    def misbehaviour(self) -> Misbehaviour | None:
        """Return what is to happen to this request instead."""
        return self.faults.popleft() if self.faults else self.fault


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], side: RestSide) -> None:
        super().__init__(address, _Conversation)
        self.side = side
        self._connections: set[Any] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def hang_up(self) -> None:
        for each in self._connections:
            self.shutdown_request(each)
        self._connections.clear()


class _Conversation(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def handle(self) -> None:
        try:
            super().handle()
        except (ConnectionError, ValueError):  # hung up, by either side
            self.close_connection = True

    def do_GET(self) -> None:
        self._converse()

    do_POST = do_DELETE = do_PATCH = do_GET  # noqa: N815

    def _converse(self) -> None:
        side = self.server.side
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        url = urlsplit(self.path)
        call = RecordedCall(self.command, url.path, parse_qs(url.query), json.loads(body or b"null"))
        side.calls.append(call)
        fault = side.misbehaviour()
        match fault:
            case Silence():
                side.over.wait()
                self.close_connection = True
                return
            case Raw(raw):
                self._answer(200, raw)
                return
            case Refusal(status, after_the_effect=False):
                self._refuse(status, "told to fail")
                return
        if self.headers.get("authorization") != f"Bearer {side.token}":
            self._refuse(403, "Forbidden")
            return
        status, answer = self._do(call)
        if isinstance(fault, Refusal):
            self._refuse(fault.status, "told to fail")
        else:
            self._answer(status, b"" if answer is None else json.dumps(answer).encode())

    def _do(self, call: RecordedCall) -> tuple[int, Any]:
        for method, pattern, action in self._ROUTES:
            found = re.fullmatch(pattern.replace("TENANT", self.server.side.tenant), call.path)
            if found and method == call.method:
                try:
                    return action(self, call, *found.groups())
                except UnknownError as error:
                    return 404, _errors(str(error))
        return 404, _errors("no such path")

    def _create(self, call: RecordedCall, workflow: str) -> tuple[int, Any]:
        at = datetime.fromisoformat(call.body["triggerAt"])
        run = self.server.side.records.schedule(workflow, at, call.body["input"], call.body["additionalMetadata"])
        return 200, self._shown(run)

    def _list(self, call: RecordedCall) -> tuple[int, Any]:
        metadata = dict(pair.split(":", 1) for pair in call.query.get("additionalMetadata", []))
        found = self.server.side.records.listed(metadata, frozenset(call.query.get("statuses", [])))
        offset = int(call.query.get("offset", ["0"])[0])
        limit = min(int(call.query.get("limit", [str(_PAGE)])[0]), _MOST)
        pages = -(-len(found) // limit)
        rows = [self._shown(each) for each in found[offset : offset + limit]]
        return 200, {"rows": rows, "pagination": {"current_page": offset // limit + 1, "num_pages": pages}}

    def _delete(self, _: RecordedCall, run_id: str) -> tuple[int, Any]:
        self.server.side.records.delete(run_id)
        return 204, None

    def _pause(self, call: RecordedCall, worker_id: str) -> tuple[int, Any]:
        records = self.server.side.records
        with records.changed:
            records.worker(worker_id).paused = bool(call.body.get("isPaused"))
        moment = records.now().isoformat()
        meta = {"id": worker_id, "createdAt": moment, "updatedAt": moment}
        return 200, {"metadata": meta, "name": records.worker(worker_id).name, "type": "SELFHOSTED"}

    _ROUTES: ClassVar[tuple[tuple[str, str, Callable[..., tuple[int, Any]]], ...]] = (
        ("POST", "/api/v1/tenants/TENANT/workflows/([^/]+)/scheduled", _create),
        ("GET", "/api/v1/tenants/TENANT/workflows/scheduled", _list),
        ("DELETE", "/api/v1/tenants/TENANT/workflows/scheduled/([^/]+)", _delete),
        ("PATCH", "/api/v1/workers/([^/]+)", _pause),
    )

    def _shown(self, run: ScheduledRun) -> dict[str, Any]:
        moment = run.created_at.isoformat()
        return {
            "metadata": {"id": run.id, "createdAt": moment, "updatedAt": moment},
            "tenantId": self.server.side.tenant,
            "workflowVersionId": run.workflow,
            "workflowId": run.workflow,
            "workflowName": run.workflow,
            "triggerAt": run.trigger_at.isoformat(),
            "input": run.input,
            "additionalMetadata": run.metadata,
            "method": "API",
            **({} if run.state is RunState.SCHEDULED else {"workflowRunStatus": run.state.value}),
        }

    def _refuse(self, status: int, description: str) -> None:
        self._answer(status, json.dumps(_errors(description)).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _errors(description: str) -> dict[str, Any]:
    return {"errors": [{"description": description}]}
