from __future__ import annotations

import getpass
import json
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.memory import Memory
from tests.serve.cli.conftest import Run
from tests.serve.double import MemoryRuntime

AT = datetime(2026, 11, 3, 9, 30, tzinfo=UTC)
ASSISTANT = AgentRef.parse("assistant")


@pytest.fixture
def memories(runtime: MemoryRuntime) -> list[Memory]:
    made = runtime.memory.active.setdefault(ASSISTANT, [])
    made += [
        Memory("mem_1", "机器很闲", ("load",), AT, count=2, also=("机器很闲。",)),
        Memory("mem_2", "The owner\nis away.", (), AT),
    ]
    return made


@pytest.fixture
def editor(tmp_path, monkeypatch):
    """Makes $EDITOR a program that runs this shell script on the file."""

    def use(script: str) -> None:
        path = tmp_path / "editor"
        path.write_text(f'#!/bin/sh\nset -e\nfile="$1"\n{script}\n', encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.delenv("VISUAL", raising=False)
        monkeypatch.setenv("EDITOR", str(path))

    return use


def test_list_and_show(owlclaw: Run, memories: list[Memory]):
    rows = owlclaw("memory", "list", "assistant").output.splitlines()

    assert [row.split()[0] for row in rows] == ["MEMORY", "mem_1", "mem_2"]
    assert rows[2].endswith("The owner is away.")
    assert owlclaw("memory", "show", "assistant", "mem_1").output == (
        "mem_1 · 2026-11-03 09:30:00Z · load · remembered 2 times\n机器很闲\nalso: 机器很闲。\n"
    )
    assert json.loads(owlclaw("memory", "show", "assistant", "mem_2", "--json").output)["tags"] == []
    assert owlclaw("memory", "list", "patient").output == "patient remembers nothing yet\n"


def test_search_shows_scores_and_complains_about_a_lost_index(
    owlclaw: Run, runtime: MemoryRuntime, memories: list[Memory]
):
    found = owlclaw("memory", "search", "assistant", "owner")
    assert found.output.splitlines()[1].split()[:2] == ["0.500", "mem_2"]
    assert owlclaw("memory", "search", "assistant", "owner", "--tag", "load").output == "nothing is like it\n"

    explained = owlclaw("memory", "search", "assistant", "owner", "--explain").output
    assert "mem_2: words 0.5, meaning 0.0" in explained

    runtime.memory.degraded = "the disk is full"
    assert "word by word: the disk is full" in owlclaw("memory", "search", "assistant", "owner").stderr


def test_add_archive_and_delete(owlclaw: Run, memories: list[Memory]):
    added = json.loads(owlclaw("memory", "add", "assistant", "新的", "--tag", "a", "--tag", "b", "--json").output)
    assert (added["content"], added["tags"]) == ("新的", ["a", "b"])

    archived = owlclaw("memory", "archive", "assistant", "mem_1", "mem_9")
    assert (archived.exit_code, archived.stdout) == (1, "archived 1\n")
    assert "assistant has no active memory mem_9" in archived.stderr
    assert "mem_1" in owlclaw("memory", "list", "assistant", "--archived").output

    assert owlclaw("memory", "delete", "assistant", "mem_1").output == "removed mem_1: 机器很闲\n"
    missing = owlclaw("memory", "delete", "assistant", "mem_1")
    assert missing.exit_code == 1
    assert missing.output == "there is no memory 'mem_1'\n  → list them with: owlclaw memory list AGENT\n"


def test_stats_and_reindex(owlclaw: Run, memories: list[Memory]):
    told = owlclaw("memory", "stats", "assistant")

    assert told.stdout == (
        "active    2, from 2026-11-03 09:30:00Z to 2026-11-03 09:30:00Z\narchived  0\n"
        "MEMORY.md 310 bytes, archive 90, index 1100\n"
    )
    assert told.stderr == "MEMORY.md:12: the time is none (write it as 2026-11-03T09:30:01+00:00)\n"
    assert owlclaw("memory", "reindex", "assistant").output == "indexed 2 memories\n"


def test_one_memory_is_edited_in_the_editor(owlclaw: Run, memories: list[Memory], editor):
    editor('grep -q "^tags: load$" "$file" && printf "tags: busy, load\\n\\n机器很忙\\n" > "$file"')

    edited = owlclaw("memory", "edit", "assistant", "mem_1")

    assert edited.exit_code == 0
    assert (memories[0].content, memories[0].tags) == ("机器很忙", ("busy", "load"))


def test_a_long_list_comes_in_pages(owlclaw: Run, memories: list[Memory]):
    first = owlclaw("memory", "list", "assistant", "--limit", "1").output
    second = owlclaw("memory", "list", "assistant", "--limit", "1", "--after", "mem_1").output

    assert first.splitlines()[-1] == "there are more: add --after mem_1"
    assert [row.split()[0] for row in second.splitlines()] == ["MEMORY", "mem_2"]


def test_an_edit_sends_only_what_was_changed(owlclaw: Run, memories: list[Memory], editor):
    memories[1] = replace(memories[1], content="\n  The owner is away.\n\n", tags=("a, b", "c"))

    editor("""sed -i "s/away/back/" "$file" """)
    assert owlclaw("memory", "edit", "assistant", "mem_2").exit_code == 0
    assert (memories[1].content, memories[1].tags) == ("\n  The owner is back.\n\n", ("a, b", "c"))

    editor("""sed -i "1s/.*/tags: d/" "$file" """)
    assert owlclaw("memory", "edit", "assistant", "mem_2").exit_code == 0
    assert (memories[1].content, memories[1].tags) == ("\n  The owner is back.\n\n", ("d",))


def test_an_edit_of_a_memory_that_somebody_changed_meanwhile_changes_nothing_and_what_was_written_is_kept(
    owlclaw: Run, runtime: MemoryRuntime, memories: list[Memory], editor, monkeypatch
):
    editor("""sed -i "s/闲/忙/" "$file" """)
    shown, changed = runtime.memory.memory, replace(memories[0], content="机器坏了")

    async def memory(agent, memory_id):
        found = await shown(agent, memory_id)
        monkeypatch.setattr(runtime.memory, "memory", shown)
        memories[0] = changed
        return found

    monkeypatch.setattr(runtime.memory, "memory", memory)
    refused = owlclaw("memory", "edit", "assistant", "mem_1")

    assert (refused.exit_code, memories[0]) == (1, changed)
    assert "changed meanwhile" in refused.output
    assert "What you wrote is in mem_1.edited.md" in refused.output
    assert "机器很忙" in Path("mem_1.edited.md").read_text()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("true", "nothing was changed"),
        ("exit 3", "ended with 3; nothing was changed"),
        ('echo "no tags line" > "$file"', "the first line must be 'tags: …'; nothing was changed"),
    ],
)
def test_an_edit_that_is_given_up_changes_nothing(owlclaw: Run, memories: list[Memory], editor, script, said):
    editor(script)
    before = list(memories)

    assert said in owlclaw("memory", "edit", "assistant", "mem_2").output
    assert memories == before


def test_what_was_written_without_the_line_of_tags_is_kept(owlclaw: Run, memories: list[Memory], editor, tmp_path):
    editor('echo "a long text" > "$file"')

    assert owlclaw("memory", "edit", "assistant", "mem_2").exit_code == 1
    assert (tmp_path / "mem_2.edited.md").read_text() == "a long text\n"


def test_what_was_written_is_printed_where_no_file_can_be_made(
    owlclaw: Run, memories: list[Memory], editor, monkeypatch
):
    def no_file(*_):
        raise PermissionError(13, "Permission denied")

    editor('echo "a long text" > "$file"')
    monkeypatch.setattr("serve.cli.memory._kept", no_file)

    result = owlclaw("memory", "edit", "assistant", "mem_2")

    assert result.exit_code == 1
    assert "Permission denied" in result.stderr
    assert "a long text" in result.stderr


def test_a_file_that_is_no_text_does_not_become_a_memory(owlclaw: Run, texts, tmp_path):
    (tmp_path / "photo").write_bytes(b"\x89PNG")

    result = owlclaw("memory", "import", "assistant", "photo")

    assert (result.exit_code, "photo: is no UTF-8 text (at byte 0)" in result.output) == (1, True)
    assert texts[ASSISTANT] == TEXT


def test_an_editor_that_is_no_command_line_is_named(owlclaw: Run, memories: list[Memory], monkeypatch):
    monkeypatch.setenv("VISUAL", 'vim "')
    result = owlclaw("memory", "edit", "assistant", "mem_1")
    assert result.exit_code == 1
    assert "cannot be run: No closing quotation" in result.output


def test_an_editor_that_is_not_there_is_named(owlclaw: Run, memories: list[Memory], monkeypatch):
    monkeypatch.setenv("VISUAL", "no-such-editor --wait")
    result = owlclaw("memory", "edit", "assistant", "mem_1")
    assert (result.exit_code, "'no-such-editor': cannot be run" in result.output) == (1, True)


TEXT = "# Memory\n\n## mem_1 · 2026-11-03T09:30:00+00:00\n\nold 机器很闲\n\n---\n".encode()
NEW = "\n## mem_9 · 2026-11-03T10:00:00+00:00\n\n新的\n\n---\n".encode()


@pytest.fixture
def texts(runtime: MemoryRuntime, tmp_path, monkeypatch) -> dict[AgentRef, bytes]:
    monkeypatch.chdir(tmp_path)
    runtime.memory.texts[ASSISTANT] = TEXT
    return runtime.memory.texts


def test_the_whole_text_is_edited(owlclaw: Run, texts, editor):
    editor('sed -i s/old/new/ "$file"')

    result = owlclaw("memory", "edit", "assistant")

    assert (result.exit_code, result.output) == (0, "wrote MEMORY.md\n")
    assert texts[ASSISTANT] == TEXT.replace(b"old", b"new")
    editor("true")
    assert owlclaw("memory", "edit", "assistant").output == "nothing was changed\n"


def changes_when_it_was_read(runtime: MemoryRuntime, monkeypatch, now: bytes) -> None:
    """Have MEMORY.md say something else as soon as it was read."""
    read = runtime.memory.text

    async def text(agent):
        found = await read(agent)
        monkeypatch.setattr(runtime.memory, "text", read)
        runtime.memory.texts[agent] = now
        return found

    monkeypatch.setattr(runtime.memory, "text", text)


def test_what_the_agent_remembers_while_the_text_is_open_is_kept(
    owlclaw: Run, runtime: MemoryRuntime, texts, editor, monkeypatch
):
    editor('sed -i s/old/new/ "$file"')
    changes_when_it_was_read(runtime, monkeypatch, TEXT + NEW)

    assert owlclaw("memory", "edit", "assistant").exit_code == 0
    assert texts[ASSISTANT] == TEXT.replace(b"old", b"new") + NEW


def test_a_text_that_somebody_else_rewrote_is_not_replaced_and_what_was_written_is_kept(
    owlclaw: Run, runtime: MemoryRuntime, texts, editor, monkeypatch
):
    editor('sed -i s/old/new/ "$file"')
    Path("MEMORY.edited.md").write_text("of another time")
    changes_when_it_was_read(runtime, monkeypatch, b"rewritten\n")

    result = owlclaw("memory", "edit", "assistant")

    assert result.exit_code == 1
    assert "MEMORY.md was changed meanwhile and stays as it is" in result.output
    assert "What you wrote is in MEMORY.edited2.md" in result.output
    assert texts[ASSISTANT] == b"rewritten\n"
    assert Path("MEMORY.edited2.md").read_bytes() == TEXT.replace(b"old", b"new")
    assert Path("MEMORY.edited.md").read_text() == "of another time"


def test_a_text_is_exported_and_imported(owlclaw: Run, texts, tmp_path, memories: list[Memory]):
    assert owlclaw("memory", "export", "assistant").stdout_bytes == TEXT
    exported = owlclaw("memory", "export", "assistant", "copy.md")
    assert (exported.exit_code, exported.stdout) == (0, "")
    assert (tmp_path / "copy.md").read_bytes() == TEXT

    (tmp_path / "copy.md").write_bytes(TEXT + NEW)
    imported = owlclaw("memory", "import", "assistant", "copy.md")

    assert (imported.exit_code, imported.stdout) == (0, "wrote MEMORY.md\n")
    assert "an older copy; what it lacked was put back: mem_2" in imported.stderr.replace("\n", " ")
    assert texts[ASSISTANT] == TEXT + NEW


def test_the_archive_goes_into_a_file_beside_and_is_imported_from_there(owlclaw: Run, runtime, texts, tmp_path):
    runtime.memory.archive_texts[ASSISTANT] = NEW

    assert owlclaw("memory", "export", "assistant", "copy.md").exit_code == 0
    assert (tmp_path / "copy.archive.md").read_bytes() == NEW
    assert owlclaw("memory", "export", "assistant", "--archived").stdout_bytes == NEW

    runtime.memory.archive_texts.clear()
    imported = owlclaw("memory", "import", "assistant", "copy.md")
    assert imported.stdout == "wrote MEMORY.md\nadded 1 memory to the archive\n"
    assert (texts[ASSISTANT], runtime.memory.archive_texts[ASSISTANT]) == (TEXT, NEW)

    runtime.memory.archive_texts.clear()
    assert owlclaw("memory", "export", "assistant", "copy.md").exit_code == 0
    assert (tmp_path / "copy.archive.md").read_bytes() == b""
    assert owlclaw("memory", "import", "assistant", "copy.md").stdout == "wrote MEMORY.md\n"


def test_an_archive_alone_is_imported_too(owlclaw: Run, runtime, texts, tmp_path):
    (tmp_path / "old.md").write_bytes(NEW)

    imported = owlclaw("memory", "import", "assistant", "old.md", "--archived")

    assert (imported.exit_code, imported.stdout) == (0, "added 1 memory to the archive\n")
    assert (texts[ASSISTANT], runtime.memory.archive_texts[ASSISTANT]) == (TEXT, NEW)


def test_a_text_that_is_too_large_is_refused(owlclaw: Run, texts, tmp_path):
    (tmp_path / "copy.md").write_bytes(b"x" * 5_001)

    refused = owlclaw("memory", "import", "assistant", "copy.md")

    assert refused.exit_code == 1
    assert "MEMORY.md would have 5,001 bytes, more than 5,000" in refused.output
    assert texts[ASSISTANT] == TEXT


def test_files_that_cannot_be_read_or_written_are_named(owlclaw: Run, texts):
    missing = owlclaw("memory", "import", "assistant", "nothing.md")
    folder = owlclaw("memory", "export", "assistant", ".")

    assert (missing.exit_code, folder.exit_code) == (1, 1)
    assert "nothing.md: cannot be read: No such file" in missing.output
    assert ".: cannot be written: Is a directory" in folder.output


def test_the_ledger_learns_which_user_changes_memories(
    owlclaw: Run, runtime: MemoryRuntime, memories: list[Memory], editor
):
    editor('printf "tags: \\n\\nThe owner is back.\\n" > "$file"')

    owlclaw("memory", "add", "assistant", "新的")
    owlclaw("memory", "edit", "assistant", "mem_2")
    owlclaw("memory", "archive", "assistant", "mem_1")
    owlclaw("memory", "delete", "assistant", "mem_1")
    owlclaw("memory", "reindex", "assistant")

    assert runtime.memory.by == [getpass.getuser()] * 5
