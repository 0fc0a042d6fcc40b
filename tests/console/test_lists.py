"""Lists of the console: what comes and goes while one is open, and places in them that are gone."""

from __future__ import annotations

import re

import pytest

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.schedule import ScheduleRequest
from tests.console.test_pages import change, triggered


def version(page, name):
    """The version of the list on a page."""
    return re.search(rf'<div id="{name}" data-v="([^"]+)">', page)[1]


async def test_an_open_list_of_agents_is_renewed_when_one_comes_or_goes_and_not_else(browser, runtime):
    async def seen():
        return version((await browser.get("/console/agents?busy=yes&fragment=rows")).text, "agents")

    empty = await seen()
    first = await triggered(runtime, "patient:a", "at work")
    one = await seen()
    change(runtime, first.run_id, status=RunStatus.QUEUED)
    queued = await seen()
    second = await triggered(runtime, "patient:b", "at work")
    two = await seen()
    for run in (first, second):
        change(runtime, run.run_id, status=RunStatus.COMPLETED)

    assert len({empty, one, two}) == 3
    assert (queued, await seen()) == (one, empty)


async def test_an_open_list_of_schedules_is_renewed_when_one_comes_or_goes(browser, runtime):
    async def seen():
        return version((await browser.get("/console/schedules?status=active&fragment=rows")).text, "schedules")

    empty = await seen()
    schedule = await runtime.timetable.create(AgentRef.parse("patient"), ScheduleRequest("look", interval_seconds=60))
    there = await seen()
    await runtime.timetable.cancel("default", schedule.schedule_id)

    assert empty == await seen() != there


@pytest.mark.parametrize(
    "address",
    [
        "agents/patient/memories?after=mem_gone",
        "approvals?after=apr_gone",
        "schedules?after=sch_gone",
        "webhooks?before=dlv_gone",
        "webhooks/callbacks?before=cb_gone",
    ],
)
async def test_a_page_whose_place_in_the_list_is_gone_leads_to_the_first_one(browser, address):
    page = await browser.get(f"/console/{address}")

    assert page.status_code == 404
    first = address.partition("?")[0]
    assert f'href="/console/{first}"' in page.text
    assert (await browser.get(f"/console/{first}")).status_code == 200


async def test_the_inbox_is_shown_though_what_was_just_decided_is_gone(browser):
    assert (await browser.get("/console/approvals?did=apr_gone")).status_code == 200
