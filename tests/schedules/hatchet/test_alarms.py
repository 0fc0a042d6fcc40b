"""One-time schedules of the engine, by the unmodified SDK over the wire."""

import asyncio
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest

from owlclaw_ray.errors import AlarmEngineUnavailableError
from owlclaw_ray.ids import ScheduleId
from owlclaw_ray.schedules.hatchet.alarms import HatchetAlarms
from owlclaw_ray.schedules.hatchet.options import Tls, client_config
from tests.hatchet_engine.engine import token_for
from tests.hatchet_engine.rest_side import Refusal, Silence
from tests.schedules.hatchet.world import START, know_workflow, options_for

ONE = ScheduleId("sch_one")
SOON = START + timedelta(minutes=5)


@pytest.fixture
def make(engine):
    made = []

    def make(options=None, **changes):
        made.append(HatchetAlarms(options or options_for(engine, **changes), times=(1.0, 0.5)))
        return made[-1]

    yield make
    for each in made:
        each.close()


async def failure_of(call):
    with pytest.raises(AlarmEngineUnavailableError) as caught:
        await call
    return str(caught.value)


async def test_an_alarm_is_set_listed_and_removed_and_removing_it_again_is_fine(make):
    alarms = make()
    await alarms.set(ONE, SOON)
    (alarm,) = await alarms.alarms()

    await alarms.remove(alarm.alarm_id)
    await alarms.remove(alarm.alarm_id)

    assert (alarm.schedule_id, alarm.at) == (ONE, SOON)
    assert await alarms.alarms() == []


async def test_alarms_are_listed_page_by_page(make, engine, monkeypatch):
    monkeypatch.setattr("owlclaw_ray.schedules.hatchet.alarms._PAGE", 2)
    names = [ScheduleId(f"sch_{number}") for number in range(5)]
    for number, name in enumerate(names):
        await make().set(name, SOON + timedelta(seconds=number))
    engine.rest.calls.clear()

    assert [each.schedule_id for each in await make().alarms()] == names[::-1]
    assert len(engine.rest.calls) == 4


async def test_an_engine_that_keeps_milliseconds_never_rings_too_early(make, engine):
    await make().set(ONE, SOON + timedelta(microseconds=123_456))
    assert engine.alarms[0].trigger_at == SOON + timedelta(milliseconds=124)


async def test_an_engine_that_looks_at_no_zone_is_told_the_time_in_utc(make):
    await make().set(ONE, SOON.astimezone(ZoneInfo("Asia/Shanghai")))
    (alarm,) = await make().alarms()

    assert alarm.at == SOON


async def test_namespaces_keep_installations_apart(make, engine):
    know_workflow(engine, "blue_owlclaw-ring")
    plain, blue = make(), make(namespace="blue")
    await blue.set(ONE, SOON)

    assert len(await blue.alarms()) == 1
    assert await plain.alarms() == []
    assert engine.alarms[0].workflow == "blue_owlclaw-ring"


async def test_what_fails_says_what_and_where_and_never_the_token(make, engine):
    stranger = token_for(engine.api_url, engine.grpc_address) + "x"
    refused = await failure_of(make(options_for(engine, token=stranger)).alarms())
    unknown = await failure_of(make(namespace="nobody").set(ONE, SOON))
    engine.rest.faults.extend([Refusal(500), Silence()])
    failing = await failure_of(make().alarms())
    silent = await failure_of(make().alarms())
    engine.go_down()
    down = await failure_of(make().alarms())

    assert "hatchet.token" in refused
    assert "nobody_owlclaw-ring" in unknown
    assert failing.endswith(f"{engine.api_url} answers 500")
    assert "ReadTimeoutError" in silent
    assert "cannot be reached" in down
    assert all(
        token not in text for text in (refused, unknown, failing, silent, down) for token in (engine.token, stranger)
    )


async def test_no_call_is_made_twice_whatever_comes_of_it(make, engine):
    engine.rest.faults.extend([Refusal(503), Refusal(502, after_the_effect=True), Silence()])
    for _ in range(3):
        await failure_of(make().set(ONE, SOON))

    assert len(engine.rest.calls) == 3
    assert len(engine.alarms) == 1


async def test_calls_without_an_answer_take_no_thread_from_others(make, engine):
    engine.rest.fault = Silence()
    alarms = make()
    waiting = [asyncio.create_task(failure_of(alarms.set(ONE, SOON))) for _ in range(40)]

    assert await asyncio.to_thread(lambda: "done") == "done"
    assert not any(each.done() for each in waiting)
    engine.go_down()
    await asyncio.gather(*waiting)


def test_the_sdk_is_told_our_settings_whatever_variables_and_files_there_are(engine, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("HATCHET_CLIENT_NAMESPACE=file\nHATCHET_CLIENT_TLS_ROOT_CA_FILE=ca.pem\n")
    monkeypatch.setenv("HATCHET_CLIENT_HOST_PORT", "elsewhere:1")
    monkeypatch.setenv("HATCHET_CLIENT_TLS_STRATEGY", "mtls")

    config = client_config(options_for(engine, namespace="ours"), health_port=1234)

    assert (config.host_port, config.server_url, config.token) == (engine.grpc_address, engine.api_url, engine.token)
    assert (config.namespace, config.tls_config.strategy, config.tls_config.root_ca_file) == ("ours_", "none", None)
    assert (config.healthcheck.bind_address, config.healthcheck.port) == ("127.0.0.1", 1234)
    assert config.tenacity.max_attempts == 0


def test_mutual_tls_reaches_the_sdk(engine):
    config = client_config(options_for(engine, tls=Tls("mtls", "ca.pem", "cert.pem", "key.pem", "engine")))

    tls = config.tls_config
    assert (tls.strategy, tls.root_ca_file, tls.cert_file, tls.key_file) == ("mtls", "ca.pem", "cert.pem", "key.pem")
    assert tls.server_name == "engine"
    assert not config.healthcheck.enabled
