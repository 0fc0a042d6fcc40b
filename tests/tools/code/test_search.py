"""code.search, with ripgrep and without."""

import os
import shutil
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.errors import ToolArgumentsError
from owlclaw_ray.tools.code.matchers import LineQuery, PythonMatcher, Ripgrep
from owlclaw_ray.tools.code.search import glob_pattern
from owlclaw_ray.tools.failure import ToolFailureError

RIPGREP = shutil.which("rg")
IN_CI = "CI" in os.environ  # noqa: TID251 - which machine it is decides whether a missing program fails
needs_ripgrep = pytest.mark.skipif(RIPGREP is None and not IN_CI, reason="ripgrep (rg) is not installed")


@pytest.fixture(params=["python", pytest.param("ripgrep", marks=needs_ripgrep)])
def searched(request, project):
    folder = str(Path(RIPGREP).parent) if request.param == "ripgrep" else ""
    project.environ["PATH"] = f"{folder}:/nowhere"
    return project


def found(project, **arguments):
    result = project.call("search", **arguments)
    return [(each["path"], each["line"], each["text"]) for each in result["matches"]]


def test_lines_are_found_in_the_project_by_path_and_line(searched):
    """tool-registry: search takes query, path, glob and limit, and searches the project by default."""
    searched.write("b.py", "x = 1\nneedle = 2\r\n")
    searched.write("a/c.txt", "needle\nneedle again")
    assert found(searched, query="needle") == [
        ("a/c.txt", 1, "needle"),
        ("a/c.txt", 2, "needle again"),
        ("b.py", 2, "needle = 2"),
    ]
    assert found(searched, query="needle", path="a/c.txt")[1:] == [("a/c.txt", 2, "needle again")]
    assert found(searched, query="needle", glob="*.py") == [("b.py", 2, "needle = 2")]
    assert found(searched, query="absent") == []


def test_plain_text_is_plain(searched):
    searched.write("a.txt", "f(x) [1]\nf.x.\n-e --files\n文字\n")
    for line, query in enumerate(["(x) [", "f.x.", "-e --files", "文"], 1):
        assert [each[1] for each in found(searched, query=query)] == [line]


def test_no_more_lines_than_the_limit_are_returned(searched):
    for name in "abc":
        searched.write(name, "x\n" * 5)
    result = searched.call("search", query="x", limit=7)
    assert [(each["path"], each["line"]) for each in result["matches"]][-1] == ("b", 2)
    assert result["truncated"] is True
    assert searched.call("search", query="x", limit=15)["truncated"] is False


def test_binary_and_huge_files_links_and_git_are_passed_by(searched):
    searched.write("a.bin", b"needle\0")
    searched.write(".git/x", "needle")
    searched.write("long.txt", "needle" + "x" * 200)
    searched.write("a.txt", "needle")
    (searched.folder / "link").symlink_to("a.txt")
    assert [each[0] for each in found(searched.allow(file_bytes=100), query="needle")] == ["a.txt"]


def test_a_long_line_is_shortened(searched):
    searched.write("a.txt", "needle" + "文" * 9_000)
    ((_, _, text),) = found(searched, query="needle")
    assert text == "needle" + "文" * 494 + "…"


def test_strange_names_do_no_harm(searched):
    for name in ["-e", "--pre=touch owned", "a\nb", "$(touch owned)", "'"]:
        searched.write(f"x/{name}", "needle")
    assert len(found(searched, query="needle")) == 5
    assert not list(searched.folder.rglob("owned"))


def test_what_is_not_there_is_an_error_of_the_tool(searched):
    assert searched.error("search", query="x", path="none").type == "file_not_found"


@pytest.mark.parametrize("query", ["a\nb", "\r"])
def test_a_query_is_one_line(searched, query):
    assert searched.error("search", query=query).type == "invalid_arguments"


@pytest.mark.parametrize(
    "query",
    [
        *(
            "(?=a)",
            "(?!a)",
            "(?<=a)",
            "(?P<x>a)",
            "(?i)a",
            r"\1",
            r"\p{L}",
            r"\Aa",
            r"a\Z",
            "[[:alpha:]]",
            "[a&&b]",
            "[é]",
        ),
        *(
            "a{,3}",
            "a{2000}",
            "a**",
            "*a",
            "(a",
            "a)",
            "a{",
            "[a",
            "[]",
            r"\n",
            "a++",
            "^*",
            "(|*)",
            "a|*",
            "[b-a]",
            "$a",
            "a^",
            r"\b^a",
            r"[\b]",
        ),
    ],
)
def test_expressions_that_the_engines_read_differently_are_refused(query):
    with pytest.raises(ToolArgumentsError, match="query"):
        LineQuery.of(query, is_regex=True)


def test_expressions_find_lines(searched):
    searched.write("a.txt", "def one():\n  return 12\n\nclass Café: pass\n")
    for query, line in [
        (r"^def \w+\(", 1),
        (r"\b\d{2}$", 2),
        ("^$", 3),
        ("Caf(?:é|e):", 4),
        ("[^a-z ]{2}", 1),
        ("é+", 4),
    ]:
        assert found(searched, query=query, regex=True)[0][1] == line


ATOMS = st.sampled_from(["a", "b", "é", ".", r"\d", r"\w", r"\S", "[ab]", "[^b]", r"\.", r"\s", "[a-c-]", r"\-", "ab"])
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "*?"])).map(
            lambda pair: f"({pair[0]}){pair[1]}"
        ),
        inner.map(lambda each: f"^{each}"),
        inner.map(lambda each: f"{each}$"),
        inner.map(lambda each: rf"\b{each}"),
    ),
    max_leaves=5,
)
CONTENTS = st.lists(
    st.sampled_from(
        [b"a", b"b", b"ab", b".", b"1", b" ", b"\n", b"\n\n", b"\r\n", "é".encode(), b"\xff", b"\xc3", b"-", b"\x1c"]
    ),
    max_size=15,
).map(b"".join)


@needs_ripgrep
@pytest.mark.property
@given(st.one_of(EXPRESSIONS, st.text("ab.é1*$(", min_size=1, max_size=3)), st.lists(CONTENTS, min_size=1, max_size=3))
def test_ripgrep_and_python_find_the_same_lines(shared, query, contents):
    """tool-registry: search is based on ripgrep; where it is missing the result is the same."""
    files = [shared.folder / str(number) for number in range(len(contents))]
    for path, content in zip(files, contents, strict=True):
        path.write_bytes(content)
    for is_regex in (True, False):
        try:
            wanted = LineQuery.of(query, is_regex=is_regex)
        except ToolArgumentsError:
            continue
        ripgrep = Ripgrep(RIPGREP, {}, 20.0)
        assert list(ripgrep.lines(wanted, files, 3)) == list(PythonMatcher().lines(wanted, files, 3))


def test_a_broken_ripgrep_is_an_error_of_the_tool(project, tmp_path):
    program = tmp_path / "rg"
    program.write_text("#!/bin/sh\necho 'regex parse error' >&2\nexit 2\n")
    program.chmod(0o755)
    with pytest.raises(ToolFailureError, match="regex parse error"):
        list(Ripgrep(str(program), {"PATH": "/bin"}, 20.0).lines(LineQuery.of("x", is_regex=False), [program], 1))


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        ("*.py", "a.py", True),
        ("*.py", "deep/er/a.py", True),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/b/a.py", False),
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/b/c/a.py", True),
        ("**/test_?.py", "x/test_a.py", True),
        ("**/test_?.py", "x/test_ab.py", False),
        ("*.{ts,tsx}", "a.tsx", True),
        ("*.{ts,tsx}", "a.tsy", False),
        ("[ab].txt", "b.txt", True),
        ("[!ab].txt", "b.txt", False),
        ("./src/*", "src/a", True),
        ("a.b", "axb", False),
        ("[", "[", True),
        ("{", "{", True),
        ("[z-a]", "[z-a]", True),
        ("[!]", "[!]", True),
        ("[!]", "a", False),
        ("[^]", "[^]", True),
        ("[]", "[]", True),
        ("[]a]", "]", True),
        ("[!]]", "a", True),
        ("[!]]", "]", False),
        ("[!/]", "[!/]", True),
    ],
)
def test_globs(glob, path, matches):
    assert bool(glob_pattern(glob).found_in(path)) is matches


@given(st.text("a*?[]{}!/.-,^\\", max_size=12), st.text("a/.[]", max_size=12))
def test_any_glob_is_a_pattern(glob, path):
    assert not glob_pattern(glob).found_in(path) or path or not glob.strip("*./,{}")


@given(st.text("ab[]!?*", max_size=9), st.text("ab[]!", max_size=6))
def test_a_glob_of_a_name_means_what_python_means(glob, name):
    assert bool(glob_pattern(glob).found_in(name)) is fnmatchcase(name, glob)


@pytest.mark.timeout(20)
def test_a_glob_of_many_stars_takes_no_longer_than_another():
    assert not glob_pattern("**a" * 30 + "/b").found_in("a" * 4_000)
