"""Values at the edge of what requests may hold."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.wire import moment

TRIGGERS = "/v1/agents/assistant/triggers"


@given(st.datetimes(timezones=st.sampled_from([UTC])))
def test_what_the_api_writes_as_a_time_it_reads_as_the_same(at: datetime):
    assert moment(at.isoformat()) == at
    assert moment(at.isoformat().replace("+00:00", "z").replace("T", "t")) == at


@pytest.mark.parametrize(
    "text",
    [
        "0.5",
        "1762162200",
        "2026-11-03",
        "2026-11-03T09:30:00",
        "2026-11-03T09:30Z",
        "20261103T093000Z",
        "2026-11-03 09:30:00Z",
        "2026-11-03T09:30:60Z",
        "2026-02-30T09:30:00Z",
        "0001-01-01T00:00:00+23:00",
        "9999-12-31T23:59:59-23:00",
        "\uff12026-11-03T09:30:00Z",
        "",
    ],
)
async def test_what_is_no_time_with_a_zone_is_refused(http, text):
    assert (await http.get(f"/v1/ledger?since={quote(text)}")).status_code == 422
    body = {"focus": "look", "at": text}
    assert (await http.post("/v1/agents/assistant/schedules", json=body)).status_code == 422


@pytest.mark.parametrize("priority", ["5", "5.0", "-1e1"])
async def test_a_whole_number_is_one_however_it_is_written(http, priority):
    accepted = await http.post(TRIGGERS, content=f'{{"priority": {priority}}}')

    assert (await http.get(accepted.headers["location"])).json()["priority"] == int(float(priority))


@pytest.mark.parametrize("field", ['"priority": 5.5', '"priority": true', '"callback_url": ""', '"callback_url": null'])
async def test_what_is_no_value_of_a_field_is_refused_with_its_place(http, field):
    response = await http.post(TRIGGERS, content=f"{{{field}}}")

    assert response.status_code == 422
    assert response.json()["detail"].startswith(f"body.{field.split(chr(34))[1]}: ")


@pytest.mark.parametrize("wait", ["1_0", " 1", "\uff11", "nan", "inf", "-1", "", "300.1"])
async def test_what_is_no_number_of_seconds_is_not_waited_for(http, wait):
    assert (await http.post(TRIGGERS, params={"wait": wait})).status_code == 422


@pytest.mark.parametrize("tag", ["", " a", "a ", "a,b", "a\nb", "a\u00a0b", "\u202eabc", "x" * 65])
async def test_tags_are_one_line_of_what_can_be_seen(http, tag):
    memories = "/v1/agents/assistant/memories"

    assert (await http.post(memories, json={"content": "a", "tags": [tag]})).status_code == 422
    assert (await http.post(memories, json={"content": "a", "tags": ["行情 a-b", "x" * 64]})).status_code == 201


async def test_a_denial_has_no_arguments(http):
    body = {"decision": "deny", "arguments": {}}

    assert (await http.post("/v1/approvals/apr_1/decision", json=body)).status_code == 422
