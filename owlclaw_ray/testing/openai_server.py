"""A local server that speaks OpenAI's chat completions and embeddings over real HTTP and answers, or misbehaves, as it is told."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Self, TypeAlias

from msgspec import Struct, field

from owlclaw_ray.domain.json import JsonObject

_START_LIMIT = 10.0


class FunctionCall(Struct, frozen=True):
    """A tool call in an answer. `arguments` is text, so that it can be malformed; `id=""` leaves the id out."""

    name: str
    arguments: str = "{}"
    id: str = "call_1"


class CannedReply(Struct, frozen=True):
    """A completion: JSON, or server-sent events with deltas and a usage chunk when the request says `stream`."""

    text: str = ""
    tool_calls: Sequence[FunctionCall] = ()
    prompt_tokens: int = 10
    completion_tokens: int = 5
    cached_tokens: int = 0


class Vectors(Struct, frozen=True):
    """Embeddings, the last one first: these, or, without any, one of two numbers for each text."""

    vectors: Sequence[Sequence[float]] = ()
    tokens_each: int = 4


class CannedFailure(Struct, frozen=True):
    """An error status with a body in OpenAI's form."""

    status: int
    message: str = "told to fail"
    headers: dict[str, str] = field(default_factory=dict)


class Raw(Struct, frozen=True):
    """A 200 with this body, whatever it is."""

    body: bytes


class Hang(Struct, frozen=True):
    """No answer until the client goes away."""


class Drop(Struct, frozen=True):
    """The connection is closed after the request, or in the middle of a streamed text."""

    after_text: str = ""


Behaviour: TypeAlias = CannedReply | Vectors | CannedFailure | Raw | Hang | Drop


class RecordedRequest(Struct, frozen=True):
    """What a client sent. Header names are in lower case."""

    path: str
    headers: dict[str, str]
    body: JsonObject


class OpenAIServer:
    """Listens on a free loopback port, in a thread of its own, from `with` to the end of the block.

    Each request takes the next behaviour of the queue; with an empty queue it gets what `respond` says (an empty
    Answer by default).
    """

    def __init__(self, respond: Callable[[RecordedRequest], Behaviour] = lambda _: CannedReply()) -> None:
        self._respond = respond
        self._queue: deque[Behaviour] = deque()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="openai-server", daemon=True)
        self._stopping: Callable[[], object] = lambda: None
        self._connections: set[asyncio.Task[None]] = set()
        self._arrivals, self._departures = threading.Semaphore(0), threading.Semaphore(0)
        self._port = 0
        self.requests: list[RecordedRequest] = []

    @property
    def base_url(self) -> str:
        """The value for OPENAI_BASE_URL."""
        return f"http://127.0.0.1:{self._port}/v1"

    def enqueue(self, *behaviours: Behaviour) -> None:
        """Add behaviours for the next requests, in order."""
        self._queue.extend(behaviours)

    def wait_for_request(self, timeout: float = 60.0) -> bool:
        """Block until one more request has arrived; False after `timeout` seconds."""
        return self._arrivals.acquire(timeout=timeout)

    def wait_for_disconnect(self, timeout: float = 60.0) -> bool:
        """Block until one more client has left before its answer was complete; False after `timeout` seconds."""
        return self._departures.acquire(timeout=timeout)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(_START_LIMIT):
            raise TimeoutError(f"the server did not start within {_START_LIMIT:g} s")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping()
        self._thread.join()

    async def _serve(self) -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        self._stopping = lambda: loop.call_soon_threadsafe(stop.set)
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await stop.wait()
        server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.get_running_loop().create_task(self._converse(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await _read_request(reader):
                self.requests.append(request)
                behaviour = self._queue.popleft() if self._queue else self._respond(request)
                self._arrivals.release()
                if not await self._reply_with(behaviour, request, reader, writer):
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            self._departures.release()
        finally:
            writer.close()

    async def _reply_with(
        self,
        behaviour: Behaviour,
        request: RecordedRequest,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        match behaviour:
            case CannedReply() if request.body.get("stream"):
                writer.write(_stream_head())
                for chunk in _chunks(behaviour, str(request.body.get("model", ""))):
                    writer.write(_event(json.dumps(chunk, ensure_ascii=False)))
                    await writer.drain()
                writer.write(_event("[DONE]") + b"0\r\n\r\n")
            case CannedReply():
                writer.write(_response(200, _json(_completion(behaviour, str(request.body.get("model", ""))))))
            case Vectors():
                writer.write(_response(200, _json(_embeddings(behaviour, request.body))))
            case CannedFailure(status, message, headers):
                error = {"error": {"message": message, "type": "error", "param": None, "code": None}}
                writer.write(_response(status, _json(error), headers))
            case Raw(body):
                writer.write(_response(200, body))
            case Hang():
                await reader.read()
                self._departures.release()
            case Drop(after_text):
                if after_text:
                    writer.write(_stream_head() + _event(json.dumps(_chunk("", {"content": after_text}))))
        await writer.drain()
        return isinstance(behaviour, CannedReply | Vectors | CannedFailure | Raw)


async def _read_request(reader: asyncio.StreamReader) -> RecordedRequest | None:
    line = await reader.readline()
    if not line:
        return None
    headers: dict[str, str] = {}
    while (header := (await reader.readline()).decode("latin-1").strip()) != "":
        name, _, value = header.partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return RecordedRequest(line.decode("latin-1").split(" ")[1], headers, json.loads(body or b"{}"))


def _response(status: int, body: bytes, headers: dict[str, str] | None = None) -> bytes:
    lines = [f"HTTP/1.1 {status} Told", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _stream_head() -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def _event(data: str) -> bytes:
    event = f"data: {data}\n\n".encode()
    return f"{len(event):x}\r\n".encode() + event + b"\r\n"


def _json(value: JsonObject) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _call(call: FunctionCall) -> JsonObject:
    identity = {"id": call.id} if call.id else {}
    return {**identity, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _usage(answer: CannedReply) -> JsonObject:
    return {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": answer.cached_tokens},
    }


def _completion(answer: CannedReply, model: str) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": answer.text or None}
    if answer.tool_calls:
        message["tool_calls"] = [_call(call) for call in answer.tool_calls]
    reason = "tool_calls" if answer.tool_calls else "stop"
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": _usage(answer),
    }


def _embeddings(behaviour: Vectors, body: JsonObject) -> JsonObject:
    texts = body["input"]
    vectors = behaviour.vectors or [[float(len(text)), 1.0] for text in texts]
    data = [{"object": "embedding", "index": at, "embedding": list(vector)} for at, vector in enumerate(vectors)]
    tokens = behaviour.tokens_each * len(texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data[::-1], "model": body["model"], "usage": usage}


def _chunk(model: str, delta: JsonObject, finish_reason: str | None = None) -> JsonObject:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": model, "choices": [choice]}


def _chunks(answer: CannedReply, model: str) -> Iterator[JsonObject]:
    yield _chunk(model, {"role": "assistant", "content": ""})
    for character in answer.text:
        yield _chunk(model, {"content": character})
    for index, call in enumerate(answer.tool_calls):
        opening = _call(call) | {"index": index, "function": {"name": call.name, "arguments": ""}}
        yield _chunk(model, {"tool_calls": [opening]})
        middle = len(call.arguments) // 2
        for part in (call.arguments[:middle], call.arguments[middle:]):
            yield _chunk(model, {"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    yield _chunk(model, {}, "tool_calls" if answer.tool_calls else "stop")
    yield _chunk(model, {}) | {"choices": [], "usage": _usage(answer)}
