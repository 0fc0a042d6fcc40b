"""Skills and identity over Ray: read on demand by tool workers, read anew by every host."""

import pytest

from tests.actors.conftest import Trial, calls
from tests.definitions.writing import write_skill

pytestmark = pytest.mark.ray

SKILL = "---\nname: {}\ndescription: {}\n---\n{}\n"


def prompt_of(trial: Trial, run_id: str) -> dict:
    return next(each["data"] for each in trial.client.events(run_id) if each["kind"] == "prompt_built")


def test_a_run_loads_a_reference_of_its_skill_in_a_tool_worker(trial: Trial):
    reference = {"name": "refunds", "path": "references/forms.md"}
    agent = trial.define(
        "reader", calls(("internal.load_skill", reference)), {"text": "{{ result.internal__load_skill.text }}"}
    )
    path = write_skill(trial.folder / "agents" / agent, "refunds", SKILL.format("refunds", "Money.", "See the forms."))
    (path.parent / "references").mkdir()
    (path.parent / "references" / "forms.md").write_text("Form 7.")

    run = trial.client.submit(agent, wait=60)

    assert run["result"]["final_text"] == "Form 7."


def test_the_first_run_after_a_reload_uses_the_new_files(trial: Trial):
    agent = trial.define("learner", {"text": "done"})
    folder = trial.folder / "agents" / agent
    before = prompt_of(trial, trial.client.submit(agent, wait=60)["run_id"])
    for number in range(3):
        write_skill(folder, f"skill-{number}", SKILL.format(f"skill-{number}", "New.", "Do it."))
        trial.client.reload(agent)
        after = prompt_of(trial, trial.client.submit(agent, wait=60)["run_id"])
        assert after["skills"] == [f"skill-{each}" for each in range(number + 1)]

    assert before["skills"] == []
    assert [each["name"] for each in trial.client.skills(agent)] == ["skill-0", "skill-1", "skill-2"]
