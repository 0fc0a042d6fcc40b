"""What browsers and caches are told with every response."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

OF_DATA = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
"""With everything that is no page. A header that a response has already stays."""
DOCS = "/docs"
_OF_DOCS = OF_DATA | {
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline' https://cdn.jsdelivr.net; style-src 'unsafe-inline' "
    "https://cdn.jsdelivr.net; img-src data: https://fastapi.tiangolo.com; connect-src 'self'; frame-ancestors 'none'",
}
_HSTS = (b"strict-transport-security", b"max-age=31536000")


class SecurityHeaders:
    """ASGI middleware: adds the headers, and under TLS that browsers are to use nothing else for a year."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._data, self._docs = _encoded(OF_DATA), _encoded(_OF_DOCS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        added = self._docs if scope["path"] == DOCS else self._data
        if scope["scheme"] == "https":
            added = [*added, _HSTS]

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                present = {name for name, _ in headers}  # ASGI has them in lower case
                message["headers"] = [*headers, *[each for each in added if each[0] not in present]]
            await send(message)

        await self._app(scope, receive, with_headers)


def _encoded(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]
