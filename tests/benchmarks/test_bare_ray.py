import subprocess
import sys

from serve.cli.connection import environment

SIGNALLED_BEFORE_RAY_STARTS = """
import os, signal, sys, types

ray = types.ModuleType("ray")
ray.init, ray.is_initialized = lambda **_: None, lambda: False
ray.serve = types.SimpleNamespace(start=lambda **_: None, run=lambda *_, **__: None)
sys.modules["ray"] = ray

from benchmarks import bare_ray

bare_ray.tempfile.mkdtemp = lambda **_: sys.argv[1]
bare_ray.ray_environment = lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM) or {}
bare_ray.serve(lambda: None)
"""


def test_a_baseline_that_is_ended_while_it_starts_leaves_no_folder_behind(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    ended = subprocess.run(
        [sys.executable, "-c", SIGNALLED_BEFORE_RAY_STARTS, str(scratch)],
        capture_output=True,
        env=environment(),
        timeout=60,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    assert not scratch.exists()
