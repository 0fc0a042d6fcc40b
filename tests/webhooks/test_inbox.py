from __future__ import annotations

import asyncio
import dataclasses
from datetime import timedelta

import pytest

from owlclaw_ray.access.keys import KeyRequest
from owlclaw_ray.domain.principal import LOCAL
from owlclaw_ray.domain.quota import KeyQuota
from owlclaw_ray.domain.trigger import Admission, BusyPolicy
from owlclaw_ray.domain.webhook import BodyForm, DeliverTo, DeliveryStatus
from owlclaw_ray.errors import QuotaReachedError, StoreUnavailableError
from owlclaw_ray.ids import DEFAULT_TENANT, KeyId
from owlclaw_ray.store.commands import ReceiveDelivery
from owlclaw_ray.store.queries import AgentsWithWork
from tests.definitions.writing import write_definition
from tests.webhooks.conftest import ORDER, SECRET, SHOP, START, mapped, signature


async def test_a_delivery_triggers_the_agent_that_its_body_names(installation):
    answer = await installation.send()

    receipt = answer.json()
    assert (answer.status_code, receipt["status"], receipt["duplicate"]) == (202, "triggered", False)
    run = (await installation.http.get(f"/v1/runs/{receipt['run_id']}")).json()
    assert (run["agent"], run["trigger"]["kind"]) == ("assistant:ada", "webhook")
    assert run["trigger"]["payload"] == {"order": ORDER["order"], "event": "paid", "fixed": [1, None]}
    assert (run["trigger"]["focus"], run["trigger"]["source"]) == ("order 17 of ada", receipt["delivery_id"])
    (listed,) = await installation.deliveries()
    assert (listed["run_id"], listed["agent"], listed["reason"]) == (receipt["run_id"], "assistant:ada", "")
    shown = (await installation.http.get(f"/v1/deliveries/{receipt['delivery_id']}")).json()
    assert (shown["headers"], shown["repeatable"]) == ({"x-event": "paid", "x-delivery": "d1"}, False)
    assert "价格" in shown["body"]


async def test_a_delivery_says_what_kind_of_work_its_run_is(install):
    async with install(mapped(task_type="{header.X-Event}-{body.order.id}")) as installation:
        short = await installation.send()
        long = await installation.send(delivery="d2", **{"X-Event": "x" * 99})

        types = [
            (await installation.http.get(f"/v1/runs/{each.json()['run_id']}")).json()["trigger"]["task_type"]
            for each in (short, long)
        ]

    assert types == ["paid-17", "x" * 64]


async def test_a_delivery_is_part_of_the_trace_that_its_sender_names(installation):
    caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    traced = (await installation.send(traceparent=caller)).json()["run_id"]
    untraced = (await installation.send(delivery="d2", traceparent="00-nonsense")).json()["run_id"]

    found = [await installation.runtime.run(DEFAULT_TENANT, run_id) for run_id in (traced, untraced)]
    assert [run.trigger.traceparent for run in found] == [caller, ""]


async def test_a_delivery_that_comes_again_is_answered_for_the_same_run(installation):
    first = await installation.send()
    again = await installation.send()
    other = await installation.send(delivery="d2")

    assert (again.status_code, again.json()) == (200, {**first.json(), "duplicate": True})
    assert other.status_code == 202
    assert len(await installation.runs()) == 2


HEARTBEAT = mapped(deliver=DeliverTo.HEARTBEAT)


async def test_a_source_may_deliver_to_the_next_heartbeat_of_its_agent(install, tmp_path):
    write_definition(tmp_path / "agents" / "assistant", agent="model: scripted:echo\nheartbeat: {}\n")
    async with install(HEARTBEAT) as installation:
        runtime = installation.runtime
        answers = [await installation.send(delivery=name) for name in ("d1", "d2", "d2")]
        before = await installation.runs()
        assert await runtime.heartbeats.tick() == 2
        await installation.clock.advance(300)
        await runtime.schedule_firer.fire_all_due()
        while [run for run in await installation.runs() if run["finished_at"] is None]:
            await asyncio.sleep(0)
        runs = await installation.runs()
        deliveries = await installation.deliveries()

    assert [each.status_code for each in answers] == [202, 202, 200]
    assert [each.json()["status"] for each in answers] == ["waiting"] * 3
    assert before == []
    status = {run["agent"]: run["status"] for run in runs}
    assert status == {"assistant": "skipped", "assistant:ada": "completed"}
    (woken,) = [run for run in runs if run["status"] == "completed"]
    assert {(each["status"], each["run_id"]) for each in deliveries} == {("handled", woken["run_id"])}
    told = woken["result"]["final_text"]
    assert all(each["delivery_id"] in told for each in deliveries)
    assert "order 17 of ada" in told


@pytest.mark.parametrize("heartbeat", ["", "heartbeat: {sources: [queue]}\n"])
async def test_a_delivery_that_no_heartbeat_would_see_is_not_taken(install, tmp_path, heartbeat):
    write_definition(tmp_path / "agents" / "assistant", agent=f"model: scripted:echo\n{heartbeat}")
    async with install(HEARTBEAT) as installation:
        answer = await installation.send()
        (listed,) = await installation.deliveries(status="unmapped")

    assert (answer.status_code, listed["agent"]) == (422, None)
    assert "assistant has no heartbeats that look into the inbox" in listed["reason"]


async def test_a_delivery_that_is_more_than_a_heartbeat_is_told_is_not_taken(install, tmp_path):
    write_definition(tmp_path / "agents" / "assistant", agent="model: scripted:echo\nheartbeat: {}\n")
    async with install(HEARTBEAT) as installation:
        answer = await installation.send({"customer": "ada", "order": {"id": 17, "note": "x" * 70_000}})

    assert answer.status_code == 422
    assert "heartbeats are told 65536: have `payload` choose what matters" in answer.json()["detail"]


async def test_of_the_same_delivery_many_times_at_once_one_triggers(installation):
    answers = await asyncio.gather(*(installation.send() for _ in range(12)))

    assert sorted(answer.status_code for answer in answers) == [200] * 11 + [202]
    assert len({answer.json()["run_id"] for answer in answers}) == 1
    assert len(await installation.runs()) == 1


async def test_of_a_source_whose_secret_is_not_there_nothing_is_taken_and_only_its_tenant_learns_why(install):
    async with install(dataclasses.replace(SHOP, secrets=())) as installed:
        answer = await installed.send()
        unknown = await installed.http.post("/v1/webhooks/nobody", headers={"X-Signature": "x"}, content=b"{}")

        assert [answer.status_code, unknown.status_code] == [401, 401]
        assert answer.json()["detail"].replace("shop", "nobody") == unknown.json()["detail"]
        assert await installed.runs() == []
        (listed,) = await installed.deliveries(status="refused")
        assert listed["reason"] == "its secret is not there: the log says which one"


@pytest.mark.parametrize("source", ["shop", "nobody"])
@pytest.mark.parametrize(("headers", "is_read"), [({"X-Signature": "x"}, True), ({}, False)])
async def test_whether_the_body_is_read_before_a_refusal_does_not_depend_on_whether_there_is_such_a_source(
    installation, source, headers, is_read
):
    read = []

    async def body():
        read.append(source)
        yield b"{}"

    answer = await installation.http.post(f"/v1/webhooks/{source}", headers=headers, content=body())

    assert (answer.status_code, bool(read)) == (401, is_read)


async def test_a_wrong_signature_is_refused_and_listed_without_its_body(installation):
    answer = await installation.send(**{"X-Signature": signature(b"other")})

    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (401, "urn:owlclaw:problem:webhook-refused")
    assert await installation.runs() == []
    (listed,) = await installation.deliveries(status="refused")
    assert (listed["source"], listed["reason"]) == ("shop", "the signature does not match")
    shown = (await installation.http.get(f"/v1/deliveries/{listed['delivery_id']}")).json()
    assert (shown["body"], shown["headers"], shown["repeatable"]) == ("", {}, False)
    again = await installation.http.post(f"/v1/deliveries/{listed['delivery_id']}/redelivery")
    assert (again.status_code, again.json()["type"]) == (409, "urn:owlclaw:problem:settled")


async def test_who_has_no_secret_does_not_learn_which_sources_there_are_or_how_they_sign(installation):
    http = installation.http
    answers = [
        await http.post(f"/v1/webhooks/{source}", json={}, headers=headers)
        for source in ("shop", "timed", "nobody")
        for headers in ({}, {"X-Signature": "sha256=00"}, {"X-Signature": "t=1,v1=00"})
    ]

    told = {answer.text.replace(str(answer.request.url).rpartition("/")[2], "<source>") for answer in answers}
    assert ({answer.status_code for answer in answers}, len(told)) == ({401}, 1)
    assert "X-Signature" not in told.pop()


async def test_whoever_has_no_secret_cannot_fill_the_store(installation):
    for number in range(50):
        answer = await installation.send(delivery=f"d{number}", **{"X-Signature": "sha256=00"})
        assert answer.status_code == 401

    assert len(await installation.deliveries()) == 1


async def test_a_refusal_that_could_not_be_stored_is_stored_with_the_next(installation):
    inbox = installation.runtime.inbox
    store = inbox._store

    class Away:
        read = store.read

        async def apply(self, commands):
            raise StoreUnavailableError("away")

    inbox._store = Away()
    first = await installation.send(**{"X-Signature": "sha256=00"})
    inbox._store = store
    second = await installation.send(**{"X-Signature": "sha256=00"})

    assert (first.status_code, second.status_code) == (503, 401)
    assert len(await installation.deliveries(status="refused")) == 1


async def test_a_signature_does_not_cover_another_body(installation):
    content = b'{"customer": "ada", "order": {"id": 18}}'

    answer = await installation.send(content, **{"X-Signature": signature(b'{"customer": "ada", "order": {"id": 17}}')})

    assert answer.status_code == 401


async def test_a_replay_is_a_duplicate_within_the_window_and_refused_after_it(installation):
    at = int(START.timestamp())
    first = await installation.send_timed(b"{}", at)
    await installation.clock.advance(300)
    replayed = await installation.send_timed(b"{}", at)
    await installation.clock.advance(1)
    late = await installation.send_timed(b"{}", at)

    assert (first.status_code, replayed.status_code, late.status_code) == (202, 200, 401)
    assert replayed.json()["run_id"] == first.json()["run_id"]
    assert len(await installation.runs()) == 1
    (refused,) = await installation.deliveries(status="refused")
    assert "more than 300 s" in refused["reason"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "the body is not JSON: "),
        (b"", "the body is not JSON: "),
        (b"[" * 101 + b"]" * 101, "the body cannot be kept: "),
        (b'{"number": 18446744073709551616}', "the body cannot be kept: number is an integer beyond 64 bits"),
        (b"\xff\xfe", "the body is not UTF-8"),
        (b"[]", "the body has nothing at 'customer'"),
        (b'{"customer": "ada"}', "the body has nothing at 'order.id'"),
        (b'{"customer": "a/b", "order": {"id": 1}}', "'assistant:a/b' is no agent id"),
        (b'{"customer": {"x": 1}, "order": {"id": 1}}', "'assistant:{\"x\":1}' is no agent id"),
    ],
)
async def test_a_body_that_no_trigger_can_be_made_of_is_kept_with_the_reason(installation, body, reason):
    answer = await installation.send(body)

    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (422, "urn:owlclaw:problem:webhook-unmapped")
    (listed,) = await installation.deliveries(status="unmapped")
    assert listed["delivery_id"] == problem["delivery_id"]
    assert listed["reason"].startswith(reason)
    assert await installation.runs() == []


async def test_what_could_not_be_mapped_is_mapped_again_as_its_source_is_configured_then(install):
    async with install(mapped(agent="{body.who}")) as before:
        refused = await before.send()
        path = f"/v1/deliveries/{refused.json()['delivery_id']}/redelivery"
        still = await before.http.post(path)
        assert (refused.status_code, still.status_code) == (422, 422)

    async with install() as after:
        answer = await after.http.post(path)
        assert (answer.status_code, answer.json()["status"]) == (202, "triggered")
        assert len(await after.runs()) == 1
        again = await after.http.post(path)
        assert (again.status_code, again.json()["settled_status"]) == (409, "triggered")
        sent = await after.send()
        assert (sent.status_code, sent.json()["duplicate"]) == (200, True)


async def test_a_webhook_that_is_delivered_again_counts_for_the_key_that_asks_for_it(install):
    async with install(mapped(agent="{body.who}")) as before:
        delivery_id = (await before.send()).json()["delivery_id"]

    async with install() as after:
        with pytest.raises(QuotaReachedError, match="the key has 0 starts in this minute"):
            await after.runtime.inbox.redeliver(DEFAULT_TENANT, delivery_id, quota=KeyQuota(KeyId("4fT0aQ1z"), 0))
        assert await after.runs() == []
        stored = await after.runtime.inbox.redeliver(DEFAULT_TENANT, delivery_id, quota=KeyQuota(KeyId("4fT0aQ1z"), 1))

    assert stored.delivery.status is DeliveryStatus.TRIGGERED


async def test_who_has_a_delivery_mapped_again_asked_for_its_run(install):
    async with install(mapped(agent="{body.who}")) as before:
        path = f"/v1/deliveries/{(await before.send()).json()['delivery_id']}/redelivery"

    async with install() as after:
        made = await after.runtime.keys.create(LOCAL, KeyRequest("ada", ("operator",)))
        again = await after.http.post(path, headers={"Authorization": f"Bearer {made.text}"})
        sent = await after.send(delivery="d2")
        runs = [await after.runtime.run(DEFAULT_TENANT, each.json()["run_id"]) for each in (again, sent)]

    assert [each.trigger.submitters for each in runs] == [(f"key:{made.key.key_id}",), ()]


async def test_what_was_not_text_is_not_mapped_again(installation):
    problem = (await installation.send(b"\xff")).json()

    answer = await installation.http.post(f"/v1/deliveries/{problem['delivery_id']}/redelivery")

    assert (answer.status_code, answer.json()["why"]) == (409, "its body was not kept")


async def test_an_agent_without_a_definition_is_no_place_for_a_delivery(install):
    async with install(mapped(agent="nobody")) as installation:
        answer = await installation.send()

        assert answer.status_code == 422
        assert "there is no agent definition for 'nobody'" in (await installation.deliveries())[0]["reason"]


async def test_what_an_agent_refuses_is_listed_and_may_come_again(install, tmp_path):
    write_definition(tmp_path / "agents" / "assistant", agent="model: scripted:echo\nlimits: {queued_runs: 1}\n")
    async with install(mapped(admission=Admission(BusyPolicy.REJECT))) as installation:
        runtime = installation.runtime
        await runtime.directory.stop(0)  # nobody executes runs from now on
        first = await installation.send()
        busy = await installation.send(delivery="d2")
        again = await installation.send(delivery="d2")

        assert (first.status_code, busy.status_code, again.status_code) == (202, 409, 409)
        assert busy.json()["type"] == "urn:owlclaw:problem:agent-busy"
        (listed,) = await installation.deliveries(status="refused")
        assert listed["reason"] == f"the agent is busy with run {first.json()['run_id']}"


async def test_a_broken_definition_refuses_and_is_told_to_the_sender(install, tmp_path):
    write_definition(tmp_path / "agents" / "assistant", soul="")
    async with install() as installation:
        answer = await installation.send()

        assert (answer.status_code, answer.json()["type"]) == (409, "urn:owlclaw:problem:definition-error")
        assert "SOUL.md" in (await installation.deliveries(status="refused"))[0]["reason"]


async def test_what_does_not_matter_is_ignored(install):
    shop = mapped(when=(("{header.X-Event}", ("paid", "sent")), ("{body.customer}", ("ada",))))
    async with install(shop) as installation:
        ping = await installation.send(**{"X-Event": "ping"})
        nobody = await installation.send({}, delivery="d2")
        paid = await installation.send(delivery="d3")

        assert (ping.status_code, ping.json()["status"], ping.json()["run_id"]) == (200, "ignored", None)
        assert ping.json()["reason"] == "{header.X-Event} is 'ping', which is none of paid, sent"
        assert nobody.json()["reason"] == "the body has nothing at 'customer'"
        assert paid.status_code == 202


@pytest.mark.parametrize(
    ("form", "body", "payload"),
    [
        (BodyForm.TEXT, "价格 1".encode(), "价格 1"),
        (BodyForm.FORM, b"a=1&b=%E4%BB%B7&a=2&c=", {"a": "1", "b": "价", "c": ""}),
    ],
)
async def test_bodies_may_be_text_or_fields_of_a_form(install, form, body, payload):
    source = dataclasses.replace(mapped(agent="assistant", payload="{body}", focus=""), body=form)
    async with install(source) as installation:
        assert (await installation.send(body)).status_code == 202
        assert (await installation.runs())[0]["trigger"]["payload"] == payload


async def test_without_anything_to_tell_repetitions_by_each_delivery_counts(install):
    async with install(mapped(dedupe="")) as installation:
        answers = [await installation.send() for _ in range(2)]

        assert [answer.status_code for answer in answers] == [202, 202]


async def test_an_unknown_delivery_is_not_found_and_nothing_is_kept_of_an_unknown_source(installation):
    assert (await installation.send(source="nobody")).status_code == 401
    for answer in (
        await installation.http.get("/v1/deliveries/whd_x"),
        await installation.http.post("/v1/deliveries/whd_x/redelivery"),
    ):
        assert answer.status_code == 404
    assert await installation.deliveries() == []


async def test_a_body_over_the_limit_is_refused(installation):
    assert (await installation.send(b"x" * 100_001)).status_code == 413


async def test_secrets_are_shown_nowhere(installation, caplog):
    await installation.send(**{"X-Signature": "sha256=00"})
    answer = await installation.http.get("/v1/webhooks")

    assert [each["source"] for each in answer.json()["sources"]] == ["shop", "timed"]
    assert [each["window_seconds"] for each in answer.json()["sources"]] == [None, 300.0]
    assert SECRET not in answer.text
    assert SECRET not in caplog.text
    assert SECRET not in repr(installation.runtime.inbox.sources(DEFAULT_TENANT))


async def test_a_delivery_whose_answer_was_lost_triggers_once_when_it_comes_again(installation, monkeypatch):
    """A crash between the commit and the answer: the sender sees an error and sends again."""
    store = installation.runtime.inbox._store
    real = store.apply

    async def commit_and_die(commands):
        await real(commands)
        monkeypatch.setattr(store, "apply", real)
        raise StoreUnavailableError("the process died")

    monkeypatch.setattr(store, "apply", commit_and_die)
    lost = await installation.send()
    again = await installation.send()

    assert (lost.status_code, again.status_code, again.json()["duplicate"]) == (503, 200, True)
    assert len(await installation.runs()) == 1


async def test_a_delivery_that_was_not_committed_is_not_answered_with_success(installation, monkeypatch):
    store = installation.runtime.inbox._store

    async def fail(commands):
        assert isinstance(commands[0], ReceiveDelivery)
        raise StoreUnavailableError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(store, "apply", fail)
        failed = await installation.send()

    assert (failed.status_code, await installation.deliveries()) == (503, [])
    assert (await installation.send()).status_code == 202


async def test_a_run_of_a_delivery_goes_on_after_a_restart(install):
    async with install() as before:
        await before.runtime.directory.stop(0)
        run_id = (await before.send()).json()["run_id"]

    async with install() as after:
        await after.runtime.directory.wake(await after.runtime.store.read(AgentsWithWork()))
        answer = await after.http.get("/v1/runs", params={"agent": "assistant:ada"})
        run = answer.json()["runs"][0]
        while run["status"] != "completed":
            await asyncio.sleep(0)
            run = (await after.http.get(f"/v1/runs/{run_id}")).json()
        assert run["run_id"] == run_id


async def test_deliveries_are_listed_by_source_and_status_newest_first(installation):
    await installation.send()
    await installation.clock.advance(1)
    await installation.send_timed(b"{", int((START + timedelta(seconds=1)).timestamp()))

    assert [each["source"] for each in await installation.deliveries()] == ["timed", "shop"]
    assert [each["source"] for each in await installation.deliveries(limit=1)] == ["timed"]
    assert [each["status"] for each in await installation.deliveries(source="timed")] == ["unmapped"]
    assert [each["source"] for each in await installation.deliveries(status="triggered")] == ["shop"]
    assert (await installation.http.get("/v1/deliveries?status=lost")).status_code == 422


def test_the_shop_keeps_the_headers_that_it_reads():
    from owlclaw_ray.webhooks.mapping import header_names

    assert header_names(SHOP) == {"x-event", "x-delivery"}
    assert "x-type" in header_names(mapped(task_type="{header.X-Type}"))
