"""Where the processes of a runtime keep artifacts, by what they are told."""

from __future__ import annotations

from msgspec.structs import replace

from actors.artifacts import artifact_home, storing_seconds
from owlclaw_ray.domain.artifact import LargeArtifacts
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.tools.artifact_home import STORING_SECONDS
from owlclaw_ray.tools.fsspec_artifacts import OBJECT_SECONDS
from tests.actors.plans import plan_in
from tests.contracts.artifact_home_contract import TRADER, artifact


def test_what_one_process_stores_at_the_url_another_one_reads_there(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    plans = [
        replace(plan_in(tmp_path / node).worker, large_artifacts=LargeArtifacts(f"file://{shared}", 4)) for node in "ab"
    ]
    here, there = (artifact_home(plan, ManualClock()) for plan in plans)

    here.put(TRADER, artifact(1, content=b"12345"))
    here.put(TRADER, artifact(2, content=b"1234"))

    assert there.get(TRADER, artifact(1).artifact_id).content == b"12345"
    assert [each.artifact_id for each in there.listing(TRADER, 9)] == [artifact(1).artifact_id]


def test_who_kills_a_worker_leaves_it_the_time_to_store_what_it_may_have_to(tmp_path):
    plan = plan_in(tmp_path).worker
    large = LargeArtifacts("s3://bucket", 4)

    assert storing_seconds(plan) == 0
    assert storing_seconds(replace(plan, stored_artifact_bytes=9)) == STORING_SECONDS
    assert (
        storing_seconds(replace(plan, stored_artifact_bytes=9, large_artifacts=large))
        == STORING_SECONDS + OBJECT_SECONDS
    )
