"""Settings of a runtime: owlclaw.yaml, overridden by the environment, checked as a whole before anything starts.

Read by hand and not by a settings library, because every problem has to be reported at once, each with its file and line
or its environment variable.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from owlclaw_ray.configuration.environment import Environment
from owlclaw_ray.configuration.limits import Count, LimitOverrides, Seconds
from owlclaw_ray.configuration.permissions import PermissionSettings
from owlclaw_ray.configuration.problems import model_problems
from owlclaw_ray.configuration.yaml_document import YamlDocument, read_yaml
from owlclaw_ray.domain.agent import Limits
from owlclaw_ray.domain.permission import Approver, PermissionPolicy
from owlclaw_ray.errors import ConfigurationError, Problem
from owlclaw_ray.identity.defaults import Defaults

FILE_NAME = "owlclaw.yaml"
_STORE_DRIVERS = {
    "sqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
}
_MAX_FILE_BYTES = 1024 * 1024
NonEmpty = Annotated[str, Field(min_length=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class HttpSettings(_Section):
    """Where the HTTP API listens."""

    host: NonEmpty = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65_535)] = 8700
    body_limit_bytes: Count = 1024 * 1024

    @field_validator("host")
    @classmethod
    def _loopback(cls, host: str) -> str:
        if not _is_loopback(host):
            raise ValueError(
                f"is {host!r}, which others can reach, and there are no API keys yet: use 127.0.0.1, ::1 or localhost"
            )
        return host


class ActorSettings(_Section):
    """Agent actors of a node."""

    warm: Annotated[int, Field(ge=0)] = 2
    """How many wait, ready, for an agent."""
    max: Count = 64
    agents_per_actor: Count = 1000
    """With `isolation: shared`."""
    idle_seconds: Seconds = 60.0
    """After so long without a run an agent is passivated."""
    heartbeat_seconds: Seconds = 2.0
    """How often each actor's life is checked."""
    memory_limit: Annotated[float, Field(gt=0, le=1)] = 0.9
    """The used share of a node's memory above which idle agents are passivated at once, and no actor is made ahead."""

    @model_validator(mode="after")
    def _warm_within_max(self) -> Self:
        if self.warm > self.max:
            raise ValueError(f"warm is {self.warm}, more than max, {self.max}: lower warm or raise max")
        return self


class ToolSettings(_Section):
    """Tool workers of a node."""

    slots: Count | None = None
    """How many tool tasks run at once; None: from the number of cores."""
    quick_slots: Count = 2
    """How many tasks of quick built-in tools run at once, beside the others."""


class ModelSettings(_Section):
    """Model calls."""

    max_concurrent: Count = 64
    attempts: Count = 3
    """Tries of each model before the next of the chain."""
    backoff_seconds: Seconds = 0.5
    """The first wait between two tries; it doubles, with jitter, up to the next setting."""
    backoff_limit_seconds: Seconds = 20.0
    workers_max: Annotated[int, Field(ge=0)] | None = None
    """Processes that make calls, the gateway included; None: from the number of cores."""


class MemorySettings(_Section):
    """Long-term memory."""

    embedder: Literal["auto", "none", "local"] = "auto"
    """`auto`: the local one if it is installed, else full text only."""


class ScheduleSettings(_Section):
    """The embedded scheduler."""

    catch_up_window_seconds: Seconds = 86_400.0
    """A due time missed for longer is skipped, not caught up."""


class ApprovalSettings(_Section):
    """What becomes of tool calls that need an approval."""

    approver: Approver = Approver.PEOPLE
    """`people`: the run waits until somebody decides; `nobody`: such calls are denied at once."""
    expires_seconds: Seconds = 86_400.0
    """What nobody decided after so long is denied."""


class RaySettings(_Section):
    """The Ray cluster to run on."""

    address: NonEmpty | None = None
    """None starts a local one; `auto` or an address attaches."""
    temp_dir: Path | None = None
    num_cpus: Count | None = None


class LogSettings(_Section):
    """The log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"

    @field_validator("level", mode="before")
    @classmethod
    def _any_case(cls, level: object) -> object:
        return level.lower() if isinstance(level, str) else level


class FileSettings(_Section):
    """What owlclaw.yaml and the environment may say."""

    app: NonEmpty | None = None
    """Import path of the application, `module:name`."""
    agents_dir: Path = Path("agents")
    data_dir: Path = Path(".owlclaw")
    store_url: NonEmpty | None = None
    """None: an SQLite file in data_dir."""
    model: NonEmpty = "scripted:echo"
    fallback: tuple[NonEmpty, ...] = ()
    limits: LimitOverrides = Field(default_factory=LimitOverrides)
    permissions: PermissionSettings = Field(default_factory=PermissionSettings)
    approvals: ApprovalSettings = Field(default_factory=ApprovalSettings)
    http: HttpSettings = Field(default_factory=HttpSettings)
    actors: ActorSettings = Field(default_factory=ActorSettings)
    tools: ToolSettings = Field(default_factory=ToolSettings)
    models: ModelSettings = Field(default_factory=ModelSettings)
    memory: MemorySettings = Field(default_factory=MemorySettings)
    schedules: ScheduleSettings = Field(default_factory=ScheduleSettings)
    ray: RaySettings = Field(default_factory=RaySettings)
    log: LogSettings = Field(default_factory=LogSettings)

    @field_validator("app")
    @classmethod
    def _import_path(cls, app: str | None) -> str | None:
        if app is not None and not re.fullmatch(r"[\w.]+:[\w.]+", app):
            raise ValueError(f"is {app!r}, which is no import path: write it as module:name, such as app:app")
        return app

    @field_validator("store_url")
    @classmethod
    def _store(cls, url: str | None) -> str | None:
        if url is None:
            return None
        scheme, separator, _ = url.partition("://")
        if not separator or scheme.partition("+")[0] not in _STORE_DRIVERS:
            shown = re.sub(r"//[^/@]*@", "//…@", url)
            raise ValueError(f"is {shown!r}: use sqlite:///path/to/file.db or postgresql://user:password@host/database")
        return url


class Settings(FileSettings):
    """Checked settings with every path resolved against `folder`."""

    folder: Path
    """The folder of owlclaw.yaml, which is the application's."""
    store_url: str

    @property
    def run_limits(self) -> Limits:
        """Limits of a run whose definition sets none."""
        return self.limits.over(Limits())

    @property
    def defaults(self) -> Defaults:
        """What definitions inherit."""
        approvals = self.approvals
        policy = PermissionPolicy(
            inherited=self.permissions.rules, approver=approvals.approver, expires=approvals.expires_seconds
        )
        return Defaults((self.model, *self.fallback), self.run_limits, policy)


def load_settings(folder: Path, environ: Mapping[str, str]) -> Settings:
    """Read `owlclaw.yaml` in the folder, if it is there, and the variables `OWLCLAW_…` (`OWLCLAW_HTTP__PORT` is http.port).

    Raises ConfigurationError with every bad key and value, where it stands, and what would be right.
    """
    folder = folder.resolve()
    document = _read_file(folder / FILE_NAME)
    environment = Environment.of(environ, FileSettings)
    merged = environment.over(document.data)
    try:
        written = FileSettings.model_validate(merged)
    except ValidationError as error:
        place = lambda path: environment.where(path) or document.where(path)  # noqa: E731 (one use, beside it)
        raise ConfigurationError([*environment.problems, *model_problems(error, FileSettings, place)]) from error
    if environment.problems:
        raise ConfigurationError(environment.problems)
    return _resolved(written, folder)


def _read_file(path: Path) -> YamlDocument:
    try:
        content = path.read_bytes()
        if len(content) > _MAX_FILE_BYTES:
            raise ConfigurationError([Problem(FILE_NAME, f"is {len(content)} bytes long", "it may have 1 MiB")])
        return read_yaml(content.decode("utf-8-sig"), FILE_NAME)
    except FileNotFoundError:
        return YamlDocument(FILE_NAME, {})
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            [Problem(str(path), f"cannot be read: {error}", "it must be a UTF-8 text file")]
        ) from error


def _resolved(written: FileSettings, folder: Path) -> Settings:
    data_dir = folder / written.data_dir.expanduser()
    temp_dir = written.ray.temp_dir
    ray = written.ray.model_copy(update={"temp_dir": folder / temp_dir.expanduser()}) if temp_dir else written.ray
    return Settings.model_construct(
        **{name: getattr(written, name) for name in FileSettings.model_fields}
        | {
            "folder": folder,
            "agents_dir": folder / written.agents_dir.expanduser(),
            "data_dir": data_dir,
            "store_url": _store_url(written.store_url or f"sqlite:///{data_dir}/owlclaw.db", folder),
            "ray": ray,
        }
    )


def _store_url(url: str, folder: Path) -> str:
    scheme, _, rest = url.partition("://")
    driver = scheme if "+" in scheme else _STORE_DRIVERS[scheme]
    if driver.startswith("sqlite"):
        rest = f"/{folder / Path(rest.removeprefix('/')).expanduser()}"
    return f"{driver}://{rest}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
