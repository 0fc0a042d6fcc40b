"""Style sheet, scripts and icon: read and compressed once, and kept by browsers until they change."""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from importlib.resources import files

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from owlclaw_ray.errors import NotFoundError

PREFIX = "/console/static"
_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FOR_EVER = "public, max-age=31536000, immutable"


class _File(Struct, frozen=True):
    content: bytes
    compressed: bytes
    kind: str
    version: str


@cache
def _files() -> dict[str, _File]:
    found = {}
    for each in files("console").joinpath("static").iterdir():
        kind = _KINDS.get(each.name[each.name.rfind(".") :])
        if kind is not None:
            content = each.read_bytes()
            compressed = gzip.compress(content, mtime=0)
            found[each.name] = _File(content, compressed, kind, hashlib.sha256(content).hexdigest()[:12])
    return found


def address(name: str) -> str:
    """Return the path of a file, which is another one when the file is another one."""
    return f"{PREFIX}/{name}?v={_files()[name].version}"


def static_response(request: Request, name: str) -> Response:
    """Return the file; raises NotFoundError."""
    found = _files().get(name)
    if found is None:
        raise NotFoundError("file", name)
    current = request.query_params.get("v") == found.version
    headers = {"Cache-Control": _FOR_EVER if current else "no-cache", "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(found.compressed, headers=headers | {"Content-Encoding": "gzip"}, media_type=found.kind)
    return Response(found.content, headers=headers, media_type=found.kind)
