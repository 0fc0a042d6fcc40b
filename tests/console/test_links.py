"""No page offers its visitor a link or a form that the server then refuses them."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from msgspec.structs import replace
from starlette.routing import compile_path

from owlclaw_ray.access.keys import KeyRequest
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.lineage import ChildRole, Lineage
from owlclaw_ray.domain.principal import LOCAL, ROLES, SCOPES, VERBS, Principal, PrincipalKind, parse_scopes
from owlclaw_ray.domain.run import RunResult, RunStatus
from owlclaw_ray.domain.schedule import ScheduleRequest
from owlclaw_ray.ids import DEFAULT_TENANT, RunId, ScheduleId, TenantId
from owlclaw_ray.schedules.timetable import new_schedule
from owlclaw_ray.store.commands import CreateSchedule
from owlclaw_ray.testing.clock import ManualClock
from tests.console.conftest import issued
from tests.console.test_access import operations
from tests.console.test_admin_pages import recorded
from tests.console.test_agent_page import note
from tests.console.test_fleet import words
from tests.console.test_pages import change, journal, triggered
from tests.console.test_run_page import CALL, FOUND, built, replied
from tests.serve.double import ARTIFACT, MemoryRuntime

START = datetime(2026, 11, 26, 12, tzinfo=UTC)
OURS = "agent:patient*"
LINK = re.compile(r"<a\b.*?</a>", re.DOTALL)
NO_PAGES = {
    "/console",
    "/console/static/{name}",
    "/console/sign-in",
    "/console/sign-in/{issuer}",
    "/console/sign-in/{issuer}/callback",
}
"""What is for everybody."""
VISITORS = [
    *((name, (name,), ()) for name in ROLES),
    *((f"{scope} alone", (scope,), ()) for scope in sorted(SCOPES)),
    *(
        (f"all but {resource}", tuple(sorted(each for each in SCOPES if each.partition(":")[0] != resource)), ())
        for resource in VERBS
    ),
    *((f"{name} of some agents", (name,), (OURS,)) for name in ("viewer", "operator", "approver")),
]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def runtime(clock: ManualClock) -> MemoryRuntime:
    return MemoryRuntime(clock)


@pytest.fixture
async def pages(runtime, clock):
    """A world in which every page has something to show, and the addresses of its pages."""
    recorded(runtime, 1, tool="recall", arguments={"text": "z" * 20_000})
    parent = await triggered(runtime, "assistant", "the parent")
    child = await triggered(runtime, "patient", "the child")
    over = await triggered(runtime, "patient:over", "it is over", payload={"text": "看" * 9_000})
    approval = runtime.request_approval("patient", run_id=child.run_id, arguments={"text": "x" * 9_000})
    runtime.request_approval("assistant", run_id=parent.run_id)
    waiting = {"approvals": [approval.request.approval_id], "runs": {"c1": parent.run_id}}
    asked = {"approval_id": approval.request.approval_id, "tool": "mail.send", "reason": "dangerous", "arguments": {}}
    asks = (EntryKind.APPROVAL_REQUESTED, asked), (EntryKind.RUN_WAITING, waiting)
    told = [built(), replied("y" * 9_000, calls=[CALL]), FOUND, *asks]
    for run in (child, over):
        journal(runtime, run.run_id, [(EntryKind.RUN_QUEUED, {}), (EntryKind.RUN_STARTED, {}), *told])
        runtime.texts[run.run_id] = {"s": "You are calm.", "t": "[]"}
        trigger = runtime._runs[run.run_id].trigger
        lineage = Lineage(parent.run_id, parent.run_id, "assistant", 1, ChildRole.WORKER)
        change(runtime, run.run_id, trigger=replace(trigger, lineage=lineage), interrupted_by=over.run_id)
    change(runtime, child.run_id, status=RunStatus.WAITING)
    change(runtime, over.run_id, status=RunStatus.COMPLETED, result=RunResult(RunStatus.COMPLETED), finished_at=START)
    await triggered(runtime, "patient:now", "at work")
    queued = await triggered(runtime, "patient", "behind it")
    change(runtime, queued.run_id, status=RunStatus.QUEUED)
    patient = AgentRef.parse("patient")
    memory = await runtime.memory.remember(patient, "at ten", ("load",))
    runtime.memory.active[patient][0] = replace(memory, run_id=RunId(child.run_id))
    note(runtime, "add", memory.memory_id, content="at nine")
    often = ScheduleRequest("look", interval_seconds=600)
    schedule = new_schedule(often, schedule_id=ScheduleId("sch_1"), agent=patient, now=START)
    await runtime.schedules.apply([CreateSchedule(replace(schedule, created_by_run=RunId(child.run_id)), 1_000)])
    await clock.advance(1_300)
    await runtime.firings.fire_all_due()
    await runtime.tenants.create(LOCAL, "acme")
    await runtime.keys.create(LOCAL, KeyRequest("theirs", ("viewer",), tenant=TenantId("acme")))
    names = {
        "{agent}": "patient", "{run_id}": child.run_id, "{seq}": "4", "{memory_id}": memory.memory_id, "{tenant}": "acme",
        "{approval_id}": approval.request.approval_id, "{schedule_id}": "sch_1", "{node}": "id-of-alpha",
        "{delivery_id}": "whd_2", "{place}": "1793698260000000.1.node-1",
    }  # fmt: skip
    return addresses(names, over.run_id)


def addresses(names: dict[str, str], over: str) -> dict[str, list[str]]:
    """By each route that answers GET: which of its pages are looked at."""
    more = {
        "/console/runs": ["?fragment=rows", "?status=queued", "?agent=patient", "?agent=patient&status=completed"],
        "/console/runs/{run_id}": ["?fragment=head", "?view=journal", "?picture=time"],
        "/console/agents": ["?fragment=rows", "?sort=cost"],
        "/console/agents/{agent}": ["?fragment=live"],
        "/console/agents/{agent}/memories": ["?archived=yes", "?q=at"],
        "/console/approvals": ["?fragment=live", "?agent=patient", "?status=allowed"],
        "/console/ledger": ["?kind=tool_call", "?agent=patient"],
        "/console/schedules": ["?agent=patient", "?status=paused"],
        "/console/schedules/upcoming": ["?agent=patient"],
        "/console/fleet": ["?fragment=live"],
        "/console/webhooks": ["?status=unmapped"],
        "/console/webhooks/callbacks": ["?agent=assistant"],
    }
    instead = {
        "/console/runs/{run_id}/stream": [f"/console/runs/{over}/stream"],
        "/console/agents/{agent}/artifacts/{artifact_id}": [
            f"/console/agents/assistant/artifacts/{ARTIFACT.artifact_id}"
        ],
        "/console/runs/selection": [
            f"/console/runs/selection?action={action}&run={names['{run_id}']}" for action in ("cancel", "rerun")
        ],
        "/console/runs/matching": [
            f"/console/runs/matching?action={action}&agent=patient" for action in ("cancel", "rerun")
        ],
    }
    found = {}
    for route in (each.split()[1] for each in operations() if each.startswith("GET ")):
        if route in NO_PAGES:
            continue
        path = re.sub(r"\{\w+\}", lambda name: names.get(name[0], ""), route)
        found[route] = instead.get(route) or [path + each for each in ("", *more.get(route, ()))]
    return found


def offered(page: str) -> set[tuple[str, str]]:
    """The method and the address of all that a page leads to, asks for by itself, or sends."""
    forms = re.findall(r'<form\b[^>]*?\bmethod="(get|post)"[^>]*?\baction="(/console[^"]*)"', page)
    assert len(forms) == page.count("<form"), "a form says its method, then its action"
    named = re.findall(r'\s(?:href|src|head|address)="(/console[^"]*)"', page)
    return {(method.upper(), html.unescape(to)) for method, to in [*forms, *(("get", each) for each in named)]}


ROUTES = [
    (operation.split()[0], compile_path(operation.split()[1])[0], operation.split()[1], scope)
    for operation, scope in sorted(operations().items(), key=lambda each: each[0].count("{"))
]


def route_of(method: str, address: str) -> tuple[str, str]:
    """The route that an address is of, and its scope."""
    path = unquote(urlsplit(address).path)
    return next((route, scope) for verb, pattern, route, scope in ROUTES if verb == method and pattern.match(path))


async def test_in_the_world_of_these_tests_every_page_is_there(browser, runtime, pages):
    await browser.sign_in(await issued(runtime, "admin"))

    answers = {each: (await browser.get(each)).status_code for of_route in pages.values() for each in of_route}

    assert {each for each, status in answers.items() if status != 200} == set()


@pytest.mark.parametrize(("scopes", "agents"), [each[1:] for each in VISITORS], ids=[each[0] for each in VISITORS])
async def test_nothing_on_a_page_is_refused_to_who_sees_it(browser, runtime, pages, scopes, agents):
    visitor = Principal(DEFAULT_TENANT, PrincipalKind.KEY, "visitor", scopes=parse_scopes(scopes), patterns=agents)
    await browser.sign_in(await issued(runtime, *scopes, agents=agents))
    seen, refused = set(), set()
    for route, of_route in pages.items():
        for page in of_route if visitor.may(operations()[f"GET {route}"]) else ():
            answer = await browser.get(page)
            if not answer.headers.get("content-type", "").startswith(("text/html", "text/event-stream")):
                continue
            for method, address in offered(answer.text) if answer.status_code == 200 else ():
                to, scope = route_of(method, address)
                if scope and not visitor.may(scope):
                    refused.add((page, method, address))
                names = frozenset(name for name, _ in parse_qsl(urlsplit(address).query))
                kind = address if agents else (to, names)
                if method == "POST" or to.endswith(("/static/{name}", "/stream")) or kind in seen:
                    continue
                seen.add(kind)
                if (await browser.get(address)).status_code == 403:
                    refused.add((page, method, address))
    assert refused == set()


async def test_what_a_visitor_may_not_follow_is_there_as_text(browser, runtime, pages):
    (run, *_), (approval, *_) = pages["/console/runs/{run_id}"], pages["/console/approvals/{approval_id}"]
    memory = pages["/console/agents/{agent}/memories/{memory_id}"][0]
    run_id, approval_id = (each.rpartition("/")[2] for each in (run, approval))

    for scope, page, names in (
        ("runs:read", run, ("patient", approval_id)),
        ("approvals:read", approval, ("patient", run_id)),
        ("schedules:read", "/console/schedules/sch_1", ("patient", "a run")),
        ("memories:read", memory, ("patient", "by a run")),
        ("ledger:read", "/console/ledger", ("assistant", "run_1")),
        ("webhooks:read", "/console/webhooks/callbacks", ("assistant", "run_1")),
    ):
        await browser.sign_in(await issued(runtime, scope))
        text = (await browser.get(page)).text
        shown, linked = words(re.sub(LINK, "", text)), words("<main>" + " ".join(re.findall(LINK, text)))
        for name in names:
            assert re.search(rf"\b{name}\b", shown), (scope, name)
            assert not re.search(rf"\b{name}\b", linked), (scope, name)


async def test_of_runs_of_other_agents_a_key_for_some_agents_sees_the_ids_alone(browser, runtime, pages):
    page = pages["/console/runs/{run_id}"][0]
    parent = next(run.run_id for run in runtime._runs.values() if run.agent.agent_id == "assistant")
    await browser.sign_in(await issued(runtime, "viewer", agents=(OURS,)))

    text = (await browser.get(page)).text

    assert f"<code>{parent}</code>" in text
    assert f'href="/console/runs/{parent}"' not in text
    await browser.sign_in(await issued(runtime, "viewer"))
    assert f'href="/console/runs/{parent}"' in (await browser.get(page)).text
