"""The asynchronous client."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar
from urllib.parse import quote, urlsplit

import httpx
import orjson

from owlclaw_ray import wire
from owlclaw_ray.client.failures import ServerUnreachableError, TryAgainError, failure_of
from owlclaw_ray.domain.artifact import Artifact
from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.ids import ArtifactId, IdSource, RandomIds

DEFAULT_URL = "http://127.0.0.1:8700"
EVENT_SILENCE_SECONDS = 60.0
"""An event stream that says nothing for so long, not even a keep-alive comment, is taken for dead."""
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}

_EXPORT_PATIENCE = 60.0
"""For how many seconds more than for other answers the next line of an export is waited for."""
_TRIGGER_DEFAULTS: JsonObject = {
    "busy": "enqueue",
    "priority": 0,
    "deadline_seconds": None,
    "callback_url": "",
    "task_type": "",
    "session": "",
    "user": "",
}
"""What a trigger means that does not say it."""

_T = TypeVar("_T")

Query: TypeAlias = Mapping[str, str | int | bool | list[str] | None]


class Client:
    """Talks to a running OwlClaw over HTTP.

    Every request is safe to repeat (`submit` always carries an Idempotency-Key), so connection errors and answers that a
    later try may mend (429, 502, 503, 504, and 404 or 500 without a problem+json body, as they come while no server process is
    there yet) are tried again: `attempts` times in all, which with pauses that double from 0.2 s outlasts the restart of
    a server process. Retry-After is honoured. Methods raise the errors of `owlclaw_ray.errors` where the server names one,
    ClientError for other refusals, RuntimeUnavailableError and its ServerUnreachableError when nothing useful answers. Times
    are seconds. `api_key`: the access key, where the server needs one. Use it as `async with Client(url) as client`, or call `close`.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        attempts: int = 7,
        timeout: float = 30.0,
        transport: httpx.AsyncBaseTransport | None = None,
        ids: IdSource | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.url = url.rstrip("/")
        self._attempts = attempts
        self._timeout = timeout
        self._ids = ids or RandomIds()
        self._sleep = sleep
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers={} if api_key is None else {"Authorization": f"Bearer {api_key}"},
            timeout=timeout,
            transport=transport,
            # over plain HTTP no certificate is met: a context without authorities saves the time to load the world's
            verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            if urlsplit(url).scheme == "http"
            else httpx.create_ssl_context(),  # SSL_CERT_FILE counts for this machine, too
            trust_env=urlsplit(url).hostname not in _LOOPBACK,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def submit(
        self,
        agent: str,
        payload: JsonValue = None,
        focus: str = "",
        *,
        idempotency_key: str | None = None,
        wait: float | None = None,
        busy: wire.BusyPolicy = "enqueue",
        priority: int = 0,
        deadline: float | None = None,
        callback_url: str = "",
        task_type: str = "",
        session: str = "",
        user: str = "",
    ) -> wire.Accepted | wire.Run:
        """Trigger an agent. When this returns, the trigger cannot be lost.

        `busy`: what becomes of it if the agent has runs already; with `reject` AgentBusyError is raised, and QueueFullError
        when its queue is full even after the retries. `priority` (-10 to 10): higher goes first. `deadline`: how long from
        now the run may begin and last. `callback_url` receives a callback when the run ends; `verify_callback` reads it.
        `task_type`: the kind of work, for which the settings may name a model. `session` and `user`: what the run's trace is
        grouped with, and for whom it is. With `wait` (at most 300) the answer is the whole run if it ended in that time.
        """
        admission: JsonObject = {"busy": busy, "priority": priority, "deadline_seconds": deadline}
        admission |= {"callback_url": callback_url, "task_type": task_type, "session": session, "user": user}
        said = {name: value for name, value in admission.items() if value != _TRIGGER_DEFAULTS[name]}
        response = await self._send(
            "POST",
            f"/v1/agents/{_part(agent)}/triggers",
            {"wait": None if wait is None else f"{wait:g}"},
            headers={"Idempotency-Key": idempotency_key or self._ids.make("key")},
            body={"payload": payload, "focus": focus, **said},
            patience=wait or 0.0,
        )
        answer: wire.Accepted | wire.Run = orjson.loads(response.content)
        return answer

    async def submit_batch(self, triggers: Sequence[wire.BatchTrigger]) -> list[wire.BatchResult]:
        """Trigger many agents at once, up to 500; return what became of each, in order.

        Those without an `idempotency_key` get one, so that the request is safe to repeat.
        """
        keyed = [{"idempotency_key": self._ids.make("key"), **each} for each in triggers]
        return (await self._call(wire.BatchResults, "POST", "/v1/triggers:batch", body={"triggers": keyed}))["results"]

    async def run(self, run_id: str, *, events: bool = False) -> wire.Run:
        """Return a run, its journal included if asked for."""
        return await self._call(wire.Run, "GET", f"/v1/runs/{_part(run_id)}", {"events": events or None})

    async def runs(
        self,
        agent: str | None = None,
        status: wire.RunStatus | None = None,
        limit: int = 50,
        before: str | None = None,
        *,
        definition: str | None = None,
        trigger: wire.TriggerKind | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        text: str | None = None,
        not_over: bool = False,
        payloads: bool = False,
    ) -> wire.Runs:
        """Return a page of runs, newest first, with their payloads if asked for; `before` is the `next_before` of the page before it.

        With `text` only those whose focus has all of its words.
        """
        query: dict[str, Any] = {
            "agent": agent,
            "definition": definition,
            "status": status,
            "trigger": trigger,
            "text": text,
        }
        query |= {"limit": limit, "before": before}
        query |= {name: at.isoformat() for name, at in (("since", since), ("until", until)) if at is not None}
        query |= {"open": True} if not_over else {}
        query |= {"include": "payload"} if payloads else {}
        return await self._call(wire.Runs, "GET", "/v1/runs", query)

    async def events(self, run_id: str, after: int = 0) -> AsyncGenerator[wire.Event]:
        """Yield the run's events over `after` as they happen, each once, until the run is over.

        A broken connection is made again where it broke; the number of attempts starts again with each event.
        """
        failures = 0
        while True:
            try:
                async with aclosing(self._stream(run_id, after)) as stream:
                    async for event in stream:
                        if event is None:
                            return
                        after, failures = event["seq"], 0
                        yield event
                cut = TryAgainError(ServerUnreachableError(self.url, "the event stream was cut off"), None)
            except (httpx.TransportError, TryAgainError) as error:
                cut = self._try_again(error)
            failures += 1
            if failures >= self._attempts:
                raise cut.cause
            await self._sleep(_pause(failures, cut.retry_after))

    async def cancel(self, run_id: str) -> wire.Run:
        """Ask for the end of a run and return it as it stands."""
        return await self._call(wire.Run, "POST", f"/v1/runs/{_part(run_id)}/cancel")

    async def score(self, run_id: str, name: str, value: float | bool | str, comment: str = "") -> wire.Score:  # noqa: FBT001 - a value
        """Have a score of a run kept in Langfuse, in the place of an earlier one of this name.

        Raises ScoreRefusedError where traces do not go there.
        """
        body: JsonObject = {"name": name, "value": value, "comment": comment}
        return await self._call(wire.Score, "POST", f"/v1/runs/{_part(run_id)}/scores", body=body)

    async def agents(self) -> list[wire.Agent]:
        """Return all agents, by id, page by page."""
        found: list[wire.Agent] = []
        after: str | None = ""
        while after is not None:
            page = await self.agents_page(after=after, limit=1_000)
            found += page["agents"]
            after = page["next_after"]
        return found

    async def agents_page(self, *, after: str = "", limit: int = 100) -> wire.Agents:
        """Return a page of agents, by id; `after` is the `next_after` of the page before it."""
        return await self._call(wire.Agents, "GET", "/v1/agents", {"after": after or None, "limit": limit})

    async def agent(self, agent: str) -> wire.Agent:
        """Return one agent."""
        return await self._call(wire.Agent, "GET", f"/v1/agents/{_part(agent)}")

    async def skills(self, agent: str) -> list[wire.Skill]:
        """Return the skills of the agent's definition, by name."""
        return (await self._call(wire.Skills, "GET", f"/v1/agents/{_part(agent)}/skills"))["skills"]

    async def reload(self, agent: str) -> wire.Agent:
        """Have the files of the agent's definition read again, for every run that begins after this; raises DefinitionError."""
        return await self._call(wire.Agent, "POST", f"/v1/agents/{_part(agent)}/reload")

    async def memories(self, agent: str, *, archived: bool = False, limit: int = 1_000) -> list[wire.Memory]:
        """Return what the agent remembers, or what is in its archive instead, in the order of the file: up to 1,000."""
        return (await self.memories_page(agent, archived=archived, limit=limit))["memories"]

    async def memories_page(
        self, agent: str, *, archived: bool = False, after: str | None = None, limit: int = 100
    ) -> wire.Memories:
        """Return a page of what the agent remembers, or of its archive; `after` is the `next_after` of the page before it.

        Raises NotFoundError if that memory is not there any more.
        """
        parameters: Query = {"archived": archived or None, "after": after, "limit": limit}
        return await self._call(wire.Memories, "GET", _memories(agent), parameters)

    async def memory(self, agent: str, memory_id: str) -> wire.Memory:
        """Return a memory, active or archived; raises NotFoundError."""
        return await self._call(wire.Memory, "GET", _memories(agent, memory_id))

    async def search_memories(
        self,
        agent: str,
        query: str,
        limit: int = 5,
        tags: Sequence[str] = (),
        *,
        archived: bool = False,
        explain: bool = False,
    ) -> wire.FoundMemories:
        """Return what the agent would recall for the query, best first, or what its archive has of the query's words.

        `explain` adds the parts of each score.
        """
        flags = {"archived": archived or None, "explain": explain or None}
        parameters: Query = {"query": query, "limit": limit, "tag": list(tags) or None, **flags}
        return await self._call(wire.FoundMemories, "GET", _memories(agent, "search"), parameters)

    async def remember(
        self, agent: str, content: str, tags: Sequence[str] = (), *, by: str = "", idempotency_key: str | None = None
    ) -> wire.Memory:
        """Have the agent remember something, and return what is stored: the memory that has this text already, if there is one.

        `by`, here and where memories are changed, is who has it done, for the ledger.
        """
        return await self._call(
            wire.Memory,
            "POST",
            _memories(agent),
            {"by": by or None},
            headers={"Idempotency-Key": idempotency_key or self._ids.make("key")},
            body={"content": content, "tags": list(tags)},
        )

    async def edit_memory(
        self,
        agent: str,
        memory_id: str,
        content: str | None = None,
        tags: Sequence[str] | None = None,
        *,
        by: str = "",
        old_content: str | None = None,
        old_tags: Sequence[str] | None = None,
    ) -> wire.Memory:
        """Change the text of an active memory, its tags, or both; raises NotFoundError.

        Raises MemoryChangedError, and changes nothing, if it does not have `old_content` or `old_tags` any more.
        """
        given = {
            "content": content,
            "tags": None if tags is None else list(tags),
            "old_content": old_content,
            "old_tags": None if old_tags is None else list(old_tags),
        }
        body = {name: value for name, value in given.items() if value is not None}
        return await self._call(wire.Memory, "PATCH", _memories(agent, memory_id), {"by": by or None}, body=body)

    async def delete_memory(self, agent: str, memory_id: str, *, by: str = "") -> wire.Memory:
        """Remove a memory for good, and return it; raises NotFoundError."""
        return await self._call(wire.Memory, "DELETE", _memories(agent, memory_id), {"by": by or None})

    async def archive_memories(self, agent: str, memory_ids: Sequence[str], *, by: str = "") -> list[wire.Memory]:
        """Move active memories to the archive; return those that there were."""
        body: JsonObject = {"memory_ids": list(memory_ids)}
        path, query = _memories(agent, "archive"), {"by": by or None}
        return (await self._call(wire.ArchivedMemories, "POST", path, query, body=body))["memories"]

    async def reindex_memories(
        self,
        agent: str,
        timeout: float = 600.0,  # noqa: ASYNC109 - how long the server may take
        *,
        by: str = "",
    ) -> int:
        """Have the agent's index rebuilt from MEMORY.md; return how many memories it holds."""
        path, query = _memories(agent, "reindex"), {"by": by or None}
        return (await self._call(wire.Reindexed, "POST", path, query, patience=timeout))["indexed"]

    async def memory_text(self, agent: str) -> tuple[bytes, str]:
        """Return MEMORY.md as people read and edit it, and the ETag that names what it says."""
        response = await self._send("GET", _memory_text(agent))
        return response.content, response.headers.get("ETag", "")

    async def put_memory_text(
        self, agent: str, text: bytes, etag: str | None = None, *, by: str = ""
    ) -> wire.MemoryImported:
        """Make this text MEMORY.md; raises MemoryTooLargeError.

        `etag`: of the MEMORY.md that it was made from; what the agent remembered since then stays at its end, and if anything else was
        changed MemoryTextChangedError is raised and nothing is done. Without it, what the text lacks for being an older copy is put back.
        """
        headers = {} if etag is None else {"If-Match": etag}
        response = await self._send("PUT", _memory_text(agent), {"by": by or None}, headers=headers, body=text)
        answer: wire.MemoryImported = orjson.loads(response.content)
        return answer

    async def memory_archive_text(self, agent: str) -> bytes:
        """Return the agent's archive as people read it; empty if nothing was archived."""
        return (await self._send("GET", f"/v1/agents/{_part(agent)}/memory.archive.md")).content

    async def put_memory_archive_text(self, agent: str, text: bytes, *, by: str = "") -> wire.ArchiveImported:
        """Have in the agent's archive what this one has. What is archived or active already stays as it is; nothing is removed."""
        path = f"/v1/agents/{_part(agent)}/memory.archive.md"
        response = await self._send("PUT", path, {"by": by or None}, body=text)
        answer: wire.ArchiveImported = orjson.loads(response.content)
        return answer

    async def memory_stats(self, agent: str) -> wire.MemoryStats:
        """Return how much the agent remembers, and what is wrong with its files."""
        return await self._call(wire.MemoryStats, "GET", _memories(agent, "stats"))

    async def artifacts(self, agent: str, limit: int = 100) -> list[wire.Artifact]:
        """Return what is stored of the agent's large results, newest first."""
        path = f"/v1/agents/{_part(agent)}/artifacts"
        return (await self._call(wire.Artifacts, "GET", path, {"limit": limit}))["artifacts"]

    async def artifact(self, agent: str, artifact_id: str) -> Artifact:
        """Return one of the agent's large results, as it was; raises NotFoundError."""
        response = await self._send("GET", f"/v1/agents/{_part(agent)}/artifacts/{_part(artifact_id)}")
        return Artifact(ArtifactId(artifact_id), response.headers["Content-Type"], response.content)

    async def schedules(
        self, agent: str | None = None, status: wire.ScheduleStatus | None = None, limit: int = 1_000
    ) -> list[wire.Schedule]:
        """Return schedules, by agent, oldest first."""
        return (await self.schedules_page(agent, status, limit=limit))["schedules"]

    async def schedules_page(
        self,
        agent: str | None = None,
        status: wire.ScheduleStatus | None = None,
        *,
        after: str | None = None,
        limit: int = 100,
    ) -> wire.Schedules:
        """Return a page of schedules, by agent, oldest first; `after` is the `next_after` of the page before it."""
        path = "/v1/schedules" if agent is None else f"/v1/agents/{_part(agent)}/schedules"
        return await self._call(wire.Schedules, "GET", path, {"status": status, "after": after, "limit": limit})

    async def schedule(self, schedule_id: str) -> wire.Schedule:
        """Return one schedule."""
        return await self._call(wire.Schedule, "GET", f"/v1/schedules/{_part(schedule_id)}")

    async def create_schedule(
        self,
        agent: str,
        focus: str,
        *,
        at: datetime | None = None,
        delay: float | None = None,
        interval: int | None = None,
        cron: str | None = None,
        timezone: str = "UTC",
        jitter: int = 0,
        overlap: wire.OverlapPolicy = "buffer_one",
        catch_up: float | None = None,
        task_type: str = "",
        idempotency_key: str | None = None,
    ) -> wire.Schedule:
        """Have an agent run with this focus in future: `at` a time, after a `delay`, every `interval`, or by a `cron` expression.

        Exactly one of the four is given. `timezone` is that of the expression. It fires up to `jitter` later than its times, ever
        by the same. `overlap`: what becomes of a time when runs of earlier ones are not over. `catch_up`: how late a missed
        time may still fire. `task_type`: that of its runs' triggers. Raises ScheduleError and TooManySchedulesError.
        """
        body: JsonObject = {
            "focus": focus,
            "at": None if at is None else at.isoformat(),
            "delay_seconds": delay,
            "interval_seconds": interval,
            "cron_expression": cron,
            "timezone": None if timezone == "UTC" else timezone,
            "jitter_seconds": jitter or None,
            "overlap": overlap,
            "catch_up_seconds": catch_up,
            "task_type": task_type or None,
        }
        return await self._call(
            wire.Schedule,
            "POST",
            f"/v1/agents/{_part(agent)}/schedules",
            headers={"Idempotency-Key": idempotency_key or self._ids.make("key")},
            body={name: value for name, value in body.items() if value is not None},
        )

    async def pause_schedule(self, schedule_id: str) -> wire.Schedule:
        """Let a schedule's times pass without runs; raises ScheduleClosedError."""
        return await self._change_schedule(schedule_id, "pause")

    async def resume_schedule(self, schedule_id: str) -> wire.Schedule:
        """Have a paused schedule go on; raises ScheduleClosedError."""
        return await self._change_schedule(schedule_id, "resume")

    async def cancel_schedule(self, schedule_id: str) -> wire.Schedule:
        """End a schedule, and the runs of its firings that are not over."""
        return await self._change_schedule(schedule_id, "cancel")

    async def _change_schedule(self, schedule_id: str, verb: str) -> wire.Schedule:
        return await self._call(wire.Schedule, "POST", f"/v1/schedules/{_part(schedule_id)}/{verb}")

    async def backfill_schedule(self, schedule_id: str, since: datetime, until: datetime) -> wire.Backfill:
        """Queue a run for each past due time from `since` to `until`, both included, that has none.

        Raises ScheduleError, and SettledError if the schedule has one time only.
        """
        body: JsonObject = {"since": since.isoformat(), "until": until.isoformat()}
        return await self._call(wire.Backfill, "POST", f"/v1/schedules/{_part(schedule_id)}/backfill", body=body)

    async def ticks(self, schedule_id: str, *, before: str | None = None, limit: int = 100) -> wire.Ticks:
        """Return what became of a schedule's times, newest first; `before` is the `next_before` of the page before it."""
        path = f"/v1/schedules/{_part(schedule_id)}/ticks"
        return await self._call(wire.Ticks, "GET", path, {"before": before, "limit": limit})

    async def approvals(
        self,
        agent: str | None = None,
        run: str | None = None,
        status: wire.ApprovalStatus | None = "pending",
        limit: int = 100,
    ) -> list[wire.Approval]:
        """Return approvals, newest first: those that wait for a decision, unless another status, or None for all, is given."""
        query: Query = {"agent": agent, "run": run, "status": status, "limit": limit}
        return (await self._call(wire.Approvals, "GET", "/v1/approvals", query))["approvals"]

    async def approval(self, approval_id: str) -> wire.Approval:
        """Return one approval."""
        return await self._call(wire.Approval, "GET", f"/v1/approvals/{_part(approval_id)}")

    async def decide(
        self,
        approval_id: str,
        decision: wire.DecisionKind,
        *,
        reason: str = "",
        by: str = "",
        arguments: JsonObject | None = None,
    ) -> wire.Approval:
        """Decide about a call, with other `arguments` for it if they are given; deciding the same again changes nothing.

        Raises AlreadyDecidedError if it was decided otherwise, expired, or was withdrawn.
        """
        body: JsonObject = {"decision": decision, "reason": reason, "by": by}
        if arguments is not None:
            body["arguments"] = arguments
        path = f"/v1/approvals/{_part(approval_id)}/decision"
        return await self._call(wire.Approval, "POST", path, body=body)

    async def webhook_sources(self) -> list[wire.WebhookSource]:
        """Return the sources of webhooks, by name."""
        return (await self._call(wire.WebhookSources, "GET", "/v1/webhooks"))["sources"]

    async def deliveries(
        self,
        source: str | None = None,
        status: wire.DeliveryStatus | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> list[wire.Delivery]:
        """Return webhooks that came in, newest first; those that came before the one of that id."""
        query: Query = {"source": source, "status": status, "limit": limit, "before": before}
        return (await self._call(wire.Deliveries, "GET", "/v1/deliveries", query))["deliveries"]

    async def delivery(self, delivery_id: str) -> wire.FullDelivery:
        """Return a webhook that came in, with its body."""
        return await self._call(wire.FullDelivery, "GET", f"/v1/deliveries/{_part(delivery_id)}")

    async def redeliver(self, delivery_id: str) -> wire.WebhookReceipt:
        """Have a webhook that has not triggered mapped again; raises SettledError."""
        path = f"/v1/deliveries/{_part(delivery_id)}/redelivery"
        return await self._call(wire.WebhookReceipt, "POST", path)

    async def callbacks(
        self,
        agent: str | None = None,
        run: str | None = None,
        status: wire.CallbackStatus | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> list[wire.Callback]:
        """Return the callbacks of ended runs, newest first; those that were made before the one of that id."""
        query: Query = {"agent": agent, "run": run, "status": status, "limit": limit, "before": before}
        return (await self._call(wire.Callbacks, "GET", "/v1/callbacks", query))["callbacks"]

    async def callback(self, callback_id: str) -> wire.Callback:
        """Return the callback of an ended run to one address."""
        return await self._call(wire.Callback, "GET", f"/v1/callbacks/{_part(callback_id)}")

    async def send_again(self, callback_id: str) -> wire.Callback:
        """Have a callback sent again; raises SettledError while its run is not over."""
        return await self._call(wire.Callback, "POST", f"/v1/callbacks/{_part(callback_id)}/redelivery")

    async def callback_secrets(self) -> list[str]:
        """Return the secrets of the tenant by which `verify_callback` checks its callbacks, the present one first. Raises NotFoundError
        where there are no callbacks.
        """
        return (await self._call(wire.CallbackSecrets, "GET", "/v1/callback-secrets"))["secrets"]

    async def secrets(self) -> list[wire.Secret]:
        """Return what may be known of the secrets, by name. No method returns a value."""
        return (await self._call(wire.Secrets, "GET", "/v1/secrets"))["secrets"]

    async def set_secret(self, name: str, value: str, *, by: str = "") -> wire.Secret:
        """Set a secret, in the place of a former value; raises SecretsUnavailableError without a master key."""
        body: JsonObject = {"value": value} | ({"by": by} if by else {})
        return await self._call(wire.Secret, "PUT", f"/v1/secrets/{_part(name)}", body=body)

    async def delete_secret(self, name: str) -> wire.Secret:
        """Remove a secret, and return what was known of it."""
        return await self._call(wire.Secret, "DELETE", f"/v1/secrets/{_part(name)}")

    async def rotate_secrets(self) -> int:
        """Encrypt all secrets with the newest master key; return how many another one had encrypted."""
        return (await self._call(wire.SecretRotation, "POST", "/v1/secrets:rotate"))["rotated"]

    async def rotate_all_secrets(self) -> int:
        """Encrypt the secrets of all tenants with the newest master key; return how many another one had encrypted. For operators."""
        return (await self._call(wire.SecretRotation, "POST", "/v1/secrets:rotate-all"))["rotated"]

    async def mcp_servers(self) -> list[wire.McpServer]:
        """Return the MCP servers of the node that answers, by name."""
        return (await self._call(wire.McpServers, "GET", "/v1/mcp"))["servers"]

    async def nodes(self) -> wire.Nodes:
        """Return the nodes of the cluster, by id, and the lease of the store."""
        return await self._call(wire.Nodes, "GET", "/v1/nodes")

    async def drain(self, node: str) -> wire.Nodes:
        """Have a node run no agents any more, or `all`, and return these nodes; `node` is a name, an address, or the beginning of an id.

        Raises NotFoundError, UserError.
        """
        return await self._call(wire.Nodes, "POST", f"/v1/nodes/{_part(node)}/drain")

    async def undrain(self, node: str) -> wire.Nodes:
        """Let a drained node run agents again, or `all`; see `drain`."""
        return await self._call(wire.Nodes, "POST", f"/v1/nodes/{_part(node)}/undrain")

    async def console_code(self) -> str | None:
        """Return a code that begins a session of this client's key in the console, once and within a minute; None where nobody needs a
        key.
        """
        answer = await self._call(dict[str, Any], "POST", "/console/sign-in/codes")
        return None if answer["code"] is None else str(answer["code"])

    async def keys(self, *, after: str = "", limit: int = 100) -> wire.AccessKeys:
        """Return a page of the tenant's access keys, by id; `after` is the `next_after` of the page before it."""
        return await self._call(wire.AccessKeys, "GET", "/v1/keys", {"after": after or None, "limit": limit})

    async def key(self, key_id: str) -> wire.KeyDetails:
        """Return an access key, and what it uses of its quotas at the moment. Raises NotFoundError."""
        return await self._call(wire.KeyDetails, "GET", f"/v1/keys/{_part(key_id)}")

    async def create_key(
        self,
        name: str,
        scopes: Sequence[str],
        *,
        agents: Sequence[str] = (),
        days: float | None = None,
        tenant: str | None = None,
        starts_a_minute: int | None = None,
        open_runs: int | None = None,
        running_runs: int | None = None,
        model_tokens_a_minute: int | None = None,
    ) -> wire.IssuedKey:
        """Make an access key: `scopes` are scopes or roles, `agents` patterns such as `agent:trader:*`. Its text is told this once.

        It is no request to repeat by itself: one whose answer is lost has made a key that nobody has.
        """
        body = {
            "name": name,
            "scopes": list(scopes),
            "agents": list(agents),
            "days": days,
            "tenant": tenant,
            "starts_a_minute": starts_a_minute,
            "open_runs": open_runs,
            "running_runs": running_runs,
            "model_tokens_a_minute": model_tokens_a_minute,
        }
        said = {field: value for field, value in body.items() if value is not None}
        return await self._call(wire.IssuedKey, "POST", "/v1/keys", body=said)

    async def rotate_key(self, key_id: str, grace_seconds: float = 0.0) -> wire.IssuedKey:
        """Give a key another secret; the one before stays valid for so many seconds. Raises NotFoundError."""
        path = f"/v1/keys/{_part(key_id)}/rotate"
        return await self._call(wire.IssuedKey, "POST", path, body={"grace_seconds": grace_seconds})

    async def revoke_key(self, key_id: str) -> wire.AccessKey:
        """Revoke a key for good; within 5 seconds it is refused everywhere. Raises NotFoundError."""
        return await self._call(wire.AccessKey, "POST", f"/v1/keys/{_part(key_id)}/revoke")

    async def tenants(self, *, after: str = "", limit: int = 100) -> wire.Tenants:
        """Return a page of the tenants, by id; `after` is the `next_after` of the page before it."""
        return await self._call(wire.Tenants, "GET", "/v1/tenants", {"after": after or None, "limit": limit})

    async def tenant(self, tenant: str) -> wire.TenantDetails:
        """Return a tenant, with its use of its quotas; raises NotFoundError."""
        return await self._call(wire.TenantDetails, "GET", f"/v1/tenants/{_part(tenant)}")

    async def create_tenant(
        self,
        tenant: str,
        name: str = "",
        weight: int = 1,
        quotas: wire.QuotaChange | None = None,
        retention: wire.RetentionChange | None = None,
        *,
        callback_networks: Sequence[str] | None = None,
    ) -> wire.Tenant:
        """Make a tenant."""
        body: JsonObject = {"tenant": tenant, "name": name or tenant, "weight": weight, "quotas": {**(quotas or {})}}
        if retention:
            body["retention"] = {**retention}
        if callback_networks is not None:
            body["callback_networks"] = list(callback_networks)
        return await self._call(wire.Tenant, "POST", "/v1/tenants", body=body)

    async def update_tenant(self, tenant: str, change: wire.TenantChange) -> wire.Tenant:
        """Change a tenant; raises NotFoundError."""
        return await self._call(wire.Tenant, "PATCH", f"/v1/tenants/{_part(tenant)}", body=dict(change))

    async def delete_tenant(self, tenant: str) -> wire.Tenant:
        """Have a suspended tenant be deleted, with everything of it but its ledger; `tenant` tells how far that is."""
        return await self._call(wire.Tenant, "DELETE", f"/v1/tenants/{_part(tenant)}")

    async def export_tenant(self, tenant: str) -> AsyncGenerator[bytes]:
        """Yield everything that a tenant has, as lines of JSON with their ends; raises ServerUnreachableError if it breaks off.

        A caller who has had the last line has had them all. It is not begun again by itself.
        """
        path, last = f"/v1/tenants/{_part(tenant)}/export", b""
        timeout = httpx.Timeout(self._timeout, read=self._timeout + _EXPORT_PATIENCE)
        try:
            async with self._http.stream("GET", path, timeout=timeout) as response:
                if not response.is_success:
                    await response.aread()
                    failure = failure_of(response)
                    raise failure.cause if isinstance(failure, TryAgainError) else failure
                rest = b""
                async for part in response.aiter_bytes():
                    *lines, rest = (rest + part).split(b"\n")
                    for line in lines:
                        last = line
                        yield line + b"\n"
        except httpx.TransportError as error:
            raise ServerUnreachableError(self.url, f"the export was cut off: {error!r}") from error
        if not last.startswith(b'{"type":"end",'):
            raise ServerUnreachableError(self.url, "the export was cut off")

    async def usage(
        self,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        grain: wire.Grain = "total",
        by: wire.UsageBy = "none",
        agent: str | None = None,
        limit: int = 1_000,
    ) -> wire.UsageReport:
        """Return what runs came to that ended from `since` on (today's, in UTC) and before `until` (now), or with `by="tool"` tool calls.

        `grain`: for each minute, hour or day, or all together. `by`: for each agent, definition or tool, or all together. `agent`: only
        of this one.
        """
        query = {
            "since": None if since is None else since.isoformat(),
            "until": None if until is None else until.isoformat(),
            "grain": grain,
            "by": by,
            "agent": agent,
            "limit": limit,
        }
        return await self._call(wire.UsageReport, "GET", "/v1/usage", query)

    async def ledger(
        self,
        agent: str | None = None,
        run: str | None = None,
        kind: wire.LedgerKind | None = None,
        limit: int = 1_000,
    ) -> list[wire.LedgerRecord]:
        """Return ledger records, oldest first."""
        return (await self.ledger_page(agent, run, kind, limit=limit))["records"]

    async def ledger_page(
        self,
        agent: str | None = None,
        run: str | None = None,
        kind: wire.LedgerKind | None = None,
        *,
        tool: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        after: str | None = None,
        limit: int = 1_000,
    ) -> wire.Ledger:
        """Return a page of ledger records, oldest first; `after` is the `next_after` of the page before it.

        `since` and `until` (before it, not at it) are times with a zone.
        """
        path = "/v1/ledger" if agent is None else f"/v1/agents/{_part(agent)}/ledger"
        query = {
            "run": run,
            "kind": kind,
            "tool": tool,
            "since": None if since is None else since.isoformat(),
            "until": None if until is None else until.isoformat(),
            "after": after,
            "limit": limit,
        }
        return await self._call(wire.Ledger, "GET", path, query)

    async def ledger_heads(self) -> list[wire.LedgerHead]:
        """Return the ends of the ledger's chains; kept elsewhere, they show later whether any of it was cut off."""
        return (await self._call(wire.LedgerHeads, "GET", "/v1/ledger/heads"))["heads"]

    async def verify_ledger(
        self,
        timeout: float = 600.0,  # noqa: ASYNC109 - how long the server may take
        since: Sequence[wire.LedgerHead] = (),
        tenant: str | None = None,
    ) -> wire.LedgerVerification:
        """Return whether the ledger's chains hold, and where they do not. The server reads every record for it.

        Each chain must still have the hashes that `ledger_heads` returned earlier, too. `tenant`: another one than the key's, a deleted
        one too, for who may read tenants.
        """
        return await self._call(
            wire.LedgerVerification,
            "GET",
            "/v1/ledger/verification",
            {"since": [_head(each) for each in since], "tenant": tenant},
            patience=timeout,
        )

    async def metrics(self) -> str:
        """Return the numbers of the server's parts, as Prometheus reads them."""
        return (await self._send("GET", "/metrics", {})).text

    async def health(self) -> wire.Health:
        """Return whether triggers are accepted, and, for a key with `system:read`, the state of each part; asks once."""
        try:
            response = await self._http.get("/readyz")
            answer: wire.Health = orjson.loads(response.content)
        except (httpx.TransportError, ValueError) as error:
            raise ServerUnreachableError.after(self.url, error) from error
        return answer

    async def _call(self, _kind: type[_T], method: str, path: str, query: Query | None = None, **options: Any) -> _T:
        """Return the JSON that the server answers; `options` are those of `_send`."""
        answer: _T = orjson.loads((await self._send(method, path, query, **options)).content)
        return answer

    async def _send(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        body: JsonObject | bytes | None = None,
        patience: float = 0.0,
    ) -> httpx.Response:
        is_text = isinstance(body, bytes)
        media = {"Content-Type": "text/markdown" if is_text else "application/json"} if body or is_text else {}
        request = self._http.build_request(
            method,
            path,
            params={name: value for name, value in (query or {}).items() if value is not None},
            headers={**(headers or {}), **media},
            content=body if isinstance(body, bytes) else orjson.dumps(body) if body else None,
            timeout=httpx.Timeout(self._timeout, read=self._timeout + patience),
        )
        failures = 0
        while True:
            try:
                response = await self._http.send(request)
                if response.is_success:
                    return response
                failure: Exception = failure_of(response)
            except httpx.TransportError as error:
                failure = error
            if not isinstance(failure, httpx.TransportError | TryAgainError):
                raise failure
            again = self._try_again(failure)
            failures += 1
            if failures >= self._attempts:
                raise again.cause from failure
            await self._sleep(_pause(failures, again.retry_after))

    async def _stream(self, run_id: str, after: int) -> AsyncGenerator[wire.Event | None]:
        """Yield events, and None at the end of the run; without None the stream was cut off."""
        async with self._http.stream(
            "GET",
            f"/v1/runs/{_part(run_id)}/events",
            headers={"Last-Event-ID": str(after)},
            timeout=httpx.Timeout(self._timeout, read=EVENT_SILENCE_SECONDS),
        ) as response:
            if not response.is_success:
                await response.aread()
                raise failure_of(response)
            async for kind, data in server_sent_events(response.aiter_bytes()):
                if kind == "end":
                    yield None
                    return
                yield orjson.loads(data)

    def _try_again(self, error: httpx.TransportError | TryAgainError) -> TryAgainError:
        if isinstance(error, TryAgainError):
            return error
        return TryAgainError(ServerUnreachableError.after(self.url, error), None)


async def server_sent_events(chunks: AsyncIterator[bytes]) -> AsyncIterator[tuple[str, bytes]]:
    """Yield name (empty for a plain message) and data of each event of a stream; one that is cut off in the middle is dropped.

    Lines end in LF, with or without CR before it, and nowhere else: JSON may hold other line separators as they are.
    """
    event, data, rest = "", list[bytes](), b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            name, _, value = line.removesuffix(b"\r").partition(b":")
            if name == b"event":
                event = value.removeprefix(b" ").decode()
            elif name == b"data":
                data.append(value.removeprefix(b" "))
            elif line in {b"", b"\r"}:
                if data:
                    yield event, b"\n".join(data)
                event, data = "", []


def _memory_text(agent: str) -> str:
    return f"/v1/agents/{_part(agent)}/memory.md"


def _memories(agent: str, *rest: str) -> str:
    return "/".join((f"/v1/agents/{_part(agent)}/memories", *map(_part, rest)))


def _pause(failures: int, retry_after: float | None) -> float:
    """Return what the server asked for, at most a minute; else longer and longer, up to ten seconds, with jitter."""
    if retry_after is not None:
        return min(retry_after, 60.0)
    return min(0.2 * 2.0 ** (failures - 1), 10.0) * random.uniform(0.5, 1.0)  # noqa: S311 - jitter is no secret


def _head(head: wire.LedgerHead) -> str:
    micros = (datetime.fromisoformat(head["at"]) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return f"{micros}.{head['position']}.{head['hash']}.{head['writer']}"


def _part(text: str) -> str:
    return quote(text, safe=":@")
