from __future__ import annotations

import httpx

from owlclaw_ray.telemetry.metrics.exposition import read


async def test_metrics_are_text_that_prometheus_reads(http: httpx.AsyncClient):
    response = await http.get("/metrics")

    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    [family] = read(response.text)
    assert [(each.name, each.labels, each.value) for each in family.samples] == [
        ("owlclaw_runs", (("status", "queued"),), 3.0)
    ]
