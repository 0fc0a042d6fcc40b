"""Where the code tools may go."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.errors import ApprovalNeededError
from owlclaw_ray.tools.code.path_policy import Access
from owlclaw_ray.tools.failure import ToolFailureError
from tests.tools.code.conftest import invocation

READING = [("read_file", {}), ("list_dir", {}), ("search", {"query": "x"})]
WRITING = [
    ("write_file", {"content": "x", "overwrite": True}),
    ("edit_file", {"edits": [{"old": "secret", "new": "x"}]}),
]


@pytest.fixture
def secret(project):
    target = project.outside / "secret.txt"
    target.write_text("secret")
    return target


@pytest.mark.parametrize(("tool", "arguments"), READING + WRITING)
@pytest.mark.parametrize("way", ["absolute", "dots", "link", "linked folder", "link and dots"])
def test_no_way_leads_out_of_the_allowed_folders(project, secret, tool, arguments, way):
    """tool-registry: targets are normalised and their links followed before they are compared with the allowed roots."""
    (project.folder / "link").symlink_to(secret)
    (project.folder / "folder").symlink_to(project.outside)
    path = {
        "absolute": str(secret),
        "dots": "../outside/secret.txt",
        "link": "link",
        "linked folder": "folder/secret.txt",
        "link and dots": "folder/../outside/secret.txt",
    }[way]
    error = project.error(tool, path=path, **arguments)
    setting = "tools.code.read_roots" if (tool, arguments) in READING else "tools.code.write_roots"
    assert error.type == "denied"
    assert setting in error.message
    assert error.details == {"path": str(secret), "concerns": ["outside"]}
    assert secret.read_text() == "secret"


def test_folders_that_are_allowed_are_reached_for_what_they_are_allowed_for(project, secret):
    """tool-registry: configuration can add write roots; without them writing is confined to the project."""
    project.allow(read_roots=(str(project.outside),))
    assert project.call("read_file", path=str(secret))["content"] == "secret"
    assert project.error("write_file", path=str(secret), content="x", overwrite=True).type == "denied"
    project.allow(read_roots=(), write_roots=(str(project.outside),))
    project.call("write_file", path=str(secret), content="x", overwrite=True)
    assert project.call("read_file", path=str(secret))["content"] == "x"


def test_a_project_that_is_itself_a_link_is_the_folder_that_it_leads_to(project):
    project.write("a.txt", "here")
    link = project.outside / "link"
    link.symlink_to(project.folder)
    project.allow(project=str(link))
    assert project.call("read_file", path="a.txt")["content"] == "here"
    assert project.call("read_file", path=str(project.folder / "a.txt"))["path"] == "a.txt"


def test_a_new_file_below_a_link_that_leads_out_is_not_written(project):
    """tool-registry: links cannot be used to escape the boundary for writing."""
    (project.folder / "folder").symlink_to(project.outside)
    (project.folder / "dangling").symlink_to(project.outside / "new.txt")
    assert project.error("write_file", path="folder/deep/new.txt", content="x").type == "denied"
    assert project.error("write_file", path="dangling", content="x").type == "denied"
    assert list(project.outside.iterdir()) == []


def test_a_file_with_another_name_elsewhere_is_not_written(project, secret):
    os.link(secret, project.folder / "innocent.txt")
    for tool, arguments in WRITING:
        error = project.error(tool, path="innocent.txt", **arguments)
        assert (error.type, error.details["concerns"]) == ("denied", ["linked"])
    assert secret.read_text() == "secret"


def test_a_file_with_another_name_elsewhere_is_read_only_if_a_person_allows_it(project, secret):
    os.link(secret, project.folder / "innocent.txt")
    assert "hard links" in project.error("read_file", path="innocent.txt").message
    assert "secret" not in str(project.error("search", path="innocent.txt", query="secret").details)
    assert project.call("search", query="secret")["matches"] == []
    with pytest.raises(ApprovalNeededError, match="hard links"):
        project.tools.run(invocation("code.read_file", {"path": "innocent.txt"}, 20.0))

    allowed = project.approved("read_file", str(project.folder / "innocent.txt"), path="innocent.txt")

    assert allowed.result.content["content"] == "secret"


@pytest.mark.parametrize(
    "name", [".env", ".env.local", "server.pem", "id.key", ".ENV", "Server.PEM", "ID.KEY", ".Env.Local"]
)
@pytest.mark.parametrize(("tool", "arguments"), READING)
def test_secrets_are_denied_in_any_case(project, name, tool, arguments):
    """tool-registry: .env, .env.*, *.pem and *.key are sensitive for read_file, list_dir and search; nobody to ask: denied."""
    project.write(f"deep/{name}/x" if tool == "list_dir" else f"deep/{name}", "hunter2")
    error = project.error(tool, path=f"deep/{name}", **arguments)
    assert error.type == "denied"
    assert "tools.code.sensitive_paths" in error.message
    assert "hunter2" not in error.message


@pytest.mark.parametrize("folder", [".ssh", ".gnupg", ".aws", ".config/gcloud"])
def test_folders_of_secrets_at_home_are_denied_even_where_home_is_allowed(project, folder):
    """tool-registry: ~/.ssh, ~/.gnupg, ~/.aws and ~/.config/gcloud are sensitive."""
    target = project.home / folder / "deep/credentials"
    target.parent.mkdir(parents=True)
    target.write_text("secret")
    project.allow(read_roots=(str(project.home),))
    for path in (f"~/{folder}/deep/credentials", str(target), str(target).replace(folder, folder.upper())):
        assert project.error("read_file", path=path).type == "denied"
    (project.folder / "notes").symlink_to(target)
    assert project.error("read_file", path="notes").type == "denied"


def test_the_home_that_the_system_knows_counts_too(project, monkeypatch):
    (project.outside / ".ssh").mkdir()
    (project.outside / ".ssh/id").write_text("secret")
    monkeypatch.setattr(
        "owlclaw_ray.tools.code.path_policy.pwd.getpwuid", lambda uid: SimpleNamespace(pw_dir=project.outside)
    )
    project.allow(read_roots=(str(project.outside),))
    assert project.error("read_file", path=str(project.outside / ".ssh/id")).type == "denied"


def test_a_secret_is_denied_under_any_name_that_leads_to_it_and_under_its_own_name_wherever_that_leads(project):
    project.write(".env", "secret")
    project.write("plain", "public")
    (project.folder / "innocent").symlink_to(".env")
    (project.folder / "x.key").symlink_to("plain")
    assert project.error("read_file", path="innocent").type == "denied"
    assert project.error("read_file", path="x.key").type == "denied"


def test_secrets_are_listed_but_not_entered_and_not_searched(project):
    project.write(".env", "secret")
    project.write("certs.pem/inner.txt", "secret")
    project.write("a.txt", "secret")
    entries = {each["path"]: each for each in project.call("list_dir", recursive=True)["entries"]}
    assert sorted(entries) == [".env", "a.txt", "certs.pem"]
    assert [name for name, each in entries.items() if each.get("sensitive")] == [".env", "certs.pem"]
    assert [each["path"] for each in project.call("search", query="secret")["matches"]] == ["a.txt"]


def test_other_paths_are_sensitive_if_the_settings_say_so(project):
    project.write(".env", "x")
    project.write("payroll.csv", "x")
    project.allow(sensitive_paths=("payroll*",))
    assert project.call("read_file", path=".env")["content"] == "x"
    assert project.error("read_file", path="payroll.csv").type == "denied"


def test_the_runtimes_own_data_is_out_of_reach_and_its_instructions_are_not_changed(project):
    project.write("data/agents/other/MEMORY.md", "secret")
    project.write("agents/coder/SOUL.md", "secret")
    project.allow(hidden=(str(project.folder / "data"),), read_only=(str(project.folder / "agents"),))
    assert project.error("read_file", path="data/agents/other/MEMORY.md").details["concerns"] == ["own_files"]
    assert project.call("read_file", path="agents/coder/SOUL.md")["content"] == "secret"
    assert project.error("write_file", path="agents/coder/SOUL.md", content="x", overwrite=True).type == "denied"
    assert [each["path"] for each in project.call("search", query="secret")["matches"]] == ["agents/coder/SOUL.md"]
    assert [each["path"] for each in project.call("list_dir")["entries"]] == ["agents"]


@pytest.mark.parametrize(
    "path", ["a\0b", "x" * 4_000, "a/" * 2_000 + "b", "\n", "~", "~root/.ssh", "..", "/", "//etc//passwd"]
)
def test_strange_paths_are_errors_of_the_tool(project, path):
    assert project.error("read_file", path=path).type in {"invalid_path", "file_not_found", "not_a_file", "denied"}


def test_a_chain_of_links_without_an_end_is_an_error_of_the_tool(project):
    (project.folder / "a").symlink_to("b")
    (project.folder / "b").symlink_to("a")
    assert project.error("read_file", path="a").type in {"denied", "file_not_found"}
    assert project.error("write_file", path="a", content="x").type in {"denied", "path_conflict"}


NAMES = st.sampled_from(
    ["a", "b", "in", "out", "up", "..", ".", ".env", ".ENV", "x.pem", "c.Key", "~", "", "deep", "é", "\u202e"]
)


@pytest.fixture(scope="module")
def maze(shared):
    shared.write("a/deep/b", "x")
    shared.write("deep/.env", "x")
    (shared.outside / "b").write_text("secret")
    (shared.folder / "out").symlink_to(shared.outside)
    (shared.folder / "up").symlink_to("..")
    (shared.folder / "a/in").symlink_to("../deep")
    return shared


@pytest.mark.property
@given(
    st.lists(NAMES, min_size=1, max_size=6),
    st.sampled_from(["", "/", "~/", "//", "./", "../", "project/../"]),
    st.sampled_from(list(Access)),
)
def test_paths_never_escape_the_roots_whatever_the_model_writes(maze, parts, start, access):
    """tool-registry: after links are followed a target must be within the allowed roots."""
    try:
        path = maze.tools.policy.permitted(start + "/".join(parts), access)
    except (ToolFailureError, ApprovalNeededError):
        return
    assert Path(os.path.realpath(path)) == path
    assert path == maze.folder or maze.folder in path.parents
    assert not any(part.lower().endswith((".pem", ".key")) or part.lower().startswith(".env") for part in path.parts)


def scope(project, tool, **arguments):
    return project.tools.target(invocation(f"code.{tool}", arguments, 20.0)).scope


def test_what_a_call_acts_on_is_where_its_path_leads_however_it_is_written(project):
    """tool-registry: permissions are kept for a tool and a normalised target scope."""
    project.write("a/b.txt", "x")
    (project.folder / "link").symlink_to("a/b.txt")
    paths = ("a/b.txt", "./a/../a/b.txt", "link", str(project.folder / "a/b.txt"))
    assert {scope(project, "read_file", path=path) for path in paths} == {str(project.folder / "a/b.txt")}


def test_what_a_command_acts_on_is_its_program_and_its_folder(project):
    """tool-registry: the scope of run_command has at least executable and cwd."""
    found = project.tools.target(invocation("code.run_command", {"argv": ["git", "status"]}, 20.0))
    assert (found.scope, found.cwd) == (f"git in {project.folder}", str(project.folder))


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("write_file", {"path": "../x", "content": ""}), ("run_command", {"argv": ["ls"], "cwd": ".."})],
)
def test_nobody_is_asked_about_what_no_word_of_theirs_would_allow(project, tool, arguments):
    outcome = project.check(tool, **arguments)
    assert outcome.checked is None
    assert outcome.result.error.type == "denied"


@pytest.mark.parametrize("arguments", [{}, {"path": 1}, {"path": "a\0"}, {"path": ""}])
def test_nobody_is_asked_about_arguments_that_do_not_fit(project, arguments):
    outcome = project.check("write_file", content="x", **arguments)
    assert outcome.checked is None
    assert outcome.result.error.type in {"invalid_arguments", "invalid_path"}


def test_a_person_can_allow_the_reading_of_a_secret_and_its_writing(project):
    """tool-registry: sensitive reads ask."""
    project.write(".env", "TOKEN=1")
    asked = project.outcome("read_file", path=".env")
    assert (asked.checked.target, asked.result.error.type) == (str(project.folder / ".env"), "denied")
    assert "tools.code.sensitive_paths" in asked.checked.reason

    assert project.approved("read_file", path=".env").result.content["content"] == "TOKEN=1"
    assert project.approved("write_file", path=".env", content="", overwrite=True).result.error is None
    assert project.approved("read_file", path="../outside/x").result.error.type == "denied"


def test_what_was_approved_does_not_hold_for_where_a_link_leads_later(project):
    project.write("a.txt", "harmless")
    project.write("b.txt", "other")
    link = project.folder / "link"
    link.symlink_to("a.txt")
    checked = project.check("write_file", path="link", content="x", overwrite=True).checked
    link.unlink()
    link.symlink_to("b.txt")

    outcome = project.approved("write_file", checked.target, path="link", content="x", overwrite=True)
    assert outcome.result.error.type == "denied"
    assert "asks for more than was approved" in outcome.result.error.message
    assert (project.folder / "b.txt").read_text() == "other"
