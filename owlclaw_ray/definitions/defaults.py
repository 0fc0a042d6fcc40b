"""What a definition gets that does not say otherwise."""

from __future__ import annotations

from msgspec import Struct, field

from owlclaw_ray.domain.agent import Limits
from owlclaw_ray.domain.budget import Budget
from owlclaw_ray.domain.callback import CallbackRules
from owlclaw_ray.domain.endpoint import Endpoint
from owlclaw_ray.domain.permission import PermissionPolicy


class Defaults(Struct, frozen=True):
    """Settings that definitions inherit."""

    chain: tuple[str, ...] = ("scripted:echo",)
    """The model, then its fallbacks."""
    limits: Limits = field(default_factory=Limits)
    permissions: PermissionPolicy = field(default_factory=PermissionPolicy)
    """Its `inherited` rules are those of the settings, and of the tenant's."""
    budgets: tuple[Budget, ...] = ()
    """What all definitions have beside their own budgets."""
    callbacks: CallbackRules | None = None
    """Where callbacks may go; None: nowhere."""
    routes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """The models of certain types of tasks, which a definition's own go before."""
    endpoints: tuple[Endpoint, ...] = ()
    """Of models' providers."""
