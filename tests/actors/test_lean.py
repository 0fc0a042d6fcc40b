"""What the processes of actors do not load, each of which there may be hundreds of."""

import json
import subprocess
import sys

import pytest
import ray

from actors.remote import DIRECTORY, GATEWAY, KEEPER, ROOT, SCHEDULER, find, full_name
from tests.actors.conftest import calls
from tests.actors.test_runs_on_ray import DONE

pytestmark = pytest.mark.ray

SHOW = "import json, sys; print(json.dumps(sorted(sys.modules)))"
PROCESS = (
    "import ray; from types import SimpleNamespace as Of; "
    "ray._private.worker.global_worker = Of(actor_id=ray.ActorID({}))"
)
ACTOR, TASK = PROCESS.format("bytes(16)"), PROCESS.format("bytes([255]) * 16")
"""What modules see of Ray in the process of an actor, and of a task, when they are imported."""
CONTEXT = "from ray._private import serialization; serialization.SerializationContext(None)"
"""What Ray makes for the first message."""
LIBRARIES = {"numpy", "pyarrow", "starlette", "pydantic"}


def modules_after(statement):
    command = [sys.executable, "-c", f"{statement}; {SHOW}"]
    return set(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def test_an_agent_actor_loads_nothing_beyond_ray_but_the_engine_msgspec_and_orjson():
    lives = "import actors.agent; from actors.logs import LogPlan, configure; configure(LogPlan())"
    added = modules_after(lives) - modules_after("import ray")

    packages = {name.partition(".")[0] for name in added} - set(sys.stdlib_module_names)
    assert packages == {"actors", "msgspec", "owlclaw_ray", "orjson"}


def test_the_process_of_an_actor_imports_no_library_whose_objects_it_does_not_send():
    assert modules_after(f"{ACTOR}; import actors.agent; {CONTEXT}") & LIBRARIES == set()


def test_a_library_that_is_imported_before_the_first_message_can_be_sent_as_ever():
    sends = "from ray import cloudpickle; assert pyarrow.Table in cloudpickle.CloudPickler.dispatch"

    modules_after(f"{ACTOR}; import pyarrow, actors.agent; {CONTEXT}; {sends}")


@pytest.mark.parametrize("process", ["import ray", TASK], ids=["program", "task"])
def test_programs_and_tasks_that_load_ours_can_send_whatever_ray_can(process):
    assert modules_after(f"{process}; import actors.agent; {CONTEXT}") >= LIBRARIES


@pytest.mark.parametrize("part", [ROOT, KEEPER, GATEWAY, DIRECTORY, SCHEDULER])
def test_no_part_of_a_runtime_that_works_has_loaded_arrow_and_what_comes_with_it(trial, part):
    agent = trial.define(f"lean-{part}", calls(("trial.look", {})), DONE)
    assert trial.client.submit(agent, wait=60)["status"] == "completed"

    def modules(_):
        return [*sys.modules]

    loaded = ray.get(find(part, trial.plan.namespace).__ray_call__.remote(modules))

    assert {"actors.remote_actor"} <= {*loaded}
    assert {"numpy", "pyarrow", "pydantic.v1"} & {*loaded} == set()


def test_a_handle_that_somebody_else_makes_beside_ours_is_whole(trial):
    part, namespace = full_name(KEEPER), trial.plan.namespace

    ours = find(KEEPER, namespace)

    assert ray.get(ours.__ray_call__.remote(lambda _: "answers")) == "answers"
    assert ray.get_actor(part, namespace=namespace).ready


def test_a_root_watches_over_the_actors_of_serve_without_loading_it(trial):
    def watched(root):
        return [*root._serve._known], [*sys.modules]

    actors: list[str] = []
    while not actors:  # until its first look at them
        actors, modules = ray.get(find(ROOT, trial.plan.namespace).__ray_call__.remote(watched))

    assert any("CONTROLLER" in each for each in actors)
    assert {"ray.serve", "fastapi"} & {*modules} == set()
