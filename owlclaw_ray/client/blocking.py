"""The client for code without asyncio: `Client` in a thread of its own. Signatures and types come from `Client`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial, update_wrapper
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

import anyio
import anyio.lowlevel
from anyio.from_thread import BlockingPortal, start_blocking_portal

from owlclaw_ray.client.asynchronous import DEFAULT_URL, Client

_P = ParamSpec("_P")
_T = TypeVar("_T")


class _Blocking(Generic[_P, _T]):
    """A method of Client, called from outside its event loop."""

    def __init__(self, method: Callable[Concatenate[Client, _P], Coroutine[Any, Any, _T]]) -> None:
        self._method = method

    def __get__(self, owner: SyncClient, _kind: type[SyncClient]) -> Callable[_P, _T]:
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            result: _T = owner.portal.call(partial(self._method, owner.client, *args, **kwargs))
            return result

        return update_wrapper(call, self._method)


class _BlockingIterator(Generic[_P, _T]):
    """An asynchronous generator of Client, iterated from outside its event loop."""

    def __init__(self, method: Callable[Concatenate[Client, _P], AsyncGenerator[_T]]) -> None:
        self._method = method

    def __get__(self, owner: SyncClient, _kind: type[SyncClient]) -> Callable[_P, Generator[_T]]:
        def iterate(*args: _P.args, **kwargs: _P.kwargs) -> Generator[_T]:
            items = self._method(owner.client, *args, **kwargs)
            try:
                while True:
                    step: Future[_T] = owner.portal.start_task_soon(items.__anext__)
                    try:
                        item = step.result()
                    except StopAsyncIteration:
                        return
                    except BaseException:  # an interruption (Ctrl-C) of the wait ends the step under way too
                        step.cancel()
                        raise
                    yield item
            finally:
                owner.portal.call(_close, items)

        return update_wrapper(iterate, self._method)


async def _close(items: AsyncGenerator[Any]) -> None:
    """Close the generator once its cancelled step has ended."""
    while getattr(items, "ag_running", False):
        await anyio.lowlevel.checkpoint()
    await items.aclose()


class SyncClient:
    """Talks to a running OwlClaw over HTTP; takes what Client takes, and every method does what its namesake there does.

    It works where an event loop runs already (a notebook), too. Use it as `with SyncClient(url) as client`, or call `close`.
    """

    portal: BlockingPortal

    submit = _Blocking(Client.submit)
    run = _Blocking(Client.run)
    runs = _Blocking(Client.runs)
    events = _BlockingIterator(Client.events)
    cancel = _Blocking(Client.cancel)
    score = _Blocking(Client.score)
    agents = _Blocking(Client.agents)
    agents_page = _Blocking(Client.agents_page)
    agent = _Blocking(Client.agent)
    skills = _Blocking(Client.skills)
    reload = _Blocking(Client.reload)
    memories = _Blocking(Client.memories)
    memories_page = _Blocking(Client.memories_page)
    memory = _Blocking(Client.memory)
    search_memories = _Blocking(Client.search_memories)
    remember = _Blocking(Client.remember)
    edit_memory = _Blocking(Client.edit_memory)
    delete_memory = _Blocking(Client.delete_memory)
    archive_memories = _Blocking(Client.archive_memories)
    reindex_memories = _Blocking(Client.reindex_memories)
    memory_text = _Blocking(Client.memory_text)
    put_memory_text = _Blocking(Client.put_memory_text)
    memory_archive_text = _Blocking(Client.memory_archive_text)
    put_memory_archive_text = _Blocking(Client.put_memory_archive_text)
    memory_stats = _Blocking(Client.memory_stats)
    artifacts = _Blocking(Client.artifacts)
    artifact = _Blocking(Client.artifact)
    schedules = _Blocking(Client.schedules)
    schedules_page = _Blocking(Client.schedules_page)
    schedule = _Blocking(Client.schedule)
    create_schedule = _Blocking(Client.create_schedule)
    pause_schedule = _Blocking(Client.pause_schedule)
    resume_schedule = _Blocking(Client.resume_schedule)
    cancel_schedule = _Blocking(Client.cancel_schedule)
    backfill_schedule = _Blocking(Client.backfill_schedule)
    ticks = _Blocking(Client.ticks)
    approvals = _Blocking(Client.approvals)
    approval = _Blocking(Client.approval)
    decide = _Blocking(Client.decide)
    submit_batch = _Blocking(Client.submit_batch)
    webhook_sources = _Blocking(Client.webhook_sources)
    deliveries = _Blocking(Client.deliveries)
    delivery = _Blocking(Client.delivery)
    redeliver = _Blocking(Client.redeliver)
    callbacks = _Blocking(Client.callbacks)
    callback = _Blocking(Client.callback)
    send_again = _Blocking(Client.send_again)
    callback_secrets = _Blocking(Client.callback_secrets)
    secrets = _Blocking(Client.secrets)
    set_secret = _Blocking(Client.set_secret)
    delete_secret = _Blocking(Client.delete_secret)
    rotate_secrets = _Blocking(Client.rotate_secrets)
    rotate_all_secrets = _Blocking(Client.rotate_all_secrets)
    mcp_servers = _Blocking(Client.mcp_servers)
    nodes = _Blocking(Client.nodes)
    drain = _Blocking(Client.drain)
    undrain = _Blocking(Client.undrain)
    console_code = _Blocking(Client.console_code)
    keys = _Blocking(Client.keys)
    key = _Blocking(Client.key)
    create_key = _Blocking(Client.create_key)
    rotate_key = _Blocking(Client.rotate_key)
    revoke_key = _Blocking(Client.revoke_key)
    tenants = _Blocking(Client.tenants)
    tenant = _Blocking(Client.tenant)
    create_tenant = _Blocking(Client.create_tenant)
    update_tenant = _Blocking(Client.update_tenant)
    delete_tenant = _Blocking(Client.delete_tenant)
    export_tenant = _BlockingIterator(Client.export_tenant)
    usage = _Blocking(Client.usage)
    ledger = _Blocking(Client.ledger)
    ledger_page = _Blocking(Client.ledger_page)
    ledger_heads = _Blocking(Client.ledger_heads)
    verify_ledger = _Blocking(Client.verify_ledger)
    metrics = _Blocking(Client.metrics)
    health = _Blocking(Client.health)

    def __init__(self, url: str = DEFAULT_URL, **options: Any) -> None:
        self._stack = ExitStack()
        self.portal = self._stack.enter_context(start_blocking_portal("asyncio"))
        self.client = Client(url, **options)
        self._stack.callback(self.portal.call, self.client.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections and end the thread."""
        self._stack.close()
