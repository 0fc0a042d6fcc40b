"""code.read_file."""

from __future__ import annotations

import codecs
import mimetypes
import os
from collections.abc import Iterator
from typing import BinaryIO

import orjson
from msgspec import Struct

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.tools.code.arguments import ReadFile
from owlclaw_ray.tools.code.files import open_regular, told
from owlclaw_ray.tools.code.path_policy import Access, PathPolicy
from owlclaw_ray.tools.failure import ToolFailureError

LINE_BYTES = 4_096
CONTENT_BYTES = 60 * 1024
"""How much of a file, as JSON, one call returns: the model reads on with next_start_line."""
_SNIFFED_BYTES = 8 * 1024
_CHUNK = 64 * 1024


class _Line(Struct, frozen=True):
    number: int
    data: bytes
    """Its first LINE_BYTES, without the newline."""
    cut: bool
    ended: bool
    """Whether a newline follows."""


def read_file(arguments: ReadFile, policy: PathPolicy) -> JsonObject:
    """Return a part of a text file, in bounded memory, however long its lines are."""
    path = policy.permitted(arguments.path, Access.READ)
    shown = policy.shown(path)
    with open_regular(path, shown) as file, told(shown):
        if b"\0" in file.read(_SNIFFED_BYTES):
            size = os.fstat(file.fileno()).st_size
            media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
            raise ToolFailureError(
                "binary_file",
                f"{shown} is a binary file of {size} bytes ({media_type}); its content is not shown",
                details={"path": shown, "binary": True, "size_bytes": size, "media_type": media_type},
            )
        file.seek(0)
        return {"path": shown, **_part(file, arguments)}


def _part(file: BinaryIO, arguments: ReadFile) -> JsonObject:
    texts: list[str] = []
    truncated_lines: list[int] = []
    next_start_line, last, size = None, 0, 0
    for line in _lines(file, arguments.start_line):
        if line.number < arguments.start_line:
            last = line.number
            continue
        text = codecs.getincrementaldecoder("utf-8")("replace").decode(line.data, final=not line.cut)
        text += "\n" if line.ended else ""
        size += len(orjson.dumps(text))
        if len(texts) == arguments.max_lines or (texts and size > CONTENT_BYTES):
            next_start_line = line.number
            break
        last = line.number
        texts.append(text)
        if line.cut:
            truncated_lines.append(line.number)
    found: JsonObject = {
        "start_line": arguments.start_line,
        "lines": len(texts),
        "content": "".join(texts),
        "truncated": next_start_line is not None,
        "next_start_line": next_start_line,
        "truncated_lines": truncated_lines,
    }
    if next_start_line is None:
        found["total_lines"] = last
    return found


def _lines(file: BinaryIO, wanted_from: int) -> Iterator[_Line]:
    """Yield all lines in order; those before `wanted_from` without their content."""
    number = 0
    while data := file.readline(LINE_BYTES + 1):
        number += 1
        ended = data.endswith(b"\n")
        cut = not ended and len(data) > LINE_BYTES
        while cut and not ended and (rest := file.readline(_CHUNK)):
            ended = rest.endswith(b"\n")
        kept = data[:LINE_BYTES] if cut else data.removesuffix(b"\n")
        yield _Line(number, b"" if number < wanted_from else kept, cut, ended)
