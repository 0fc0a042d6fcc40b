"""code.write_file and code.edit_file."""

import difflib
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st


def test_a_new_file_is_written_with_its_folders(project):
    """tool-registry: write_file takes path, content, create_dirs=true and overwrite=false."""
    found = project.call("write_file", path="a/b/c.txt", content="文\r\n")
    assert found == {"path": "a/b/c.txt", "created": True, "size_bytes": 5}
    assert (project.folder / "a/b/c.txt").read_bytes() == "文\r\n".encode()


def test_folders_are_not_made_if_they_are_not_wanted(project):
    error = project.error("write_file", path="a/b.txt", content="", create_dirs=False)
    assert error.type == "file_not_found"
    assert list(project.folder.iterdir()) == []


def test_a_file_that_exists_is_kept_unless_it_is_to_be_replaced(project):
    """tool-registry: an existing file gives path_conflict; replacing it takes overwrite=true."""
    target = project.write("a.txt", "before")
    target.chmod(0o640)
    assert project.error("write_file", path="a.txt", content="after").type == "path_conflict"
    assert target.read_text() == "before"
    assert project.call("write_file", path="a.txt", content="after", overwrite=True)["created"] is False
    assert (target.read_text(), stat.S_IMODE(target.stat().st_mode)) == ("after", 0o640)


def test_a_folder_is_not_written(project):
    (project.folder / "a").mkdir()
    assert project.error("write_file", path="a", content="x", overwrite=True).type == "not_a_file"


def test_a_file_has_a_largest_size(project):
    project.allow(file_bytes=10)
    assert project.error("write_file", path="a.txt", content="x" * 11).type == "too_large"
    project.write("b.txt", "x" * 11)
    assert project.error("edit_file", path="b.txt", edits=[{"old": "x", "new": "y"}]).type == "too_large"
    assert not (project.folder / "a.txt").exists()


def test_replacements_are_made_one_after_another(project):
    """tool-registry: edits is a list of exact replacements of old by new."""
    target = project.write("a.txt", "one two\r\n")
    edits = [{"old": "one", "new": "three"}, {"old": "three two", "new": "done"}]
    assert project.call("edit_file", path="a.txt", edits=edits)["places"] == 2
    assert target.read_bytes() == b"done\r\n"


def test_a_text_that_is_not_there_is_not_found(project):
    """tool-registry: old text that is not found gives text_not_found."""
    project.write("a.txt", "one")
    assert project.error("edit_file", path="a.txt", edits=[{"old": "two", "new": "x"}]).type == "text_not_found"


@pytest.mark.parametrize(("text", "old", "places"), [("a b a", "a", 2), ("aaa", "aa", 2), ("a\na\na", "a\na", 2)])
def test_a_text_in_several_places_is_ambiguous(project, text, old, places):
    """tool-registry: old text must match in one place; in several it gives ambiguous_edit."""
    target = project.write("a.txt", text)
    error = project.error("edit_file", path="a.txt", edits=[{"old": old, "new": "x"}])
    assert (error.type, error.details) == ("ambiguous_edit", {"edit": 1, "places": places})
    assert target.read_text() == text


def test_all_places_are_replaced_if_that_is_wanted(project):
    """tool-registry: with replace_all=true all matches may be replaced."""
    target = project.write("a.txt", "a b a")
    assert project.call("edit_file", path="a.txt", edits=[{"old": "a", "new": "c", "replace_all": True}])["places"] == 2
    assert target.read_text() == "c b c"


@pytest.mark.parametrize(
    "arguments", [{}, {"edits": [{"old": "a", "new": "b"}], "unified_diff": "@@ -1 +1 @@\n-a\n+b\n"}]
)
def test_either_edits_or_a_diff_is_given(project, arguments):
    """tool-registry: edits and unified_diff exclude each other, and one of them is needed."""
    project.write("a.txt", "a\n")
    assert project.error("edit_file", path="a.txt", **arguments).type == "invalid_arguments"


def test_a_file_is_not_made_by_an_edit_unless_that_is_wanted(project):
    """tool-registry: edit_file creates no file by default; create_if_missing allows it."""
    diff = "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n"
    assert project.error("edit_file", path="new.txt", unified_diff=diff).type == "file_not_found"
    assert project.call("edit_file", path="new.txt", unified_diff=diff, create_if_missing=True)["created"] is True
    assert (project.folder / "new.txt").read_text() == "one\ntwo\n"


def test_a_file_that_is_no_text_is_not_edited(project):
    project.write("a.bin", b"\xff\xfe")
    assert project.error("edit_file", path="a.bin", edits=[{"old": "a", "new": "b"}]).type == "binary_file"


def test_a_diff_is_applied(project):
    """tool-registry: unified_diff is a patch as text."""
    target = project.write("a.txt", "1\n2\n3\n4\n5\n6\n7\n8\n9\n")
    diff = "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\n@@ -8,2 +8,3 @@\n 8\n 9\n+ten\n"
    assert project.call("edit_file", path="a.txt", unified_diff=diff)["hunks"] == 2
    assert target.read_text() == "1\ntwo\n3\n4\n5\n6\n7\n8\n9\nten\n"


def test_a_diff_with_wrong_numbers_is_applied_where_its_lines_are(project):
    target = project.write("a.txt", "a\nb\nc\nd\n")
    project.call("edit_file", path="a.txt", unified_diff="@@ -99,7 +99,7 @@\n c\n-d\n+D\n")
    assert target.read_text() == "a\nb\nc\nD\n"


def test_a_diff_keeps_the_ends_of_lines(project):
    target = project.write("a.txt", "a\r\nb\r\nc")
    project.call("edit_file", path="a.txt", unified_diff="@@ -1,2 +1,3 @@\n a\n-b\n+B\n+B2\n")
    assert target.read_bytes() == b"a\r\nB\r\nB2\r\nc"


def test_a_diff_may_add_and_remove_the_newline_at_the_end(project):
    mark = "\\ No newline at end of file\n"
    target = project.write("a.txt", "a\nb")
    project.call("edit_file", path="a.txt", unified_diff=f"@@ -1,2 +1,2 @@\n a\n-b\n{mark}+b\n")
    assert target.read_text() == "a\nb\n"
    project.call("edit_file", path="a.txt", unified_diff=f"@@ -1,2 +1,2 @@\n a\n-b\n+c\n{mark}")
    assert target.read_text() == "a\nc"


@pytest.mark.parametrize(
    "diff",
    [
        "@@ -1,2 +1,2 @@\n a\n-x\n+y\n",
        "@@ -1 +1 @@\n-b \n+y\n",
        "@@ -9 +9 @@\n-twice\n+y\n",
        "@@ -1 +1 @@\n-a\n+A\n@@ -1 +1 @@\n-a\n+B\n",
        "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+A\n",
        "@@ -1 +1 @@\n-a\n+A\n\\ No newline at end of file\n",
        "@@ -1 +1 @@\n*a\n",
        "@@ -50,0 +51 @@\n+new\n",
        "no diff at all",
    ],
)
def test_a_diff_that_does_not_fit_is_refused_and_changes_nothing(project, diff):
    """tool-registry: a diff must apply cleanly; context that does not match gives patch_apply_failed."""
    target = project.write("a.txt", "a\nb\ntwice\ntwice\n")
    assert project.error("edit_file", path="a.txt", unified_diff=diff).type == "patch_apply_failed"
    assert target.read_text() == "a\nb\ntwice\ntwice\n"


HUNK = "@@ -1 +1 @@\n-a\n+b\n"


@pytest.mark.parametrize(
    "diff",
    [
        f"--- a/a.txt\n+++ b/other.txt\n{HUNK}",
        f"--- a/a.txt\n+++ b/a.txt\n{HUNK}--- a/other.txt\n+++ b/other.txt\n{HUNK}",
        f"diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n{HUNK}diff --git a/x b/x\n--- a/x\n+++ b/x\n{HUNK}",
        "diff --git a/a.txt b/c.txt\nrename from a.txt\nrename to c.txt\n",
        "diff --git a/a.txt b/a.txt\ndeleted file mode 100644\n--- a/a.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n",
        "--- a/a.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n",
        "diff --git a/a.txt b/a.txt\nGIT binary patch\nliteral 3\n",
        "Binary files a/a.txt and b/a.txt differ\n",
    ],
)
def test_a_diff_of_another_file_or_kind_is_refused(project, diff):
    """tool-registry: a diff changes the given path alone: no other file, no rename, no deletion, nothing binary."""
    target = project.write("a.txt", "a\n")
    assert project.error("edit_file", path="a.txt", unified_diff=diff).type == "unsupported_patch"
    assert target.read_text() == "a\n"


def test_removed_lines_that_look_like_a_header_are_lines(project):
    target = project.write("a.sql", "-- old\nx\n")
    diff = "--- a/a.sql\n+++ b/a.sql\n@@ -1,2 +1,2 @@\n--- old\n+++ new\n x\n"
    project.call("edit_file", path="a.sql", unified_diff=diff)
    assert target.read_text() == "++ new\nx\n"


LINES = st.lists(
    st.sampled_from(["a", "b", "", "--- x", "+++ y", "-z", "@@ -1 +1 @@", "\\ n", "文", " q"]), max_size=12
)
TEXTS = st.tuples(LINES, st.sampled_from(["", "\n"])).map(lambda pair: "\n".join(pair[0]) + pair[1] * bool(pair[0]))


def diff_of(before, after, context):
    """Return what `diff -u` would say."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), "a/a.txt", "b/a.txt", n=context
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


@pytest.mark.property
@given(TEXTS, TEXTS, st.integers(0, 3), st.booleans())
def test_the_diff_of_two_texts_makes_one_into_the_other(shared, old, new, context, crlf):
    """tool-registry: unified_diff applies cleanly to the present content."""
    diff = diff_of(old, new, context)
    if not diff:
        return
    end = "\r\n" if crlf and "\n" in old else "\n"
    target = shared.write("a.txt", old.replace("\n", end))
    shared.call("edit_file", path="a.txt", unified_diff=diff)
    assert target.read_bytes().decode().replace("\r\n", "\n") == new


EDITS = st.lists(
    st.fixed_dictionaries(
        {
            "old": st.text("ab\n", min_size=1, max_size=4),
            "new": st.text("abc\n", max_size=4),
            "replace_all": st.booleans(),
        }
    ),
    min_size=1,
    max_size=4,
)
DIFFS = st.lists(
    st.sampled_from(["@@ -1,2 +1 @@", "@@ -2 +2 @@", " a", "-a", "+c", "-b", " b", "", "\\ No newline"]), min_size=1
)


@pytest.mark.property
@given(st.text("ab\n", max_size=20), st.one_of(EDITS, DIFFS.map("\n".join)))
def test_an_edit_applies_wholly_or_leaves_the_file_as_it_was(shared, text, change):
    target = shared.write("a.txt", text)
    arguments = {"edits": change} if isinstance(change, list) else {"unified_diff": change}
    result = shared.result("edit_file", path="a.txt", **arguments)
    after = target.read_bytes().decode()
    if result.error is not None:
        assert after == text
    elif isinstance(change, list):
        for each in change:
            count = sum(text.startswith(each["old"], at) for at in range(len(text)))
            assert count == 1 or (count > 1 and each["replace_all"])
            text = text.replace(each["old"], each["new"])
        assert after == text
    else:
        hunk_lines = [line for line in change.split("\n") if line[:1] in {"+", "-"}]
        assert len(after.split("\n")) - len(text.split("\n")) in range(-len(hunk_lines) - 2, len(hunk_lines) + 2)
    assert sorted(path.name for path in shared.folder.iterdir()) == ["a.txt"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("write_file", {"content": "x", "overwrite": True}), ("edit_file", {"edits": [{"old": "a", "new": "x"}]})],
)
def test_a_disk_that_fails_leaves_the_file_as_it_was(project, monkeypatch, tool, arguments):
    target = project.write("a.txt", "a")

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("owlclaw_ray.tools.code.files.os.fsync", fail)
    error = project.error(tool, path="a.txt", **arguments)
    assert "No space left on device" in error.message
    assert [(each.name, each.read_text()) for each in project.folder.iterdir()] == [("a.txt", target.read_text())]
    assert target.read_text() == "a"
