"""An API of a test that listens, in a thread of its own, on a free port of loopback."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager

import uvicorn
from fastapi import FastAPI


@contextmanager
def listening(made: AbstractAsyncContextManager[FastAPI]) -> Iterator[str]:
    """The address of the API that is made, and unmade, in the server's own event loop."""
    started: Future[uvicorn.Server] = Future()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = threading.Thread(target=asyncio.run, args=(_serve(made, listener, started),))
        thread.start()
        server = started.result(300)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


async def _serve(
    made: AbstractAsyncContextManager[FastAPI], listener: socket.socket, started: Future[uvicorn.Server]
) -> None:
    async with made as api:
        config = uvicorn.Config(api, log_level="error", lifespan="off", ws="none", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        started.set_result(server)
        await server.serve([listener])
