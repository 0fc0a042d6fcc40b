"""code.write_file."""

from __future__ import annotations

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.tools.code.arguments import WriteFile
from owlclaw_ray.tools.code.files import create, entered, replace, told
from owlclaw_ray.tools.code.path_policy import Access, PathPolicy
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
