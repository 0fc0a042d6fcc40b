"""The settings that are in force, each with where it comes from, and what is wrong as far as the server itself can tell.

`owlclaw doctor` checks more: it imports the application anew, opens the store, tries ports and asks providers, which takes seconds and
belongs into no server that answers requests. What a server knows are the states of its parts, what its nodes say of themselves
(`owlclaw doctor --cluster`), and what was found when it started.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import ClassVar

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from console.filters import choice_of
from console.pages import Pages, page
from console.text import pretty
from owlclaw_ray.configuration.setting_sources import SettingInForce, SettingSource
from owlclaw_ray.errors import OwlClawError
from owlclaw_ray.runtime.api import Health
from serve.cli.cluster_checks import check_cluster
from serve.cli.findings import CheckFinding, Level, fail, failures, ok, warn
from serve.representations import nodes_body


class ShownSetting(Struct, frozen=True):
    """A setting as a row."""

    setting: SettingInForce
    text: str
    """Empty where nothing is set."""


class SettingsPages(Pages):
    """`/console/settings`, for operators."""

    place: ClassVar[str] = "settings"

    @page("GET /console/settings", "system:read", "source")
    async def console_settings(self, request: Request) -> Response:
        """Show findings and settings; those of one source, if that is asked for."""
        source = choice_of(request, "source", SettingSource)
        facts = self._surroundings.facts
        chosen = [ShownSetting(each, _text(each)) for each in facts.settings if source in {None, each.source}]
        findings = [*_parts(await self._runtime.health()), *await self._nodes()]
        findings += [warn(each.where, each.what, each.fix) for each in facts.problems]
        return await self.shown(
            request,
            "settings.html",
            sections=[(name, [*rows]) for name, rows in groupby(sorted(chosen, key=_section), key=_section)],
            known=bool(facts.settings),
            source=source.value if source else "",
            sources=[each.value for each in SettingSource],
            findings=[each for each in findings if each.level is not Level.OK],
            good=[each for each in findings if each.level is Level.OK],
        )

    async def _nodes(self) -> list[CheckFinding]:
        try:
            cluster = await self._runtime.nodes()
        except OwlClawError as error:
            return failures("cluster", error)
        return [*check_cluster(nodes_body(cluster))] if cluster.nodes else []


def _section(shown: ShownSetting) -> str:
    """Return the section that a setting is in; empty for those that are in none, which come first."""
    name, dot, _ = shown.setting.path.partition(".")
    return name.partition("[")[0] if dot or "[" in name else ""


def _parts(health: Health) -> Iterator[CheckFinding]:
    for name, state in health.parts.items():
        yield ok(name, "answers") if state == "ok" else fail(name, state, "")


def _text(setting: SettingInForce) -> str:
    if setting.value is None or setting.value in ("", [], {}):
        return ""
    return {True: "yes", False: "no"}[setting.value] if isinstance(setting.value, bool) else pretty(setting.value)
