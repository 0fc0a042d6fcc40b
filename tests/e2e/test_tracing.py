from __future__ import annotations

import httpx
import pytest

from owlclaw_ray.domain.tracing import TraceParent
from owlclaw_ray.telemetry.metrics.exposition import read
from owlclaw_ray.testing.otlp_receiver import OtlpServer
from serve.numbers import Numbers

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

CALLER = TraceParent("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
TURNS = [{"tool_calls": [{"name": "trial.act", "arguments": {"what": "first"}}]}, {"text": "done"}]
MASK = """

@app.mask_traces
def mask(value):
    import json

    return json.loads(json.dumps(value).replace("first", "[masked]"))
"""


@pytest.fixture
def receiver():
    with OtlpServer() as server:
        yield server


def of_run(run_id):
    return lambda spans: sum(span.attributes["owlclaw.run.id"] == run_id for span in spans) >= len(TURNS) + 2


def test_runs_are_traced_and_counted_and_what_a_receiver_missed_it_gets_after_a_restart(
    installation, receiver, monkeypatch
):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    app = installation.folder / "trial_app.py"
    app.write_text(app.read_text() + MASK)
    installation.define("watch", {"turns": TURNS})
    installation.up()
    url = f"http://127.0.0.1:{installation.port}/v1/agents/watch/triggers?wait=60"
    traced = httpx.post(url, headers={"traceparent": str(CALLER)}, timeout=90).json()["run_id"]
    receiver.wait_for(of_run(traced))
    spans = receiver.spans
    with installation.client() as client:
        numbers = Numbers(read(client.metrics()))
        shown = installation.owlclaw("top", "--times", "1")
        receiver.answer = lambda _: 503
        missed = client.submit("watch", wait=60)["run_id"]
    assert installation.interrupt() == 0
    receiver.batches.clear()
    receiver.answer = lambda _: 200

    installation.up()
    receiver.wait_for(of_run(missed))
    assert installation.interrupt() == 0

    assert any("traces go to otlp" in line for line in installation.said)
    [root] = [span for span in spans if span.name == "invoke_agent watch"]
    assert (root.trace_id, root.parent_id) == (CALLER.trace_id, CALLER.span_id)
    assert {span.name for span in spans} == {
        "invoke_agent watch",
        "chat scripted:script.yaml",
        "execute_tool trial.act",
    }
    assert "first" not in repr(spans)
    assert "[masked]" in repr(spans)
    assert not of_run(traced)(receiver.spans)
    by_node = numbers.by("owlclaw_runs_ended_total", ("status", "node"))
    assert [count for (status, node), count in by_node.items() if status == "completed" and node] == [1]
    assert numbers.total("owlclaw_traces_exported_total") == 1
    assert {part.partition("@")[0] for (part,), up in numbers.by("owlclaw_up", ("part",)).items() if up} == {
        "keeper",
        "directory",
        "scheduler",
        "gateway",
        "exporter",
    }
    assert "1 completed" in shown
