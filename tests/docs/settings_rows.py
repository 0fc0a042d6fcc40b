"""What docs/configuration.md must say of each setting, as the code has it."""

from enum import Enum
from pathlib import Path

from msgspec.structs import asdict
from pydantic import BaseModel

from owlclaw_ray.configuration.environment import PREFIX
from owlclaw_ray.configuration.limits import LimitOverrides
from owlclaw_ray.domain.agent import Limits
from owlclaw_ray.settings import FileSettings


def setting_rows():
    """Return (key, variable, default) of every setting, in the order of the code."""
    return [(".".join(path), PREFIX + "__".join(path).upper(), default) for path, default in _defaults(FileSettings)]


def shown(value):
    """Return a default as the documents write it."""
    match value:
        case None:
            return "none"
        case Enum():
            return shown(value.value)
        case bool():
            return f"`{str(value).lower()}`"
        case float():
            return f"`{value:g}`"
        case tuple():
            return f"`{list(value)}`"
        case str() | Path() | int() | dict():
            return f"`{value}`"
    raise TypeError(value)


def _defaults(model, path=()):
    if model is LimitOverrides:
        return [((*path, name), shown(value)) for name, value in asdict(Limits()).items()]
    found = []
    for name, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            found += _defaults(info.annotation, (*path, name))
        else:
            found.append(((*path, name), shown(info.get_default(call_default_factory=True))))
    return found
