"""Environments of real processes, as others see them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from actors.secrets import kept_back

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have no /proc")
SECRET = "swordfish-4711"
ERASING = """
import os, sys
from actors.secrets import erase
erase(["SHOP_KEY", "EMPTY", "NOT_SET"])
print(os.environ["SHOP_KEY"], os.popen("printenv SHOP_KEY").read().strip(), flush=True)
sys.stdin.read()
"""


def environment(**more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), "LAST": "z", **more}  # noqa: TID251


def test_what_is_erased_is_not_seen_from_outside_and_stays_where_programs_look_for_it():
    given = environment(SHOP_KEY=SECRET, EMPTY="", SHOP="plain")
    with subprocess.Popen(
        [sys.executable, "-c", ERASING], env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        seen = Path(f"/proc/{process.pid}/environ").read_bytes()
        process.communicate("")

    assert said.split() == [SECRET, SECRET]
    assert SECRET.encode() not in seen
    assert b"SHOP=plain\0" in seen
    assert b"LAST=z\0" in seen


OTHERS = """
import os, subprocess, sys
from actors.secrets import shut
if sys.argv[1] == "shut":
    shut()
looked = subprocess.run(["cat", f"/proc/{os.getpid()}/environ"], capture_output=True, env={"PATH": "/usr/bin:/bin"})
print(b"swordfish" in looked.stdout)
"""


@pytest.mark.parametrize(("how", "seen"), [("open", "True"), ("shut", "False")])
def test_other_programs_of_the_same_user_see_nothing_of_a_process_that_is_shut(how: str, seen: str):
    nobody = 65534 if os.geteuid() == 0 else None
    command, given = [sys.executable, "-c", OTHERS, how], environment(SHOP_KEY=SECRET)
    try:
        said = subprocess.run(command, env=given, capture_output=True, text=True, check=True, user=nobody, group=nobody)
    except (PermissionError, subprocess.CalledProcessError):
        if nobody is None:
            raise
        pytest.skip("tests run as root, whom nothing is hidden from, and no other user may run this Python")

    assert said.stdout.strip() == seen


@pytest.mark.parametrize(
    "name",
    [
        *(
            "OPENAI_API_KEY",
            "STRIPE_KEY",
            "GITHUB_PAT",
            "SHELF_KEY",
            "OWLCLAW_STORE_URL",
            "DATABASE_URL",
            "HTTPS_PROXY",
        ),
        *("NVIDIA_NIM_API_KEY", "PYTHON_SECRET", "RAY_SECRET_TOKEN", "ANYTHING", "LANGFUSE_SECRET_KEY", "pathology"),
    ],
)
def test_what_may_be_a_secret_is_kept_back(name: str):
    assert kept_back({name: "x"}) == {name: "x"}


@pytest.mark.parametrize(
    "name",
    ["PATH", "HOME", "LC_ALL", "PYTHONPATH", "LD_LIBRARY_PATH", "RAY_num_workers_soft_limit", "RAY_AUTH_TOKEN", "PWD"],
)
def test_what_processes_need_at_their_start_is_not(name: str):
    assert kept_back({name: "x"}) == {}
