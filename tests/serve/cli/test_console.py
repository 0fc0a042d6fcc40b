"""`owlclaw console`, against the API with the console."""

from __future__ import annotations

import re
from functools import partial
from types import SimpleNamespace

import pytest

from owlclaw_ray.access.keys import KeyRequest
from owlclaw_ray.domain.principal import LOCAL
from serve.launch import _console, _linked_console
from serve.loopback import free_ports
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

    code = re.fullmatch(rf"{served}/console/sign-in\?link=yes#(\S+)", shown.stdout.strip())[1]
    assert key not in shown.output
    async with Browser(staged()[1]) as browser:
        answer = await browser.fill("/console/sign-in", "/console/sign-in", code=code)
        assert (answer.status_code, (await browser.get("/console/runs")).status_code) == (303, 200)


async def test_without_the_key_that_the_server_needs_it_says_so(cli, served, runtime):  # noqa: F811
    await runtime.keys.create(LOCAL, KeyRequest("ada", ("viewer",)))

    refused = cli("console")

    assert refused.exit_code == 1
    assert "owlclaw keys create" in refused.output


async def test_a_terminal_is_shown_what_works(served, runtime):  # noqa: F811
    shown = partial(_linked_console, _console)
    assert shown(None, served) == f"{served}/console", "nobody needs a key"

    key = (await runtime.keys.create(LOCAL, KeyRequest("ada", ("viewer",)))).text

    assert re.fullmatch(
        rf"{served}/console/sign-in\?link=yes#\S+ \(signs in once, within a minute\)", shown(key, served)
    )
    for without in ("", "owl_0_nobody", None):
        assert shown(without, served) == f"{served}/console (sign in with: owlclaw console)"


def test_a_server_that_does_not_give_a_link_costs_a_terminal_nothing_but_the_link():
    nowhere = f"http://127.0.0.1:{free_ports(1)[0]}"

    assert _linked_console(_console, "owl_k_s", nowhere) == f"{nowhere}/console"


@pytest.mark.parametrize("terminal", [True, False])
def test_only_a_terminal_is_shown_links_whatever_rich_takes_for_one(cli, monkeypatch, *, terminal):
    asked = []
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr("serve.launch.up", lambda *_, links: asked.append(links) or 0)
    monkeypatch.setattr("serve.cli.server.sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: terminal)))

    assert cli("up").exit_code == 0
    assert asked == [terminal]
