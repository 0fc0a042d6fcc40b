"""From settings to the plan that actors get."""

from __future__ import annotations

import os

from sqlalchemy import URL

from actors.cluster import NAMESPACE
from actors.logs import LogPlan
from actors.plan import HatchetPlan, RuntimePlan, ToolSlots, WorkerPlan
from actors.secrets import Entrusted
from owlclaw_ray.domain.embedding import EmbeddingCalls
from owlclaw_ray.domain.placement import Placement
from owlclaw_ray.domain.tracing import TracingOptions
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.schedules.api import SyncPace
from owlclaw_ray.schedules.hatchet.options import HatchetOptions, Tls
from owlclaw_ray.settings import Settings
from owlclaw_ray.store.sql.locations import locate


def slots_of(settings: Settings) -> ToolSlots:
    """Return how many tool tasks of each class run at once: by default what suits the cores of this machine."""
    tools, cores = settings.tools, os.cpu_count() or 1
    return ToolSlots(
        alone=tools.slots or 2 * cores,
        quick=tools.quick_slots,
        memory=tools.memory_slots or cores,
        state=tools.state_slots or cores,
    )


def plan_of(settings: Settings, tracing: TracingOptions | None = None) -> RuntimePlan:
    """Return the plan of a runtime with these settings."""
    actors, models = settings.actors, settings.models
    return RuntimePlan(
        worker=WorkerPlan(
            app_path=settings.app or "",
            app_folder=str(settings.folder),
            data_dir=str(settings.data_dir),
            embedder=settings.memory.embedder,
            namespace=NAMESPACE,
            agents_dir=str(settings.agents_dir),
            embedding=EmbeddingCalls(
                batch=settings.memory.embedding_batch,
                timeout=settings.memory.embedding_timeout_seconds,
                endpoints=models.endpoints,
            ),
            log=LogPlan(settings.log.level, settings.log.format),
            memory_limits=settings.memory.limits,
            memory_home=settings.memory_home,
            host_tools=settings.host_tools,
            stored_attempts=not settings.store_url.startswith("sqlite"),
            stored_artifact_bytes=settings.stored_artifact_bytes,
            large_artifacts=settings.large_artifacts,
            has_mcp=settings.mcp_options is not None,
        ),
        store_url=shown_url(settings.store_url),
        shared_files=settings.kept_in_files,
        defaults=settings.defaults,
        placement=Placement(
            warm=actors.warm,
            most=actors.max,
            agents_per_actor=actors.agents_per_actor,
            idle=actors.idle_seconds,
            heartbeat=actors.heartbeat_seconds,
            memory_limit=actors.memory_limit,
            most_nodes=actors.max_nodes,
        ),
        slots=slots_of(settings),
        warm_workers=settings.tools.warm,
        max_concurrent_models=models.max_concurrent,
        model_retry=RetryPolicy(
            attempts=models.attempts, base=models.backoff_seconds, cap=models.backoff_limit_seconds
        ),
        catch_up_seconds=settings.schedules.catch_up_window_seconds,
        drain_seconds=settings.shutdown.grace_seconds,
        redact=settings.ledger.redact,
        model_workers_max=models.workers_max,
        mcp=settings.mcp_options,
        artifact_days=settings.artifacts.retention_days,
        sources=settings.webhook_sources,
        callbacks=settings.callback_options,
        webhook_days=settings.webhooks.retention_days,
        run_days=settings.runs.retention_days,
        model_limits=tuple(each.limits() for each in models.limits),
        context_windows=tuple(models.context_windows.items()),
        prices=models.price_rules,
        tracing=tracing,
        issuers=settings.issuers,
        sign_in=settings.access.sign_in_options,
    )


def shown_url(store_url: str) -> str:
    """Return what everybody may know of where the store is: for a server neither user nor password nor options."""
    if store_url.startswith("sqlite"):
        return store_url
    url = locate(store_url).url
    host = None if url.host is None else url.host.rpartition("@")[2]
    return URL.create(url.drivername, host=host, port=url.port, database=url.database).render_as_string()


def entrusted_of(settings: Settings, master_keys: str) -> dict[Entrusted, str]:
    """Return the secrets of the runtime itself, by what they are."""
    found = {Entrusted.STORE_URL: settings.store_url, Entrusted.SECRETS_KEYS: master_keys}
    if settings.hatchet.token is not None:
        found[Entrusted.HATCHET_TOKEN] = settings.hatchet.token.get_secret_value()
    return found


def hatchet_plan(settings: Settings) -> HatchetPlan | None:
    """Return what the Scheduler is told of the engine; None without a token."""
    hatchet = settings.hatchet
    if hatchet.token is None:
        return None
    claims = hatchet.claims
    ca, cert, key = (
        None if path is None else str(path)
        for path in (hatchet.tls_ca_file, hatchet.tls_cert_file, hatchet.tls_key_file)
    )
    options = HatchetOptions(
        token="",
        tenant_id=claims["sub"],
        api_url=(hatchet.api_url or claims["server_url"]).rstrip("/"),
        grpc_address=hatchet.grpc_address or claims["grpc_broadcast_address"],
        tls=Tls(hatchet.tls, ca, cert, key, hatchet.tls_server_name),
        namespace=hatchet.namespace,
    )
    pace = SyncPace(hatchet.reconcile_seconds, hatchet.grace_seconds, hatchet.alarms_max)
    return HatchetPlan(options, pace)
