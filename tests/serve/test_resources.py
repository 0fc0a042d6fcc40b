from __future__ import annotations

import httpx
import pytest

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.artifact import BINARY, Artifact
from owlclaw_ray.domain.ledger import BreakKind, ChainBreak
from owlclaw_ray.domain.node import ClusterView
from owlclaw_ray.ids import ArtifactId, TenantId
from owlclaw_ray.runtime.api import Health
from owlclaw_ray.tools.artifact_home import HeldArtifact
from tests.serve.double import ARTIFACT, MemoryRuntime, node_view


@pytest.fixture
async def run_id(http: httpx.AsyncClient) -> str:
    return (await http.post("/v1/agents/assistant/triggers")).json()["run_id"]


async def test_agents_come_in_pages(http: httpx.AsyncClient):
    await http.post("/v1/agents/assistant:1/triggers")

    first = (await http.get("/v1/agents", params={"limit": 3})).json()
    second = (await http.get("/v1/agents", params={"limit": 3, "after": first["next_after"]})).json()

    assert [agent["agent"] for agent in first["agents"]] == ["assistant", "assistant:1", "broken"]
    assert first["next_after"] == "broken"
    assert ([agent["agent"] for agent in second["agents"]], second["next_after"]) == (["patient"], None)
    assert (await http.get("/v1/agents?limit=0")).status_code == 422


async def test_agents_are_listed_with_what_is_wrong_with_them(http: httpx.AsyncClient):
    agents = {agent["agent"]: agent for agent in (await http.get("/v1/agents")).json()["agents"]}

    assert list(agents) == ["assistant", "broken", "patient"]
    assert agents["assistant"]["scripted"] is True
    assert "SOUL.md: is missing" in agents["broken"]["problem"]
    assert agents["patient"]["created_at"] is None


async def test_an_agent_tells_its_state(http: httpx.AsyncClient, run_id: str):
    agent = (await http.get("/v1/agents/assistant")).json()

    assert (agent["runs"], agent["recent_outcomes"]) == (1, ["completed: 一切正常"])


@pytest.mark.parametrize(
    "path", ["", "/skills", "/memories", "/schedules", "/ledger", "/artifacts", f"/artifacts/{ARTIFACT.artifact_id}"]
)
async def test_everything_of_an_unknown_agent_is_not_found(http: httpx.AsyncClient, path: str):
    assert (await http.get(f"/v1/agents/nobody{path}")).status_code == 404


async def test_skills_are_listed_with_what_keeps_them_from_being_read(http: httpx.AsyncClient):
    found = (await http.get("/v1/agents/assistant/skills")).json()["skills"]

    assert [(each["name"], each["constraints"], each["problem"]) for each in found] == [
        ("巡检", ["2 calls in 24 hours"], ""),
        ("scan", [], "there is no program rg on the PATH"),
    ]


async def test_a_reload_answers_with_the_agent_or_with_what_is_wrong(http: httpx.AsyncClient, runtime: MemoryRuntime):
    reloaded = await http.post("/v1/agents/assistant:1/reload")
    refused = await http.post("/v1/agents/broken/reload")

    assert (reloaded.status_code, reloaded.json()["agent"]) == (200, "assistant:1")
    assert [each.agent_id for each in runtime.reloaded] == ["assistant:1"]
    assert (refused.status_code, refused.json()["problems"][0]["where"]) == (409, "agents/broken/SOUL.md")


async def test_memories_are_listed(http: httpx.AsyncClient, run_id: str):
    (memory,) = (await http.get("/v1/agents/assistant/memories")).json()["memories"]

    assert (memory["content"], memory["tags"], memory["run_id"]) == ("机器很闲", ["load"], run_id)


async def test_an_artifact_is_what_the_tool_gave(http: httpx.AsyncClient):
    response = await http.get(f"/v1/agents/assistant/artifacts/{ARTIFACT.artifact_id}")

    assert (response.status_code, response.text) == (200, "很长的结果")
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert response.headers["content-disposition"] == f'attachment; filename="{ARTIFACT.artifact_id}"'
    assert response.headers["x-content-type-options"] == "nosniff"


async def test_a_large_artifact_comes_in_parts_none_of_which_is_more_than_a_mebibyte(http, runtime, monkeypatch):
    content, asked = bytes(range(256)) * 12_000, []
    real = HeldArtifact.read

    def read(reader, start, end):
        asked.append(end - start)
        return real(reader, start, end)

    monkeypatch.setattr(HeldArtifact, "read", read)
    large = ArtifactId(f"art_{7:026x}")
    runtime._stored[AgentRef.parse("assistant"), large] = Artifact(large, BINARY, content)

    response = await http.get(f"/v1/agents/assistant/artifacts/{large}")

    assert (response.status_code, response.content) == (200, content)
    assert response.headers["content-length"] == str(len(content))
    assert asked == [1024 * 1024] * 3


async def test_artifacts_are_listed_for_their_agent(http: httpx.AsyncClient):
    response = await http.get("/v1/agents/assistant/artifacts", params={"limit": 5})

    assert response.json() == {
        "artifacts": [
            {
                "artifact_id": ARTIFACT.artifact_id,
                "media_type": "text/plain; charset=utf-8",
                "size_bytes": 15,
                "stored_at": "2026-11-04T01:00:00.000Z",
            }
        ]
    }
    assert (await http.get("/v1/agents/assistant:other/artifacts")).json() == {"artifacts": []}
    assert (await http.get("/v1/agents/assistant/artifacts?limit=0")).status_code == 422


@pytest.mark.parametrize("agent", ["assistant:other", "patient"])
async def test_an_artifact_is_its_agents_alone(http: httpx.AsyncClient, agent: str):
    response = await http.get(f"/v1/agents/{agent}/artifacts/{ARTIFACT.artifact_id}")

    assert (response.status_code, response.json()["kind"]) == (404, "artifact")


@pytest.mark.parametrize("id_", ["%2e%2e", "%2e%2e%2fMEMORY.md", "..%2f..%2fowlclaw.db", "x", "x" * 100])
async def test_a_name_that_is_no_artifacts_leads_nowhere(http: httpx.AsyncClient, id_: str):
    assert (await http.get(f"/v1/agents/assistant/artifacts/{id_}")).status_code in {404, 422}


async def test_the_ledger_is_read_by_run_agent_and_kind(http: httpx.AsyncClient, run_id: str):
    everything = (await http.get("/v1/ledger")).json()["records"]

    assert everything[0]["data"]["reasoning"] == "负载低"
    assert (await http.get("/v1/agents/assistant/ledger")).json()["records"] == everything
    assert (await http.get("/v1/ledger", params={"run": run_id, "kind": "decision"})).json()["records"] == everything
    assert (await http.get("/v1/ledger", params={"run": "run_x"})).json()["records"] == []
    assert (await http.get("/v1/agents/patient/ledger")).json()["records"] == []


async def test_the_ledger_is_read_in_pages(http: httpx.AsyncClient, run_id: str):
    await http.post("/v1/agents/assistant/triggers?wait=5")

    first = (await http.get("/v1/ledger", params={"limit": 1})).json()
    rest = (await http.get("/v1/ledger", params={"after": first["next_after"]})).json()

    assert [each["position"] for each in (*first["records"], *rest["records"])] == [1, 2]
    assert rest["next_after"] is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"since": "yesterday"},
        {"until": "2026-11-03T09:30:00"},
        {"after": "there"},
        {"tool": ""},
        {"limit": 0},
        {"kind": "x"},
    ],
)
async def test_a_question_to_the_ledger_that_is_none_is_refused_with_its_parameter(
    http: httpx.AsyncClient, wrong: dict
):
    response = await http.get("/v1/ledger", params=wrong)

    assert response.status_code == 422
    assert [each["where"] for each in response.json()["problems"]] == [f"query {name}" for name in wrong]


async def test_a_ledger_that_does_not_hold_is_told_as_such(http: httpx.AsyncClient, runtime: MemoryRuntime):
    runtime.breaks = (ChainBreak(TenantId("default"), "test", 3, "record 3 is missing", BreakKind.REMOVED),)

    told = (await http.get("/v1/ledger/verification")).json()

    assert told == {
        "holds": False,
        "chains": [{"writer": "test", "records": 0, "hash": "1"}],
        "breaks": [
            {"writer": "test", "position": 3, "kind": "removed", "record_id": None, "problem": "record 3 is missing"}
        ],
        "noted": {"heads": 0, "problems": []},
        "missing_guards": [],
    }


async def test_a_process_that_answers_is_alive(http: httpx.AsyncClient):
    response = await http.get("/healthz")

    assert (response.status_code, response.json()) == (200, {"status": "ok"})


async def test_readiness_follows_the_parts(http: httpx.AsyncClient, runtime: MemoryRuntime):
    assert (await http.get("/readyz")).status_code == 200

    runtime.healthy = Health(ready=False, parts={"store": "starting"})
    response = await http.get("/readyz")

    assert (response.status_code, response.json()["parts"]) == (503, {"store": "starting"})
    assert "retry-after" in response.headers


async def test_a_cluster_that_stands_by_is_ready_and_says_for_whom(http: httpx.AsyncClient, runtime: MemoryRuntime):
    runtime.healthy = Health(ready=True, parts={"store": "ok"}, holder="west")
    response = await http.get("/readyz")

    assert response.status_code == 200
    assert response.json() == {
        "status": "ready",
        "ready": True,
        "parts": {"store": "ok"},
        "standby": True,
        "holder": "west",
    }


async def test_nodes_are_told_with_what_they_report_and_those_that_were_lost_without(http: httpx.AsyncClient):
    response = await http.get("/v1/nodes")
    alpha, beta = response.json()["nodes"]

    assert response.status_code == 200
    assert (alpha["name"], alpha["state"], alpha["head"], alpha["parts"]) == (
        "alpha",
        "active",
        True,
        ["root", "keeper", "gateway"],
    )
    assert alpha["slots"][0] == {"name": "tool_slots", "total": 4.0, "available": 3.0}
    assert alpha["report"]["load"]["store_seconds"] == 0.001
    assert alpha["report"]["variables"][1] == {"name": "RAY_AUTH_TOKEN", "value": "hash 1"}
    assert alpha["clock"] == {"skew": 0.001, "uncertainty": 0.0005}
    assert (beta["state"], beta["problem"], beta["report"]) == ("lost", "missed heartbeats", None)
    lease = response.json()["lease"]
    assert {**lease, "others": []} == {"cluster": "east", "held": True, "generation": 3, "holder": "", "others": []}
    assert [(each["cluster"], each["version"], each["schema"]) for each in lease["others"]] == [
        ("west", "0.0.9", "0015")
    ]


@pytest.mark.parametrize("name", ["alpha", "id-of-alpha", "id-of-a", "all"])
async def test_a_node_is_drained_by_its_name_its_id_or_the_beginning_and_taken_back(http: httpx.AsyncClient, name: str):
    drained = await http.post(f"/v1/nodes/{name}/drain")
    again = await http.post(f"/v1/nodes/{name}/drain")
    listed = await http.get("/v1/nodes")
    back = await http.post(f"/v1/nodes/{name}/undrain")

    assert (drained.status_code, back.status_code) == (202, 200)
    assert [(node["name"], node["state"]) for node in drained.json()["nodes"]] == [("alpha", "draining")]
    assert drained.json()["nodes"][0]["report"]["load"]["agents"] == 5
    assert again.json() == drained.json()
    assert [node["state"] for node in listed.json()["nodes"]] == ["draining", "lost"]
    assert [node["state"] for node in back.json()["nodes"]] == ["active"]


@pytest.mark.parametrize("name", ["gamma", "beta"])
@pytest.mark.parametrize("what", ["drain", "undrain"])
async def test_a_node_that_is_not_there_or_lost_is_not_drained(http: httpx.AsyncClient, name: str, what: str):
    response = await http.post(f"/v1/nodes/{name}/{what}")

    assert response.status_code == 404
    assert response.json()["detail"] == f"there is no node '{name}'"


async def test_a_name_that_means_several_nodes_drains_none(http: httpx.AsyncClient, runtime: MemoryRuntime):
    runtime.cluster = ClusterView((node_view(), node_view("alps")))

    response = await http.post("/v1/nodes/10.0.0.1/drain")

    assert response.status_code == 422
    assert "several nodes: alpha, alps" in response.json()["detail"]
    assert not runtime.drained
