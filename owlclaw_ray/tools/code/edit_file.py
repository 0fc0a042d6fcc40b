"""code.edit_file."""

from __future__ import annotations

from pathlib import Path

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.errors import ToolArgumentsError
from owlclaw_ray.tools.code.arguments import EditFile
from owlclaw_ray.tools.code.files import create, read_whole, replace
from owlclaw_ray.tools.code.path_policy import Access, PathPolicy
from owlclaw_ray.tools.code.replacement import replaced
from owlclaw_ray.tools.code.unified_diff import patched
from owlclaw_ray.tools.failure import ToolFailureError


def edit_file(arguments: EditFile, policy: PathPolicy, most_bytes: int) -> JsonObject:
    """Change a text file: all edits, or none."""
    if (arguments.edits is None) == (arguments.unified_diff is None):
        lines = ["edits, unified_diff: exactly one of the two must be given"]
        raise ToolArgumentsError("code.edit_file", lines)
    path = policy.permitted(arguments.path, Access.WRITE)
    shown = policy.shown(path)
    missing = arguments.create_if_missing and not path.exists()
    before = "" if missing else _text(read_whole(path, shown, most_bytes), shown)
    if arguments.edits is not None:
        after, places = replaced(before, arguments.edits)
        made: JsonObject = {"places": places}
    else:
        after, hunks = patched(before, arguments.unified_diff or "", _names(arguments.path, path, shown))
        made = {"hunks": hunks}
    content = after.encode()
    if len(content) > most_bytes:
        what = f"the file would have {len(content)} bytes, and it may have {most_bytes}"
        raise ToolFailureError("too_large", what, details={"path": shown})
    if missing:
        create(path, content, shown)
    else:
        replace(path, content, shown)
    return {"path": shown, "created": missing, "size_bytes": len(content), **made}


def _text(content: bytes, shown: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        what = f"{shown} is not UTF-8 and cannot be edited as text"
        raise ToolFailureError("binary_file", what, details={"path": shown}) from error


def _names(written: str, path: Path, shown: str) -> frozenset[str]:
    """Return what a diff may call the file: its path as it was given, from the project on, and in full."""
    return frozenset({written, written.removeprefix("./"), shown, str(path), str(path).removeprefix("/")})
