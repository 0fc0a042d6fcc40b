"""What the engine answers at the wire, as far as alarms and their worker depend on it.

`tests/schedules/hatchet` runs this over the double, `tests/hatchet_real` over an engine: so the double is what the engine is. What is
asserted was seen on the engine first.
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import grpc
import httpx
import pytest
from hatchet_sdk.contracts import dispatcher_pb2 as wire
from hatchet_sdk.contracts.dispatcher_pb2_grpc import DispatcherStub
from hatchet_sdk.contracts.v1 import workflows_pb2 as workflow_wire
from hatchet_sdk.contracts.v1.workflows_pb2_grpc import AdminServiceStub

NOBODY = "00000000-0000-0000-0000-000000000000"
_SECONDS = 60.0
_HEARTBEAT_SECONDS = 0.5


class EngineSide(ABC):
    """An engine, whatever it is made of, and its client."""

    def __init__(self, api_url: str, grpc_address: str, token: str, tenant: str) -> None:
        self.token, self.tenant = token, tenant
        self.workflow = f"wire-{uuid4().hex[:8]}"
        self.action = f"{self.workflow}:ring"
        self.http = httpx.Client(
            base_url=f"{api_url}/api/v1", headers={"authorization": f"Bearer {token}"}, timeout=_SECONDS
        )
        self._channel = grpc.insecure_channel(grpc_address)
        self.dispatcher, self.admin = DispatcherStub(self._channel), AdminServiceStub(self._channel)
        self.mine = (("authorization", f"bearer {token}"),)
        self._alive: set[str] = set()
        self._over = threading.Event()
        threading.Thread(target=self._live, daemon=True).start()

    @abstractmethod
    def now(self) -> datetime:
        """Return the engine's time."""

    @abstractmethod
    def pass_by(self, seconds: float) -> None:
        """Let time pass, and the engine do what it does meanwhile."""

    def close(self) -> None:
        """Hang up."""
        self._over.set()
        self.http.close()
        self._channel.close()

    def at(self, seconds: float) -> datetime:
        """Return the time in so many seconds, without a fraction."""
        return (self.now() + timedelta(seconds=seconds)).replace(microsecond=0)

    def register_workflow(self) -> workflow_wire.CreateWorkflowVersionResponse:
        """Make the workflow known, with two retries."""
        task = workflow_wire.CreateTaskOpts(
            readable_id="ring",
            action=self.action,
            retries=2,
            timeout="30s",
            schedule_timeout="24h",
            backoff_factor=2.0,
            backoff_max_seconds=30,
        )
        request = workflow_wire.CreateWorkflowVersionRequest(name=self.workflow, tasks=[task])
        answer: workflow_wire.CreateWorkflowVersionResponse = self.admin.PutWorkflow(request, metadata=self.mine)
        return answer

    def schedule(self, at: datetime | str, name: str = "sch_1", workflow: str = "") -> httpx.Response:
        """Ask for an alarm."""
        text = at if isinstance(at, str) else at.isoformat()
        metadata = {"owlclaw": self.workflow, "schedule_id": name}
        body = {"triggerAt": text, "input": {"schedule_id": name}, "additionalMetadata": metadata}
        return self.http.post(f"{self._workflows}/{workflow or self.workflow}/scheduled", json=body)

    def listed(self, **query: Any) -> httpx.Response:
        """Ask which alarms there are."""
        return self.http.get(
            f"{self._workflows}/scheduled", params={"additionalMetadata": f"owlclaw:{self.workflow}", **query}
        )

    def names(self, **query: Any) -> list[str]:
        """Return which alarms there are."""
        return [each["additionalMetadata"]["schedule_id"] for each in self.listed(**query).json()["rows"]]

    def delete(self, run_id: str) -> httpx.Response:
        """Ask to forget an alarm."""
        return self.http.delete(f"{self._workflows}/scheduled/{run_id}")

    def register_worker(self) -> str:
        """Return a new worker's id."""
        request = wire.WorkerRegisterRequest(worker_name="wire", actions=[self.action], slots=5, services=["default"])
        worker_id: str = self.dispatcher.Register(request, metadata=self.mine).worker_id
        return worker_id

    def listen(self, worker_id: str) -> Any:
        """Return the stream of a worker's tasks."""
        return self.dispatcher.ListenV2(
            wire.WorkerListenRequest(worker_id=worker_id), metadata=self.mine, timeout=2 * _SECONDS
        )

    def work(self) -> tuple[str, Any]:
        """Return a new worker, who is alive, and the stream of its tasks."""
        worker = self.register_worker()
        tasks = self.listen(worker)
        self._alive.add(worker)
        return worker, tasks

    def listen_again(self, worker_id: str) -> Any:
        """Come back after a stream that broke; return the new one."""
        self._alive.add(worker_id)
        return self.listen(worker_id)

    def hang_up(self, worker_id: str, tasks: Any) -> None:
        """Die."""
        self._alive.remove(worker_id)
        tasks.cancel()

    def _live(self) -> None:
        while not self._over.wait(_HEARTBEAT_SECONDS):
            for worker_id in tuple(self._alive):
                with suppress(grpc.RpcError):
                    self.heartbeat(worker_id)

    def heartbeat(self, worker_id: str) -> None:
        """Be alive."""
        self.dispatcher.Heartbeat(wire.HeartbeatRequest(worker_id=worker_id), metadata=self.mine)

    def say(self, worker_id: str, task: Any, kind: int, output: str = "{}", *, retried: bool = True) -> None:
        """Tell what became of a task."""
        event = wire.StepActionEvent(
            worker_id=worker_id,
            job_id=task.job_id,
            job_run_id=task.job_run_id,
            task_id=task.task_id,
            task_run_external_id=task.task_run_external_id,
            action_id=task.action_id,
            event_type=kind,
            event_payload=output,
            retry_count=task.retry_count,
            should_not_retry=not retried,
        )
        self.dispatcher.SendStepActionEvent(event, metadata=self.mine)

    @property
    def _workflows(self) -> str:
        return f"/tenants/{self.tenant}/workflows"


def refusal(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    """Return with what a gRPC call is refused."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details()


def answer(response: httpx.Response) -> tuple[int, Any]:
    """Return status and body."""
    return response.status_code, response.json()


class EngineWireContract:
    """Needs a fixture `side`: an EngineSide, its workflow registered."""

    def test_an_alarm_is_shown_as_it_was_asked_for(self, side):
        at = side.at(600)

        made = side.schedule(at)
        (row,) = side.listed(statuses="SCHEDULED").json()["rows"]

        assert made.status_code == 200
        assert made.json() == row
        assert (row["workflowName"], row["tenantId"], row["method"]) == (side.workflow, side.tenant, "API")
        assert (row["input"], row["additionalMetadata"]["schedule_id"]) == ({"schedule_id": "sch_1"}, "sch_1")
        assert row["triggerAt"] == at.strftime("%Y-%m-%dT%H:%M:%SZ")
        assert UUID(row["metadata"]["id"])
        assert (row["workflowRunCreatedAt"], row["workflowRunName"], row["priority"]) == ("0001-01-01T00:00:00Z", "", 1)

    def test_times_are_rounded_to_milliseconds_and_their_zone_is_not_looked_at(self, side):
        down, up = (side.schedule(f"2099-01-01T00:00:00.{digits}+00:00").json() for digits in ("123400", "123956"))
        elsewhere = side.schedule(datetime(2099, 1, 1, tzinfo=timezone(timedelta(hours=2)))).json()

        assert down["triggerAt"] == "2099-01-01T00:00:00.123Z"
        assert up["triggerAt"] == "2099-01-01T00:00:00.124Z"
        assert elsewhere["triggerAt"] == "2099-01-01T00:00:00Z"

    def test_what_cannot_be_an_alarm_is_refused(self, side):
        unknown = side.schedule(side.at(600), workflow="nobody")
        timeless = side.schedule("soon")

        assert answer(unknown) == (400, {"errors": [{"description": "workflow not found"}]})
        assert (timeless.status_code, list(timeless.json())) == (400, ["message"])

    def test_alarms_are_listed_the_latest_first_and_in_pages_of_any_size(self, side):
        for number in range(3):
            side.schedule(side.at(600 + number), f"sch_{number}")

        assert side.names() == side.names(limit=1_000) == ["sch_2", "sch_1", "sch_0"]
        assert side.names(offset=1, limit=1) == ["sch_1"]
        assert side.names(offset=3) == side.names(offset=9) == []
        assert side.listed(limit=2, offset=2).json()["pagination"] == {
            "current_page": 2,
            "next_page": 2,
            "num_pages": 2,
        }

    def test_lists_are_of_what_was_asked_for(self, side):
        side.schedule(side.at(600))
        bad = {"errors": [{"description": "Additional metadata filters must be in the format key:value."}]}

        assert side.names(additionalMetadata=[f"owlclaw:{side.workflow}", "schedule_id:sch_1"]) == ["sch_1"]
        assert side.names(additionalMetadata=[f"owlclaw:{side.workflow}", "schedule_id:sch_2"]) == []
        assert side.names(statuses="SUCCEEDED") == []
        assert answer(side.listed(additionalMetadata="nothing")) == (400, bad)
        assert answer(side.listed(additionalMetadata="a:b:c")) == (400, bad)

    def test_an_alarm_can_be_forgotten_once(self, side):
        run_id = side.schedule(side.at(600)).json()["metadata"]["id"]

        first, second, bad = side.delete(run_id), side.delete(run_id), side.delete("nonsense")

        assert (first.status_code, first.content) == (204, b"")
        assert answer(second) == (404, {"message": "scheduled workflow run not found"})
        assert answer(bad) == (400, {"message": "invalid scheduled workflow run id"})

    def test_strangers_are_refused(self, side):
        path = f"/tenants/{side.tenant}/workflows/scheduled"
        refused = (403, {"message": "Please provide valid credentials"})
        stranger = {"authorization": f"Bearer {side.token}x"}

        assert answer(side.http.get(path, headers=stranger)) == refused
        assert answer(side.http.get(f"/tenants/{NOBODY}/workflows/scheduled")) == (404, {"message": "not found"})
        assert refusal(
            lambda: side.dispatcher.GetVersion(wire.GetVersionRequest(), metadata=(("authorization", "bearer x"),))
        ) == (grpc.StatusCode.UNAUTHENTICATED, "invalid auth token")
        assert side.dispatcher.GetVersion(wire.GetVersionRequest(), metadata=side.mine).version.startswith("v0.")

    def test_an_unnamed_workflow_is_refused_and_a_named_one_has_ids(self, side):
        unnamed = workflow_wire.CreateWorkflowVersionRequest(name="")
        again = side.register_workflow()

        assert refusal(lambda: side.admin.PutWorkflow(unnamed, metadata=side.mine))[0] is grpc.StatusCode.INTERNAL
        assert UUID(again.id) != UUID(again.workflow_id)
        assert again == side.register_workflow()

    def test_unknown_workers_and_tasks_are_refused(self, side):
        unsubscribe = wire.WorkerUnsubscribeRequest(worker_id=NOBODY)
        nothing = wire.AssignedAction(task_run_external_id=NOBODY)
        unknown = (grpc.StatusCode.NOT_FOUND, f"worker not found: {NOBODY}")

        assert refusal(lambda: side.heartbeat(NOBODY)) == unknown
        assert refusal(lambda: side.heartbeat("x")) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "invalid worker ID format: x",
        )
        assert refusal(lambda: next(side.listen(NOBODY))) == (grpc.StatusCode.NOT_FOUND, "not found")
        assert refusal(lambda: side.dispatcher.Unsubscribe(unsubscribe, metadata=side.mine)) == unknown
        assert (
            refusal(lambda: side.say(NOBODY, nothing, wire.STEP_EVENT_TYPE_COMPLETED))[0]
            is grpc.StatusCode.INVALID_ARGUMENT
        )
        assert answer(side.http.patch(f"/workers/{NOBODY}", json={"isPaused": True})) == (404, {"message": "not found"})

    def test_a_worker_that_gives_signs_of_life_is_given_what_falls_due_which_is_no_alarm_any_more(self, side):
        side.listen(side.register_worker())
        worker, tasks = side.work()
        run_id = side.schedule(side.at(-5)).json()["metadata"]["id"]
        side.pass_by(6)

        task = next(tasks)
        side.say(worker, task, wire.STEP_EVENT_TYPE_STARTED)
        side.say(worker, task, wire.STEP_EVENT_TYPE_COMPLETED)
        side.say(worker, task, wire.STEP_EVENT_TYPE_COMPLETED)

        assert side.names() == []
        assert side.delete(run_id).status_code == 404
        assert (task.action_id, task.task_name, task.job_name) == (side.action, "ring", "ring")
        assert (task.action_type, task.retry_count) == (wire.START_STEP_RUN, 0)
        assert json.loads(task.action_payload) == {
            "input": {"schedule_id": "sch_1"},
            "parents": {},
            "triggers": {"filter_payload": None},
            "overrides": None,
            "user_data": None,
            "triggered_by": "manual",
        }
        metadata = json.loads(task.additional_metadata)
        assert metadata.keys() == {"owlclaw", "schedule_id", "traceparent"}
        assert UUID(task.task_run_external_id)
        assert task.task_run_external_id == task.workflow_run_id == task.job_run_id
        assert len({task.workflow_id, task.workflow_version_id, task.job_id, task.task_run_external_id}) == 4

    def test_a_task_that_fails_is_given_out_again_after_growing_pauses_while_it_has_retries(self, side):
        worker, tasks = side.work()
        side.schedule(side.at(-5))
        side.pass_by(6)
        retries, pauses = [], []
        for _ in range(3):
            task = next(tasks)
            pauses.append(side.now())
            retries.append(task.retry_count)
            side.say(worker, task, wire.STEP_EVENT_TYPE_FAILED)
            side.pass_by(2.0 ** (len(retries)))
        side.schedule(side.at(-5), "sch_2")
        side.pass_by(6)
        other = next(tasks)
        side.say(worker, other, wire.STEP_EVENT_TYPE_FAILED, retried=False)
        side.schedule(side.at(-5), "sch_3")
        side.pass_by(6)

        assert retries == [0, 1, 2]
        assert pauses[1] - pauses[0] >= timedelta(seconds=2)
        assert pauses[2] - pauses[1] >= timedelta(seconds=4)
        assert (other.retry_count, json.loads(other.additional_metadata)["schedule_id"]) == (0, "sch_2")
        assert json.loads(next(tasks).additional_metadata)["schedule_id"] == "sch_3"

    def test_what_was_given_in_a_stream_that_broke_is_given_again_though_the_worker_listens_again(self, side):
        worker, tasks = side.work()
        side.schedule(side.at(-5))
        side.pass_by(6)
        lost = next(tasks)
        side.hang_up(worker, tasks)
        tasks = side.listen_again(worker)
        side.pass_by(40)

        again = next(tasks)

        assert again.task_run_external_id == lost.task_run_external_id

    def test_what_a_worker_that_hung_up_was_given_is_given_to_another_one_later(self, side):
        worker, tasks = side.work()
        side.schedule(side.at(-5))
        side.pass_by(6)
        lost = next(tasks)
        side.hang_up(worker, tasks)
        _, tasks = side.work()
        before = side.now()
        side.pass_by(40)

        again = next(tasks)

        assert (again.task_run_external_id, again.retry_count) == (lost.task_run_external_id, 1)
        assert side.now() - before >= timedelta(seconds=20)
