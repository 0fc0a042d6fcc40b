"""One-time schedules of the engine, over its REST API.

The generated API is called in threads of our own: the SDK's asynchronous calls have no time limit and would block those of the
event loop's executor. Nothing is retried here: the next reconciliation repeats it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from hatchet_sdk.clients.rest.api.workflow_api import WorkflowApi
from hatchet_sdk.clients.rest.api.workflow_run_api import WorkflowRunApi
from hatchet_sdk.clients.rest.api_client import ApiClient
from hatchet_sdk.clients.rest.configuration import Configuration
from hatchet_sdk.clients.rest.exceptions import (
    ApiException,
    BadRequestException,
    ForbiddenException,
    NotFoundException,
    UnauthorizedException,
)
from hatchet_sdk.clients.rest.models.schedule_workflow_run_request import ScheduleWorkflowRunRequest
from hatchet_sdk.clients.rest.models.scheduled_run_status import ScheduledRunStatus
from hatchet_sdk.clients.rest.models.scheduled_workflows import ScheduledWorkflows
from typing_extensions import override
from urllib3.exceptions import HTTPError

from owlclaw_ray.errors import AlarmEngineUnavailableError
from owlclaw_ray.ids import ScheduleId
from owlclaw_ray.schedules.alarm_sync import AlarmEngine, EngineAlarm
from owlclaw_ray.schedules.hatchet.options import HatchetOptions

_TIMES = (1.0, 3.0)
"""Seconds to connect, and to wait for an answer."""
_THREADS = 8
_PAGE = 1_000
"""The engine takes a page of any size: 5,000 alarms came four times as fast in pages of 1,000 as in pages of 100."""
_INSTALLATION, _SCHEDULE = "owlclaw", "schedule_id"
"""Keys of the metadata. The engine splits `key:value` at colons, so neither part may have one."""

_NO_WORKFLOW = "workflow not found"

_T = TypeVar("_T")


class HatchetAlarms(AlarmEngine):
    """Alarms as one-time schedules of Hatchet."""

    def __init__(self, options: HatchetOptions, times: tuple[float, float] = _TIMES) -> None:
        self._options, self._times = options, times
        configuration = Configuration(
            host=options.api_url,
            access_token=options.token,
            ssl_ca_cert=options.tls.ca_file,
            retries=False,
        )
        vars(configuration).update(cert_file=options.tls.cert_file, key_file=options.tls.key_file)
        configuration.connection_pool_maxsize = _THREADS
        client = ApiClient(configuration)
        self._workflows, self._runs = WorkflowApi(client), WorkflowRunApi(client)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="hatchet-rest")

    @override
    async def alarms(self) -> Sequence[EngineAlarm]:
        found: dict[str, EngineAlarm] = {}
        seen = 0
        while rows := await self._call(self._page, seen):
            seen += len(rows)
            for each in rows:
                if schedule_id := (each.additional_metadata or {}).get(_SCHEDULE):
                    alarm = EngineAlarm(each.metadata.id, ScheduleId(schedule_id), each.trigger_at)
                    found[alarm.alarm_id] = alarm
        return list(found.values())

    @override
    async def set(self, schedule_id: ScheduleId, at: datetime) -> str:
        # The engine ignores a time's zone and rounds to milliseconds: the next one, so as not to ring too early.
        utc = at.astimezone(UTC)
        return await self._call(self._create, schedule_id, utc + timedelta(microseconds=-utc.microsecond % 1_000))

    @override
    async def remove(self, alarm_id: str) -> None:
        await self._call(self._delete, alarm_id)

    def close(self) -> None:
        """Release the threads; those that wait for an answer end with their timeout."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _page(self, offset: int) -> list[ScheduledWorkflows]:
        listed = self._workflows.workflow_scheduled_list(
            tenant=self._options.tenant_id,
            offset=offset,
            limit=_PAGE,
            additional_metadata=[f"{_INSTALLATION}:{self._options.installation}"],
            statuses=[ScheduledRunStatus.SCHEDULED],
            _request_timeout=self._times,
        )
        return listed.rows or []

    def _create(self, schedule_id: ScheduleId, at: datetime) -> str:
        metadata = {_INSTALLATION: self._options.installation, _SCHEDULE: schedule_id}
        made = self._runs.scheduled_workflow_run_create(
            tenant=self._options.tenant_id,
            workflow=self._options.workflow,
            schedule_workflow_run_request=ScheduleWorkflowRunRequest(
                trigger_at=at, input={_SCHEDULE: schedule_id}, additional_metadata=metadata
            ),
            _request_timeout=self._times,
        )
        return made.metadata.id

    def _delete(self, alarm_id: str) -> None:
        try:
            self._workflows.workflow_scheduled_delete(
                tenant=self._options.tenant_id, scheduled_workflow_run=alarm_id, _request_timeout=self._times
            )
        except NotFoundException:
            return

    async def _call(self, call: Callable[..., _T], *arguments: Any) -> _T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)
        except (UnauthorizedException, ForbiddenException) as error:
            message = f"Hatchet refuses the token of hatchet.token ({error.status}): make a new one"
            raise AlarmEngineUnavailableError(message) from error
        except ApiException as error:
            if isinstance(error, BadRequestException) and _NO_WORKFLOW in str(error.body):
                message = (
                    f"Hatchet has no workflow {self._options.workflow} yet: its worker registers it when it starts"
                )
                raise AlarmEngineUnavailableError(message) from error
            first_lines = ", ".join(error.reason.splitlines()[:2])
            what = f"answers {error.status}" if error.status else f"cannot be reached: {first_lines}"
            raise AlarmEngineUnavailableError(f"Hatchet at {self._options.api_url} {what}") from error
        except (HTTPError, OSError, ValueError) as error:
            message = f"Hatchet at {self._options.api_url} sent an invalid answer: {type(error).__name__}"
            raise AlarmEngineUnavailableError(message) from error
