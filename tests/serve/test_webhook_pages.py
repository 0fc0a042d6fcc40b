from __future__ import annotations

import pytest

from owlclaw_ray.access.keys import KeyRequest
from owlclaw_ray.domain.principal import LOCAL


@pytest.mark.parametrize(
    ("kind", "named", "ids"),
    [("deliveries", "delivery_id", ["whd_2", "whd_1"]), ("callbacks", "callback_id", ["cb_2", "cb_1"])],
)
async def test_webhooks_and_callbacks_are_read_in_pages_to_the_last_one(http, kind, named, ids):
    first = (await http.get(f"/v1/{kind}?limit=1")).json()
    assert ([each[named] for each in first[kind]], first["next_before"]) == (ids[:1], ids[0])

    last = (await http.get(f"/v1/{kind}?limit=1&before={ids[0]}")).json()
    assert ([each[named] for each in last[kind]], last["next_before"]) == (ids[1:], None)

    whole = (await http.get(f"/v1/{kind}?limit=2")).json()
    assert ([each[named] for each in whole[kind]], whole["next_before"]) == (ids, None)
    assert (await http.get(f"/v1/{kind}?before=nothing")).status_code == 404


async def test_a_callback_of_another_agent_than_is_asked_for_is_no_place_to_go_on_from(http, runtime):
    key = (await runtime.keys.create(LOCAL, KeyRequest("ci", ("viewer",), ("agent:patient",)))).text
    theirs = {"Authorization": f"Bearer {key}"}

    assert (await http.get("/v1/callbacks?agent=patient", headers=theirs)).json()["callbacks"] == []
    assert (await http.get("/v1/callbacks?agent=patient&before=cb_2", headers=theirs)).status_code == 404
