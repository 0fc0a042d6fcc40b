"""Where the commands read the ledger: from the server, or, when it does not run, from the store itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from typing_extensions import override

from owlclaw_ray import wire
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.store.queries import LedgerChains
from serve.cli.connection import connect, environment

if TYPE_CHECKING:
    from owlclaw_ray.client import SyncClient
    from owlclaw_ray.store.api import Store


class LedgerSelection(Struct, frozen=True):
    """Which records."""

    agent: str | None = None
    run: str | None = None
    kind: wire.LedgerKind | None = None
    tool: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class LedgerSource(Protocol):
    """A ledger that can be read."""

    def page(self, query: LedgerSelection, after: str | None, limit: int) -> wire.Ledger:
        """Return records, oldest first, and where to go on; `after` is where the page before it ended."""
        ...

    def heads(self) -> list[wire.LedgerHead]:
        """Return the heads of all chains."""
        ...

    def verify(self, since: Sequence[wire.LedgerHead], tenant: str | None) -> wire.LedgerVerification:
        """Verify all chains, record by record, and compare them with the saved heads and these ones. None: of one's own tenant."""
        ...


def pages(source: LedgerSource, query: LedgerSelection, size: int) -> Iterator[list[wire.LedgerRecord]]:
    """Yield all records that match, oldest first, `size` at a time."""
    after: str | None = None
    while True:
        page = source.page(query, after, size)
        if page["records"]:
            yield page["records"]
        after = page["next_after"]
        if after is None:
            return


@contextmanager
def ledger_source(url: str | None, folder: Path) -> Iterator[LedgerSource]:
    """Open the ledger of the server at the URL; without one, that of the folder's server if it runs, else its store."""
    from owlclaw_ray.configuration.server_location import find_runtime
    from serve import pid_file

    if url is None:
        running = pid_file.read(find_runtime(folder, environment()).data_dir)
        if running is None or running.process() is None:
            from owlclaw_ray.settings import load_settings
            from owlclaw_ray.store.sql.factory import open_existing

            settings = load_settings(folder, environment())
            with asyncio.Runner() as runner:
                store = runner.run(open_existing(settings.store_url))
                try:
                    yield StoreLedger(store, runner, settings.data_dir)
                finally:
                    runner.run(store.close())
            return
    with connect(url, folder) as client:
        yield ServerLedger(client)


class ServerLedger(LedgerSource):
    """The ledger, over HTTP."""

    def __init__(self, client: SyncClient) -> None:
        self._client = client

    @override
    def page(self, query: LedgerSelection, after: str | None, limit: int) -> wire.Ledger:
        return self._client.ledger_page(
            query.agent,
            query.run,
            query.kind,
            tool=query.tool,
            since=query.since,
            until=query.until,
            after=after,
            limit=limit,
        )

    @override
    def heads(self) -> list[wire.LedgerHead]:
        return self._client.ledger_heads()

    @override
    def verify(self, since: Sequence[wire.LedgerHead], tenant: str | None) -> wire.LedgerVerification:
        return self._client.verify_ledger(since=since, tenant=tenant)


class StoreLedger(LedgerSource):
    """The ledger, in its store."""

    def __init__(self, store: Store, runner: asyncio.Runner, data_dir: Path) -> None:
        self._store, self._runner, self._data_dir = store, runner, data_dir

    @override
    def page(self, query: LedgerSelection, after: str | None, limit: int) -> wire.Ledger:
        from owlclaw_ray.domain.agent import AgentRef
        from owlclaw_ray.domain.ledger import LedgerKind
        from owlclaw_ray.ids import DEFAULT_TENANT, RunId
        from owlclaw_ray.store.queries import LedgerFilter
        from serve.representations import ledger_body, place_of

        where = LedgerFilter(
            DEFAULT_TENANT,
            AgentRef.parse(query.agent) if query.agent is not None else None,
            RunId(query.run) if query.run is not None else None,
            LedgerKind(query.kind) if query.kind is not None else None,
            limit,
            query.tool,
            query.since,
            query.until,
            place_of(after) if after is not None else None,
        )
        return ledger_body(self._runner.run(self._store.read(where)), limit)

    @override
    def heads(self) -> list[wire.LedgerHead]:
        from owlclaw_ray.ids import DEFAULT_TENANT
        from serve.representations import heads_body

        chains = self._runner.run(self._store.read(LedgerChains(DEFAULT_TENANT)))
        return heads_body(DEFAULT_TENANT, chains, SystemClock().now())["heads"]

    @override
    def verify(self, since: Sequence[wire.LedgerHead], tenant: str | None) -> wire.LedgerVerification:
        import msgspec

        from owlclaw_ray.domain.ledger import NotedHead, NotedHeads
        from owlclaw_ray.ids import DEFAULT_TENANT, TenantId
        from owlclaw_ray.ledger.chain_heads import ChainHeadFolder
        from owlclaw_ray.runtime.api import verified_ledger
        from serve.representations import verification_body

        noted = ChainHeadFolder(self._data_dir).load()
        heads = NotedHeads((*noted.heads, *msgspec.convert(since, list[NotedHead])), noted.problems)
        of = DEFAULT_TENANT if tenant is None else TenantId(tenant)
        return verification_body(self._runner.run(verified_ledger(self._store, of, heads)))
