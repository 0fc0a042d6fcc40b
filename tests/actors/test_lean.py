import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.ray

SHOW = "import json, sys; print(json.dumps(sorted(sys.modules)))"


def modules_after(statement):
    command = [sys.executable, "-c", f"{statement}; {SHOW}"]
    return set(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def test_an_agent_actor_loads_nothing_beyond_ray_but_the_engine_msgspec_and_orjson():
    lives = "import actors.agent; from actors.logs import LogPlan, configure; configure(LogPlan())"
    added = modules_after(lives) - modules_after("import ray")

    packages = {name.partition(".")[0] for name in added} - set(sys.stdlib_module_names)
    assert packages == {"actors", "msgspec", "owlclaw_ray", "orjson"}
