"""internal.read_artifact: an agent reads on in its own large results, and in nobody else's."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray import AgentRef
from owlclaw_ray.domain.artifact import JSON, TEXT, Artifact
from owlclaw_ray.domain.tool import Effect, Permission, ToolClass
from owlclaw_ray.domain.tool_call import ToolInvocation
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.ids import ArtifactId, RunId, TenantId, ToolCallId
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.tools.artifact_home import HeldArtifact
from owlclaw_ray.tools.artifacts import ArtifactFolder
from owlclaw_ray.tools.composition import declared_tools
from owlclaw_ray.tools.executor import LocalExecutor
from owlclaw_ray.tools.internal.artifacts import READ_ARTIFACT, ArtifactTools
from owlclaw_ray.tools.sources import ToolSources

TRADER = AgentRef.parse("trader:AAPL")
ID = ArtifactId(f"art_{1:026x}")


class Stored:
    """An artifact store with one artifact of one agent."""

    def __init__(self, content, media_type=TEXT):
        self._artifact = Artifact(ID, media_type, content)

    def open(self, agent, artifact_id):
        assert (agent, artifact_id) == (TRADER, ID)
        return HeldArtifact(self._artifact)


def read(store, agent=TRADER, artifact_id=ID, **arguments):
    invocation = ToolInvocation(
        call_id=ToolCallId("c"),
        tool=READ_ARTIFACT,
        arguments=json.dumps({"artifact_id": artifact_id, **arguments}),
        agent=agent,
        run_id=RunId("run_1"),
        trigger=TriggerKind.API,
        effect=Effect.PURE,
        tool_class=ToolClass.QUICK,
        timeout=9.0,
        idempotency_key="c",
    )
    return LocalExecutor(ToolSources([ArtifactTools(store)]), ManualClock(), store).run_one(invocation).result


def test_every_agent_has_the_tool_and_it_only_reads():
    """tool-registry: internal tools that only read count as readonly."""
    [definition] = [each for each in declared_tools(()) if each.name == READ_ARTIFACT]

    assert definition.permission is Permission.READONLY
    assert definition.wire_name == "internal__read_artifact"


def test_a_part_is_read_and_where_it_goes_on():
    store = Stored(b"0123456789")

    assert read(store, offset=2, limit=3).content == {
        "artifact_id": ID,
        "media_type": TEXT,
        "text": "234",
        "total_bytes": 10,
        "next_offset": 5,
    }
    assert read(store, offset=7, limit=3).content["next_offset"] is None
    beyond = read(store, offset=10).content
    assert (beyond["text"], beyond["next_offset"]) == ("", None)


@given(st.text(min_size=1, max_size=300), st.integers(1, 50))
def test_the_parts_one_after_another_are_the_whole(text, limit):
    store, parts, offset = Stored(text.encode()), [], 0
    while offset is not None:
        content = read(store, offset=offset, limit=limit).content
        parts.append(content["text"])
        offset = content["next_offset"]

    assert "".join(parts) == text
    assert all(len(part) == limit for part in parts[:-1])


@given(st.text(min_size=1, max_size=40), st.data())
def test_from_any_byte_on_the_whole_character_is_read(text, data):
    offset = data.draw(st.integers(0, len(text.encode()) - 1))
    before = next(number for number in range(len(text)) if len(text[: number + 1].encode()) > offset)

    assert read(Stored(text.encode()), offset=offset, limit=3).content["text"] == text[before : before + 3]


def test_bytes_that_are_no_text_are_marked_and_passed():
    content = read(Stored(b"a\xff\xfeb"), limit=3).content

    assert (content["text"], content["next_offset"]) == ("a\ufffd\ufffd", 3)


def test_of_a_long_artifact_only_the_part_is_read():
    asked = []

    class Long(Stored):
        artifact_id, media_type, size_bytes = ID, TEXT, 10**12

        def open(self, agent, artifact_id):
            return self

        def read(self, start, end):
            asked.append((start, end))
            return b"x" * (end - start)

    content = read(Long(b""), offset=10**11, limit=100).content

    assert content["next_offset"] == 10**11 + 100
    assert asked == [(10**11 - 3, 10**11 + 400)]


@pytest.mark.parametrize("character", ["x", "\u0001", "快", "😀", '"'])
def test_what_is_read_is_never_too_large_itself(character):
    result = read(Stored((character * 20_000).encode(), JSON), limit=10_000)

    assert result.content["text"] == character * 10_000
    assert "artifact_id" not in result.metadata


@pytest.mark.parametrize(
    "other", [AgentRef.parse("trader:MSFT"), AgentRef.parse("trader"), AgentRef.parse("trader:AAPL", TenantId("b"))]
)
def test_artifacts_of_other_agents_and_tenants_do_not_exist(tmp_path, other):
    folder = ArtifactFolder(tmp_path)
    folder.put(TRADER, Artifact(ID, TEXT, b"mine"))

    refused = read(folder, agent=other)

    assert read(folder).content["text"] == "mine"
    assert (refused.content, refused.error.type) == (None, "not_found")
    assert "mine" not in refused.error.message


@pytest.mark.parametrize("id_", ["", "../../trader/artifacts/x", "art_1", f"art_{'0' * 26}/", "\u0000"])
def test_an_id_that_is_none_is_not_found(tmp_path, id_):
    assert read(ArtifactFolder(tmp_path), artifact_id=id_).error.type == "not_found"


def test_an_image_is_described_instead():
    error = read(Stored(b"\x89PNG", "image/png")).error

    assert error.type == "binary_artifact"
    assert "image/png, 4 bytes long" in error.message


@pytest.mark.parametrize("arguments", [{"limit": 10_001}, {"limit": 0}, {"offset": -1}, {"path": "x"}])
def test_wrong_arguments_are_told(arguments):
    error = read(Stored(b"x"), **arguments).error

    assert error.type == "invalid_arguments"
    assert "allowed: " in error.message
