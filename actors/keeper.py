"""The Keeper: the only writer of the store on its node."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from actors.garbage import collect_rarely
from actors.liveness import LivenessMonitor
from actors.logs import configure
from actors.nodes import cluster_name, writer_name
from actors.plan import RuntimePlan
from actors.redactors import node_redactor
from actors.remote import ROOT, KnownActors, NamedActor, full_name, here, restarted
from actors.remote_actor import RemoteActor
from actors.secrets import Entrusted, entrusted, store_url, take_over
from owlclaw_ray.domain.ledger import NotedHead
from owlclaw_ray.domain.secret import Secret
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.ids import RunId, TenantId
from owlclaw_ray.kernel.periodic import Periodic
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.ledger.chain_heads import ChainHeadFile, ChainHeadFolder
from owlclaw_ray.ledger.redaction import TenantRedactors
from owlclaw_ray.placement.lease import RENEW_SECONDS
from owlclaw_ray.placement.node_row import NodeRow
from owlclaw_ray.secrets.keyring import read_keys
from owlclaw_ray.secrets.vault import SecretVault
from owlclaw_ray.store.command_link import answered
from owlclaw_ray.store.commands import JoinNode
from owlclaw_ray.store.group_commit import GroupCommit
from owlclaw_ray.store.queries import HeadsOfWriter, Query
from owlclaw_ray.store.run_updates import RunUpdates, SubscriptionId
from owlclaw_ray.telemetry.metrics.api import MetricFamily

if TYPE_CHECKING:
    from owlclaw_ray.store.sql.sql_store import SqlStore

logger = logging.getLogger(__name__)
_T = TypeVar("_T")

_NOTE_EVERY = 5.0
"""Seconds between two looks at the ledger's heads: what is cut off sooner after its commit is not missed."""


_LEARN_EVERY = 5.0
"""Seconds between two looks for secrets that were set at other Keepers."""


class KeeperActor(RemoteActor):
    """Opens the store when it is first asked, and again after a failure to open. Only in its first life it makes a new file."""

    def __init__(self, plan: RuntimePlan) -> None:
        from owlclaw_ray.telemetry.metrics.commit_metrics import CommitMetrics

        take_over()
        configure(plan.worker.log)
        collect_rarely()
        self._plan = plan
        self._opening = asyncio.Lock()
        self._liveness = asyncio.create_task(self._watch_root())
        self._noting = Periodic("noting the ledger's heads", self._note_heads, SystemClock(), _NOTE_EVERY)
        self._noting.start()
        self._vault: SecretVault | None = None
        self._learning = Periodic("learning what to redact", self._learn_secrets, SystemClock(), _LEARN_EVERY)
        self._learning.start()
        self._holding: Periodic | None = None
        """Renews the row of this node, where clusters have nodes."""
        self._row: NodeRow | None = None
        self._store: SqlStore | None = None
        self._writer = ""
        self._heads: ChainHeadFile | None = None
        self._unnoted = True
        """Something may have been committed since the heads were last noted."""
        self._commits: GroupCommit | None = None
        self._metrics = CommitMetrics()
        self._news = RunUpdates(SystemClock())

    async def apply(self, parcels: Sequence[bytes]) -> Sequence[bytes]:
        """Commit the commands of a CommandLink together with everybody else's."""
        _, commits = await self._open()
        try:
            return await self._answer(lambda: answered(commits, parcels))
        finally:
            self._unnoted = True

    async def read(self, query: Query[_T]) -> _T:
        """Return the query's answer."""
        store, _ = await self._open()
        return await self._answer(lambda: store.read(query))

    async def set_secret(self, tenant: TenantId, name: str, value: str, by: str) -> Secret:
        """See SecretKeeper.set_secret."""
        return await (await self._secrets()).set_secret(tenant, name, value, by)

    async def secrets(self, tenant: TenantId) -> Sequence[Secret]:
        """See SecretKeeper.secrets."""
        return await (await self._secrets()).secrets(tenant)

    async def delete_secret(self, tenant: TenantId, name: str, by: str) -> Secret:
        """See SecretKeeper.delete_secret."""
        return await (await self._secrets()).delete_secret(tenant, name, by)

    async def rotate_secrets(self, tenant: TenantId, by: str) -> int:
        """See SecretKeeper.rotate_secrets."""
        return await (await self._secrets()).rotate_secrets(tenant, by)

    async def rotate_all_secrets(self, by: str) -> int:
        """See SecretKeeper.rotate_all_secrets."""
        return await (await self._secrets()).rotate_all_secrets(by)

    async def secret(self, tenant: TenantId, name: str) -> str:
        """See SecretVault.secret: for what runs the tenant's tools."""
        return await (await self._secrets()).secret(tenant, name)

    async def secret_values(self) -> dict[TenantId, dict[str, str]]:
        """Return the values of all tenants' secrets: for the exporter, which takes them out of traces."""
        return await (await self._secrets()).values()

    async def begin_run_updates(self, box_id: SubscriptionId) -> None:
        """See RunUpdateSource.begin."""
        await self._news.begin(box_id)

    async def follow_run_updates(
        self, box_id: SubscriptionId, added: Sequence[RunId], dropped: Sequence[RunId]
    ) -> bool:
        """See RunUpdateSource.follow."""
        return await self._news.follow(box_id, added, dropped)

    async def news(self, box_id: SubscriptionId, seconds: float) -> Sequence[RunId] | None:
        """See RunUpdateSource.news."""
        return await self._news.news(box_id, seconds)

    async def metrics(self) -> tuple[MetricFamily, ...]:
        """Return what it has counted of the commits of its node."""
        return self._metrics.families()

    async def ready(self) -> bool:
        """Return once the store is open and takes commits; raises what is wrong with it."""
        store, _ = await self._open()
        await self._answer(store.check_writable)
        return True

    async def unrenewed(self) -> float | None:
        """Return how many seconds ago the node's row was renewed; None if it was not yet, or has none."""
        return None if self._row is None else self._row.unrenewed

    async def stop(self) -> None:
        """Commit what is waiting and close the store."""
        self._liveness.cancel()
        await self._noting.stop()
        await self._learning.stop()
        if self._holding is not None:
            await self._holding.stop()
        if self._row is not None:
            await self._row.stop()
        if self._commits is not None:
            await self._commits.close()
        if self._store is not None:
            await self._note_heads()
            self._heads = None
            await self._store.close()

    async def _watch_root(self) -> None:
        """The root watches over this and all other parts of the node; somebody has to watch over the root."""
        liveness, actors = LivenessMonitor(SystemClock()), KnownActors(self._plan.namespace, SystemClock())
        while True:
            await asyncio.sleep(liveness.pause)
            try:
                for root in (await actors.find([full_name(ROOT)])).values():
                    await liveness.look(ROOT, root)
            except Exception:
                logger.exception("looking after the root failed; the next look is in %g s", liveness.pause)

    async def _note_heads(self) -> None:
        """Note outside the store how far its ledger has come, so that an end which is cut off later is missed."""
        if self._store is None or self._heads is None or not self._unnoted:
            return
        self._unnoted = False
        try:
            at = SystemClock().now().replace(microsecond=0)
            ends = await self._store.read(HeadsOfWriter(self._writer))
            noted = [NotedHead(at, each.tenant, each.writer, each.position, each.hash) for each in ends]
            await asyncio.to_thread(self._heads.note, noted)
        except (OSError, StoreUnavailableError) as error:
            self._unnoted = True
            logger.warning("the ledger's heads were not noted: %s; next try in %g s", error, _NOTE_EVERY)

    async def _open(self) -> tuple[SqlStore, GroupCommit]:
        from owlclaw_ray.store.sql.factory import open_store

        plan = self._plan
        if self._store is None or self._commits is None:
            async with self._opening:
                if self._store is None or self._commits is None:
                    writer, cluster = await asyncio.to_thread(writer_name), cluster_name(plan.store_url)
                    url = await asyncio.to_thread(store_url, plan.store_url)
                    keyring = read_keys(await asyncio.to_thread(entrusted, Entrusted.SECRETS_KEYS))
                    redactors = TenantRedactors(partial(node_redactor, plan, url))
                    store = await open_store(
                        url,
                        writer=writer,
                        redactors=redactors,
                        must_exist=restarted(),
                        cluster=cluster,
                    )
                    if cluster:
                        await self._hold_node(store, cluster)
                    store.tell(self._news.changed)
                    self._writer = writer
                    self._store, self._heads = store, ChainHeadFolder(plan.data_dir).writer(writer)
                    self._commits = commits = GroupCommit(self._store, observer=self._metrics)
                    self._vault = SecretVault(store, commits, keyring, redactors, SystemClock())
                    await self._vault.learn()
        return self._store, self._commits

    async def _secrets(self) -> SecretVault:
        await self._open()
        assert self._vault is not None
        return self._vault

    async def _learn_secrets(self) -> None:
        if self._vault is not None:
            await self._vault.learn()

    async def _hold_node(self, store: SqlStore, cluster: str) -> None:
        """Have this node join its cluster, and keep its row; a store that it cannot join in is closed."""
        from owlclaw_ray.store.sql.older_clusters import about_this_version

        join = JoinNode(here(), cluster, socket.gethostname(), about_this_version(SystemClock().now()))
        root = NamedActor(ROOT, self._plan.namespace)
        row = NodeRow(store, join, SystemClock(), joined=store.serve_node, lost=root.call.end_hosts)
        try:
            await row.join()
        except BaseException:
            await store.close()
            raise
        self._row = row
        self._holding = Periodic("holding the node's row", row.tick, SystemClock(), RENEW_SECONDS)
        self._holding.start()

    async def _answer(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Return what the store answers; a node that the store does not answer any more keeps nobody waiting, see NodeRow."""
        return await (work() if self._row is None else self._row.while_answered(work))
