"""tenant.yaml: what the definitions that a tenant uses inherit in the place of what owlclaw.yaml says."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

from msgspec.structs import replace
from pydantic import Field, ValidationError, field_validator

from owlclaw_ray.configuration.governance import SharedBudgetFile, duplicate_name
from owlclaw_ray.configuration.limits import LimitOverrides
from owlclaw_ray.configuration.models import Routes
from owlclaw_ray.configuration.permissions import PermissionSettings
from owlclaw_ray.configuration.problems import model_problems
from owlclaw_ray.configuration.section import NonEmpty, Section
from owlclaw_ray.configuration.yaml_document import read_yaml
from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.errors import ConfigurationError, DefinitionError, Problem

TENANT = "tenant.yaml"


class TenantFile(Section):
    """The keys of tenant.yaml; all are optional, and what is not there is as owlclaw.yaml says."""

    definitions: tuple[NonEmpty, ...] = ("*",)
    """Patterns of the shared definitions that the tenant may use beside its own."""
    model: NonEmpty | None = None
    fallback: tuple[NonEmpty, ...] | None = None
    routes: Routes = Field(default_factory=dict)
    """Models of certain types of tasks, before those of owlclaw.yaml."""
    limits: LimitOverrides = Field(default_factory=LimitOverrides)
    permissions: PermissionSettings = Field(default_factory=PermissionSettings)
    """Added to those of owlclaw.yaml."""
    budgets: tuple[SharedBudgetFile, ...] = ()
    """Added to those of owlclaw.yaml."""

    @field_validator("budgets")
    @classmethod
    def _one_budget_a_name(cls, budgets: tuple[SharedBudgetFile, ...]) -> tuple[SharedBudgetFile, ...]:
        if twice := duplicate_name(budgets):
            raise ValueError(f"has two budgets named {twice!r}: give one of them another name")
        return budgets

    def may_use(self, name: str) -> bool:
        """Return whether the tenant may use the shared definition of that name."""
        return any(fnmatchcase(name, pattern) for pattern in self.definitions)

    def over(self, base: Defaults) -> Defaults:
        """Return what the tenant's definitions inherit, where others inherit `base`."""
        fallback = self.fallback if self.fallback is not None else base.chain[1:] if self.model is None else ()
        rules = base.permissions.inherited.together_with(self.permissions.rules)
        return replace(
            base,
            chain=(self.model or base.chain[0], *fallback),
            limits=self.limits.over(base.limits),
            permissions=replace(base.permissions, inherited=rules),
            budgets=(*base.budgets, *(each.budget() for each in self.budgets)),
            routes=tuple({**dict(base.routes), **self.routes}.items()),
        )


def load_tenant_file(path: Path, base: Defaults) -> TenantFile:
    """Read a tenant.yaml; one that is not there says nothing. Raises DefinitionError with every problem, each naming its place."""
    shown = f"{path.parent.name}/{path.name}"
    try:
        document = read_yaml(path.read_bytes().decode("utf-8-sig"), shown)
        found = TenantFile.model_validate(document.data)
    except FileNotFoundError:
        return TenantFile()
    except OSError as error:
        raise DefinitionError([Problem(shown, f"cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError as error:
        raise DefinitionError([Problem(shown, "is not UTF-8", "save it as UTF-8")]) from error
    except ValidationError as error:
        raise DefinitionError(model_problems(error, TenantFile, document.where)) from error
    except ConfigurationError as error:
        raise DefinitionError(error.problems) from error
    taken = {each.name for each in base.budgets}
    if twice := [each.name for each in found.budgets if each.name in taken]:
        what = f"has a budget named {twice[0]!r}, and so has owlclaw.yaml, whose budgets hold for every tenant"
        raise DefinitionError([Problem(f"{shown}: budgets", what, "remove it, or give it another name")])
    return found
