"""What the runtime writes below its data folder is for its user only, whatever the umask."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from stat import S_IMODE

import pytest

from actors.attempt_markers import AttemptId, AttemptMarkers
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.artifact import Artifact
from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.ids import ArtifactId, MemoryId
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.settings import load_settings
from owlclaw_ray.testing.in_process import in_process_runtime
from owlclaw_ray.tools.artifacts import ArtifactFolder
from serve import ray_output
from serve.pid_file import PidFile
from serve.preflight import check_data_dir, check_store, exclusive_data_dir
from tests.definitions.writing import write_definition

AGENT = AgentRef.parse("assistant:客户")


@pytest.fixture(params=[0o000, 0o022])
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def rights(folder: Path) -> dict[str, str]:
    """Return all that is open to others in a folder, itself included, links not followed."""
    return {
        str(path): f"{S_IMODE(path.lstat().st_mode):04o}"
        for path in (folder, *folder.rglob("*"))
        if not path.is_symlink() and path.lstat().st_mode & 0o077
    }


async def test_a_runtime_that_remembers_leaves_nothing_open_to_others(umask, tmp_path):
    write_definition(tmp_path / "agents" / "assistant", agent="model: scripted:echo\n")
    data_dir = tmp_path / "deep" / "data"

    async with in_process_runtime(agents_dir=tmp_path / "agents", data_dir=data_dir) as runtime:
        await runtime.trigger("assistant", focus="disk")
        for number in range(3):
            remembered = Memory(MemoryId(f"mem_{number}"), f"fact {number}", (), SystemClock().now(), "")
            await asyncio.to_thread(runtime.indexed_memory.remember, AGENT, remembered)
        await asyncio.to_thread(runtime.indexed_memory.recall, AGENT, "fact", 5, ())
        assert (data_dir / "owlclaw.db-wal").exists()
        assert list(data_dir.rglob("_transactions/*"))
        assert rights(data_dir) == {}

    assert rights(data_dir) == {}


def test_what_a_start_writes_is_not_open_to_others(umask, tmp_path):
    settings = load_settings(tmp_path, {})
    data_dir = settings.data_dir
    check_data_dir(settings)
    logs = tmp_path / "session" / "logs"
    logs.mkdir(parents=True)
    (logs / "worker.err").write_text("")

    with exclusive_data_dir(data_dir), ray_output.aside(data_dir / "ray.log"):
        check_store(settings)
        PidFile(os.getpid(), "http://127.0.0.1:1", SystemClock().now()).write(data_dir)
        (data_dir / "logs").symlink_to(logs)
        ray_output.keep_logs(data_dir / "logs")
        AttemptMarkers(data_dir, SystemClock()).begin(AttemptId("try_1"))
        ArtifactFolder(data_dir).put(AGENT, Artifact(ArtifactId(f"art_{'0' * 26}"), "text/plain; charset=utf-8", b"x"))

    assert (data_dir / "logs" / "worker.err").is_file()
    assert (data_dir / "owlclaw.db").is_file()
    assert rights(data_dir) == {}


def test_a_data_folder_of_an_older_version_is_closed(tmp_path):
    settings = load_settings(tmp_path, {})
    settings.data_dir.mkdir()
    settings.data_dir.chmod(0o755)

    check_data_dir(settings)

    assert S_IMODE(settings.data_dir.stat().st_mode) == 0o700


def test_a_data_folder_that_has_the_application_in_it_is_left_as_it_is(tmp_path):
    tmp_path.chmod(0o755)
    settings = load_settings(tmp_path, {"OWLCLAW_DATA_DIR": str(tmp_path)})

    check_data_dir(settings)

    assert S_IMODE(tmp_path.stat().st_mode) == 0o755


async def test_a_store_elsewhere_is_closed_and_the_folder_of_others_is_not(umask, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    settings = load_settings(tmp_path, {"OWLCLAW_STORE_URL": f"sqlite:///{shared}/other.db"})

    check_store(settings)

    assert rights(shared) == {str(shared): "0755"}
