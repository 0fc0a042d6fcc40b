"""Permission rules, as owlclaw.yaml and agent.yaml write them (T7)."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from owlclaw_ray.configuration.section import Section
from owlclaw_ray.domain.governance import RISK_TAG, Risk
from owlclaw_ray.domain.permission import PermissionRules
from owlclaw_ray.domain.tool import Permission

_NAME = re.compile(r"[\w.*?\[\]-]+")


def _selector(text: str) -> str:
    kind, colon, value = text.partition(":")
    permissions = [each.value for each in Permission]
    if colon and kind == "permission" and value not in permissions:
        raise ValueError(f"is {text!r}: permission: must be followed by one of {', '.join(permissions)}")
    if (colon and kind not in {"tag", "permission"}) or not (value if colon else _NAME.fullmatch(text)):
        raise ValueError(f"is {text!r}: write a tool's name, a pattern such as code.*, tag:<tag> or permission:write")
    return text


def _risk_or_selector(text: str) -> str:
    risks = [f"{RISK_TAG}{each.value}" for each in Risk]
    if text.startswith(RISK_TAG):
        if text not in risks:
            raise ValueError(f"is {text!r}: write one of {', '.join(risks)}")
        return text
    return _selector(text)


Selector = Annotated[str, AfterValidator(_selector)]
RiskOrSelector = Annotated[str, AfterValidator(_risk_or_selector)]


class PermissionSettings(Section):
    """Selectors of the tools whose calls run, ask, or do not run."""

    allow: tuple[Selector, ...] = ()
    ask: tuple[Selector, ...] = ()
    deny: tuple[Selector, ...] = ()
    two_people: tuple[RiskOrSelector, ...] = ()
    """Those whose calls two different people must allow; also `risk:<level>`."""
    not_by_submitter: tuple[RiskOrSelector, ...] = ()
    """Those whose calls nobody may allow who asked for the run; also `risk:<level>`."""

    @property
    def rules(self) -> PermissionRules:
        """What is written here, for the engine."""
        return PermissionRules(self.allow, self.ask, self.deny, self.two_people, self.not_by_submitter)


class SharedPermissionSettings(PermissionSettings):
    """Those of all agents."""

    not_by_submitter: tuple[RiskOrSelector, ...] = (f"{RISK_TAG}{Risk.CRITICAL.value}",)
