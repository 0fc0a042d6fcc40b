"""Who asked for a run does not allow its critical calls: over HTTP, with the whole engine behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
import orjson
import pytest

from owlclaw_ray import OwlClaw
from owlclaw_ray.access.authentication import Authenticator
from owlclaw_ray.access.keys import KeyRequest
from owlclaw_ray.access.tokens import IssuerTokens
from owlclaw_ray.configuration.permissions import SharedPermissionSettings
from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.domain.issuer import Issuer
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.node import ClusterView, NodeCondition, NodeView
from owlclaw_ray.domain.permission import PermissionPolicy
from owlclaw_ray.domain.principal import LOCAL, ROLES, PrincipalKind
from owlclaw_ray.domain.schedule import Tick, TickOutcome
from owlclaw_ray.domain.webhook import DeliverTo
from owlclaw_ray.ids import DEFAULT_TENANT, KeyId, TenantId
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.store.queries import ApprovalFilter, LedgerFilter, RunFilter
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.ids import SequentialIds
from owlclaw_ray.testing.in_process import InProcessRuntime, in_process_runtime
from owlclaw_ray.tools.agents.options import AgentOptions
from owlclaw_ray.tools.host import HostTools
from serve.api import build_api
from tests.issuer import AUDIENCE, RSA, serving_issuer, signed
from tests.webhooks.conftest import OPTIONS, ORDER, mapped, signature
from tests.worlds import Agents, calls

BURN = calls(("shop.burn", {"what": "papers"}))
PAY = calls(("shop.pay", {}))
DONE = {"text": "done"}
REASON = "another person must allow its call of shop.burn (permissions.not_by_submitter)"


@dataclass
class Office:
    """A runtime behind its API, and the headers of who comes with a key."""

    runtime: InProcessRuntime
    http: httpx.AsyncClient
    burnt: list[str]

    async def key(self, name: str, **quotas: int) -> tuple[str, dict[str, str]]:
        made = await self.runtime.keys.create(LOCAL, KeyRequest(name, ("developer",), **quotas))
        return f"key:{made.key.key_id}", {"Authorization": f"Bearer {made.text}"}

    async def ticks(self, schedule_id: str) -> list[Tick]:
        return [*await self.runtime.timetable.ticks(DEFAULT_TENANT, schedule_id, None, 9)]

    async def trigger(self, who: dict[str, str], agent: str = "watch", **body: object) -> str:
        answer = await self.http.post(f"/v1/agents/{agent}/triggers", json=body, headers=who)
        assert answer.status_code == 202, answer.text
        return answer.json()["run_id"]

    async def asked(self, number: int = 1) -> list[dict[str, object]]:
        """Return this many pending approvals once they are there."""
        where = ApprovalFilter(DEFAULT_TENANT)
        while len([each for each in await self.runtime.approvals(where) if each.decision is None]) < number:
            await asyncio.sleep(0)
        found = [each for each in await self.runtime.approvals(where) if each.decision is None]
        return [each.request for each in found]

    async def decide(
        self, approval: object, who: dict[str, str] | None, decision: str = "allow_once", **body: object
    ) -> httpx.Response:
        path = f"/v1/approvals/{approval.approval_id}/decision"
        return await self.http.post(path, json={"decision": decision, **body}, headers=who)

    async def ended(self, run_id: str) -> str:
        while not (run := await self.runtime.run(DEFAULT_TENANT, run_id)).status.final:
            await asyncio.sleep(0)
        return run.status.value


@pytest.fixture
def open_office(agents: Agents, tmp_path):
    @asynccontextmanager
    async def office(*turns: object, **more: object) -> AsyncIterator[Office]:
        app, burnt = OwlClaw("shop"), []

        @app.handler("burn", tags=["risk:critical"], target=["what"])
        def burn(what: str) -> str:
            """Burn something."""
            burnt.append(what)
            return "burnt"

        @app.handler("pay", tags=["risk:high"])
        def pay() -> str:
            """Pay."""
            return "paid"

        agents.script(*(turns or (BURN, DONE)), **more.pop("agent", {}))
        permissions = SharedPermissionSettings(**more.pop("permissions", {}))
        defaults = Defaults(permissions=PermissionPolicy(inherited=permissions.rules))
        folders = {"agents_dir": agents.folder, "data_dir": tmp_path / "data"}
        issuers = more.pop("issuers", ())
        async with in_process_runtime(**folders, app=app, defaults=defaults, **more) as runtime:
            if issuers:
                tokens = IssuerTokens(issuers, SystemClock())
                runtime.authenticator = Authenticator(runtime.store, SystemClock(), SequentialIds(), tokens)
            api = build_api(runtime, clock=SystemClock(), body_limit_bytes=10_000)
            async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://localhost:8700") as http:
                yield Office(runtime, http, burnt)

    return office


async def test_who_triggered_a_run_cannot_allow_its_critical_call_and_somebody_else_can(open_office):
    async with open_office() as office:
        (ada, adas), (_, bobs) = await office.key("ada"), await office.key("bob")
        run_id = await office.trigger(adas)
        [asked] = await office.asked()
        path = f"/v1/approvals/{asked.approval_id}"

        shown = (await office.http.get(path, headers=bobs)).json()
        refused = await office.decide(asked, adas, by="bob")
        still = (await office.http.get(path, headers=bobs)).json()
        allowed = await office.decide(asked, bobs)
        status = await office.ended(run_id)

    assert shown["excluded"] == [ada]
    assert (refused.status_code, refused.json()["type"]) == (403, "urn:owlclaw:problem:forbidden")
    assert f"{ada} asked for run {run_id}, and {REASON}" in refused.json()["detail"]
    assert (still["status"], allowed.status_code, allowed.json()["status"]) == ("pending", 200, "allowed")
    assert (status, office.burnt) == ("completed", ["papers"])


async def test_a_key_that_was_rotated_is_who_it_was_and_may_deny(open_office):
    async with open_office() as office:
        ada, adas = await office.key("ada")
        run_id = await office.trigger(adas)
        [asked] = await office.asked()
        rotated = await office.runtime.keys.rotate(LOCAL, KeyId(ada.removeprefix("key:")), 0)
        adas = {"Authorization": f"Bearer {rotated.text}"}

        allowed, denied = await office.decide(asked, adas), await office.decide(asked, adas, "deny")
        await office.ended(run_id)

    assert (allowed.status_code, denied.status_code, denied.json()["status"]) == (403, 200, "denied")
    assert office.burnt == []


async def test_another_token_of_the_same_subject_is_the_same_person(open_office):
    clock = SystemClock()
    with serving_issuer() as issuer:
        trusted = Issuer(
            name="idp",
            issuer=issuer.url,
            audiences=(AUDIENCE,),
            kind=PrincipalKind.PERSON,
            tenant=DEFAULT_TENANT,
            scopes=ROLES["developer"],
        )

        def token(subject: str, **claims: object) -> dict[str, str]:
            made = signed(issuer.claims(clock.now().timestamp(), sub=subject, **claims), RSA)
            return {"Authorization": f"Bearer {made}"}

        async with open_office(issuers=(trusted,)) as office:
            await office.trigger(token("ada"))
            [asked] = await office.asked()
            same = await office.decide(asked, token("ada", jti="another"))
            other = await office.decide(asked, token("bob"))

    assert asked.excluded == ("person:idp/ada",)
    assert (same.status_code, other.status_code) == (403, 200)


@pytest.mark.parametrize(
    ("turn", "permissions", "agent"),
    [
        (PAY, {}, {}),
        (BURN, {"not_by_submitter": []}, {}),
        (PAY, {"not_by_submitter": ["shop.burn"]}, {"permissions": {"not_by_submitter": ["risk:critical"]}}),
    ],
)
async def test_calls_that_no_rule_names_are_allowed_by_who_triggered_the_run(open_office, turn, permissions, agent):
    async with open_office(turn, DONE, permissions=permissions, agent=agent) as office:
        _, adas = await office.key("ada")
        await office.trigger(adas)
        [asked] = await office.asked()

        assert asked.excluded == ()
        assert (await office.decide(asked, adas)).status_code == 200


@pytest.mark.parametrize("selector", ["shop.pay", "risk:high", "risk:low", "tag:risk:high"])
@pytest.mark.parametrize("where", ["agent", "permissions"])
async def test_a_rule_of_either_file_names_other_calls(open_office, selector, where):
    rule = {"not_by_submitter": [selector]}
    options = {"permissions": rule} if where == "permissions" else {"agent": {"permissions": rule}}
    async with open_office(PAY, DONE, **options) as office:
        ada, adas = await office.key("ada")
        await office.trigger(adas)
        [asked] = await office.asked()

        assert asked.excluded == (ada,)
        assert (await office.decide(asked, adas)).status_code == 403


async def test_without_keys_whoever_triggers_also_decides(open_office):
    async with open_office() as office:
        run_id = await office.trigger({})
        [asked] = await office.asked()
        answer = await office.decide(asked, None)

        assert (asked.excluded, answer.status_code) == ((), 200)
        assert await office.ended(run_id) == "completed"


async def test_two_people_for_a_critical_call_are_two_besides_who_asked(open_office):
    async with open_office(permissions={"two_people": ["risk:critical"]}) as office:
        (_, adas), (_, bobs), (_, carols) = [await office.key(name) for name in ("ada", "bob", "carol")]
        await office.trigger(adas)
        [asked] = await office.asked()
        told = [await office.decide(asked, each) for each in (bobs, adas, carols)]

    assert [each.status_code for each in told] == [200, 403, 200]
    assert [told[at].json()["status"] for at in (0, 2)] == ["pending", "allowed"]


async def test_who_asked_for_any_of_the_triggers_that_a_run_stands_for_is_excluded(open_office):
    async with open_office() as office:
        (ada, adas), (bob, bobs), (carol, carols) = [await office.key(name) for name in ("ada", "bob", "carol")]
        await office.trigger(carols)
        [first] = await office.asked()
        [run_id] = {await office.trigger(each, busy="coalesce") for each in (adas, bobs, adas)}
        await office.decide(first, adas, "deny")
        [asked] = await office.asked()

    assert (first.excluded, asked.run_id) == ((carol,), run_id)
    assert asked.excluded == tuple(sorted((ada, bob)))


async def test_who_made_a_schedule_asked_for_its_runs_and_so_did_who_had_an_agent_make_it_or_made_up_for_times(
    open_office,
):
    clock = ManualClock()
    later = calls(("schedule_once", {"delay_seconds": 60, "focus": "burn"}))
    async with open_office(later, DONE, clock=clock) as office:
        (ada, adas), (bob, bobs), (carol, carols) = [await office.key(name) for name in ("ada", "bob", "carol")]

        async def post(path: str, who: dict[str, str], **body: object) -> dict[str, object]:
            answer = await office.http.post(path, json=body, headers=who)
            assert answer.status_code in {200, 201}, answer.text
            return answer.json()

        made = await post("/v1/agents/watch/schedules", adas, focus="burn", interval_seconds=60)
        schedule, since = f"/v1/schedules/{made['schedule_id']}", clock.now().isoformat()
        await office.ended(await office.trigger(bobs))
        await clock.advance(61)
        await office.runtime.schedule_firer.fire_all_due()
        await post(f"{schedule}/pause", adas)
        await clock.advance(60)
        await post(f"{schedule}/resume", adas)
        await post(f"{schedule}/backfill", carols, since=since, until=clock.now().isoformat())
        runs = await office.runtime.runs(RunFilter(DEFAULT_TENANT))

    fired = {each.trigger.submitters for each in runs if each.trigger.source}
    assert fired == {(ada,), (bob,), (ada, carol)}


async def test_who_has_a_webhook_delivered_again_to_a_heartbeat_asked_for_what_the_heartbeat_does(open_office):
    clock, options = ManualClock(), {"agent": {"heartbeat": {}}}
    nowhere, shop = (mapped(agent=agent, deliver=DeliverTo.HEARTBEAT) for agent in ("{body.nobody}", "watch"))
    async with open_office(clock=clock, webhook_sources=[nowhere], **options) as office:
        (ada, adas), (_, bobs) = await office.key("ada"), await office.key("bob")
        content = orjson.dumps(ORDER)
        headers = {"X-Signature": signature(content), "X-Delivery": "d1", "X-Event": "paid"}
        lost = await office.http.post("/v1/webhooks/shop", content=content, headers=headers)

    options = {"agent": {"heartbeat": {}}}
    async with open_office(clock=clock, webhook_sources=[shop], **options) as office:
        again = await office.http.post(f"/v1/deliveries/{lost.json()['delivery_id']}/redelivery", headers=adas)
        await office.runtime.heartbeats.tick()
        await clock.advance(300)
        await office.runtime.schedule_firer.fire_all_due()
        [asked] = await office.asked()
        refused, allowed = await office.decide(asked, adas), await office.decide(asked, bobs)
        await office.ended(asked.run_id)
        entries = await office.runtime.journal(DEFAULT_TENANT, asked.run_id)
        ledger = (await office.http.get("/v1/ledger?kind=access", headers=bobs)).json()["records"]

    delivery = {"delivery_id": lost.json()["delivery_id"], "source": "shop", "by": f"{ada} (ada)"}
    assert [each["data"] for each in ledger].count({"what": "webhook_redelivered", **delivery}) == 1
    assert (lost.status_code, again.json()["status"]) == (422, "waiting")
    assert asked.excluded == (ada,)
    assert (refused.status_code, allowed.status_code, office.burnt) == (403, 200, ["papers"])
    [told] = [each.data["user"] for each in entries if each.kind is EntryKind.PROMPT_BUILT]
    assert "order 17" in told
    assert ada not in told


async def test_the_ledger_knows_who_ends_runs_and_changes_schedules_and_is_told_once(open_office):
    async with open_office(agent={"permissions": {"ask": ["shop.*"]}}) as office:
        ada, adas = await office.key("ada")
        run_id = await office.trigger(adas)
        await office.asked()
        made = await office.http.post(
            "/v1/agents/watch/schedules", json={"focus": "look", "interval_seconds": 60}, headers=adas
        )
        schedule = f"/v1/schedules/{made.json()['schedule_id']}"
        steps = (f"/v1/runs/{run_id}/cancel", *(f"{schedule}/{what}" for what in ("pause", "resume", "cancel")))
        answers = [await office.http.post(path, headers=adas) for path in steps for _ in range(2)]
        await office.ended(run_id)
        told = (await office.http.get("/v1/ledger?kind=access&agent=watch", headers=adas)).json()["records"]

    assert {answer.status_code for answer in answers} == {200, 202}
    assert [(each["data"]["what"], each["data"]["by"]) for each in sorted(told, key=lambda each: each["at"])] == [
        (what, f"{ada} (ada)")
        for what in (
            "schedule_created",
            "run_cancelled",
            "schedule_paused",
            "schedule_resumed",
            "schedule_cancelled",
        )
    ]
    assert [each["run_id"] for each in told if each["data"]["what"] == "run_cancelled"] == [run_id]


async def test_the_ledger_knows_who_asked_for_each_run(open_office):
    async with open_office(DONE) as office:
        ada, adas = await office.key("ada")
        run_id = await office.trigger(adas)
        await office.ended(run_id)
        [told] = (await office.http.get("/v1/ledger?kind=run", headers=adas)).json()["records"]
        journal = (await office.http.get(f"/v1/runs/{run_id}?events=true", headers=adas)).json()

    assert (told["run_id"], told["data"]["by"]) == (run_id, [ada])
    assert not [event for event in journal["events"] if "by" in event["data"]]


async def test_the_ledger_knows_who_makes_a_schedule_has_it_backfilled_and_scores_a_run_and_which_agent_makes_one(
    open_office, agents
):
    kept, clock = [], ManualClock()
    plan = calls(("schedule_cron", {"cron_expression": "0 9 * * 1", "focus": "look"}))

    class Scores:
        async def keep(self, score):
            kept.append(score)

    async with open_office(plan, DONE, clock=clock, scores=Scores()) as office:
        ada, adas = await office.key("ada")
        run_id = await office.trigger(adas)
        await office.ended(run_id)
        body, once = {"focus": "look", "interval_seconds": 60}, adas | {"Idempotency-Key": "one"}
        made = [
            (await office.http.post("/v1/agents/watch/schedules", json=body, headers=once)).json() for _ in range(2)
        ]
        await clock.advance(130)
        moments = {"since": made[0]["created_at"], "until": clock.now().isoformat()}
        path = f"/v1/schedules/{made[0]['schedule_id']}/backfill"
        filled = await office.http.post(path, json=moments, headers=adas)
        scored = await office.http.post(f"/v1/runs/{run_id}/scores", json={"name": "good", "value": 1.0}, headers=adas)
        told = (await office.http.get("/v1/ledger?kind=access&agent=watch", headers=adas)).json()["records"]

    assert (filled.status_code, scored.status_code) == (200, 200)
    assert filled.json()["queued"]
    said = sorted((each["data"]["what"], each["data"]["by"], each["run_id"]) for each in told)
    assert said == [
        ("run_scored", f"{ada} (ada)", run_id),
        ("schedule_backfilled", f"{ada} (ada)", ""),
        ("schedule_created", "agent:watch", ""),
        ("schedule_created", f"{ada} (ada)", ""),
    ]


async def test_the_ledger_knows_who_is_shown_what_and_who_drains_nodes(open_office, monkeypatch):
    async with open_office(callbacks=OPTIONS) as office:
        runtime, marked = office.runtime, []
        made = await runtime.keys.create(LOCAL, KeyRequest("root", ("admin",)))
        headers = {"Authorization": f"Bearer {made.text}"}

        node = NodeView("n1", "n1", "", True, NodeCondition.ACTIVE, "", 1.0, (), (), None, None)

        async def cluster():
            return ClusterView((node,))

        async def mark(ids, state):
            marked.append((ids, state))

        monkeypatch.setattr(runtime, "_cluster_of", cluster)
        monkeypatch.setattr(runtime, "_mark_nodes", mark)
        await runtime.tenants.create(LOCAL, "acme")
        secrets = await office.http.get("/v1/callback-secrets", headers=headers)
        exported = await office.http.get("/v1/tenants/acme/export", headers=headers)
        drained = await office.http.post("/v1/nodes/n1/drain", headers=headers)
        back = await office.http.post("/v1/nodes/n1/undrain", headers=headers)
        told = (await office.http.get("/v1/ledger?kind=access", headers=headers)).json()["records"]
        theirs = await runtime.ledger(LedgerFilter(TenantId("acme"), kind=LedgerKind.ACCESS))

    assert [each.status_code for each in (secrets, exported, drained, back)] == [200, 200, 202, 200]
    by = {"by": f"key:{made.key.key_id} (root)"}
    for expected in (
        {"what": "callback_secrets_shown", **by},
        {"what": "nodes_drained", "nodes": ["n1"], **by},
        {"what": "nodes_undrained", "nodes": ["n1"], **by},
    ):
        assert [each["data"] for each in told].count(expected) == 1
    assert theirs[-1].record.data == {"what": "tenant_exported", "tenant": "acme", **by}
    assert marked == [(["n1"], NodeCondition.DRAINING), (["n1"], NodeCondition.ACTIVE)]
    assert not any(secret in str(told) for secret in secrets.json()["secrets"])


async def test_what_a_schedule_starts_counts_in_the_quota_of_the_key_that_made_it(open_office):
    clock = ManualClock()
    async with open_office(DONE, clock=clock) as office:
        _, adas = await office.key("ada", starts_a_minute=1)
        path, body = "/v1/agents/watch/schedules", {"focus": "look", "interval_seconds": 60}
        made = (await office.http.post(path, json=body, headers=adas)).json()
        await clock.advance(61)
        await office.trigger(adas)
        await office.runtime.schedule_firer.fire_all_due()
        skipped = await office.ticks(made["schedule_id"])
        await clock.advance(60)
        await office.runtime.schedule_firer.fire_all_due()
        refused = await office.http.post("/v1/agents/watch/triggers", json={}, headers=adas)
        fired = await office.ticks(made["schedule_id"])

    assert [each.outcome for each in skipped] == [TickOutcome.SKIPPED]
    assert "the key has 1 start in this minute (starts_a_minute)" in skipped[0].reason
    assert [each.outcome for each in fired] == [TickOutcome.FIRED, TickOutcome.SKIPPED]
    assert (refused.status_code, refused.json()["of"]) == (429, "key")


async def test_who_asked_for_a_run_asked_for_those_of_the_agents_that_it_starts_and_of_what_they_do_later(
    open_office, agents
):
    start = calls(("agent.create_sub_agent", {"agent_definition_id": "clerk", "assignment": "burn it"}))
    tools = HostTools(agents=AgentOptions())
    agents.script(BURN, DONE, name="clerk")
    async with open_office(start, DONE, host_tools=tools) as office:
        (ada, adas), (bob, bobs) = await office.key("ada"), await office.key("bob")
        run_id = await office.trigger(adas)
        [asked] = await office.asked()
        refused = await office.decide(asked, adas)
        await office.decide(asked, bobs)
        await office.ended(run_id)
        await office.trigger(bobs, asked.agent.agent_id)
        [again] = await office.asked()

    assert asked.agent.definition == again.agent.definition == "clerk"
    assert (asked.excluded, refused.status_code) == ((ada,), 403)
    assert again.excluded == tuple(sorted((ada, bob)))


async def test_what_somebody_allowed_for_the_session_does_not_cover_calls_of_own_runs(open_office):
    async with open_office() as office:
        (ada, adas), (_, bobs) = await office.key("ada"), await office.key("bob")
        first = await office.trigger(bobs)
        [asked] = await office.asked()
        await office.decide(asked, adas, "allow_for_session")
        await office.ended(first)
        covered = await office.trigger(bobs)
        await office.ended(covered)
        await office.trigger(adas)
        [asked] = await office.asked()

    assert office.burnt == ["papers", "papers"]
    assert asked.excluded == (ada,)
