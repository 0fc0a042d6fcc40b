from __future__ import annotations

import httpx
import pytest

from tests.serve.double import MemoryRuntime

OURS = "/v1/agents/assistant/memories"


async def remembered(http: httpx.AsyncClient, content: str, *tags: str) -> str:
    answer = await http.post(OURS, json={"content": content, "tags": list(tags)})
    assert answer.status_code == 201
    memory_id: str = answer.json()["memory_id"]
    return memory_id


async def test_what_a_person_has_it_remember_is_listed_and_shown(http: httpx.AsyncClient):
    memory_id = await remembered(http, "老板周五不在", "owner")

    (listed,) = (await http.get(OURS)).json()["memories"]

    assert listed == (await http.get(f"{OURS}/{memory_id}")).json()
    assert (listed["content"], listed["tags"], listed["run_id"], listed["count"]) == ("老板周五不在", ["owner"], "", 1)


async def test_memories_are_listed_page_by_page(http: httpx.AsyncClient):
    ids = [await remembered(http, f"fact {number}") for number in range(5)]
    pages, after = [], None

    while len(pages) < 3:
        page = (await http.get(OURS, params={"limit": 2} | ({"after": after} if after else {}))).json()
        pages.append([each["memory_id"] for each in page["memories"]])
        after = page["next_after"]

    assert (pages, after) == ([ids[:2], ids[2:4], ids[4:]], None)
    assert (await http.get(OURS, params={"limit": 5})).json()["next_after"] is None
    assert (await http.get(OURS, params={"after": ids[4]})).json() == {"memories": [], "next_after": None}
    gone = await http.get(OURS, params={"after": "mem_gone"})
    assert (gone.status_code, gone.json()["id"]) == (404, "mem_gone")
    assert {(await http.get(OURS, params={"limit": limit})).status_code for limit in (0, 1_001)} == {422}


async def test_an_edit_of_what_is_not_there_any_more_changes_nothing(http: httpx.AsyncClient):
    memory_id = await remembered(http, "the owner is away", "owner")

    late = await http.patch(f"{OURS}/{memory_id}", json={"content": "x", "old_content": "the owner was away"})
    mistyped = await http.patch(f"{OURS}/{memory_id}", json={"content": "x", "old_content": 7, "old_tags": "owner"})
    empty = await http.patch(f"{OURS}/{memory_id}", json={"old_content": "the owner is away"})
    right = await http.patch(f"{OURS}/{memory_id}", json={"tags": [], "old_tags": ["owner"]})

    assert (late.status_code, late.json()["type"]) == (409, "urn:owlclaw:problem:memory-changed")
    assert (late.json()["memory_id"], late.json()["fields"]) == (memory_id, ["content"])
    assert [each["where"] for each in mistyped.json()["problems"]] == ["body.old_content", "body.old_tags"]
    assert empty.status_code == 422
    assert (right.json()["content"], right.json()["tags"]) == ("the owner is away", [])


async def test_the_same_key_stores_once(http: httpx.AsyncClient):
    answers = [await http.post(OURS, json={"content": "x"}, headers={"Idempotency-Key": "k"}) for _ in range(2)]

    assert answers[0].json() == answers[1].json()
    assert len((await http.get(OURS)).json()["memories"]) == 1
    assert (await http.post(OURS, json={"content": "x"}, headers={"Idempotency-Key": "a b"})).status_code == 422


async def test_a_search_gives_scores_and_says_when_the_index_was_out_of_use(
    http: httpx.AsyncClient, runtime: MemoryRuntime
):
    await remembered(http, "the owner is away", "owner")
    await remembered(http, "the owner likes tea", "owner", "tea")

    found = (await http.get(f"{OURS}/search", params={"query": "owner", "tag": ["owner", "tea"]})).json()
    explained = (await http.get(f"{OURS}/search", params={"query": "tea", "explain": True})).json()["memories"]
    runtime.memory.degraded = "the index is being made"
    degraded = (await http.get(f"{OURS}/search", params={"query": "owner", "limit": 1})).json()

    assert [(each["content"], each["score"]) for each in found["memories"]] == [("the owner likes tea", 0.5)]
    assert (found["degraded"], found["reason"]) == (False, "")
    assert found["memories"][0]["explanation"] is None
    assert (explained[0]["explanation"]["bm25"], explained[0]["explanation"]["cosine"]) == (2.5, None)
    assert (len(degraded["memories"]), degraded["degraded"], degraded["reason"]) == (1, True, "the index is being made")


async def test_a_memory_is_changed_archived_found_in_the_archive_and_removed(http: httpx.AsyncClient):
    memory_id = await remembered(http, "the owner is away")

    edited = await http.patch(f"{OURS}/{memory_id}", json={"content": "the owner is back", "tags": ["a", "a"]})
    archived = await http.post(f"{OURS}/archive", json={"memory_ids": [memory_id, "mem_none"]})
    listed = (await http.get(f"{OURS}?archived=true")).json()["memories"]
    found = (await http.get(f"{OURS}/search?query=back&archived=true")).json()["memories"]
    removed = await http.delete(f"{OURS}/{memory_id}")

    assert (edited.json()["content"], edited.json()["tags"]) == ("the owner is back", ["a"])
    assert [each["memory_id"] for each in archived.json()["memories"]] == [memory_id]
    assert [each["memory_id"] for each in listed] == [each["memory_id"] for each in found] == [memory_id]
    assert removed.json()["memory_id"] == memory_id
    for method in ("GET", "DELETE", "PATCH"):
        gone = await http.request(method, f"{OURS}/{memory_id}", json={"content": "x"})
        assert (gone.status_code, gone.json()["kind"]) == (404, "memory")


async def test_figures_and_a_new_index(http: httpx.AsyncClient):
    await remembered(http, "x")

    stats = (await http.get(f"{OURS}/stats")).json()

    assert (stats["active"], stats["archived"], stats["oldest"]) == (1, 0, stats["newest"])
    assert stats["problems"][0]["where"] == "MEMORY.md:12"
    assert (await http.post(f"{OURS}/reindex")).json() == {"indexed": 1}


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({}, "body.content"),
        ({"content": ""}, "body.content"),
        ({"content": "x" * 2_001}, "body.content"),
        ({"content": "a\0b"}, "body.content"),
        ({"content": 7}, "body.content"),
        ({"content": "x", "tags": "y"}, "body.tags"),
        ({"content": "x", "tags": ["a,b"]}, "body.tags"),
        ({"content": "x", "tags": [" a"]}, "body.tags"),
        ({"content": "x", "tags": ["a\nb"]}, "body.tags"),
        ({"content": "x", "tags": [str(at) for at in range(11)]}, "body.tags"),
        ({"content": "x", "tag": ["y"]}, "body.tag"),
        (["x"], "body"),
    ],
)
async def test_what_cannot_be_remembered_is_refused_with_its_field(http: httpx.AsyncClient, body: object, where: str):
    refused = await http.post(OURS, json=body)

    assert refused.status_code == 422
    assert [problem["where"] for problem in refused.json()["problems"]] == [where]
    assert (await http.get(OURS)).json()["memories"] == []


@pytest.mark.parametrize("body", [{}, {"content": None}, {"tags": None}, {"memory_id": "mem_x"}])
async def test_a_change_that_changes_nothing_is_refused(http: httpx.AsyncClient, body: object):
    memory_id = await remembered(http, "x")
    assert (await http.patch(f"{OURS}/{memory_id}", json=body)).status_code == 422


@pytest.mark.parametrize("body", [{}, {"memory_ids": []}, {"memory_ids": "mem_x"}, {"memory_ids": [1]}])
async def test_archiving_needs_ids(http: httpx.AsyncClient, body: object):
    assert (await http.post(f"{OURS}/archive", json=body)).status_code == 422


async def test_bodies_that_are_no_json_and_searches_without_a_query_are_refused(http: httpx.AsyncClient):
    assert (await http.post(OURS, content=b"{")).status_code == 400
    assert (await http.get(f"{OURS}/search")).status_code == 422
    assert (await http.get(f"{OURS}/search?query=x&limit=21")).status_code == 422


async def test_files_that_cannot_be_used_are_a_problem_that_may_pass(http: httpx.AsyncClient, runtime: MemoryRuntime):
    runtime.memory.broken = "the memory files of assistant cannot be used: Permission denied"

    answer = await http.get(OURS)

    assert (answer.status_code, answer.json()["type"]) == (503, "urn:owlclaw:problem:memory-unavailable")
    assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize("path", ["", "/search?query=x", "/stats", "/mem_x"])
async def test_memories_of_an_unknown_agent_are_not_found(http: httpx.AsyncClient, path: str):
    assert (await http.get(f"/v1/agents/nobody/memories{path}")).status_code == 404


async def test_who_has_a_memory_changed_is_passed_on(http: httpx.AsyncClient, runtime: MemoryRuntime):
    memory_id = (await http.post(f"{OURS}?by=ana", json={"content": "the owner is away"})).json()["memory_id"]
    await http.patch(f"{OURS}/{memory_id}?by=ben", json={"tags": ["owner"]})
    await http.post(f"{OURS}/archive?by=cay", json={"memory_ids": [memory_id]})
    await http.delete(f"{OURS}/{memory_id}?by=dan")
    await http.post(f"{OURS}/reindex")

    assert runtime.memory.by == ["ana", "ben", "cay", "dan", ""]
    assert (await http.post(f"{OURS}?by={'x' * 201}", json={"content": "y"})).status_code == 422


TEXT = "## mem_1 · 2026-11-03T09:30:00+00:00\n\n机器很闲\n\n---\n".encode()
FILE = "/v1/agents/assistant/memory.md"


async def test_the_whole_text_is_read_and_put_back_with_its_etag(http: httpx.AsyncClient, runtime: MemoryRuntime):
    empty = await http.get(FILE)
    assert (empty.status_code, empty.content) == (200, b"")

    first = await http.put(FILE, content=TEXT, headers={"If-Match": empty.headers["ETag"]}, params={"by": "ana"})
    read = await http.get(FILE)
    assert (first.status_code, first.json(), read.content) == (200, {"put_back": []}, TEXT)
    assert read.headers["Content-Type"] == "text/markdown; charset=utf-8"
    assert read.headers["ETag"] == first.headers["ETag"] != empty.headers["ETag"]
    assert runtime.memory.by == ["ana"]


async def test_an_archive_is_read_and_what_it_lacks_is_added(http: httpx.AsyncClient, runtime: MemoryRuntime):
    archive = "/v1/agents/assistant/memory.archive.md"
    empty = await http.get(archive)

    put = await http.put(archive, content=TEXT, params={"by": "ana"})

    assert (empty.status_code, empty.content) == (200, b"")
    assert (put.status_code, put.json()) == (200, {"added": ["mem_9"]})
    assert (await http.get(archive)).content == TEXT
    assert runtime.memory.by == ["ana"]
    assert (await http.put(archive, content=b"")).status_code == 422
    assert (await http.put("/v1/agents/nobody/memory.archive.md", content=TEXT)).status_code == 404


@pytest.mark.parametrize("etag", ['"1-0123456789abcdef0123456789abcdef"', "*", "W/x", ""])
async def test_a_text_that_was_made_from_another_is_refused_and_changes_nothing(http: httpx.AsyncClient, etag: str):
    await http.put(FILE, content=TEXT)

    refused = await http.put(FILE, content=b"mine", headers={"If-Match": etag})

    assert (refused.status_code, refused.json()["type"]) == (412, "urn:owlclaw:problem:memory-text-changed")
    assert (await http.get(FILE)).content == TEXT


async def test_a_text_without_an_etag_says_what_was_put_back_and_one_that_is_too_large_is_refused(
    http: httpx.AsyncClient,
):
    memory_id = await remembered(http, "the owner is away")
    assert (await http.put(FILE, content=TEXT)).json() == {"put_back": [memory_id]}

    large = await http.put(FILE, content=b"x" * 5_001)

    assert (large.status_code, large.json()["type"]) == (413, "urn:owlclaw:problem:memory-too-large")
    assert (large.json()["size_bytes"], large.json()["limit_bytes"]) == (5_001, 5_000)
    assert (await http.put("/v1/agents/nobody/memory.md", content=b"\n")).status_code == 404
    empty = await http.put(FILE, content=b"")
    assert empty.status_code == 422
    assert "one line feed" in empty.text
