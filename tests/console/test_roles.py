"""Each page and form of the console for each role: with what is really there it is shown or done, or refused by the server.

docs/console.md has the table. A form that is refused does nothing, and no page offers it to whoever may not send it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import pytest

from owlclaw_ray.domain.principal import LOCAL, ROLES
from owlclaw_ray.ids import CallbackId, DeliveryId
from tests.console.conftest import issued, token_of
from tests.console.test_access import FORMS, GUARDED, PAGES
from tests.console.test_refused_forms import form_of
from tests.contract.conftest import server  # noqa: F401 - a fixture

_DOCS = Path(__file__).parents[2] / "docs" / "console.md"
_NUMBERS = count(1)
OF_THE_STAGE = {
    "GET /console/fleet/nodes/{node}/drain": ("fleet/nodes/id-of-alpha/drain", ""),
    "POST /console/fleet/nodes/{node}/drain": ("fleet/nodes/id-of-alpha/drain", "fleet/nodes/id-of-alpha/drain"),
    "POST /console/fleet/nodes/{node}/undrain": ("fleet/nodes/id-of-alpha/undrain", "fleet"),
    "POST /console/webhooks/callbacks/{callback_id}/redelivery": (
        "webhooks/callbacks/cb_2/redelivery",
        "webhooks/callbacks",
    ),
    "POST /console/webhooks/deliveries/{delivery_id}/redelivery": (
        "webhooks/deliveries/whd_2/redelivery",
        "webhooks/deliveries/whd_2",
    ),
}
"""What needs nodes, or what a receiver or a mapping has refused: the runtime that is played has them. Each has the page with its form."""


def documented() -> dict[str, tuple[str, dict[str, bool]]]:
    """The scope of each page and form, and which roles may, as the docs say it."""
    text = _DOCS.read_text(encoding="utf-8").partition("## Pages and forms by role")[2].partition("\n## ")[0]
    head, _, *rows = [
        [each.strip(" `") for each in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")
    ]
    assert head == ["page or form", "scope", *ROLES]
    assert {cell for row in rows for cell in row[2:]} == {"yes", "no"}
    return {
        operation: (scope, {role: cell == "yes" for role, cell in zip(ROLES, cells, strict=True)})
        for operation, scope, *cells in rows
    }


def test_the_docs_name_each_page_and_form_with_its_scope():
    assert {operation: scope for operation, (scope, _) in documented().items()} == dict(GUARDED)


class Console:
    """A browser without scripts that a key has signed in."""

    def __init__(self, url: str, key: str) -> None:
        self.http = httpx.Client(base_url=url, headers={"Accept": "text/html", "Origin": url}, timeout=60)
        page = self.http.get("/console/sign-in").text
        answer = self.http.post("/console/sign-in", data={"token": token_of(page), "key": key})
        assert answer.status_code == 303, answer.text
        self.token = token_of(self.http.get("/console/agents").text)


class World(NamedTuple):
    """The API of the real engine, for whoever may do everything, and consoles of each role."""

    api: httpx.Client
    consoles: dict[str, Console]

    def ask(self, path: str) -> Any:
        """What the API answers."""
        return self.api.get(path).raise_for_status().json()

    def tell(self, path: str, **body: Any) -> Any:
        """What the API answers when it is told that."""
        return self.api.post(path, json=body).raise_for_status().json()

    def waiting(self) -> dict[str, Any]:
        """A call that waits for a decision, of an agent of its own."""
        run = self.tell(f"/v1/agents/cashier:r{next(_NUMBERS)}/triggers", focus="refund")["run_id"]
        while not (found := self.ask(f"/v1/approvals?run={run}&status=pending")["approvals"]):
            pass
        return found[0]

    def ended(self) -> str:
        """A run that is over, of an agent of its own."""
        return self.tell(f"/v1/agents/assistant:r{next(_NUMBERS)}/triggers?wait=60", focus="look")["run_id"]

    def memory(self) -> str:
        return self.tell("/v1/agents/assistant/memories", content=f"Shelf {next(_NUMBERS)} is empty.")["memory_id"]

    def schedule(self) -> str:
        asked = {"focus": f"look {next(_NUMBERS)}", "cron_expression": "0 9 * * *"}
        return self.tell(f"/v1/agents/assistant:s{next(_NUMBERS)}/schedules", **asked)["schedule_id"]

    def key(self) -> str:
        return self.tell("/v1/keys", name=f"key {next(_NUMBERS)}", scopes=["runs:read"])["key"].split("_")[1]

    def tenant(self, **more: Any) -> str:
        return self.tell("/v1/tenants", tenant=f"tenant-{next(_NUMBERS)}", **more)["tenant"]

    def runs_of(self, agent: str) -> int:
        return len(self.ask(f"/v1/runs?agent={agent}")["runs"])


@pytest.fixture(scope="module")
def world(server) -> Iterator[World]:  # noqa: F811 - the fixture
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {server.key}"}, timeout=60) as api:
        consoles = {}
        for role in ROLES:
            key = api.post("/v1/keys", json={"name": role, "scopes": [role]}).raise_for_status().json()["key"]
            consoles[role] = Console(server.url, key)
        yield World(api, consoles)
        for each in consoles.values():
            each.http.close()


@pytest.fixture(scope="module")
def pages(world) -> dict[str, tuple[str, str]]:
    """Where each page is with something that is there, and what is to be read on it."""
    approval, run, memory = world.waiting(), world.ended(), world.memory()
    schedule, tenant = world.schedule(), world.tenant(name="Acme & Sons")
    delivery = world.ask("/v1/deliveries")["deliveries"][0]["delivery_id"]
    artifact = world.ask("/v1/agents/clerk/artifacts")["artifacts"][0]["artifact_id"]
    clerk = world.ask("/v1/runs?agent=clerk")["runs"][0]["run_id"]
    place, key = world.ask("/v1/ledger?limit=1")["next_after"], world.key()
    waits = approval["run_id"]
    return {
        "GET /console/agents": ("agents", "clerk"),
        "GET /console/agents/{agent}": ("agents/clerk", "You are calm."),
        "GET /console/agents/{agent}/artifacts/{artifact_id}": (f"agents/clerk/artifacts/{artifact}", "tea tea"),
        "GET /console/agents/{agent}/memories": ("agents/assistant/memories", "Shelf "),
        "GET /console/agents/{agent}/memories/{memory_id}": (f"agents/assistant/memories/{memory}", "Shelf "),
        "GET /console/approvals": ("approvals", "shop.refund"),
        "GET /console/approvals/{approval_id}": (f"approvals/{approval['approval_id']}", "shop.refund"),
        "GET /console/fleet": ("fleet", "it has no nodes"),
        "GET /console/keys": ("keys", key),
        "GET /console/ledger": ("ledger", "assistant:r"),
        "GET /console/ledger/verification": ("ledger/verification", "they hold"),
        "GET /console/ledger/{place}": (f"ledger/{place}", '"position"'),
        "GET /console/runs": ("runs", run),
        "GET /console/runs/matching": ("runs/matching?action=cancel&status=open", "refund"),
        "GET /console/runs/selection": (f"runs/selection?action=cancel&run={waits}", "refund"),
        "GET /console/runs/{run_id}": (f"runs/{clerk}", "Finished"),
        "GET /console/runs/{run_id}/entries/{seq}": (f"runs/{clerk}/entries/1", "run_queued"),
        "GET /console/runs/{run_id}/entries/{seq}/prompt": (f"runs/{clerk}/entries/4/prompt", "You are calm."),
        "GET /console/runs/{run_id}/payload": (f"runs/{clerk}/payload", ""),
        "GET /console/runs/{run_id}/rerun": (f"runs/{clerk}/rerun", "Run it again"),
        "GET /console/runs/{run_id}/stream": (f"runs/{clerk}/stream", "event: end"),
        "GET /console/schedules": ("schedules", schedule),
        "GET /console/schedules/new": ("schedules/new", "Every so many minutes"),
        "GET /console/schedules/upcoming": ("schedules/upcoming?hours=24", schedule),
        "GET /console/schedules/{schedule_id}": (f"schedules/{schedule}", "0 9 * * *"),
        "GET /console/schedules/{schedule_id}/backfill": (f"schedules/{schedule}/backfill", "look "),
        "GET /console/settings": ("settings", "agents_dir"),
        "GET /console/tenants": ("tenants", tenant),
        "GET /console/tenants/{tenant}": (f"tenants/{tenant}", "Acme &amp; Sons"),
        "GET /console/tools": ("tools", "shop.refund"),
        "GET /console/usage": ("usage", "clerk"),
        "GET /console/webhooks": ("webhooks", delivery),
        "GET /console/webhooks/callbacks": ("webhooks/callbacks", "shop.example.org"),
        "GET /console/webhooks/deliveries/{delivery_id}": (f"webhooks/deliveries/{delivery}", "github"),
        "GET /console/webhooks/deliveries/{delivery_id}/body": (f"webhooks/deliveries/{delivery}/body", ""),
    }


@pytest.mark.parametrize("operation", [operation for operation, _ in PAGES if operation not in OF_THE_STAGE])
def test_a_page_shows_what_there_is_to_roles_that_may_see_it_and_nothing_to_others(world, pages, operation):
    scope, may = documented()[operation]
    path, text = pages[operation]

    for role, console in world.consoles.items():
        answer = console.http.get(f"/console/{path}")
        if may[role]:
            assert (answer.status_code, text in answer.text) == (200, True), (role, answer.text)
            assert 'role="alert"' not in answer.text, "nothing was refused"
        else:
            assert (answer.status_code, scope in answer.text) == (403, True), role
            assert not text or text not in answer.text, role


class Form(NamedTuple):
    """A form that can be sent: the page that has it (if one does), where it goes, what is typed, and what tells whether it was done."""

    page: str
    path: str
    fields: dict[str, str]
    state: Callable[[], Any]


def _trigger(world: World) -> Form:
    agent = f"assistant:t{next(_NUMBERS)}"
    where = f"agents/{quote(agent, safe='')}"
    return Form(where, f"{where}/triggers", {"focus": "look"}, lambda: world.runs_of(agent))


def _first_trigger(world: World) -> Form:
    agent = f"assistant:t{next(_NUMBERS)}"
    return Form("", "triggers", {"agent": agent, "focus": "look", "payload": ""}, lambda: world.runs_of(agent))


def _remember(world: World) -> Form:
    content = f"Somebody waits at door {next(_NUMBERS)}."
    where = "agents/assistant/memories"
    return Form(where, where, {"content": content}, lambda: content in world.api.get(f"/v1/{where}").text)


def _change_memory(world: World) -> Form:
    where = f"agents/assistant/memories/{world.memory()}"
    content = f"Shelf {next(_NUMBERS)} is full."
    return Form(where, where, {"content": content}, lambda: world.ask(f"/v1/{where}")["content"])


def _archive(world: World) -> Form:
    memory = world.memory()
    where = "agents/assistant/memories"
    return Form(
        f"{where}/{memory}", f"{where}/{memory}/archive", {}, lambda: memory in world.api.get(f"/v1/{where}").text
    )


def _decide(world: World) -> Form:
    where = f"approvals/{world.waiting()['approval_id']}"
    return Form(where, f"{where}/decision", {"decision": "deny"}, lambda: world.ask(f"/v1/{where}")["status"])


def _make_key(world: World) -> Form:
    name = f"made {next(_NUMBERS)}"
    fields = {"name": name, "scopes": "runs:read"}
    return Form("keys", "keys", fields, lambda: name in world.api.get("/v1/keys?limit=500").text)


def _of_key(action: str, **fields: str) -> Callable[[World], Form]:
    def made(world: World) -> Form:
        key = world.key()

        def state() -> Any:
            return next(each for each in world.ask("/v1/keys?limit=500")["keys"] if each["key_id"] == key)

        return Form("keys", f"keys/{key}/{action}", fields, state)

    return made


def _cancel_selected(world: World) -> Form:
    run = world.waiting()["run_id"]
    page = f"runs/selection?action=cancel&run={run}"
    fields = {"action": "cancel", "run": run}
    return Form(page, "runs/selection", fields, lambda: world.ask(f"/v1/runs/{run}")["cancel_requested"])


def _cancel_matching(world: World) -> Form:
    approval = world.waiting()
    run, page = approval["run_id"], f"runs/matching?action=cancel&agent={approval['agent']}"
    return Form(page, "runs/matching", {}, lambda: world.ask(f"/v1/runs/{run}")["cancel_requested"])


def _rerun(world: World) -> Form:
    run = world.ended()
    agent = world.ask(f"/v1/runs/{run}")["agent"]
    return Form(f"runs/{run}/rerun", f"runs/{run}/rerun", {}, lambda: world.runs_of(agent))


def _new_schedule(world: World) -> Form:
    agent = f"assistant:s{next(_NUMBERS)}"
    fields = {"agent": agent, "focus": "look", "minutes": "30"}
    return Form("schedules/new", "schedules", fields, lambda: world.ask(f"/v1/agents/{agent}/schedules")["schedules"])


def _backfill(world: World) -> Form:
    schedule = world.schedule()
    agent = world.ask(f"/v1/schedules/{schedule}")["agent"]
    page = f"schedules/{schedule}/backfill?since=2026-11-02T00:00&until=2026-11-03T00:00"
    return Form(page, f"schedules/{schedule}/backfill", {}, lambda: world.runs_of(agent))


def _of_schedule(action: str, *before: str) -> Callable[[World], Form]:
    def made(world: World) -> Form:
        where = f"schedules/{world.schedule()}"
        for each in before:
            world.tell(f"/v1/{where}/{each}")
        return Form(where, f"{where}/{action}", {}, lambda: world.ask(f"/v1/{where}")["status"])

    return made


def _make_tenant(world: World) -> Form:
    tenant = f"made-{next(_NUMBERS)}"
    return Form("tenants", "tenants", {"tenant": tenant}, lambda: world.api.get(f"/v1/tenants/{tenant}").status_code)


def _change_tenant(world: World) -> Form:
    where = f"tenants/{world.tenant()}"
    return Form(where, where, {"weight": "3"}, lambda: world.ask(f"/v1/{where}"))


def _suspend_tenant(world: World) -> Form:
    where = f"tenants/{world.tenant()}"
    return Form(where, f"{where}/status", {"status": "suspended"}, lambda: world.ask(f"/v1/{where}"))


def _delete_tenant(world: World) -> Form:
    tenant = world.tenant()
    where = f"tenants/{tenant}"
    world.api.patch(f"/v1/{where}", json={"status": "suspended"}).raise_for_status()
    return Form(where, f"{where}/deletion", {"typed": tenant}, lambda: world.ask(f"/v1/{where}"))


MADE: dict[str, Callable[[World], Form]] = {
    "POST /console/agents/{agent}/memories": _remember,
    "POST /console/agents/{agent}/memories/{memory_id}": _change_memory,
    "POST /console/agents/{agent}/memories/{memory_id}/archive": _archive,
    "POST /console/agents/{agent}/triggers": _trigger,
    "POST /console/approvals/{approval_id}/decision": _decide,
    "POST /console/keys": _make_key,
    "POST /console/keys/{key_id}/revoke": _of_key("revoke"),
    "POST /console/keys/{key_id}/rotate": _of_key("rotate", grace_hours="1"),
    "POST /console/runs/matching": _cancel_matching,
    "POST /console/runs/selection": _cancel_selected,
    "POST /console/runs/{run_id}/rerun": _rerun,
    "POST /console/schedules": _new_schedule,
    "POST /console/schedules/{schedule_id}/backfill": _backfill,
    "POST /console/schedules/{schedule_id}/cancel": _of_schedule("cancel"),
    "POST /console/schedules/{schedule_id}/pause": _of_schedule("pause"),
    "POST /console/schedules/{schedule_id}/resume": _of_schedule("resume", "pause"),
    "POST /console/tenants": _make_tenant,
    "POST /console/tenants/{tenant}": _change_tenant,
    "POST /console/tenants/{tenant}/deletion": _delete_tenant,
    "POST /console/tenants/{tenant}/status": _suspend_tenant,
    "POST /console/triggers": _first_trigger,
}
SHOW_A_SECRET = {"POST /console/keys", "POST /console/keys/{key_id}/rotate"}
"""Forms whose answer is a page, which shows a key once."""


@pytest.mark.parametrize("operation", [operation for operation, _ in FORMS if operation not in OF_THE_STAGE])
def test_a_form_does_what_it_says_for_roles_that_may_send_it_and_nothing_for_others(world, operation):
    scope, may = documented()[operation]

    for role, console in world.consoles.items():
        form = MADE[operation](world)
        path, fields = f"/console/{form.path}", form.fields
        if form.page:
            filled, _ = form_of(world.consoles["admin"].http.get(f"/console/{form.page}").text, path)
            offered = f'method="post" action="{path}"' in console.http.get(f"/console/{form.page}").text
            assert offered == may[role], role
            fields = filled | form.fields
        before = form.state()
        answer = console.http.post(path, data=fields | {"token": console.token})
        if may[role]:
            assert answer.status_code == (200 if operation in SHOW_A_SECRET else 303), (role, answer.text)
            assert form.state() != before, role
        else:
            assert (answer.status_code, scope in answer.text) == (403, True), (role, answer.text)
            assert form.state() == before, role


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("operation", OF_THE_STAGE)
async def test_pages_and_forms_of_nodes_and_refused_webhooks_are_for_roles_that_may_too(
    browser, runtime, operation, role
):
    scope, may = documented()[operation]
    await browser.sign_in(await issued(runtime, role))
    token = token_of((await browser.get("/console/agents")).text)
    if "undrain" in operation:
        await runtime.drain("alpha")

    async def state():
        delivery = await runtime.inbox.delivery(LOCAL.tenant, DeliveryId("whd_2"))
        return set(runtime.drained), await runtime.outbox.callback(LOCAL.tenant, CallbackId("cb_2")), delivery

    path, page = (f"/console/{each}" for each in OF_THE_STAGE[operation])
    if operation.startswith("POST"):
        assert (f'method="post" action="{path}"' in (await browser.get(page)).text) == may[role]
    before = await state()
    answer = await (browser.get(path) if operation.startswith("GET") else browser.send_form(path, token=token))

    if may[role]:
        assert answer.status_code == (200 if operation.startswith("GET") else 303)
    else:
        assert (answer.status_code, scope in answer.text) == (403, True)
    assert (await state() != before) == (may[role] and operation.startswith("POST"))


def test_no_page_and_no_form_is_left_out(pages):
    assert pages.keys() | MADE.keys() | OF_THE_STAGE.keys() == {operation for operation, _ in GUARDED}
