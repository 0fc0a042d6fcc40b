"""One server, kept at hand: started, listed, looked after, and started again when it is gone."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, cast

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    REQUEST_TIMEOUT,
    RequestParamsMeta,
    ToolListChangedNotification,
)
from msgspec import Struct

from owlclaw_ray.configuration.placeholders import PLACEHOLDER, filled, names_in
from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.tool import CallProgress
from owlclaw_ray.domain.tracing import HEADER
from owlclaw_ray.errors import ConfigurationError, Problem
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.ledger.redaction import MIN_SECRET_CHARACTERS
from owlclaw_ray.tools.mcp.api import McpCall, McpProblem, McpState, McpTrouble
from owlclaw_ray.tools.mcp.options import Address, Command, Endpoint, McpOptions
from owlclaw_ray.tools.mcp.stdio import ServerProcess
from owlclaw_ray.tools.mcp.tool_screen import ToolScreen
from owlclaw_ray.tools.programs import child_environment

_HIDDEN = "[secret]"


class Secrets:
    """The values of variables that were filled in."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._values: set[str] = set()

    def fill(self, text: str, where: str) -> str:
        """Return the text with the values of its variables; raises ConfigurationError for those that are not set."""
        missing = [name for name in names_in(text) if name not in self._environ]
        if missing:
            what = f"the variable {missing[0]} is not set"
            raise ConfigurationError([Problem(where, what, "set it where the runtime is started")])
        self._values.update(self._environ[name] for name in names_in(text))
        return PLACEHOLDER.sub(lambda found: self._environ[found[1]], text)

    def learn(self, values: Iterable[str]) -> None:
        """Hide these values, too."""
        self._values.update(values)

    def filled(self, pairs: Iterable[tuple[str, str]], where: str) -> dict[str, str]:
        """Return the mapping with every value filled."""
        return {name: self.fill(text, f"{where}.{name}") for name, text in pairs}

    def hide(self, text: str) -> str:
        """Return the text without the values."""
        for value in sorted(self._values, key=len, reverse=True):
            if len(value) >= MIN_SECRET_CHARACTERS:
                text = text.replace(value, _HIDDEN)
        return text

    def hide_in(self, value: JsonValue) -> JsonValue:
        """Return the JSON value with the values hidden in all its texts."""
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, list):
            return [self.hide_in(each) for each in value]
        if isinstance(value, dict):
            return {self.hide(key): self.hide_in(each) for key, each in value.items()}
        return value


_MAX_PAGES = 100
_MAX_ATTEMPTS = 1_000_000
_STABLE_SECONDS = 30.0
"""A server that was up for so long begins with the shortest pause again."""
_MAX_UNANSWERED = 3
"""After so many calls without an answer a server is asked for a sign of life although others run."""
_PATIENCE_SECONDS = 5.0
"""How long a call waits for a server that is being started."""
_MESSAGE_CHARACTERS = 500
_GONE = frozenset({"Session terminated", "Server returned an error response"})
"""What the SDK says of a server over HTTP that knows the session no more, or answers with an HTTP error: it may be another one."""
_logger = logging.getLogger(__name__)


class _LostError(Exception):
    """The server is gone, or does not answer."""


class _UnusedError(Exception):
    """Nobody has used the server for a while."""


class ConnectionActivity(Struct):
    """What goes on between here and a server."""

    starts: int = 0
    calls: int = 0
    """Calls that have ended."""
    running: int = 0
    """Calls under way now."""
    unanswered: int = 0
    """How many in a row had no answer in time."""
    used: float = 0.0
    """When the last one began or ended."""


class Account(Struct, frozen=True):
    """The tenant that a connection is for, and its secrets by their names."""

    tenant: TenantId
    secrets: Mapping[str, str]


class Connection:
    """Keeps one server. `run` is its life; everything else may be called at any time from the same event loop."""

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        options: McpOptions,
        *,
        environ: Mapping[str, str],
        clock: Clock,
        jitter: Callable[[], float],
        changed: Callable[[], None],
        account: Account | None = None,
    ) -> None:
        """`account`: whose connection it is; None: the node's own, which does without `secret_headers`."""
        self.name, self.endpoint = name, endpoint
        self._account = account
        self.state, self.since, self.problem = McpState.CONNECTING, clock.now(), ""
        self.traffic = ConnectionActivity()
        self.listed: tuple[JsonObject, ...] | None = None
        """Its tools in the form of the protocol, from the last time that they were listed; None before the first."""
        self.progress: dict[str, CallProgress] = {}
        """What it said last of calls that run, by their keys."""
        self.process: ServerProcess | None = None
        self._options, self._environ, self._clock, self._jitter, self._changed = (
            options,
            environ,
            clock,
            jitter,
            changed,
        )
        self._secrets = Secrets(environ)
        if account is not None:
            self._secrets.learn(account.secrets.values())
        self._retry = RetryPolicy(_MAX_ATTEMPTS, options.backoff, options.backoff_limit)
        self._client: Client | None = None
        self._scope = anyio.CancelScope()
        self._turned = anyio.Event()
        self._wanted, self._stale, self._doubtful = anyio.Event(), anyio.Event(), anyio.Event()

    async def run(self) -> None:
        """Keep the server until `stop` is called; returns when nothing of it is left. Never raises for what the server does."""
        failures = 0
        with self._scope:
            while True:
                began = self._clock.monotonic()
                try:
                    self._turn(McpState.CONNECTING)
                    await self._serve()
                except Exception as error:  # noqa: BLE001 (whatever ended the connection, there is another one)
                    if _holds(error, _UnusedError):
                        self._wanted = anyio.Event()
                        if self.traffic.running == 0:
                            self._turn(McpState.IDLE)
                            await self._wanted.wait()
                        continue
                    known = self.problem
                    self._turn(McpState.DOWN, self._told(error))
                failures = 1 if self._clock.monotonic() - began > _STABLE_SECONDS else failures + 1
                pause = self._retry.delay(failures, self._jitter())
                level = logging.DEBUG if self.problem == known else logging.WARNING
                whose = "" if self._account is None else f" of tenant {self._account.tenant}"
                _logger.log(
                    level,
                    "the MCP server %s%s is down, next try in %.1f s: %s",
                    self.name,
                    whose,
                    pause,
                    self.problem,
                )
                await self._clock.sleep(pause)
        self._turn(McpState.STOPPED)

    def stop(self) -> None:
        """Have `run` end."""
        self._scope.cancel()

    async def call(self, call: McpCall) -> JsonObject | McpProblem:
        """Return the tool's result in the form of the protocol, or what went wrong. Cancelling it cancels the call there."""
        self.traffic.running += 1
        began = self.traffic.used = self._clock.monotonic()
        self._wanted.set()
        try:
            with suppress(TimeoutError), self._within(min(call.seconds, _PATIENCE_SECONDS)):
                while self.state in {McpState.CONNECTING, McpState.IDLE}:
                    await self._turned.wait()
            client = self._client
            if client is None:
                why = f": {self.problem}" if self.problem else ""
                return McpProblem(
                    McpTrouble.NOT_SENT, f"the MCP server {self.name} is {self.state.value}{why}. Try again later."
                )
            return await self._asked(client, call, call.seconds - (self._clock.monotonic() - began))
        finally:
            self.progress.pop(call.key, None)
            self.traffic.running -= 1
            self.traffic.calls += 1
            self.traffic.used = self._clock.monotonic()

    async def _asked(self, client: Client, call: McpCall, seconds: float) -> JsonObject | McpProblem:
        meta = cast("RequestParamsMeta", {HEADER: call.traceparent}) if call.traceparent else None
        try:
            result = await client.call_tool(
                call.tool,
                call.arguments,
                read_timeout_seconds=seconds,
                progress_callback=partial(self._progressed, call.key) if call.key else None,
                meta=meta,
            )
        except MCPError as error:
            return self._refused(call.tool, error, seconds)
        except (RuntimeError, ValueError) as error:
            return McpProblem(McpTrouble.REFUSED, self._shown(f"{self.name} gave no valid result: {error}"))
        self.traffic.unanswered = 0
        answer: JsonObject = self._secrets.hide_in(
            result.model_dump(
                by_alias=True, exclude_none=True, mode="json", include={"content", "structured_content", "is_error"}
            )
        )
        return answer

    async def _progressed(self, key: str, progress: float, total: float | None, message: str | None) -> None:
        done, of = (each if each is not None and math.isfinite(each) else None for each in (progress, total))
        self.progress[key] = CallProgress(done, of, self._shown(message or ""))

    def _refused(self, tool: str, error: MCPError, seconds: float) -> McpProblem:
        said = self._shown(error.message)
        match error.code:
            case _ if error.code == REQUEST_TIMEOUT:
                self.traffic.unanswered += 1
                self._doubtful.set()
                return McpProblem(McpTrouble.LATE, f"{self.name} did not answer within {seconds:g} s.")
            case _ if error.code == CONNECTION_CLOSED or error.message in _GONE:
                self._doubtful.set()
                return McpProblem(McpTrouble.LOST, f"the MCP server {self.name} went away during the call.")
            case _ if error.code == METHOD_NOT_FOUND:
                return McpProblem(McpTrouble.UNKNOWN_TOOL, f"{self.name} does not know {tool!r}: {said}")
            case _ if error.code == INVALID_PARAMS:
                return McpProblem(McpTrouble.BAD_ARGUMENTS, said, self._secrets.hide_in(error.data))
        self._doubtful.set()
        return McpProblem(
            McpTrouble.REFUSED, f"{self.name} refused the call: {said}", self._secrets.hide_in(error.data)
        )

    async def _serve(self) -> None:
        self.traffic.starts += 1
        self._stale, ready, screen = anyio.Event(), anyio.Event(), ToolScreen()
        async with anyio.create_task_group() as waiting:
            waiting.start_soon(self._hurry, ready)
            async with (
                self._transport() as transport,
                Client(screen.over(transport), message_handler=self._heard, cache=None) as client,
            ):
                screen.version = client.protocol_version
                await self._list(client)
                ready.set()
                try:
                    async with anyio.create_task_group() as tasks:
                        self._client, self.traffic.used, self.traffic.unanswered = client, self._clock.monotonic(), 0
                        self._turn(McpState.UP)
                        tasks.start_soon(self._end_of_process)
                        tasks.start_soon(self._ping_server, client)
                        tasks.start_soon(self._refresh_tools, client)
                        tasks.start_soon(self._listen, client)
                        if self._options.idle is not None:
                            tasks.start_soon(self._wait_idle_end, self._options.idle)
                finally:
                    self._client = None
                    self._turn(McpState.CONNECTING)

    async def _hurry(self, ready: anyio.Event) -> None:
        try:
            with self._within(self._options.connect):
                await ready.wait()
        except TimeoutError as error:
            raise _LostError(f"it was not ready within {self._options.connect:g} s") from error

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[Any]:
        where = f"mcp.servers.{self.name}"
        if isinstance(self.endpoint, Command):
            own = self._secrets.filled(self.endpoint.environment, f"{where}.env")
            environment = child_environment(self._environ, ()) | own
            argv, folder = self.endpoint.argv, self.endpoint.folder
            self.process = ServerProcess(argv, environment, folder, self._secrets.hide, self.name)
            yield self.process.streams()
            return
        headers = self._headers(self.endpoint, where)
        url = self._secrets.fill(self.endpoint.url, f"{where}.url")
        patience = httpx2.Timeout(self._options.connect, read=None)  # answers have the time limits of calls
        async with httpx2.AsyncClient(headers=headers, timeout=patience, follow_redirects=False) as http:
            yield streamable_http_client(url, http_client=http)

    def _headers(self, address: Address, where: str) -> dict[str, str]:
        headers = self._secrets.filled(address.headers, f"{where}.headers")
        if self._account is None:
            return headers
        own = {name: filled(text, self._account.secrets) for name, text in address.secret_headers}
        replaced = {name.lower() for name in own}
        return {name: value for name, value in headers.items() if name.lower() not in replaced} | own

    async def _heard(self, message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._stale.set()

    async def _list(self, client: Client) -> None:
        tools: list[JsonObject] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            tools += [tool.model_dump(by_alias=True, exclude_none=True, mode="json") for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None:
                break
        if self.listed != tuple(tools):
            self.listed = tuple(tools)
            self._changed()

    async def _end_of_process(self) -> None:
        if self.process is not None:
            await self.process.ended.wait()
            raise _LostError("it ended")

    async def _ping_server(self, client: Client) -> None:
        """Ask for a sign of life (the list of tools) now and then, and after a call that had no answer, while no call runs."""
        while True:
            doubtful = anyio.Event()
            self._doubtful = doubtful
            with suppress(TimeoutError), self._within(self._options.health):
                await doubtful.wait()
            if self.traffic.running == 0 or self.traffic.unanswered >= _MAX_UNANSWERED:
                await self._check(client)

    async def _check(self, client: Client) -> None:
        try:
            with self._within(self._options.connect):
                await self._list(client)
        except TimeoutError as error:
            raise _LostError(f"it gave no sign of life within {self._options.connect:g} s") from error

    async def _refresh_tools(self, client: Client) -> None:
        while True:
            await self._stale.wait()
            self._stale = anyio.Event()
            await self._check(client)

    async def _listen(self, client: Client) -> None:
        """Have servers of the newer protocol say when their tools change; the older ones say it unasked."""
        while True:
            with suppress(MCPError, SubscriptionLost, TimeoutError):
                try:
                    async with client.listen(tools_list_changed=True) as events:
                        self._stale.set()  # for what changed before anybody listened
                        async for _ in events:
                            self._stale.set()
                except ListenNotSupportedError:
                    return
            await self._clock.sleep(self._options.health)

    async def _wait_idle_end(self, idle: float) -> None:
        while True:
            left = self.traffic.used + idle - self._clock.monotonic()
            if left <= 0 and self.traffic.running == 0:
                raise _UnusedError
            await self._clock.sleep(max(left, 0.0) or idle)

    @contextmanager
    def _within(self, seconds: float) -> Iterator[None]:
        """Cancel the block after that many seconds of the clock, and raise TimeoutError."""
        with anyio.CancelScope() as scope:
            timer = self._clock.call_later(seconds, scope.cancel)
            try:
                yield
            finally:
                timer.cancel()
        if scope.cancelled_caught:
            raise TimeoutError

    def _turn(self, state: McpState, problem: str = "") -> None:
        self.state, self.since = state, self._clock.now()
        if state is not McpState.CONNECTING:
            self.problem = problem
        self._turned.set()
        self._turned = anyio.Event()
        self._changed()

    def _told(self, error: BaseException) -> str:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, ConfigurationError):
            return str(error)
        what = str(error) if isinstance(error, _LostError) else f"{type(error).__name__}: {error}"
        if isinstance(error, OSError) and error.strerror and isinstance(self.endpoint, Command):
            what = f"{self.endpoint.argv[0]} cannot be started: {error.strerror}"
        said = self.process.said.strip() if self.process is not None else ""
        return self._shown(f"{what}; it last wrote: {said[-_MESSAGE_CHARACTERS:]}" if said else what)

    def _shown(self, text: str) -> str:
        text = self._secrets.hide(text)
        return text if len(text) <= 2 * _MESSAGE_CHARACTERS else f"{text[: 2 * _MESSAGE_CHARACTERS]}…"


def _holds(error: BaseException, kind: type[BaseException]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(kind) is not None
    return isinstance(error, kind)
