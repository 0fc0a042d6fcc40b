"""The engine's REST API: what sets, lists and removes one-time schedules, and pauses workers."""

from __future__ import annotations

import json
import re
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, TypeAlias
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

from tests.hatchet_engine.records import Records, ScheduledRun, UnknownError, id_of

_PAGE = 50
"""What a page has when nobody says how much."""
_NO_RUN = "0001-01-01T00:00:00Z"


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
                self._refuse(status, _errors("told to fail"))
                return
        if self.headers.get("authorization") != f"Bearer {side.token}":
            self._refuse(403, _message("Please provide valid credentials"))
            return
        status, answer = self._do(call)
        if isinstance(fault, Refusal):
            self._refuse(fault.status, _errors("told to fail"))
        else:
            self._answer(status, b"" if answer is None else json.dumps(answer).encode())

    def _do(self, call: RecordedCall) -> tuple[int, Any]:
        for method, pattern, action in self._ROUTES:
            found = re.fullmatch(pattern, call.path)
            if found and method == call.method:
                groups = found.groupdict()
                if groups.pop("tenant", self.server.side.tenant) != self.server.side.tenant:
                    return 404, _message("not found")
                return action(self, call, *groups.values())
        return 403, None

    def _create(self, call: RecordedCall, workflow: str) -> tuple[int, Any]:
        try:
            at = _wall_clock(call.body["triggerAt"])
        except ValueError as error:
            return 400, _message(str(error))
        given, metadata = call.body.get("input") or {}, call.body.get("additionalMetadata")
        try:
            return 200, self._shown(self.server.side.records.schedule(workflow, at, given, metadata))
        except UnknownError as error:
            return 400, _errors(str(error))

    def _list(self, call: RecordedCall) -> tuple[int, Any]:
        pairs = [each.split(":") for each in call.query.get("additionalMetadata", [])]
        if any(len(each) != 2 for each in pairs):
            return 400, _errors("Additional metadata filters must be in the format key:value.")
        statuses = set(call.query.get("statuses", ["SCHEDULED"]))
        found = self.server.side.records.listed(dict(pairs))[::-1] if "SCHEDULED" in statuses else []
        offset = int(call.query.get("offset", ["0"])[0])
        limit = int(call.query.get("limit", [str(_PAGE)])[0])
        pages, page = -(-len(found) // limit), 1 + -(-offset // limit)
        rows = [self._shown(each) for each in found[offset : offset + limit]]
        following = page if page == pages else page + 1
        return 200, {"rows": rows, "pagination": {"current_page": page, "next_page": following, "num_pages": pages}}

    def _delete(self, _: RecordedCall, run_id: str) -> tuple[int, Any]:
        if not _is_uuid(run_id):
            return 400, _message("invalid scheduled workflow run id")
        try:
            self.server.side.records.delete(run_id)
        except UnknownError as error:
            return 404, _message(str(error))
        return 204, None

    def _pause(self, call: RecordedCall, worker_id: str) -> tuple[int, Any]:
        records = self.server.side.records
        try:
            with records.changed:
                records.worker(worker_id).paused = bool(call.body.get("isPaused"))
        except UnknownError:
            return 404, _message("not found")
        moment = records.now().isoformat()
        meta = {"id": worker_id, "createdAt": moment, "updatedAt": moment}
        return 200, {"metadata": meta, "name": records.worker(worker_id).name, "type": "SELFHOSTED"}

    _ROUTES: ClassVar[tuple[tuple[str, str, Callable[..., tuple[int, Any]]], ...]] = (
        ("POST", "/api/v1/tenants/(?P<tenant>[^/]+)/workflows/(?P<workflow>[^/]+)/scheduled", _create),
        ("GET", "/api/v1/tenants/(?P<tenant>[^/]+)/workflows/scheduled", _list),
        ("DELETE", "/api/v1/tenants/(?P<tenant>[^/]+)/workflows/scheduled/(?P<run>[^/]+)", _delete),
        ("PATCH", "/api/v1/workers/(?P<worker>[^/]+)", _pause),
    )

    def _shown(self, run: ScheduledRun) -> dict[str, Any]:
        moment = _as_text(run.created_at)
        return {
            "metadata": {"id": run.id, "createdAt": moment, "updatedAt": moment},
            "tenantId": self.server.side.tenant,
            "workflowVersionId": id_of("version", run.workflow),
            "workflowId": id_of("workflow", run.workflow),
            "workflowName": run.workflow,
            "workflowRunCreatedAt": _NO_RUN,
            "workflowRunName": "",
            "triggerAt": _as_text(run.trigger_at),
            "input": run.input,
            "additionalMetadata": run.metadata,
            "method": "API",
            "priority": 1,
        }

    def _refuse(self, status: int, body: dict[str, Any]) -> None:
        self._answer(status, json.dumps(body).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _wall_clock(text: str) -> datetime:
    """Return what the engine takes for the time: the one that the clock on the wall shows there, as if that were UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def _as_text(at: datetime) -> str:
    milliseconds = at.microsecond // 1_000
    fraction = f".{milliseconds:03}".rstrip("0") if milliseconds else ""
    return at.strftime("%Y-%m-%dT%H:%M:%S") + fraction + "Z"


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _errors(description: str) -> dict[str, Any]:
    """Return how the handlers say what is wrong."""
    return {"errors": [{"description": description}]}


def _message(text: str) -> dict[str, Any]:
    """Return how what comes before the handlers says what is wrong."""
    return {"message": text}
