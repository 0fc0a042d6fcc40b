"""What a driver of a cluster has in its environment."""

import pytest

from actors.environment import attached_environment, token_file


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_a_driver_shows_the_token_that_the_user_has(home):
    assert attached_environment({}) == {}, "nobody has made one: the cluster asks for none"

    path = token_file({})
    path.parent.mkdir()
    path.write_text("t")

    assert path == home / ".ray" / "auth_token"
    assert attached_environment({}) == {"RAY_AUTH_MODE": "token"}


def test_a_driver_shows_the_token_that_a_variable_holds_or_names(home):
    (home / "token").write_text("t")

    assert attached_environment({"RAY_AUTH_TOKEN": "t"}) == {"RAY_AUTH_MODE": "token"}
    assert attached_environment({"RAY_AUTH_TOKEN_PATH": str(home / "token")}) == {"RAY_AUTH_MODE": "token"}
    assert attached_environment({"RAY_AUTH_TOKEN_PATH": str(home / "none")}) == {}


def test_what_somebody_has_set_stays(home):
    assert attached_environment({"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "t"}) == {}
