from __future__ import annotations

import pytest

from benchmarks.exporting import export_cpu_ms
from owlclaw_ray.testing.otlp_receiver import OtlpServer


@pytest.mark.long
def test_what_a_run_takes_to_export_is_measured_on_runs_that_all_arrive():
    with OtlpServer() as receiver:
        taken = export_cpu_ms(f"{receiver.url}/v1/traces", 60, 1)

        exported = {span.attributes["owlclaw.run.id"] for span in receiver.spans}

    assert taken > 0
    assert len(exported) == 60


def test_runs_that_do_not_arrive_are_no_measurement(free_port):
    with pytest.raises(RuntimeError, match="0 of 1 traces"):
        export_cpu_ms(f"http://127.0.0.1:{free_port}/v1/traces", 1, 1)


@pytest.fixture
def free_port():
    with OtlpServer() as gone:
        url = gone.url
    return int(url.rpartition(":")[2])
