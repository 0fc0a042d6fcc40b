"""Artifacts as files: what every home promises, and what else is in the folder."""

import os
from datetime import timedelta

import pytest

from owlclaw_ray.tools.artifacts import ArtifactFolder
from tests.contracts.artifact_home_contract import NOW, TRADER, ArtifactHomeContract, artifact, ids


@pytest.fixture
def home(tmp_path):
    return ArtifactFolder(tmp_path)


@pytest.fixture
def put(home, tmp_path):
    def store(agent, stored, hours):
        home.put(agent, stored)
        [path] = (tmp_path / "agents" / agent.folder / "artifacts").glob(f"{stored.artifact_id}.*")
        at = (NOW - timedelta(hours=hours)).timestamp()
        os.utime(path, (at, at))
        return path

    return store


class TestArtifactFolder(ArtifactHomeContract):
    pass


def test_what_is_no_artifact_is_neither_listed_nor_removed(home, put, tmp_path):
    path = put(TRADER, artifact(1), hours=9)
    others = [path.with_name(name) for name in ("notes.txt", f"{path.stem}.exe", f"{path.stem}.txt.new", "art_1.txt")]
    for each in others:
        each.write_text("mine")
        os.utime(each, (0, 0))
    secret = tmp_path / "secret"
    secret.write_text("s")
    link = path.with_name(f"art_{7:026x}.txt")
    link.symlink_to(secret)
    os.utime(link, (0, 0), follow_symlinks=False)

    assert ids(home.listing(TRADER, 10)) == [artifact(1).artifact_id]
    assert home.expire(TRADER.tenant, NOW) == 1
    assert all(each.exists() for each in (*others, secret, link))


def test_what_cannot_be_removed_does_not_keep_the_rest(home, put, monkeypatch, caplog):
    stuck = put(TRADER, artifact(1), hours=5)
    put(TRADER, artifact(2), hours=5)
    real = type(stuck).unlink

    def unlink(path, *, missing_ok):
        if path.name == stuck.name:
            raise PermissionError("no")
        real(path, missing_ok=missing_ok)

    monkeypatch.setattr(type(stuck), "unlink", unlink)

    assert home.expire(TRADER.tenant, NOW) == 1
    assert str(stuck) in caplog.text
