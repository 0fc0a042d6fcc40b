"""code.list_dir."""

import os


def test_a_folder_is_listed_by_name_without_what_is_in_its_folders(project):
    """tool-registry: list_dir takes path, recursive and limit, and is not recursive by default."""
    project.write("b.txt", "12345")
    project.write("a/inner.txt", "")
    (project.folder / "link").symlink_to("b.txt")
    os.mkfifo(project.folder / "pipe")
    assert project.call("list_dir") == {
        "path": ".",
        "entries": [
            {"path": "a", "type": "folder"},
            {"path": "b.txt", "type": "file", "size_bytes": 5},
            {"path": "link", "type": "link"},
            {"path": "pipe", "type": "other"},
        ],
        "truncated": False,
    }


def test_a_recursive_listing_follows_no_link_and_does_not_enter_git(project):
    project.write("a/inner.txt", "")
    project.write(".git/config", "")
    (project.folder / "round").symlink_to(".")
    paths = [each["path"] for each in project.call("list_dir", recursive=True)["entries"]]
    assert paths == [".git", "a", "a/inner.txt", "round"]


def test_no_more_than_the_limit_is_listed(project):
    for number in range(30):
        project.write(f"{number:02}", "")
    found = project.call("list_dir", limit=10)
    assert [each["path"] for each in found["entries"]] == [f"{number:02}" for number in range(10)]
    assert found["truncated"] is True
    assert project.call("list_dir", limit=30)["truncated"] is False


def test_what_is_no_folder_is_an_error_of_the_tool(project):
    project.write("a.txt", "")
    assert project.error("list_dir", path="a.txt").type == "not_a_directory"
    assert project.error("list_dir", path="none").type == "file_not_found"


def test_a_name_that_is_no_utf_8_is_shown_as_well_as_can_be(project):
    (project.folder / os.fsdecode(b"caf\xe9")).write_text("")
    assert [each["path"] for each in project.call("list_dir")["entries"]] == ["caf?"]
