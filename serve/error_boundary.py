"""Turns what nobody foresaw into a 500 that tells the client nothing of the inside, and the log everything."""

from __future__ import annotations

import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.problems import unexpected

logger = logging.getLogger(__name__)


class LastResort:
    """ASGI middleware around everything else. A response that has begun is cut off, for it cannot be taken back."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and answer 500 if it raises."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watched_send)
        except Exception:
            logger.exception("%s %s of %s failed", scope["method"], scope["path"], (scope.get("client") or ["?"])[0])
            if started:
                raise
            await unexpected().response(scope["path"])(scope, receive, send)
