"""Files whose folder became a link after their path was judged: the last step of code tools' access."""

import stat

import pytest

from owlclaw_ray.tools.code.files import create, entered, open_regular, replace
from owlclaw_ray.tools.failure import ToolFailureError


@pytest.fixture
def swapped(tmp_path):
    """A path that was judged to be in `project/folder`, which has become a link to `outside`."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("secret")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "folder").symlink_to(outside)
    return tmp_path / "project" / "folder"


def make_folders(path):
    with entered(path.parent, "shown", make=True):
        pass


@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("a.txt", lambda path: open_regular(path, "shown")),
        ("a.txt", lambda path: replace(path, b"changed", "shown")),
        ("new.txt", lambda path: create(path, b"new", "shown")),
        ("deep/new.txt", make_folders),
    ],
    ids=["read", "replaced", "made", "folders made"],
)
def test_nothing_is_reached_through_a_folder_that_became_a_link(swapped, tmp_path, name, act):
    with pytest.raises(ToolFailureError) as refused:
        act(swapped / name)

    assert (refused.value.type, str(refused.value)) == ("denied", "shown was changed into a link")
    assert {path.name: path.read_text() for path in (tmp_path / "outside").iterdir()} == {"a.txt": "secret"}


def test_a_failed_write_leaves_neither_draft_nor_change(tmp_path, monkeypatch):
    target = tmp_path / "a.txt"
    target.write_text("before")
    target.chmod(0o640)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ToolFailureError, match="No space left"):
        replace(target, b"after", "shown")
    with pytest.raises(ToolFailureError, match="No space left"):
        create(tmp_path / "b.txt", b"new", "shown")

    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert (target.read_text(), stat.S_IMODE(target.stat().st_mode)) == ("before", 0o640)
