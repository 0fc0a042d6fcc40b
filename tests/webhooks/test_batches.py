from __future__ import annotations

import pytest

from owlclaw_ray.errors import StoreUnavailableError
from tests.definitions.writing import write_definition

PATH = "/v1/triggers:batch"


async def send(installation, *triggers):
    answer = await installation.http.post(PATH, json={"triggers": triggers})
    assert answer.status_code == 200, answer.text
    return answer.json()["results"]


async def test_many_triggers_are_committed_together_and_answered_in_order(installation, monkeypatch):
    store, commits = installation.runtime._store, []
    real = store.apply

    async def apply(commands):
        commits.append(len(commands))
        return await real(commands)

    monkeypatch.setattr(store, "apply", apply)
    results = await send(installation, *({"agent": f"assistant:{n}", "payload": n} for n in range(20)))

    assert commits == [20]
    assert [each["accepted"]["agent"] for each in results] == [f"assistant:{n}" for n in range(20)]
    assert {(each["status"], each["problem"]) for each in results} == {(202, None)}
    runs = {run["run_id"]: run for run in await installation.runs()}
    assert [runs[each["accepted"]["run_id"]]["trigger"]["payload"] for each in results] == list(range(20))


async def test_each_trigger_is_answered_for_itself(installation, tmp_path):
    write_definition(tmp_path / "agents" / "broken", soul="")
    results = await send(
        installation,
        {"agent": "assistant"},
        {"agent": "nobody"},
        {"agent": "broken"},
        {"agent": "No!"},
        {"agent": "assistant", "fokus": 1, "priority": 99},
        {"payload": 1},
        17,
        {"agent": "assistant", "idempotency_key": "a b"},
        {"agent": "assistant", "callback_url": "ftp://x"},
        {"agent": "assistant", "callback_url": 3},
    )

    assert [each["status"] for each in results] == [202, 404, 409, 422, 422, 422, 422, 422, 422, 422]
    kinds = [each["problem"]["type"].rpartition(":")[2] for each in results[1:]]
    assert kinds[:4] == ["unknown-agent", "definition-error", "invalid-agent-name", "invalid-request"]
    assert kinds[4:] == ["invalid-request", "invalid-request", "invalid-request", "invalid-request", "invalid-request"]
    assert [each["where"] for each in results[4]["problem"]["problems"]] == ["body.fokus", "body.priority"]
    assert len(await installation.runs()) == 1


async def test_each_trigger_has_its_own_idempotency_key(installation):
    triggers = [{"agent": "assistant", "payload": n, "idempotency_key": f"key-{n}"} for n in range(3)]
    first = await send(installation, *triggers)
    again = await send(installation, *triggers, {"agent": "assistant", "payload": 9, "idempotency_key": "key-0"})
    twice = await send(installation, *[{"agent": "assistant", "idempotency_key": "same"}] * 2)

    ids = [each["accepted"]["run_id"] for each in first]
    assert [each["accepted"]["run_id"] for each in again[:3]] == ids
    assert {each["accepted"]["duplicate"] for each in again[:3]} == {True}
    assert (again[3]["status"], again[3]["problem"]["key"]) == (409, "key-0")
    assert [each["accepted"]["duplicate"] for each in twice] == [False, True]
    assert len(await installation.runs()) == 4


async def test_a_key_means_the_same_alone_and_in_a_batch(installation):
    (batched,) = await send(installation, {"agent": "assistant", "payload": 1, "idempotency_key": "k"})
    alone = await installation.http.post(
        "/v1/agents/assistant/triggers", json={"payload": 1}, headers={"Idempotency-Key": "k"}
    )

    assert alone.json()["run_id"] == batched["accepted"]["run_id"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 422),
        (b"{}", 422),
        (b'{"triggers": {}}', 422),
        (b'{"triggers": []}', 422),
        (b'{"triggers": [1], "more": 1}', 422),
        (b'{"triggers": [' + b",".join([b"1"] * 501) + b"]}", 422),
        (b"x" * 100_001, 413),
    ],
)
async def test_what_is_no_batch_is_refused_as_a_whole(installation, body, status):
    assert (await installation.http.post(PATH, content=body)).status_code == status


async def test_nothing_of_a_batch_is_there_if_the_store_does_not_commit(installation, monkeypatch):
    async def fail(_commands):
        raise StoreUnavailableError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(installation.runtime._store, "apply", fail)
        answer = await installation.http.post(PATH, json={"triggers": [{"agent": "assistant"}] * 2})

    assert (answer.status_code, await installation.runs()) == (503, [])
