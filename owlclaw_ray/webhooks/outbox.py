"""Callbacks when runs finish: signed webhooks, sent until the receiver accepts them, or marked as dead (H2).

An attempt is stored before it is made, with the time when it counts as lost: the sender may die at any point, and the callback is
retried. So a receiver may get it more than once, always with the same `webhook-id`.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

import orjson
from msgspec import Struct
from msgspec.structs import replace

from owlclaw_ray.domain.callback import Callback, CallbackRules, CallbackStatus
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import access_record
from owlclaw_ray.domain.run import Run
from owlclaw_ray.domain.signing import key_of, signed_callback
from owlclaw_ray.domain.tracing import HEADER, span_of_run
from owlclaw_ray.domain.webhook import SecretForm
from owlclaw_ray.errors import NotFoundError, RuntimeUnavailableError, SettledError, StoreUnavailableError
from owlclaw_ray.ids import CallbackId, IdSource, TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.kernel.fair_order import FairOrder, Owner, Weights, equal_weights
from owlclaw_ray.kernel.periodic import Periodic
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.runs.callback_rules import TenantCallbackRules
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import CallbackChanged, CallbackStored, ChangeCallback
from owlclaw_ray.store.durable_store import DurableStore
from owlclaw_ray.store.queries import CallbackById, CallbackFilter, DueCallbacks, Place, RunById
from owlclaw_ray.webhooks.callback_secrets import tenant_secrets

LOST_AFTER = 60.0
"""Seconds after its start when an attempt counts as lost; senders take less."""
MAX_TEXT_CHARACTERS = 100_000
"""Characters of a run's final text that are sent; all of it is at /v1/runs."""
_CHECK_INTERVAL = 1.0
_AT_ONCE, _AT_ONCE_A_HOST = 32, 4
"""Attempts of this process at one time: in all, and of one tenant to one host."""
_GONE = 410

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CallbackOptions:
    """How callbacks are sent."""

    secrets: tuple[str, ...] = field(repr=False)
    """Of the runtime. What is derived from each of them for a tenant signs the tenant's callbacks, as Standard Webhooks defines."""
    retry: RetryPolicy
    seconds: float = 10.0
    """Timeout of one attempt once the receiver's name is resolved; with the time for that less than LOST_AFTER."""


class CallbackCounts(Struct, frozen=True):
    """Attempts since the process began."""

    delivered: int = 0
    failed: int = 0
    """To be retried."""
    dead: int = 0
    """Not to be retried."""


class CallbackAnswered(Struct, frozen=True):
    """The receiver answered, with this status."""

    status: int
    retry_after: float | None = None
    """In seconds, if the receiver asked for a pause."""


class CallbackUnanswered(Struct, frozen=True):
    """There was no usable answer, or nothing was sent: `why`."""

    why: str


class CallbackSender(Protocol):
    """Sends one webhook."""

    async def send(
        self, tenant: TenantId, url: str, headers: Mapping[str, str], body: bytes, rules: CallbackRules
    ) -> CallbackAnswered | CallbackUnanswered:
        """Post the tenant's body within a bounded time, follow no redirect, and read only the status of the answer.

        Nothing is sent to an address that the rules forbid. Raises nothing unless it is cancelled.
        """
        ...

    async def close(self) -> None:
        """Release connections. What is sent afterwards makes new ones."""
        ...


class WebhookOutbox:
    """The callbacks of finished runs."""

    def __init__(self, store: Store, clock: Clock, ids: IdSource, secrets: Sequence[str] | None = ()) -> None:
        """`secrets` are the runtime's that sign callbacks; empty: there are no callbacks, None: this process lacks them."""
        self._store, self._clock, self._ids, self._secrets = store, clock, ids, secrets

    def secrets(self, tenant: TenantId) -> Sequence[str]:
        """Return the secrets by which the tenant's callbacks are checked, the present one first. Raises NotFoundError where there are no
        callbacks, RuntimeUnavailableError.
        """
        if self._secrets is None:
            raise RuntimeUnavailableError(
                "this node lacks the variable that webhooks.callbacks.secret names; its log says more"
            )
        if not self._secrets:
            raise NotFoundError("callback secret of tenant", tenant)
        return tenant_secrets(self._secrets, tenant)

    async def callbacks(self, where: CallbackFilter, before: CallbackId | None = None) -> Sequence[Callback]:
        """Return the callbacks that match, newest first; only those that were made before that one. Raises NotFoundError if it is not
        there, or of another agent than is asked for.
        """
        if before is not None:
            last = await self.callback(where.tenant, before)
            if where.agent not in {None, last.agent}:
                raise NotFoundError("callback", before)
            where = replace(where, before=Place(last.created_at, last.callback_id))
        return await self._store.read(where)

    async def callback(self, tenant: TenantId, callback_id: CallbackId) -> Callback:
        """Return the callback; raises NotFoundError."""
        found = await self._store.read(CallbackById(tenant, callback_id))
        if found is None:
            raise NotFoundError("callback", callback_id)
        return found

    async def send_again(self, tenant: TenantId, callback_id: CallbackId, by: str = "") -> Callback:
        """Send a callback (again), with all attempts; raises NotFoundError, SettledError while its run is not over. The ledger is told in
        the same commit that the principal `by` asked for it.
        """
        while True:
            callback = await self.callback(tenant, callback_id)
            if callback.status is CallbackStatus.WAITING:
                raise SettledError("callback", callback_id, callback.status.value, "its run is not over")
            again = replace(
                callback,
                status=CallbackStatus.PENDING,
                attempts=0,
                next_try_at=self._clock.now(),
                delivered_at=None,
                version=callback.version + 1,
                changed_by=self._ids.make("snd"),
            )
            at, said = self._clock.now(), {"callback_id": callback_id, "by": by}
            place = {"agent_id": callback.agent.agent_id, "run_id": callback.run_id}
            record = access_record(self._ids.make("rec"), tenant, "callback_redelivered", at, said, **place)
            match (await self._store.apply([ChangeCallback(again, (record,) if by else ())]))[0]:
                case CallbackStored():
                    return again
                case CallbackChanged():
                    continue
                case other:
                    raise StoreUnavailableError(f"the callback was not stored: {other}")


class CallbackDelivery:
    """Sends due callbacks. Several instances may run at once: each attempt is made by one of them.

    Places are shared out by FairOrder: by tenant, by weight, then by host, so that no tenant's receivers delay another tenant's, and no
    host that hangs delays another one.
    """

    def __init__(
        self,
        options: CallbackOptions,
        *,
        store: Store,
        sender: CallbackSender,
        clock: Clock,
        ids: IdSource,
        rules: TenantCallbackRules,
        weight: Weights = equal_weights,
        jitter: Callable[[], float],
    ) -> None:
        self.counts = CallbackCounts()
        self._options, self._store, self._sender = options, store, sender
        self._durable = DurableStore(store, clock)
        self._rules, self._clock, self._jitter = rules, clock, jitter
        self._name = ids.make("snd")
        self._sending: dict[asyncio.Task[None], Owner] = {}
        self._order: FairOrder[CallbackId] = FairOrder(_AT_ONCE, each=_AT_ONCE_A_HOST, weight=weight)
        self._waiting: dict[CallbackId, Callback] = {}
        """Those of the order, as they were read last."""
        self._turn = asyncio.Lock()
        self._looking = Periodic("sending callbacks", self.tick, clock, _CHECK_INTERVAL, due_in=self._place_in)

    def start(self) -> None:
        """Start sending."""
        self._looking.start()

    async def stop(self) -> None:
        """Stop, until the next start. Attempts in progress count as lost, and are repeated."""
        await self._looking.stop()
        for task in self._sending:
            task.cancel()
        if self._sending:
            await asyncio.wait(self._sending)
        await self._sender.close()

    async def tick(self) -> int:
        """Start attempts for due callbacks, within the limits of concurrency; return how many."""
        async with self._turn:
            now = self._clock.now()
            self._line_up(await self._store.read(DueCallbacks(now, _AT_ONCE_A_HOST)))
            taken = [
                replace(
                    each,
                    attempts=each.attempts + 1,
                    tried_at=now,
                    next_try_at=now + timedelta(seconds=LOST_AFTER),
                    version=each.version + 1,
                    changed_by=self._name,
                )
                for each in self._granted()
            ]
            mine: list[Callback] = []
            try:
                outcomes = await self._store.apply([ChangeCallback(each) for each in taken]) if taken else ()
                stored = (isinstance(outcome, CallbackStored) for outcome in outcomes)
                mine = [each for each, is_stored in zip(taken, stored, strict=True) if is_stored]
            finally:
                for each in taken:
                    if each not in mine:
                        self._order.give_back(_owner(each))
            for each in mine:
                task = asyncio.create_task(self._attempt(each))
                self._sending[task] = _owner(each)
                task.add_done_callback(self._attempted)
            return len(mine)

    async def settled(self) -> None:
        """Return when no attempt is in progress."""
        while self._sending:
            await asyncio.wait(self._sending)

    def _line_up(self, due: Sequence[Callback]) -> None:
        """Have these wait for places, and no others."""
        before, self._waiting = self._waiting, {each.callback_id: each for each in due}
        for callback_id, each in before.items():
            if callback_id not in self._waiting:
                self._order.remove(_owner(each), callback_id)
        for each in due:
            self._order.add(_owner(each), each.callback_id)

    def _granted(self) -> Iterator[Callback]:
        """Give free places to those that are next, and yield them."""
        while self._order.free > 0 and (first := self._order.first()) is not None:
            self._order.grant(*first)
            yield self._waiting.pop(first[1])

    def _attempted(self, attempt: asyncio.Task[None]) -> None:
        self._order.give_back(self._sending.pop(attempt))

    async def _place_in(self) -> float:
        """Return 0 once an attempt has ended, if callbacks may be waiting for its place."""
        is_full = self._order.free <= 0 or not all(map(self._order.may_hold, self._sending.values()))
        if not self._sending or not (is_full or self._waiting):
            return math.inf
        with suppress(TimeoutError):
            async with deadline(self._clock, _CHECK_INTERVAL):
                await asyncio.wait(self._sending, return_when=asyncio.FIRST_COMPLETED)
        return 0.0

    async def _attempt(self, callback: Callback) -> None:
        try:
            run = await self._store.read(RunById(callback.agent.tenant, callback.run_id))
            answer: CallbackAnswered | CallbackUnanswered = CallbackUnanswered("the run is not in the store any more")
            if run is not None:
                body, tenant = callback_body(run), callback.agent.tenant
                secrets = tenant_secrets(self._options.secrets, tenant)
                headers = signed_headers(callback, body, int(self._clock.now().timestamp()), secrets)
                headers[HEADER] = str(span_of_run(run))
                answer = await self._sender.send(tenant, callback.url, headers, body, await self._rules.of(tenant))
            after = self._after(callback, answer)
            await self._durable.apply(ChangeCallback(after))
            match after.status:
                case CallbackStatus.DELIVERED:
                    self.counts = replace(self.counts, delivered=self.counts.delivered + 1)
                case CallbackStatus.DEAD:
                    self.counts = replace(self.counts, dead=self.counts.dead + 1)
                case _:
                    self.counts = replace(self.counts, failed=self.counts.failed + 1)
        except Exception:
            logger.exception("callback %s is retried later", callback.callback_id)

    def _after(self, callback: Callback, answer: CallbackAnswered | CallbackUnanswered) -> Callback:
        """Return the callback after an attempt with this result."""
        now, version = self._clock.now(), callback.version + 1
        match answer:
            case CallbackAnswered(status) if 200 <= status < 300:
                return replace(
                    callback,
                    status=CallbackStatus.DELIVERED,
                    next_try_at=None,
                    problem="",
                    delivered_at=now,
                    version=version,
                )
            case CallbackAnswered(status, retry_after):
                problem = f"the receiver answered {status}"
            case CallbackUnanswered(problem):
                status, retry_after = 0, None
        if status == _GONE or callback.attempts >= self._options.retry.attempts:
            logger.warning("callback %s of run %s is dead: %s", callback.callback_id, callback.run_id, problem)
            return replace(callback, status=CallbackStatus.DEAD, next_try_at=None, problem=problem, version=version)
        pause = self._options.retry.delay(callback.attempts, self._jitter(), retry_after)
        next_try_at = now + timedelta(seconds=pause)
        return replace(callback, next_try_at=next_try_at, problem=problem, version=version)


def _owner(callback: Callback) -> Owner:
    return callback.agent.tenant, callback.host


def callback_body(run: Run) -> bytes:
    """Return a callback's body: the run without its payload, which the sender knows, and with a final text of bounded length."""
    assert run.finished_at is not None
    assert run.result is not None
    result, trigger = run.result, run.trigger
    usage, error = result.usage, result.error
    data: JsonObject = {
        "run_id": run.run_id,
        "tenant": run.agent.tenant,
        "agent": run.agent.agent_id,
        "status": run.status.value,
        "trigger": {"kind": trigger.kind.value, "focus": trigger.focus, "source": trigger.source},
        "created_at": _moment(run.created_at),
        "started_at": None if run.started_at is None else _moment(run.started_at),
        "finished_at": _moment(run.finished_at),
        "final_text": result.final_text[:MAX_TEXT_CHARACTERS],
        "turns": result.turns,
        "tool_calls": result.tool_calls,
        "duration_ms": result.duration_ms,
        "tokens": {
            "prompt": usage.prompt_tokens,
            "completion": usage.completion_tokens,
            "cached": usage.cached_tokens,
        },
        "cost": usage.cost,
        "model": result.model,
        "scripted": result.scripted,
        "error": None
        if error is None
        else {"type": error.type, "message": error.message[:MAX_TEXT_CHARACTERS], "retryable": error.retryable},
    }
    return orjson.dumps({"type": "run.finished", "timestamp": _moment(run.finished_at), "data": data})


def signed_headers(callback: Callback, body: bytes, timestamp: int, secrets: Sequence[str]) -> dict[str, str]:
    """Return the headers of an attempt, signed as Standard Webhooks defines."""
    keys = [key_of(secret, SecretForm.BASE64) for secret in secrets]
    return {
        "content-type": "application/json",
        "webhook-id": callback.callback_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signed_callback(callback.callback_id, timestamp, body, key) for key in keys),
    }


def _moment(at: Any) -> str:
    text: str = at.isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
