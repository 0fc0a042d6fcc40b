"""The engine's gRPC services: the calls of a worker."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import grpc
from hatchet_sdk.contracts import dispatcher_pb2 as wire
from hatchet_sdk.contracts.dispatcher_pb2_grpc import DispatcherServicer, add_DispatcherServicer_to_server
from hatchet_sdk.contracts.v1 import workflows_pb2 as workflow_wire
from hatchet_sdk.contracts.v1.workflows_pb2_grpc import AdminServiceServicer, add_AdminServiceServicer_to_server

from tests.hatchet_engine.records import Records, UnknownError, id_of

_OPTIONS = [("grpc.http2.min_ping_interval_without_data_ms", 5_000), ("grpc.http2.max_ping_strikes", 0)]
_VERSION = "v0.104.7"
_TRACEPARENT = "00-0daccd540c9ed840b517df52f5e98228-80966fc414fa8645-01"


class Gate:
    """Lets calls in that have the token, unless they are to fail."""

    def __init__(self) -> None:
        self.token = ""
        self.failures: dict[str, deque[grpc.StatusCode]] = {}
        self.calls: list[str] = []

    def enter(self, method: str, context: grpc.ServicerContext) -> None:
        """End the call unless it may go on."""
        self.calls.append(method)
        if ("authorization", f"bearer {self.token}") not in context.invocation_metadata():
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "invalid auth token")
        if self.failures.get(method):
            context.abort(self.failures[method].popleft(), "told to fail")


class Admin(AdminServiceServicer):
    """Workflows."""

    def __init__(self, records: Records, gate: Gate) -> None:
        self._records, self._gate = records, gate

    def PutWorkflow(  # noqa: N802 - the wire's name
        self, request: workflow_wire.CreateWorkflowVersionRequest, context: grpc.ServicerContext
    ) -> workflow_wire.CreateWorkflowVersionResponse:
        self._gate.enter("PutWorkflow", context)
        if not request.name:
            context.abort(grpc.StatusCode.INTERNAL, "An internal error occurred.")
        self._records.put_workflow(request)
        return workflow_wire.CreateWorkflowVersionResponse(
            id=id_of("version", request.name), workflow_id=id_of("workflow", request.name)
        )


class Dispatcher(DispatcherServicer):
    """Workers."""

    def __init__(self, records: Records, gate: Gate, tenant: str) -> None:
        self._records, self._gate, self._tenant = records, gate, tenant

    def GetVersion(self, _: wire.GetVersionRequest, context: grpc.ServicerContext) -> wire.GetVersionResponse:  # noqa: N802
        self._gate.enter("GetVersion", context)
        return wire.GetVersionResponse(version=_VERSION)

    def Register(  # noqa: N802
        self, request: wire.WorkerRegisterRequest, context: grpc.ServicerContext
    ) -> wire.WorkerRegisterResponse:
        self._gate.enter("Register", context)
        worker = self._records.register(request.worker_name, frozenset(request.actions))
        return wire.WorkerRegisterResponse(tenant_id=self._tenant, worker_id=worker.id, worker_name=worker.name)

    def ListenV2(  # noqa: N802
        self, request: wire.WorkerListenRequest, context: grpc.ServicerContext
    ) -> Iterator[wire.AssignedAction]:
        self._gate.enter("ListenV2", context)
        over = threading.Event()
        context.add_callback(lambda: self._leave(over))
        try:
            for task in self._records.tasks_for(request.worker_id, over):
                yield wire.AssignedAction(
                    tenant_id=self._tenant,
                    workflow_run_id=task.run_id,
                    job_id=id_of("task", task.action),
                    job_name=task.name,
                    job_run_id=task.run_id,
                    task_id=id_of("task", task.action),
                    task_run_external_id=task.run_id,
                    task_name=task.name,
                    action_id=task.action,
                    action_type=wire.START_STEP_RUN,
                    action_payload=self._records.payload(task),
                    retry_count=task.retry,
                    additional_metadata=json.dumps((task.run.metadata or {}) | {"traceparent": _TRACEPARENT}),
                    priority=1,
                    workflow_id=id_of("workflow", task.run.workflow),
                    workflow_version_id=id_of("version", task.run.workflow),
                )
        except UnknownError:
            context.abort(grpc.StatusCode.NOT_FOUND, "not found")

    def _leave(self, over: threading.Event) -> None:
        over.set()
        with self._records.changed:
            self._records.changed.notify_all()

    def Heartbeat(self, request: wire.HeartbeatRequest, context: grpc.ServicerContext) -> wire.HeartbeatResponse:  # noqa: N802
        self._gate.enter("Heartbeat", context)
        try:
            self._records.heartbeat(_worker_id(request.worker_id, context))
        except UnknownError as error:
            context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        return wire.HeartbeatResponse()

    def SendStepActionEvent(  # noqa: N802
        self, request: wire.StepActionEvent, context: grpc.ServicerContext
    ) -> wire.ActionEventResponse:
        self._gate.enter("SendStepActionEvent", context)
        try:
            self._records.event(request)
        except UnknownError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return wire.ActionEventResponse(tenant_id=self._tenant, worker_id=request.worker_id)

    def Unsubscribe(  # noqa: N802
        self, request: wire.WorkerUnsubscribeRequest, context: grpc.ServicerContext
    ) -> wire.WorkerUnsubscribeResponse:
        self._gate.enter("Unsubscribe", context)
        try:
            self._records.worker(request.worker_id)
        except UnknownError as error:
            context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        return wire.WorkerUnsubscribeResponse(tenant_id=self._tenant, worker_id=request.worker_id)


def _worker_id(text: str, context: grpc.ServicerContext) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"invalid worker ID format: {text}")
        raise AssertionError from None


class GrpcSide:
    """The listening server."""

    def __init__(self, records: Records, gate: Gate, tenant: str) -> None:
        self._records, self._gate, self._tenant = records, gate, tenant
        self._server: grpc.Server | None = None
        self.port = 0

    def start(self) -> None:
        """Listen, on the port of before if there was one."""
        server = grpc.server(ThreadPoolExecutor(16), options=_OPTIONS)
        add_DispatcherServicer_to_server(Dispatcher(self._records, self._gate, self._tenant), server)
        add_AdminServiceServicer_to_server(Admin(self._records, self._gate), server)
        self.port = server.add_insecure_port(f"127.0.0.1:{self.port}")
        server.start()
        self._server = server

    def stop(self) -> None:
        """Hang up on everybody, and refuse connections."""
        if self._server is not None:
            self._server.stop(None).wait()
            self._server = None
