import shutil
import sys
from pathlib import Path

import pytest

from owlclaw_ray import AgentRef, load_app
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.models.scripted.client import ScriptedClient
from owlclaw_ray.settings import load_settings
from owlclaw_ray.store.queries import JournalOfRun, RunFilter
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import in_process_runtime

EXAMPLE = Path(__file__).parents[2] / "examples" / "host_watch"
QUESTIONS = {
    "host_watch": "How were load, memory and disk of this machine?",
    "host_watch_zh": "这台机器的负载、内存和磁盘怎么样",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The example, where it may write; its module is forgotten afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    copied = shutil.copytree(EXAMPLE, tmp_path / "host_watch", ignore=shutil.ignore_patterns("reports", ".owlclaw"))
    yield copied
    sys.modules.pop("app", None)


def test_its_settings_its_app_and_its_definitions_are_good(folder):
    settings = load_settings(folder, {})
    app = load_app(settings.app, settings.folder)
    assert [each.name for each in app.registry.definitions()] == ["host_watch.write_report"]
    assert app.registry.states() == ("disk", "load", "memory", "top_processes")


def test_its_states_are_the_machines_own_figures(folder):
    registry = load_app("app:app", folder).registry
    watcher = AgentRef.parse("host_watch")
    states = {name: registry.query(name, watcher) for name in registry.states()}
    assert states["load"]["cores"] >= 1
    assert 0 < states["memory"]["used_percent"] < 100
    assert states["disk"]["total_gib"] >= states["disk"]["free_gib"] > 0  # rounded: an empty disk is free as a whole
    assert states["top_processes"][0]["rss_mib"] >= states["top_processes"][-1]["rss_mib"] > 0


async def finished_calls(runtime, run):
    entries = await runtime.store.read(JournalOfRun(DEFAULT_TENANT, run.run_id))
    finished = [entry.data for entry in entries if entry.kind is EntryKind.TOOL_FINISHED]
    assert not [data for data in finished if data.get("error")]
    return finished


def check_report(folder, calls):
    """The report is inside the folder and holds the figures that were read; return its path and the load."""
    states = [each["content"]["state"] for each in calls[:3]]
    read = {name: value for state in states for name, value in state.items() if name != "used_percent"}
    (path,) = {each["content"]["path"] for each in calls if each["tool"] == "host_watch.write_report"}
    text = Path(path).read_text(encoding="utf-8")
    assert Path(path).is_relative_to(folder)
    for name in ("load_1m", "per_core", "available_gib", "free_gib"):
        assert f"| {read[name]:g} " in text
    return path, read["per_core"]


@pytest.mark.parametrize("name", ["host_watch", "host_watch_zh"])
async def test_it_looks_reports_remembers_comes_back_and_recalls(folder, name):
    clock = ManualClock()
    settings = load_settings(folder, {})
    async with in_process_runtime(
        agents_dir=settings.agents_dir,
        data_dir=settings.data_dir,
        app=load_app(settings.app, settings.folder),
        models=[ScriptedClient(clock)],
        clock=clock,
    ) as runtime:
        definition = await runtime.agent(AgentRef.parse(name))
        assert (definition.warnings, definition.problem, definition.scripted) == ((), "", True)

        look = await runtime.trigger(name)
        assert look.result.status is RunStatus.COMPLETED, look.result.error
        calls = await finished_calls(runtime, look)
        assert [each["tool"] for each in calls[:4]] == [*["query_state"] * 3, "host_watch.write_report"]
        assert {each["tool"] for each in calls[4:]} == {"remember", "schedule_once", "log_decision"}
        report, load = check_report(folder, calls)
        assert report in look.result.final_text

        await clock.advance(6)
        await runtime.schedule_firer.fire_all_due()
        (follow_up, _) = await runtime.runs(RunFilter(DEFAULT_TENANT))
        assert follow_up.trigger.kind is TriggerKind.SCHEDULE_ONCE
        assert str(load) in follow_up.trigger.focus
        while not follow_up.status.final:
            await runtime.watch(DEFAULT_TENANT, follow_up.run_id, 1_000, 30)
            follow_up = await runtime.run(DEFAULT_TENANT, follow_up.run_id)
        assert follow_up.status is RunStatus.COMPLETED, follow_up.result.error
        assert set(follow_up.result.tools_called) == {"recall", "query_state", "log_decision"}
        assert report in follow_up.result.final_text

        answer = await runtime.trigger(name, {"question": QUESTIONS[name]})
        assert answer.result.status is RunStatus.COMPLETED, answer.result.error
        assert answer.result.tools_called == ("recall", "log_decision")
        assert report in answer.result.final_text
