"""The process of a stdio server, and the protocol's messages over its pipes.

The SDK's own transport was not used: it does not say which process it started, so that nothing could end the process when
this one is killed; and it keeps lines of any length, and stderr out of sight.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import IO, TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from msgspec import Struct, field

from owlclaw_ray.tools.process import Guard, has_ended, kill_group

MESSAGE_BYTES = 16 * 1024 * 1024
"""The longest message that is taken; a server that sends a longer one has lost its connection."""
_GRACE_SECONDS = 2.0
"""How long a server may take to end by itself when its stdin is closed, and again when it has the signal to."""
_LOOK_SECONDS = 0.005
_TAIL_CHARACTERS = 1_000
_logger = logging.getLogger(__name__)

Incoming: TypeAlias = MemoryObjectSendStream[SessionMessage | Exception]
Outgoing: TypeAlias = MemoryObjectReceiveStream[SessionMessage]
Streams: TypeAlias = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]


class ServerProcess(Struct):
    """A server's process, from the moment it is started."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    shown: Callable[[str], str]
    """Takes secrets out of what the server writes."""
    name: str
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server has closed its stdout."""
    said: str = ""
    """The end of what it wrote to stderr."""
    pid: int = 0

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[Streams]:
        """Start it, and have it and all that it started be gone when the block is left. Raises OSError if it cannot be started."""
        process = subprocess.Popen(  # noqa: ASYNC220, S603 (it returns at once; an argument list, never a shell's text)
            list(self.argv),
            cwd=self.folder,
            env=dict(self.environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        assert process.stdout is not None
        self.pid = process.pid
        with ExitStack() as guarded:
            try:
                with anyio.CancelScope(shield=True):
                    guard = guarded.enter_context(await asyncio.to_thread(Guard, process.stdout.fileno()))
                    guard.watch(process.pid)
                async with self._talk(process) as streams:
                    yield streams
            finally:
                with anyio.CancelScope(shield=True):
                    try:
                        await _terminate(process)
                    finally:
                        kill_group(process.pid)
                        await asyncio.to_thread(process.wait)

    @asynccontextmanager
    async def _talk(self, process: subprocess.Popen[bytes]) -> AsyncIterator[Streams]:
        stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None
        incoming, to_session = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        from_session, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        transports: list[asyncio.BaseTransport] = []
        async with incoming, to_session, from_session, outgoing:
            try:
                output, errors = await _reader(stdout, transports), await _reader(stderr, transports)
                writer = await _writer(stdin, transports)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._read, output, incoming)
                    tasks.start_soon(self._write, writer, outgoing, incoming)
                    tasks.start_soon(self._listen, errors)
                    try:
                        yield to_session, from_session
                    finally:
                        tasks.cancel_scope.cancel()
            finally:
                for transport in transports:
                    if not transport.is_closing():
                        transport.close()

    async def _read(self, output: asyncio.StreamReader, incoming: Incoming) -> None:
        """Pass on messages until the server closes its stdout; then the session sees the end."""
        try:
            while line := await output.readline():
                await incoming.send(_message(line))
        except (ValueError, OSError) as error:
            _logger.warning("the MCP server %s is cut off: %s", self.name, error)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return
        finally:
            self.ended.set()
            incoming.close()

    async def _write(self, writer: asyncio.StreamWriter, outgoing: Outgoing, incoming: Incoming) -> None:
        try:
            async for message in outgoing:
                writer.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await writer.drain()
        except OSError:
            self.ended.set()
            incoming.close()

    async def _listen(self, errors: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while data := await errors.read(64 * 1024):
                text = self.shown(data.decode("utf-8", "replace"))
                self.said = (self.said + text)[-_TAIL_CHARACTERS:]
                _logger.debug("the MCP server %s wrote to stderr: %s", self.name, text.strip()[:2_000])


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


async def _reader(pipe: IO[bytes], transports: list[asyncio.BaseTransport]) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=MESSAGE_BYTES)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    transports.append(transport)
    return reader


async def _writer(pipe: IO[bytes], transports: list[asyncio.BaseTransport]) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(lambda: asyncio.streams.FlowControlMixin(loop=loop), pipe)
    transports.append(transport)
    return asyncio.StreamWriter(transport, protocol, None, loop)


async def _terminate(process: subprocess.Popen[bytes]) -> None:
    """Close its pipes, which tells a server to end, then tell it with a signal; each time it has a moment.

    It is not reaped: its group can still be killed.
    """
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    if not await _ends(process.pid):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGTERM)
        await _ends(process.pid)


async def _ends(pid: int) -> bool:
    with anyio.move_on_after(_GRACE_SECONDS):
        while not has_ended(pid):  # noqa: ASYNC110 (looking must not reap it)
            await anyio.sleep(_LOOK_SECONDS)
        return True
    return False
