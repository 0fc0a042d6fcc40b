import asyncio
import os
import threading
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.definitions.folder import DefinitionFolder, find_definitions
from owlclaw_ray.definitions.loader import load_definition
from owlclaw_ray.definitions.skills.host_facts import Machine
from owlclaw_ray.errors import DefinitionError, UnknownAgentError
from tests.definitions.writing import write_definition, write_skill
from tests.properties import examples


@contextmanager
def hanging(path):
    """Put something in the place of the file that hangs whoever opens it, until the block ends."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    try:
        yield
    finally:
        released = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        path.unlink()
        os.close(released)


@pytest.fixture
def definitions(tmp_path):
    return DefinitionFolder(tmp_path, Defaults())


async def test_definitions_are_the_folders_with_a_definitions_name(tmp_path, definitions):
    for name in ("b", "a_1", "Upper", ".hidden", "空"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    assert definitions.present() == ("a_1", "b")
    assert find_definitions(tmp_path / "nowhere") == ()


@pytest.mark.parametrize("name", ["other", "../watch", "", "watch/..", "Watch"])
async def test_an_unknown_name_is_refused_with_the_known_ones(tmp_path, definitions, name):
    write_definition(tmp_path / "watch")
    with pytest.raises(UnknownAgentError, match="defined here: watch"):
        await definitions.get(name)


async def test_the_same_files_give_the_same_object(tmp_path, definitions):
    write_definition(tmp_path / "watch")
    assert await definitions.get("watch") is await definitions.get("watch")


async def test_a_changed_file_is_seen_by_the_next_get_and_not_by_what_was_returned(tmp_path, definitions):
    write_definition(tmp_path / "watch", skills=("one",))
    before = await definitions.get("watch")
    (tmp_path / "watch" / "SOUL.md").write_text("Somebody else.")
    after = await definitions.get("watch")
    assert (before.soul, after.soul) == ("You watch the machine.", "Somebody else.")
    write_skill(tmp_path / "watch", "two", "---\nname: two\ndescription: x\n---\ny")
    assert [skill.name for skill in (await definitions.get("watch")).skills] == ["one", "two"]
    (tmp_path / "watch" / "agent.yaml").write_text("stream: true")
    assert (await definitions.get("watch")).model.stream


async def test_a_definition_that_breaks_and_is_mended_is_seen(tmp_path, definitions):
    write_definition(tmp_path / "watch")
    await definitions.get("watch")
    (tmp_path / "watch" / "SOUL.md").unlink()
    for _ in range(2):
        with pytest.raises(DefinitionError, match=r"watch/SOUL\.md: does not exist"):
            await definitions.get("watch")
    write_definition(tmp_path / "watch")
    assert (await definitions.get("watch")).soul == "You watch the machine."


async def test_a_removed_definition_is_unknown(tmp_path, definitions):
    folder = write_definition(tmp_path / "watch")
    await definitions.get("watch")
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    with pytest.raises(UnknownAgentError):
        await definitions.get("watch")


async def test_a_reload_reads_what_looks_unchanged(tmp_path, definitions):
    write_definition(tmp_path / "watch")
    before = await definitions.get("watch")
    await definitions.reload("watch")
    assert await definitions.get("watch") is not before


async def test_a_reload_sees_what_the_machine_has_now_and_says_what_is_wrong(tmp_path):
    environ = {}
    definitions = DefinitionFolder(tmp_path, Defaults(), Machine(environ))
    folder = write_definition(tmp_path / "watch")
    write_skill(folder, "a", "---\nname: a\ndescription: b\nowlclaw: {env: [TOKEN]}\n---\nx")
    before = await definitions.get("watch")
    environ["TOKEN"] = "t"
    assert await definitions.get("watch") is before

    await definitions.reload("watch")
    after = await definitions.get("watch")

    assert [each.skills[0].unmet for each in (before, after)] == ["the variable TOKEN is not set", ""]
    assert before.version != after.version
    (folder / "SOUL.md").write_text("")
    with pytest.raises(DefinitionError, match=r"SOUL\.md: is empty"):
        await definitions.reload("watch")
    with pytest.raises(UnknownAgentError):
        await definitions.reload("nobody")


@pytest.mark.property
@examples
@given(texts=st.lists(st.tuples(st.text("甲乙ab", min_size=1), st.text("丙丁cd", min_size=1)), min_size=2, max_size=4))
def test_property_03_after_a_change_the_next_get_uses_the_new_text(tmp_path_factory, texts):
    agents = tmp_path_factory.mktemp("agents")
    definitions = DefinitionFolder(agents, Defaults())
    for soul, capabilities in texts:
        staged = write_definition(agents / ".next", soul=soul, identity=f"## 我的能力\n{capabilities}\n")
        (agents / "watch").mkdir(exist_ok=True)
        for name in ("SOUL.md", "IDENTITY.md"):
            (staged / name).replace(agents / "watch" / name)
        found = asyncio.run(definitions.get("watch"))
        assert (found.soul, found.capabilities) == (soul, capabilities)


async def test_files_that_hang_hold_up_neither_the_loop_nor_other_definitions(tmp_path, definitions):
    write_definition(tmp_path / "watch")
    write_definition(tmp_path / "other")

    with hanging(tmp_path / "watch" / "SOUL.md"):
        asked = [asyncio.create_task(definitions.get("watch")) for _ in range(50)]
        for _ in range(5):
            assert (await definitions.get("other")).name == "other"
        asked.append(asyncio.create_task(definitions.get("watch")))
        assert (await definitions.get("other")).name == "other"
        assert not any(each.done() for each in asked)

    assert len(await asyncio.gather(*asked, return_exceptions=True)) == 51


async def test_a_reload_while_files_are_read_reads_them_again(tmp_path, definitions, monkeypatch):
    soul = write_definition(tmp_path / "watch", soul="Old.") / "SOUL.md"
    status, has_read, go_on = soul.stat(), threading.Event(), threading.Event()

    def load(*arguments):
        definition = load_definition(*arguments)
        has_read.set()
        go_on.wait()
        return definition

    monkeypatch.setattr("owlclaw_ray.definitions.folder.load_definition", load)
    asked = asyncio.create_task(definitions.get("watch"))
    await asyncio.to_thread(has_read.wait)
    soul.write_text("New.")
    os.utime(soul, ns=(status.st_atime_ns, status.st_mtime_ns))
    reloaded = asyncio.create_task(definitions.reload("watch"))
    await asyncio.sleep(0)
    go_on.set()
    await reloaded

    assert (await asked).soul == "Old."
    assert (await definitions.get("watch")).soul == "New."
