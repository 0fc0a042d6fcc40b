"""JSON that some part of the runtime could not write again is refused on every route, with its place."""

from __future__ import annotations

import pytest

UNFIT = {
    "depth": ('{"a":' * 110 + "1" + "}" * 110, "deeper than 100 levels"),
    "deeper than the parser reads": ("[" * 3_000 + "]" * 3_000, "deeper than 100 levels"),
    "NaN": ("NaN", "is nan"),
    "a long integer": (str(2**64), "beyond 64 bits"),
    "an integer of nine thousand digits": ("7" * 9_000, "beyond 64 bits"),
    "half a character": ('"\\ud800"', "half a character"),
}
BODIES = {
    ("POST", "/v1/agents/assistant/triggers"): '{"payload": %s}',
    (
        "POST",
        "/v1/triggers:batch",
    ): '{"triggers": [{"agent": "assistant", "payload": 1}, {"agent": "assistant", "payload": %s}]}',
    ("POST", "/v1/agents/assistant/memories"): '{"content": %s}',
    ("POST", "/v1/agents/assistant/schedules"): '{"focus": "x", "delay_seconds": %s}',
    ("POST", "/v1/approvals/apr_1/decision"): '{"decision": "allow_once", "arguments": {"a": %s}}',
}


@pytest.mark.parametrize("kind", UNFIT)
@pytest.mark.parametrize(("method", "path"), BODIES)
async def test_what_cannot_be_kept_is_422_with_its_place_and_nothing_is_accepted(http, method, path, kind):
    document, what = UNFIT[kind]

    response = await http.request(method, path, content=BODIES[method, path] % document)

    assert response.status_code == 422, response.text
    assert response.json()["detail"].startswith("body")
    assert what in response.json()["detail"]
    assert (await http.get("/v1/runs")).json()["runs"] == []


async def test_the_deepest_payload_that_is_taken_is_listed_and_shown(http):
    payload = '{"a":' * 98 + "[]" + "}" * 98

    accepted = await http.post("/v1/agents/assistant/triggers", content=f'{{"payload": {payload}}}')

    assert accepted.status_code == 202
    run_id = accepted.json()["run_id"]
    assert (await http.get("/v1/runs")).status_code == 200
    assert (await http.get(f"/v1/runs/{run_id}?events=true")).status_code == 200
