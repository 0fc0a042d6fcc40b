from __future__ import annotations

from datetime import UTC, datetime, timedelta

from owlclaw_ray.domain.ledger import NotedHead
from owlclaw_ray.ids import TenantId
from owlclaw_ray.ledger.chain_heads import ChainHeadFolder, read_heads

NOW = datetime(2026, 11, 3, 9, 30, tzinfo=UTC)


def head(position: int, tenant: str = "default") -> NotedHead:
    return NotedHead(NOW + timedelta(seconds=position), TenantId(tenant), "keeper@host", position, f"{position:064x}")


def test_only_what_is_new_is_added(tmp_path):
    file = ChainHeadFolder(tmp_path).writer("keeper@host")

    for heads in ([head(1)], [head(1), head(4, "other")], [head(1), head(4, "other")], [head(2), head(4, "other")]):
        file.note(heads)

    noted = ChainHeadFolder(tmp_path).load()
    assert noted.heads == (head(1), head(4, "other"), head(2))
    assert noted.problems == ()


def test_a_file_is_bounded_and_keeps_the_last_head_of_every_chain(tmp_path, monkeypatch):
    monkeypatch.setattr("owlclaw_ray.ledger.chain_heads._LARGEST", 2_000)
    file = ChainHeadFolder(tmp_path).writer("keeper@host")
    file.note([head(1, "quiet")])

    for position in range(1, 101):
        file.note([head(position), head(1, "quiet")])
        [path] = (tmp_path / "ledger-heads").iterdir()
        assert path.stat().st_size <= 2_000
        assert path.stat().st_mode & 0o777 == 0o600

    last = {each.tenant: each for each in ChainHeadFolder(tmp_path).load().heads}
    assert last == {"default": head(100), "quiet": head(1, "quiet")}


def test_a_writer_that_begins_again_knows_what_it_noted(tmp_path):
    ChainHeadFolder(tmp_path).writer("keeper@host").note([head(3)])

    ChainHeadFolder(tmp_path).writer("keeper@host").note([head(3)])

    assert ChainHeadFolder(tmp_path).load().heads == (head(3),)


def test_each_writer_has_a_file_of_its_own_whatever_its_name(tmp_path):
    ChainHeadFolder(tmp_path).writer("../猫/1").note([head(3)])
    ChainHeadFolder(tmp_path).writer("keeper@host").note([head(4)])

    assert len(list((tmp_path / "ledger-heads").iterdir())) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["ledger-heads"]


def test_a_file_that_cannot_be_read_is_said(tmp_path):
    (tmp_path / "ledger-heads" / "a.jsonl").mkdir(parents=True)

    noted = ChainHeadFolder(tmp_path).load()

    assert noted.heads == ()
    assert "a.jsonl cannot be read: Is a directory" in noted.problems[0]


def test_of_an_endless_file_the_beginning_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("owlclaw_ray.ledger.chain_heads._MAXIMUM", 1_000)
    file = ChainHeadFolder(tmp_path).writer("keeper@host")
    for position in range(1, 20):
        file.note([head(position)])
    [path] = (tmp_path / "ledger-heads").iterdir()

    noted = read_heads(path)

    assert noted.heads[0] == head(1)
    assert 3 < len(noted.heads) < 19
    assert noted.problems == (f"{path} is larger than 1,000 bytes: what is beyond was not compared",)
