"""What agents remember where no folder is shared: two clusters with data folders of their own and one PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import Installation

pytestmark = [pytest.mark.ray, pytest.mark.postgres, pytest.mark.long]

PUMP, HARBOUR = "The pump fails at nine.", "The harbour closes at six."
TURNS = [
    {"tool_calls": [{"name": "remember", "arguments": {"content": PUMP, "tags": ["pump"]}}]},
    {"tool_calls": [{"name": "recall", "arguments": {"query": "when does the harbour close"}}]},
    {"text": "done"},
]


@pytest.fixture
def clusters(postgres_url: str, tmp_path: Path) -> Iterator[list[Installation]]:
    made = []
    for name in ("east", "west"):
        (tmp_path / name).mkdir()
        installation = Installation(tmp_path / name)
        installation.define("watch", {"turns": TURNS})
        settings = yaml.safe_load((installation.folder / "owlclaw.yaml").read_text())
        settings |= {"store_url": postgres_url, "memory": {"embedder": "none"}}
        (installation.folder / "owlclaw.yaml").write_text(yaml.safe_dump(settings))
        made.append(installation)
    yield made
    for installation in made:
        if installation.process is not None and installation.process.poll() is None:
            installation.interrupt()


def test_what_is_remembered_with_one_data_folder_is_recalled_with_another(clusters):
    east, west = clusters
    east.up()
    west.up()
    with east.client() as at_east, west.client() as at_west:
        at_west.remember("watch", HARBOUR)
        run = at_west.submit("watch", wait=60)
        ended = at_east.run(run["run_id"], events=True)
        found = [at.search_memories("watch", "when does the pump fail", 1) for at in (at_east, at_west)]
        text, etag = at_east.memory_text("watch")
        at_east.put_memory_text("watch", text.replace(b"at six", b"at seven"), etag)
        edited = at_west.search_memories("watch", "harbour", 1)

    remembered, recalled = [each["data"] for each in ended["events"] if each["kind"] == "tool_finished"]
    assert remembered["content"]["memory_id"]
    assert recalled["content"]["memories"][0]["content"] == HARBOUR
    assert [(each["memories"][0]["content"], each["degraded"]) for each in found] == [(PUMP, False)] * 2
    assert [each["content"] for each in edited["memories"]] == ["The harbour closes at seven."]
    assert not list(east.folder.parent.rglob("MEMORY*.md"))
    assert [len(list(each.folder.glob(".owlclaw/agents/*/*/index"))) for each in clusters] == [1, 1]
