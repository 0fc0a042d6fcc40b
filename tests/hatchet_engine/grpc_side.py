"""The engine's gRPC services: the calls of a worker."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import grpc
from hatchet_sdk.contracts import dispatcher_pb2 as wire
from hatchet_sdk.contracts.dispatcher_pb2_grpc import DispatcherServicer, add_DispatcherServicer_to_server
from hatchet_sdk.contracts.v1 import workflows_pb2 as workflow_wire
from hatchet_sdk.contracts.v1.workflows_pb2_grpc import AdminServiceServicer, add_AdminServiceServicer_to_server

from tests.hatchet_engine.records import Records, UnknownError

_OPTIONS = [("grpc.http2.min_ping_interval_without_data_ms", 5_000), ("grpc.http2.max_ping_strikes", 0)]
_VERSION = "v0.104.0"


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
        self._records.put_workflow(request)
        return workflow_wire.CreateWorkflowVersionResponse(id=request.name, workflow_id=request.name)


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
                    job_id=task.run.workflow,
                    job_name=task.run.workflow,
                    job_run_id=task.run_id,
                    task_id=task.action,
                    task_run_external_id=task.run_id,
                    task_name=task.action,
                    action_id=task.action,
                    action_type=wire.START_STEP_RUN,
                    action_payload=self._records.payload(task),
                    retry_count=task.retry,
                    additional_metadata=json.dumps(task.run.metadata),
                    workflow_id=task.run.workflow,
                )
        except UnknownError as error:
            _not_found(context, error)

    def _leave(self, over: threading.Event) -> None:
        over.set()
        with self._records.changed:
            self._records.changed.notify_all()

    def Heartbeat(self, request: wire.HeartbeatRequest, context: grpc.ServicerContext) -> wire.HeartbeatResponse:  # noqa: N802
        self._gate.enter("Heartbeat", context)
        try:
            self._records.heartbeat(request.worker_id)
        except UnknownError as error:
            _not_found(context, error)
        return wire.HeartbeatResponse()

    def SendStepActionEvent(  # noqa: N802
        self, request: wire.StepActionEvent, context: grpc.ServicerContext
    ) -> wire.ActionEventResponse:
        self._gate.enter("SendStepActionEvent", context)
        self._records.event(request)
        return wire.ActionEventResponse(tenant_id=self._tenant, worker_id=request.worker_id)

    def Unsubscribe(  # noqa: N802
        self, request: wire.WorkerUnsubscribeRequest, context: grpc.ServicerContext
    ) -> wire.WorkerUnsubscribeResponse:
        self._gate.enter("Unsubscribe", context)
        return wire.WorkerUnsubscribeResponse(tenant_id=self._tenant, worker_id=request.worker_id)


def _not_found(context: grpc.ServicerContext, error: UnknownError) -> NoReturn:
    context.abort(grpc.StatusCode.NOT_FOUND, str(error))
    raise AssertionError


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
