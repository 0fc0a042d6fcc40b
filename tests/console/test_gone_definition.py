"""The page of an agent that has run, and whose definition is gone, over the real engine."""

from __future__ import annotations

import json

from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.testing.in_process import in_process_runtime
from serve.api import build_api
from serve.surfaces import surfaces
from tests.console.conftest import Browser


async def test_an_agent_whose_definition_is_gone_still_has_a_page_with_its_runs(tmp_path):
    folder = tmp_path / "agents" / "quick"
    folder.mkdir(parents=True)
    (folder / "SOUL.md").write_text("You are calm.")
    (folder / "IDENTITY.md").write_text("# Name\n\n## My Capabilities\n- look\n")
    (folder / "agent.yaml").write_text('{"model": "scripted:script.yaml"}')
    (folder / "script.yaml").write_text(json.dumps({"rules": [{"then": {"text": "done"}}]}))
    async with in_process_runtime(agents_dir=tmp_path / "agents", data_dir=tmp_path / "data") as runtime:
        run = await runtime.trigger("quick")
        folder.rename(tmp_path / "quick")
        api = build_api(runtime, clock=SystemClock(), body_limit_bytes=9_999, surfaces=surfaces())
        async with Browser(api) as browser:
            page = await browser.get("/console/agents/quick")

    assert page.status_code == 200
    assert run.run_id in page.text
