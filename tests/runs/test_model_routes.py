"""Which models a run asks, by its type of task."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.approval import ApprovalDecision, Decision
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.errors import ModelRefusedError
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.store.queries import ApprovalFilter, JournalOfRun, LedgerFilter
from owlclaw_ray.testing.in_process import in_process_runtime
from tests.worlds import Model, asks, says

WATCH = AgentRef.parse("watch")
SHARED = Defaults(routes=(("summary", ("house/small", "house/other")), ("trade", ("house/large",))))


class Answering(Model):
    """A client that answers in the name of the model that is asked; those in `down` refuse."""

    down: tuple[str, ...] = ()

    async def complete(self, request, model):
        if model in self.down:
            raise ModelRefusedError("no")
        return replace(await super().complete(request, model), model=model)


def skill(folder, name, task_type, focus):
    path = folder / "capabilities" / name / "SKILL.md"
    path.parent.mkdir(parents=True)
    text = f"---\nname: {name}\ndescription: about {focus}\nowlclaw: {{focus: [{focus}], task_type: {task_type}}}\n---\nDo it.\n"
    path.write_text(text)


@pytest.fixture
def ask(agents, tmp_path):
    """Runs a trigger of the agent; returns the run, the data of its model calls, and of its prompt."""

    async def asked(model, trigger, defaults=SHARED):
        options = {"agents_dir": agents.folder, "data_dir": tmp_path / "data", "models": [model], "defaults": defaults}
        async with in_process_runtime(**options) as runtime:
            run = await runtime.outcome(await runtime.submit(WATCH, trigger))
            where = LedgerFilter(DEFAULT_TENANT, run_id=run.run_id, kind=LedgerKind.MODEL_CALL)
            calls = [each.record.data for each in await runtime.ledger(where)]
            entries = await runtime.store.read(JournalOfRun(DEFAULT_TENANT, run.run_id))
            return run, calls, next(each.data for each in entries if each.kind is EntryKind.PROMPT_BUILT)

    return asked


def trigger(task_type="", focus=""):
    return Trigger(TriggerKind.API, None, focus, task_type=task_type)


def answering(*down):
    model = Answering(lambda request: says("done"))
    model.down = down
    return model


@pytest.mark.parametrize(
    ("said", "own", "expected"),
    [
        (trigger(), {}, ("own/model", None)),
        (trigger("unheard"), {}, ("own/model", None)),
        (trigger("trade"), {}, ("house/large", "trigger")),
        (trigger("", "figures"), {}, ("house/small", "skill report")),
        (trigger("trade", "figures"), {}, ("house/large", "trigger")),
        (trigger("unheard", "figures"), {}, ("house/small", "skill report")),
        (trigger("trade"), {"trade": "own/large"}, ("own/large", "trigger")),
        (trigger("summary"), {"trade": "own/large"}, ("house/small", "trigger")),
    ],
)
async def test_the_trigger_goes_before_the_skill_and_the_definition_before_the_settings(
    agents, ask, said, own, expected
):
    skill(agents.define(model="own/model", routes=own), "report", "summary", "figures")
    model = answering()
    run, calls, prompt = await ask(model, said)
    asked, by = expected

    assert [call["model"] for call in calls] == [asked]
    assert (run.result.model, prompt["model"], model.requests[0].model.chain[0]) == (asked, asked, asked)
    assert calls[0].get("route", {}).get("by") == by


async def test_a_type_of_task_has_fallbacks_of_its_own(agents, ask):
    agents.define(model="own/model", fallback=["own/second"])
    _, calls, prompt = await ask(answering("house/small"), trigger("summary"))

    assert calls[0]["model"] == "house/other"
    assert calls[0]["route"] == {"task_type": "summary", "by": "trigger"}
    assert prompt["route"]["models"] == ["house/small", "house/other"]


async def test_a_run_that_is_taken_over_asks_the_models_that_it_began_with(agents, tmp_path):
    agents.define(model="own/model", routes={"trade": ["own/large"]}, permissions={"ask": ["log_decision"]})

    def decide(request):
        return says("done") if len(request.messages) > 1 else asks(("log_decision", '{"reasoning": "x"}'))

    model = Answering(decide)
    folders = {"agents_dir": agents.folder, "data_dir": tmp_path / "data", "models": [model]}
    async with in_process_runtime(**folders) as runtime:
        accepted = await runtime.submit(WATCH, trigger("trade"))
        while not (waiting := await runtime.approvals(ApprovalFilter(DEFAULT_TENANT))):
            await asyncio.sleep(0)
        agents.define(model="own/model", routes={"trade": ["own/other"]}, permissions={"ask": ["log_decision"]})
        await runtime.crash_hosts()
        approval_id = waiting[0].request.approval_id
        await runtime.decide(DEFAULT_TENANT, approval_id, ApprovalDecision(Decision.ALLOW_ONCE))
        run = await runtime.outcome(accepted)

    assert [request.model.chain for request in model.requests] == [("own/large",)] * 2
    assert run.result.model == "own/large"
