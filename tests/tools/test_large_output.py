"""Results that are too large for a model become artifacts."""

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray import AgentRef, OwlClaw
from owlclaw_ray.domain.artifact import JSON, TEXT, Artifact
from owlclaw_ray.errors import ArtifactTooLargeError, NotFoundError, QuotaReachedError, StoreUnavailableError
from owlclaw_ray.ids import ArtifactId, TenantId
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.tools.artifact_home import ARTIFACT_BYTES, ArtifactsBySize
from owlclaw_ray.tools.artifacts import ArtifactFolder
from owlclaw_ray.tools.executor import LocalExecutor
from owlclaw_ray.tools.failure import ToolFailureError
from owlclaw_ray.tools.fsspec_artifacts import artifacts_at
from owlclaw_ray.tools.large_output import INLINE_BYTES, INLINE_LIMIT, summary
from owlclaw_ray.tools.sources import ToolSources
from tests.tools.code.conftest import invocation
from tests.tools.test_sources import Adapter

CODER = AgentRef.parse("coder")


@pytest.fixture
def artifacts(tmp_path):
    return ArtifactFolder(tmp_path)


def result_of(artifacts, content):
    app = OwlClaw("demo")
    app.tool("get")(lambda: content)
    return (
        LocalExecutor(ToolSources(app.sources()), ManualClock(), artifacts).run_one(invocation("demo.get", {})).result
    )


def test_up_to_16_kib_are_given_to_the_model_as_they_are(artifacts, tmp_path):
    content = "x" * INLINE_BYTES
    result = result_of(artifacts, content)
    assert (result.content, result.metadata) == (content, {})
    assert list(tmp_path.iterdir()) == []


def test_more_is_stored_and_the_model_gets_a_summary_and_a_reference(artifacts):
    """tool-registry: output that is too large is saved as an artifact; the result has a summary and an artifact_ref."""
    content = "a" * 20_000 + "b" * 20_000
    result = result_of(artifacts, content)
    reference = result.content["artifact_ref"]
    assert reference["size_bytes"] == 40_000
    assert result.metadata == {"truncated": True, "total_bytes": 40_000, "artifact_id": reference["artifact_id"]}
    assert result.content["summary"].startswith("aaa")
    assert result.content["summary"].endswith("bbb")
    assert len(orjson.dumps(result.content)) < INLINE_BYTES
    assert artifacts.get(CODER, reference["artifact_id"]) == Artifact(reference["artifact_id"], TEXT, content.encode())


def test_json_stays_json(artifacts):
    content = {"exit_code": 0, "stdout": "文" * 10_000, "rows": list(range(100))}
    result = result_of(artifacts, content)
    shown = result.content["summary"]
    assert (shown["exit_code"], shown["rows"][:20], shown["rows"][20]) == (0, list(range(20)), "…[80 more items]")
    assert "bytes left out" in shown["stdout"]
    stored = artifacts.get(CODER, result.content["artifact_ref"]["artifact_id"])
    assert (stored.media_type, json.loads(stored.content)) == (JSON, content)


def test_a_repeated_call_stores_nothing_new(artifacts, tmp_path):
    first, second = (result_of(artifacts, "x" * 20_000) for _ in range(2))
    assert first == second
    assert len(list(tmp_path.rglob("art_*"))) == 1


def test_details_of_errors_are_bounded_too(artifacts):
    """tool-registry: large partial output of an aborted tool goes to an artifact."""

    def answer(call):
        raise ToolFailureError("command_failed", "it failed", details={"exit_code": 1, "stdout": "x" * 50_000})

    executor = LocalExecutor(ToolSources([Adapter("a.b", answer=answer)]), ManualClock(), artifacts)
    result = executor.run_one(invocation("a.b", {})).result
    assert result.error.details["summary"]["exit_code"] == 1
    assert artifacts.get(CODER, result.error.details["artifact_ref"]["artifact_id"]).media_type == JSON


def test_a_tool_that_bounds_its_results_itself_may_have_another_limit(project, artifacts):
    """tool-registry: the text of read_file is not made an artifact, because the file is there anyway."""
    project.write("a.txt", ("x" * 99 + "\n") * 400)
    executor = LocalExecutor(ToolSources([project.tools]), ManualClock(), artifacts)
    call = invocation("code.read_file", {"path": "a.txt", "max_lines": 400})
    assert project.tools.definitions()[0].metadata[INLINE_LIMIT] > 40_000
    assert executor.run_one(call).result.content["lines"] == 400


def test_no_more_than_10_mib_are_stored(artifacts):
    result = result_of(artifacts, "x" * (ARTIFACT_BYTES + 1))
    reference = result.content["artifact_ref"]
    assert (reference["size_bytes"], reference["stored_bytes"]) == (ARTIFACT_BYTES + 1, ARTIFACT_BYTES)
    assert len(artifacts.get(CODER, reference["artifact_id"]).content) == ARTIFACT_BYTES


def test_what_is_too_large_for_the_store_is_whole_at_the_url(tmp_path):
    """Nothing of it is cut, and JSON stays JSON."""
    url = tmp_path / "url"
    url.mkdir()
    home = ArtifactsBySize(ArtifactFolder(tmp_path), artifacts_at(f"file://{url}"), ARTIFACT_BYTES)
    rows = ["x" * 1_024] * (ARTIFACT_BYTES // 1_024 + 1)

    reference = result_of(home, rows).content["artifact_ref"]

    assert "stored_bytes" not in reference
    assert [each.suffix for each in url.rglob("art_*")] == [".json"]
    assert json.loads(home.get(CODER, reference["artifact_id"]).content) == rows


def test_a_result_that_cannot_be_stored_is_cut(tmp_path, caplog):
    (tmp_path / "agents").write_text("in the way")
    result = result_of(ArtifactFolder(tmp_path), "x" * 100_000)
    assert result.content.endswith("…[cut: the first 65536 of 100000 bytes]")
    assert "cannot be stored" in caplog.text


class Refusing(ArtifactFolder):
    """A place for artifacts that takes none."""

    def __init__(self, folder, error):
        super().__init__(folder)
        self._error = error

    def put(self, agent, artifact):
        raise self._error


def test_a_result_too_large_for_the_store_is_cut_and_says_what_to_do(tmp_path):
    too_large = ArtifactTooLargeError("it has 100,000 bytes, and they may have 9 (artifacts.limit_bytes)")
    result = result_of(Refusing(tmp_path, too_large), "x" * 100_000)
    assert result.content.endswith("…[cut: the first 65536 of 100000 bytes]")
    assert result.metadata["not_stored"] == f"{too_large}; ask for less, or have somebody raise that setting"


def test_a_result_for_which_the_tenant_has_no_room_is_cut_and_the_run_goes_on(tmp_path, caplog):
    full = QuotaReachedError("artifact_bytes", 90_000, 60)
    result = result_of(Refusing(tmp_path, full), "x" * 100_000)
    assert result.content.endswith("…[cut: the first 65536 of 100000 bytes]")
    why = "quota reached: the tenant may have 90,000 bytes of artifacts (artifact_bytes), and this would be more"
    assert result.metadata["not_stored"] == f"{why}; ask for less"
    assert not caplog.text


def test_a_result_is_cut_while_the_store_is_away(tmp_path, caplog):
    result = result_of(Refusing(tmp_path, StoreUnavailableError("it starts")), "x" * 100_000)
    assert result.content.endswith("…[cut: the first 65536 of 100000 bytes]")
    assert result.metadata["not_stored"] == "it starts; ask for less, or for the same later"
    assert "cannot be stored" in caplog.text


def test_an_artifact_is_its_agents_alone(artifacts):
    artifact = Artifact(ArtifactId(f"art_{'0' * 26}"), TEXT, b"secret")
    artifacts.put(CODER, artifact)
    for agent in (AgentRef.parse("other"), AgentRef.parse("coder:a"), AgentRef(TenantId("b"), CODER.agent_id)):
        with pytest.raises(NotFoundError):
            artifacts.get(agent, artifact.artifact_id)


@pytest.mark.parametrize(
    "id_", ["", "..", "../MEMORY.md", "art_../../x", "art_" + "0" * 25, "art_" + "0" * 26 + "\n", "/etc/passwd"]
)
def test_what_is_no_id_of_an_artifact_reaches_no_file(artifacts, tmp_path, id_):
    (tmp_path / "agents/default/coder").mkdir(parents=True)
    (tmp_path / "agents/default/coder/MEMORY.md").write_text("secret")
    with pytest.raises(NotFoundError):
        artifacts.get(CODER, ArtifactId(id_))


def test_a_link_in_the_place_of_an_artifact_is_not_followed(artifacts, tmp_path):
    folder = tmp_path / "agents/default/coder/artifacts"
    folder.mkdir(parents=True)
    (folder / f"art_{'0' * 26}.txt").symlink_to("/etc/passwd")
    with pytest.raises(NotFoundError):
        artifacts.get(CODER, ArtifactId(f"art_{'0' * 26}"))


VALUES = st.recursive(
    st.one_of(st.none(), st.integers(-9, 9), st.text(max_size=10), st.integers(1, 5_000).map(lambda size: "文" * size)),
    lambda inner: st.one_of(st.lists(inner, max_size=40), st.dictionaries(st.text(max_size=8), inner, max_size=40)),
    max_leaves=60,
)


@pytest.mark.property
@given(VALUES)
def test_a_summary_is_json_of_a_bounded_size(value):
    assert len(orjson.dumps(summary(value))) <= 18 * 1_024


@pytest.fixture
def project(tmp_path_factory):
    from tests.tools.code.conftest import Project

    return Project(tmp_path_factory.mktemp("project"))
