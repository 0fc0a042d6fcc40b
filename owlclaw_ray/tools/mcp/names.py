"""Names of MCP tools here: `mcp.<server>.<tool>`, whatever servers call them (T2)."""

from __future__ import annotations

import hashlib
import re

from owlclaw_ray.tools.names import wire_name

PREFIX = "mcp."
SERVER_NAME = r"^[a-z][a-z0-9]*(?:[_-][a-z0-9]+)*$"
_WIRE_LENGTH = 64
_DIGEST = 8
_ESCAPED = re.compile(r"_x([0-9A-F]{2})")
_PLAIN = re.compile(r"[A-Za-z0-9_-]")
_NEEDS_ESCAPE = re.compile(r"_(?=x[0-9A-F]{2})")


def canonical_mcp_name(server: str, tool: str) -> str:
    """Return the canonical name of a server's tool.

    What no name may have is spelled `_xHH`, a byte of UTF-8 each; `raw_tool` is the way back. A name that is too long for model
    providers is cut and ends in a digest of the whole: then only the definition's metadata knows it.
    """
    name = f"{PREFIX}{server}.{escaped(tool)}"
    excess = len(wire_name(name)) - _WIRE_LENGTH
    if excess <= 0:
        return name
    digest = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    start = len(PREFIX) + len(server) + 1
    kept = escaped(tool)
    while len(wire_name(f"{PREFIX}{server}.{kept}-{digest}")) > _WIRE_LENGTH:
        kept = kept[:-1]
    return f"{name[:start]}{kept.rstrip('.')}-{digest}"


def escaped(tool: str) -> str:
    """Return the name with letters, digits, `_`, `-` and single dots inside it as they are, and everything else as `_xHH`."""
    marked = _NEEDS_ESCAPE.sub("_x5F", tool)
    last = len(marked) - 1
    return "".join(
        each
        if _PLAIN.fullmatch(each) or (each == "." and 0 < index < last and marked[index - 1] != ".")
        else "".join(f"_x{byte:02X}" for byte in each.encode("utf-8", "surrogatepass"))
        for index, each in enumerate(marked)
    )


def raw_tool(name: str) -> str:
    """Return what `escaped` was given."""
    parts = _ESCAPED.split(name)
    encoded = b"".join(
        bytes.fromhex(part) if index % 2 else part.encode("utf-8", "surrogatepass") for index, part in enumerate(parts)
    )
    return encoded.decode("utf-8", "surrogatepass")
