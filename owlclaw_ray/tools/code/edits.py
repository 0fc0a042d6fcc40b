"""code.write_file and code.edit_file."""

from __future__ import annotations

from collections.abc import Sequence

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.errors import ToolArgumentsError
from owlclaw_ray.tools.code.arguments import Edit, EditFile, WriteFile
from owlclaw_ray.tools.code.files import create, entered, read_whole, replace, told
from owlclaw_ray.tools.code.path_policy import Access, PathPolicy
from owlclaw_ray.tools.code.unified_diff import patched
from owlclaw_ray.tools.failure import ToolFailureError


def write_file(arguments: WriteFile, policy: PathPolicy, most_bytes: int) -> JsonObject:
    """Write a whole file: completely, or not at all."""
    path = policy.permitted(arguments.path, Access.WRITE)
    shown = policy.shown(path)
    content = arguments.content.encode()
    if len(content) > most_bytes:
        raise ToolFailureError("too_large", f"the content has {len(content)} bytes, and a file may have {most_bytes}")
    with told(shown):
        if path.exists() and not path.is_file():
            raise ToolFailureError("not_a_file", f"{shown} is no regular file", details={"path": shown})
    if arguments.create_dirs:
        with entered(path.parent, shown, make=True):
            pass
    existed = path.exists()
    if existed and arguments.overwrite:
        replace(path, content, shown)
    else:
        create(path, content, shown)
    return {"path": shown, "created": not existed, "size_bytes": len(content)}


def replaced(text: str, edits: Sequence[Edit]) -> tuple[str, int]:
    """Return the text with all edits made, one after another, and how many places they changed.

    Raises ToolFailureError: `text_not_found`, or `ambiguous_edit` for a text in several places. Places may overlap.
    """
    places = 0
    for number, edit in enumerate(edits, 1):
        # Places may overlap, which str.count does not see.
        count, at = 0, text.find(edit.old)
        while at >= 0:
            count += 1
            at = text.find(edit.old, at + 1)
        if count == 0:
            raise ToolFailureError(
                "text_not_found",
                f"edit {number}: its old text is not in the file. Read the file again and copy the text exactly.",
                details={"edit": number},
            )
        if count > 1 and not edit.replace_all:
            raise ToolFailureError(
                "ambiguous_edit",
                f"edit {number}: its old text is in {count} places. Add lines around it, or set replace_all.",
                details={"edit": number, "places": count},
            )
        places += text.count(edit.old)
        text = text.replace(edit.old, edit.new)
    return text, places


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
        given, full = arguments.path, str(path)
        names = frozenset({given, given.removeprefix("./"), shown, full, full.removeprefix("/")})
        after, hunks = patched(before, arguments.unified_diff or "", names)
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
