"""`owlclaw memory …`: what an agent remembers, to look through and to put right."""

from __future__ import annotations

import itertools
import shlex
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from owlclaw_ray import wire
from owlclaw_ray.counting import counted
from owlclaw_ray.errors import ConfigurationError, OwlClawError, Problem
from serve.cli.agents import AgentArgument
from serve.cli.connection import HERE, FolderOption, JsonOption, UrlOption, connect, environment
from serve.cli.listings import LimitOption
from serve.cli.output import complain, console, plain, print_json, shortened, table, when
from serve.cli.user_name import person

if TYPE_CHECKING:
    from owlclaw_ray.client import SyncClient

MemoryArgument = Annotated[str, typer.Argument(help="The memory.", metavar="MEMORY_ID")]
TagOption = Annotated[list[str] | None, typer.Option("--tag", help="A tag; give it several times for several.")]
ArchivedOption = Annotated[bool, typer.Option("--archived", help="The archive instead of what is active.")]
_SHOWN_CHARACTERS = 120
_TAGS = "tags: "
_STREAM = Path("-")


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    memory = typer.Typer(no_args_is_help=True, help="See what agents remember, and put it right.")
    memory.command("list")(list_memories)
    memory.command("import")(import_text)
    for command in (search, show, add, edit, export, archive, delete, reindex, stats):
        memory.command()(command)
    cli.add_typer(memory, name="memory")


def list_memories(
    agent: AgentArgument,
    *,
    limit: LimitOption = 100,
    after: Annotated[str | None, typer.Option("--after", help="Go on after this memory.", metavar="MEMORY_ID")] = None,
    archived: ArchivedOption = False,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """List what an agent remembers, in the order of its file."""
    with connect(url, folder) as client:
        page = client.memories_page(agent, archived=archived, after=after, limit=limit)
    found = page["memories"]
    if as_json:
        print_json(page)
        return
    rows = [(each["memory_id"], when(each["created_at"]), ", ".join(each["tags"]), _line(each)) for each in found]
    empty = f"nothing of {agent} is archived" if archived else f"{agent} remembers nothing yet"
    table(("MEMORY", "CREATED", "TAGS", "CONTENT"), rows, empty=empty)
    if page["next_after"] is not None:
        console().print(f"there are more: add --after {page['next_after']}", soft_wrap=True)


def search(
    agent: AgentArgument,
    query: Annotated[str, typer.Argument(help="What to look for.", metavar="QUERY")],
    tag: TagOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=20, help="At most so many.")] = 5,
    *,
    archived: ArchivedOption = False,
    explain: Annotated[bool, typer.Option("--explain", help="Also the parts of each score.")] = False,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Show what an agent would recall, best first."""
    with connect(url, folder) as client:
        found = client.search_memories(agent, query, limit, tag or (), archived=archived, explain=explain)
    if as_json:
        print_json(found)
        return
    rows = [
        (f"{each['score']:.3f}", each["memory_id"], when(each["created_at"]), _line(each)) for each in found["memories"]
    ]
    table(("SCORE", "MEMORY", "CREATED", "CONTENT"), rows, empty="nothing is like it")
    for each in found["memories"] if explain else ():
        parts = ", ".join(f"{name} {value}" for name, value in (each["explanation"] or {}).items())
        console().print(f"{each['memory_id']}: {parts}", soft_wrap=True)
    if found["degraded"]:
        complain(f"the index is out of use, MEMORY.md was searched word by word: {found['reason']}")


def show(
    agent: AgentArgument,
    memory_id: MemoryArgument,
    *,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Show a memory in full, active or archived."""
    with connect(url, folder) as client:
        _print(client.memory(agent, memory_id), as_json=as_json)


def add(
    agent: AgentArgument,
    content: Annotated[str, typer.Argument(help="What to remember.", metavar="CONTENT")],
    tag: TagOption = None,
    *,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Have an agent remember something."""
    with connect(url, folder) as client:
        _print(client.remember(agent, content, tag or (), by=person()), as_json=as_json)


def edit(
    agent: AgentArgument,
    memory_id: Annotated[
        str | None, typer.Argument(help="Only this memory, through the server.", metavar="MEMORY_ID")
    ] = None,
    *,
    url: UrlOption = None,
    folder: FolderOption = HERE,
) -> None:
    """Open a memory, or the whole MEMORY.md of an agent, in $VISUAL or $EDITOR.

    What the agent remembers meanwhile stays. If anything else was changed meanwhile, nothing is done, and what you wrote is kept.
    """
    if memory_id is None:
        with connect(url, folder) as client:
            _edit_text(client, agent)
        return
    with connect(url, folder) as client:
        memory = client.memory(agent, memory_id)
        before = f"{_TAGS}{', '.join(memory['tags'])}\n\n{memory['content']}\n"
        after = _edited(before.encode(), f"{memory_id}.md").decode("utf-8", "replace")
        if after == before:
            console().print("nothing was changed")
            return
        first, _, content = after.partition("\n")
        if not first.startswith(_TAGS.strip()):
            _refuse(f"the first line must be '{_TAGS}…'; nothing was changed", after.encode(), memory_id)
        changes = _changes(memory, before.partition("\n")[0], first, content.removeprefix("\n").removesuffix("\n"))
        if not changes:
            console().print("nothing was changed")
            return
        try:
            _print(client.edit_memory(agent, memory_id, by=person(), **changes), as_json=False)
        except OwlClawError as error:
            _refuse(str(error), after.encode(), memory_id)


def export(
    agent: AgentArgument,
    file: Annotated[
        Path, typer.Argument(help="Where to write it; - is the standard output.", metavar="FILE")
    ] = _STREAM,
    *,
    archived: ArchivedOption = False,
    url: UrlOption = None,
    folder: FolderOption = HERE,
) -> None:
    """Write an agent's MEMORY.md into a file, and its archive into one beside it: of NOTES.md that is NOTES.archive.md.

    Into the standard output goes one of the two.
    """
    with connect(url, folder) as client:
        text = client.memory_archive_text(agent) if archived else client.memory_text(agent)[0]
        if file == _STREAM:
            sys.stdout.buffer.write(text)
            sys.stdout.buffer.flush()
            return
        _write(file, text)
        beside = _archive_beside(file)
        if not archived and ((more := client.memory_archive_text(agent)) or beside.exists()):
            _write(beside, more)


def import_text(
    agent: AgentArgument,
    file: Annotated[Path, typer.Argument(help="The file; - is the standard input.", metavar="FILE")],
    *,
    archived: ArchivedOption = False,
    url: UrlOption = None,
    folder: FolderOption = HERE,
) -> None:
    """Make a file an agent's MEMORY.md, as if an editor had saved it.

    Memories of the last day that the file lacks because it is an older copy are put back. If its archive lies beside it, as where it was
    exported or an agent had it in files (NOTES.archive.md beside NOTES.md), what the agent's archive lacks of that is added.
    """
    beside, texts = _archive_beside(file), []
    try:
        texts.append(sys.stdin.buffer.read() if file == _STREAM else file.read_bytes())
        if not archived and file != _STREAM and beside.exists():
            texts.append(beside.read_bytes())
    except OSError as error:
        at, what = (beside if texts else file), f"cannot be read: {error.strerror}"
        raise ConfigurationError([Problem(str(at), what, "name the file that is to be MEMORY.md")]) from error
    for path, text in zip((file, beside), texts, strict=False):
        try:
            text.decode()
        except UnicodeDecodeError as error:
            what = f"is no UTF-8 text (at byte {error.start})"
            raise ConfigurationError([Problem(str(path), what, "name the file that is to be MEMORY.md")]) from error
    with connect(url, folder) as client:
        if not archived:
            _say_imported(client.put_memory_text(agent, texts.pop(0), by=person()))
        for text in filter(None, texts):
            added = client.put_memory_archive_text(agent, text, by=person())["added"]
            console().print(f"added {counted(len(added), 'memory', 'memories')} to the archive")


def archive(
    agent: AgentArgument,
    memory_ids: Annotated[list[str], typer.Argument(help="The memories.", metavar="MEMORY_ID...")],
    *,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Move memories to the archive, where they are kept and not recalled."""
    with connect(url, folder) as client:
        moved = client.archive_memories(agent, memory_ids, by=person())
    if as_json:
        print_json(moved)
    else:
        console().print(f"archived {len(moved)}")
    missing = sorted(set(memory_ids) - {each["memory_id"] for each in moved})
    if missing:
        complain(f"{agent} has no active memory {', '.join(missing)}")
        raise typer.Exit(1)


def delete(
    agent: AgentArgument, memory_id: MemoryArgument, *, url: UrlOption = None, folder: FolderOption = HERE
) -> None:
    """Remove a memory for good, active or archived."""
    with connect(url, folder) as client:
        removed = client.delete_memory(agent, memory_id, by=person())
    console().print(f"removed {removed['memory_id']}: {plain(_line(removed))}", soft_wrap=True)


def reindex(agent: AgentArgument, *, url: UrlOption = None, folder: FolderOption = HERE) -> None:
    """Rebuild an agent's index from MEMORY.md."""
    with connect(url, folder) as client:
        console().print(f"indexed {counted(client.reindex_memories(agent, by=person()), 'memory', 'memories')}")


def stats(
    agent: AgentArgument, *, url: UrlOption = None, folder: FolderOption = HERE, as_json: JsonOption = False
) -> None:
    """Show how much an agent remembers, and what is wrong with its files."""
    with connect(url, folder) as client:
        found = client.memory_stats(agent)
    if as_json:
        print_json(found)
        return
    target = console()
    span = f", from {when(found['oldest'])} to {when(found['newest'])}" if found["active"] else ""
    target.print(f"active    {found['active']}{span}")
    target.print(f"archived  {found['archived']}")
    target.print(
        f"MEMORY.md {found['file_bytes']} bytes, archive {found['archive_bytes']}, index {found['index_bytes']}"
    )
    for problem in found["problems"]:
        fix = f" ({problem['fix']})" if problem["fix"] else ""
        complain(f"{problem['where']}: {problem['what']}{fix}")


def _changes(memory: wire.Memory, shown: str, tags: str, content: str) -> wire.MemoryChange:
    """Return what a person changed of a memory, whose tags were shown as a line, and what that was before.

    The rest may have become another one meanwhile.
    """
    changes: wire.MemoryChange = {}
    if content != memory["content"]:
        changes["content"], changes["old_content"] = content, memory["content"]
    if tags != shown:
        given = [tag for each in tags.removeprefix(_TAGS.strip()).split(",") if (tag := each.strip())]
        changes["tags"], changes["old_tags"] = given, memory["tags"]
    return changes


def _edit_text(client: SyncClient, agent: str) -> None:
    """Open MEMORY.md in the editor, and put it back."""
    before, etag = client.memory_text(agent)
    after = _edited(before, "MEMORY.md")
    if after == before:
        console().print("nothing was changed")
        return
    try:
        _say_imported(client.put_memory_text(agent, after, etag, by=person()))
    except OwlClawError as error:
        _refuse(str(error), after, "MEMORY")


def _archive_beside(file: Path) -> Path:
    return file.with_name(f"{file.stem}.archive{file.suffix}") if file.name else file


def _write(file: Path, text: bytes) -> None:
    try:
        file.write_bytes(text)
    except OSError as error:
        what = f"cannot be written: {error.strerror}"
        raise ConfigurationError([Problem(str(file), what, "name another file")]) from error
    complain(f"wrote {file}")


def _say_imported(imported: wire.MemoryImported) -> None:
    console().print("wrote MEMORY.md")
    if imported["put_back"]:
        complain(f"it was an older copy; what it lacked was put back: {', '.join(imported['put_back'])}")


def _refuse(why: str, written: bytes, name: str) -> NoReturn:
    """Say why what was written was not accepted, and where it is kept: in a new file of the current folder, or in what is printed."""
    try:
        complain(f"{why}. What you wrote is in {_kept(written, name)}")
    except OSError as error:
        complain(
            f"{why}. It cannot be kept in a file here ({error.strerror}); you wrote:\n{written.decode('utf-8', 'replace')}"
        )
    raise typer.Exit(1)


def _kept(text: bytes, name: str) -> Path:
    for number in itertools.count(1):
        path = Path(f"{name}.edited{'' if number == 1 else number}.md")
        with suppress(FileExistsError), path.open("xb") as file:
            file.write(text)
            return path
    raise AssertionError


def _edited(content: bytes, name: str) -> bytes:
    """Return the content as the user's editor left it; leaves the command if the editor fails."""
    settings = environment()
    named = settings.get("VISUAL", "").strip() or settings.get("EDITOR", "").strip() or "vi"
    fix = "set EDITOR to one that there is"
    try:
        editor = shlex.split(named)
    except ValueError as error:
        raise ConfigurationError([Problem(f"the editor {named!r}", f"cannot be run: {error}", fix)]) from error
    with tempfile.TemporaryDirectory(prefix="owlclaw-") as scratch:
        path = Path(scratch, name)
        path.write_bytes(content)
        try:
            ended = subprocess.run([*editor, str(path)], check=False)  # noqa: S603 - the user's own editor
        except OSError as error:
            raise ConfigurationError(
                [Problem(f"the editor {editor[0]!r}", f"cannot be run: {error.strerror}", fix)]
            ) from error
        if ended.returncode != 0:
            complain(f"{editor[0]} ended with {ended.returncode}; nothing was changed")
            raise typer.Exit(1)
        return path.read_bytes()


def _print(memory: wire.Memory, *, as_json: bool) -> None:
    if as_json:
        print_json(memory)
        return
    target = console()
    tags = f" · {', '.join(map(plain, memory['tags']))}" if memory["tags"] else ""
    often = f" · remembered {memory['count']} times" if memory["count"] > 1 else ""
    target.print(f"{memory['memory_id']} · {when(memory['created_at'])}{tags}{often}", soft_wrap=True)
    target.print(plain(memory["content"], keep_lines=True), soft_wrap=True)
    for text in memory["also"]:
        target.print(f"also: {plain(text, keep_lines=True)}", soft_wrap=True)


def _line(memory: wire.Memory | wire.FoundMemory) -> str:
    return shortened(memory["content"], _SHOWN_CHARACTERS)
