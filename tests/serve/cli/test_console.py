"""`owlclaw console`, against the API with the console."""

from __future__ import annotations

import re

import pytest

from owlclaw_ray.access.keys import KeyRequest
from owlclaw_ray.domain.principal import LOCAL
from tests.console.conftest import Browser, api, runtime, staged  # noqa: F401 - fixtures
from tests.serve.conftest import serving


@pytest.fixture
def served(api, monkeypatch):  # noqa: F811 - the fixture
    with serving(api) as url:
        monkeypatch.setenv("OWLCLAW_URL", url)
        monkeypatch.delenv("OWLCLAW_API_KEY", raising=False)
        yield url


def test_where_nobody_needs_a_key_the_address_is_enough(cli, served):
    shown = cli("console")

    assert (shown.exit_code, shown.output) == (0, f"{served}/console\n")


async def test_with_a_key_the_link_signs_in_once_and_does_not_hold_the_key(cli, served, runtime, monkeypatch):  # noqa: F811
    key = (await runtime.keys.create(LOCAL, KeyRequest("ada", ("viewer",)))).text
    monkeypatch.setenv("OWLCLAW_API_KEY", key)

    shown = cli("console")

    code = re.fullmatch(rf"{served}/console/sign-in#(\S+)", shown.stdout.strip())[1]
    assert key not in shown.output
    async with Browser(staged()[1]) as browser:
        answer = await browser.fill("/console/sign-in", "/console/sign-in", code=code)
        assert (answer.status_code, (await browser.get("/console/runs")).status_code) == (303, 200)


async def test_without_the_key_that_the_server_needs_it_says_so(cli, served, runtime):  # noqa: F811
    await runtime.keys.create(LOCAL, KeyRequest("ada", ("viewer",)))

    refused = cli("console")

    assert refused.exit_code == 1
    assert "owlclaw keys create" in refused.output
