"""Webhooks that come in: checked, mapped, and stored with the run that they trigger, in one commit (S5), or for a heartbeat (R7).

What is not signed rightly is stored without its body, once a minute for each source and reason, because anybody can send it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime

import orjson
from msgspec.structs import replace

from owlclaw_ray.domain.heartbeat import SUBMITTERS, EventSourceKind
from owlclaw_ray.domain.json import LARGE, JsonObject
from owlclaw_ray.domain.ledger import access_record
from owlclaw_ray.domain.quota import KeyQuota
from owlclaw_ray.domain.tracing import HEADER, in_trace
from owlclaw_ray.domain.webhook import DeliverTo, Delivery, DeliveryStatus, WebhookSource
from owlclaw_ray.errors import (
    DefinitionError,
    NotFoundError,
    OwlClawError,
    RuntimeUnavailableError,
    SettledError,
    StoreUnavailableError,
    UserError,
    WebhookRefusedError,
    WebhookUnmappedError,
)
from owlclaw_ray.ids import DEFAULT_TENANT, DeliveryId, IdSource, TenantId, derived_id
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.runs.submissions import Submission, Submissions
from owlclaw_ray.secrets.api import AskSecret, no_secrets
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import AppendLedger, DeliveryStored, LedgerAppended, ReceiveDelivery
from owlclaw_ray.store.queries import DeliveryById, DeliveryFilter, Place, TenantById
from owlclaw_ray.webhooks.mapping import (
    IgnoredWebhook,
    UnmappableError,
    WebhookContent,
    header_names,
    map_delivery,
    read_body,
    text_of,
)
from owlclaw_ray.webhooks.signature import refusal, signed_content, unsigned
from owlclaw_ray.webhooks.source_secrets import SourceSecrets

LARGEST_EVENT = 64 * 1024
"""Bytes of JSON that a heartbeat gets of one webhook."""
_REFUSED_SECONDS = 20
"""Seconds until a refused webhook with the same source and reason is stored again."""

logger = logging.getLogger(__name__)


class WebhookInbox:
    """Webhooks that come in, from sources whose secrets of the runtime are filled in."""

    def __init__(
        self,
        sources: Sequence[WebhookSource],
        *,
        store: Store,
        submissions: Submissions,
        clock: Clock,
        ids: IdSource,
        secret: AskSecret = no_secrets,
    ) -> None:
        """`secret` is asked for those of tenants."""
        self._secrets = SourceSecrets(secret, clock)
        self._sources = {each.name: each for each in sources}
        self._headers = {each.name: header_names(each) for each in sources}
        self._signed_in = frozenset(each.signature.header.lower() for each in sources)
        self._store, self._submissions, self._clock, self._ids = store, submissions, clock, ids
        self._refused: dict[tuple[str, str], float] = {}

    def sources(self, tenant: TenantId) -> Sequence[WebhookSource]:
        """Return who may send to the tenant, by name. Their secrets are for nobody to see."""
        return [self._sources[name] for name in sorted(self._sources) if self._sources[name].tenant == tenant]

    async def expect(self, source: str, headers: Mapping[str, str]) -> None:
        """Raise for what is not signed in any way that any source has: nobody needs to read more of it. Of everything else the body is
        read first, whether or not there is such a source: when it is refused tells nobody which ones there are.

        Raises NotFoundError, WebhookRefusedError, StoreUnavailableError.
        """
        if not self._signed_in.isdisjoint(headers):
            return
        known = self._source(source)
        why = unsigned(known, headers)
        await self._refuse(known.tenant, source, why, self._clock.now())
        raise WebhookRefusedError(source, why)

    async def receive(self, source: str, headers: Mapping[str, str], body: bytes) -> DeliveryStored:
        """Store what came in, with the run that it triggers in the source's tenant, and wake the agent. When this returns, it cannot be
        lost.

        `headers` have names in small letters. Raises NotFoundError for an unknown source, WebhookRefusedError,
        WebhookUnmappedError, AgentBusyError, QueueFullError, DefinitionError: each of these is in the inbox too, as far as
        the source is known. Raises StoreUnavailableError.
        """
        known, now = await self._secrets.filled(self._source(source)), self._clock.now()
        tenant = known.tenant
        why = refusal(known, headers, body, now) if known.secrets else "its secret is not there: the log says which one"
        if why:
            await self._refuse(tenant, source, why, now)
            raise WebhookRefusedError(source, why)
        await self._require(tenant, source)
        text = body.decode(errors="replace")
        kept: JsonObject = {name: headers[name] for name in sorted(self._headers[source]) if name in headers}
        delivery = Delivery(
            self._delivery_id(known, tenant, headers, body),
            tenant,
            source,
            self._ids.make("rcp"),
            now,
            DeliveryStatus.TRIGGERED,
            headers=kept,
            body=text,
            whole=text.encode() == body,
        )
        return await self._process(known, delivery, body, headers.get(HEADER))

    async def deliveries(self, where: DeliveryFilter, before: DeliveryId | None = None) -> Sequence[Delivery]:
        """Return the deliveries that match, newest first, without their bodies; only those that came before that one. Raises
        NotFoundError if it is not there.
        """
        if before is not None:
            last = await self.delivery(where.tenant, before)
            where = replace(where, before=Place(last.received_at, last.delivery_id))
        return await self._store.read(where)

    async def delivery(self, tenant: TenantId, delivery_id: DeliveryId) -> Delivery:
        """Return the delivery; raises NotFoundError."""
        found = await self._store.read(DeliveryById(tenant, delivery_id))
        if found is None:
            raise NotFoundError("delivery", delivery_id)
        return found

    async def redeliver(
        self,
        tenant: TenantId,
        delivery_id: DeliveryId,
        *,
        quota: KeyQuota | None = None,
        submitters: tuple[str, ...] = (),
        by: str = "",
    ) -> DeliveryStored:
        """Map a stored delivery again, as its source is configured now, for these principals; raises as `receive`, and SettledError. The
        ledger is told before that `by` asked for it.

        Its run counts for the `quota` of the key that asks for it.
        """
        delivery = await self.delivery(tenant, delivery_id)
        if not delivery.repeatable:
            why = f"it is {delivery.status.value}" if delivery.whole else "its body was not kept"
            raise SettledError("delivery", delivery_id, delivery.status.value, why)
        again = replace(
            delivery,
            receipt=self._ids.make("rcp"),
            status=DeliveryStatus.TRIGGERED,
            reason="",
            agent=None,
            run_id=None,
            event=None,
            failures=0,
        )
        source = self._source(delivery.source)
        if source.tenant != tenant:
            raise NotFoundError("webhook source", delivery.source)
        if by:
            said: JsonObject = {"delivery_id": delivery_id, "source": delivery.source, "by": by}
            record = access_record(self._ids.make("rec"), tenant, "webhook_redelivered", self._clock.now(), said)
            (told,) = await self._store.apply([AppendLedger((record,))])
            if not isinstance(told, LedgerAppended):
                raise StoreUnavailableError(f"the ledger was not told: {told}")
        return await self._process(source, again, delivery.body.encode(), quota=quota, submitters=submitters)

    async def _require(self, tenant: TenantId, source: str) -> None:
        """Raise RuntimeUnavailableError if there is no such tenant: one that is made later gets what is sent again."""
        if not await self._exists(tenant):
            logger.warning("a webhook of %s was not taken: there is no tenant %s", source, tenant)
            raise RuntimeUnavailableError(f"webhooks of {source!r} are for nobody: the log says what is missing")

    async def _exists(self, tenant: TenantId) -> bool:
        if tenant == DEFAULT_TENANT:
            return True
        found = await self._store.read(TenantById(tenant))
        return found is not None and not found.status.closed

    def _source(self, name: str) -> WebhookSource:
        if name not in self._sources:
            raise NotFoundError("webhook source", name)
        return self._sources[name]

    def _delivery_id(
        self, source: WebhookSource, tenant: TenantId, headers: Mapping[str, str], body: bytes
    ) -> DeliveryId:
        """Return the id that repetitions of a delivery share; a new one if they cannot be recognised."""
        dedupe = source.mapping.dedupe
        what: tuple[str, str] | None = None
        if dedupe:
            with suppress(UnmappableError):
                what = ("dedupe", text_of(dedupe, WebhookContent(read_body(source.body, body), headers)))
        if what is None and source.signature.timed:
            signed = signed_content(source.signature, headers, body) or b""
            what = ("signed", hashlib.sha256(signed).hexdigest())
        if what is None:
            what = ("receipt", self._ids.make("rcp"))
        return DeliveryId(derived_id("whd", tenant, source.name, *what))

    async def _process(
        self,
        source: WebhookSource,
        delivery: Delivery,
        body: bytes,
        traceparent: str | None = None,
        *,
        quota: KeyQuota | None = None,
        submitters: tuple[str, ...] = (),
    ) -> DeliveryStored:
        """Map the delivery and store the result; raises the sender's error."""
        try:
            delivery, submission = await self._mapped(source, delivery, body, traceparent, submitters)
        except UnmappableError as error:
            return await self._keep(delivery, DeliveryStatus.UNMAPPED, str(error))
        except DefinitionError as error:
            stored = await self._keep(delivery, DeliveryStatus.REFUSED, str(error))
            if stored.duplicate:
                return stored
            raise
        except UserError as error:
            return await self._keep(delivery, DeliveryStatus.UNMAPPED, str(error))
        if submission is not None and quota is not None:
            submission = replace(submission, command=replace(submission.command, quota=quota))
        command = None if submission is None else submission.command
        stored = await self._stored(ReceiveDelivery(delivery, command))
        if stored.delivery.status is DeliveryStatus.UNMAPPED:
            raise WebhookUnmappedError(source.name, stored.delivery.delivery_id, stored.delivery.reason)
        if submission is not None and stored.submitted is not None:
            concluded = self._submissions.concluded(submission, stored.submitted)
            if isinstance(concluded, OwlClawError):
                raise concluded
        return stored

    async def _mapped(
        self,
        source: WebhookSource,
        delivery: Delivery,
        body: bytes,
        traceparent: str | None,
        submitters: tuple[str, ...],
    ) -> tuple[Delivery, Submission | None]:
        headers = {name: str(value) for name, value in delivery.headers.items()}
        content = WebhookContent(read_body(source.body, body), headers)
        mapped = map_delivery(source, delivery.tenant, content, delivery.delivery_id)
        if isinstance(mapped, IgnoredWebhook):
            return replace(delivery, status=DeliveryStatus.IGNORED, reason=mapped.why), None
        if source.mapping.deliver is DeliverTo.HEARTBEAT:
            heartbeat = await self._submissions.heartbeat_of(mapped.agent)
            if heartbeat is None or EventSourceKind.INBOX not in heartbeat.sources:
                raise UnmappableError(
                    f"{mapped.agent.definition} has no heartbeats that look into the inbox: "
                    "write the section heartbeat, with the source inbox, in its agent.yaml"
                )
            event: JsonObject = {"focus": mapped.trigger.focus, "payload": mapped.trigger.payload}
            size = len(orjson.dumps(event))
            if size > LARGEST_EVENT:
                raise UnmappableError(
                    f"the payload has {size} bytes with its focus, and heartbeats are told {LARGEST_EVENT}: "
                    "have `payload` choose what matters"
                )
            if submitters:
                event[SUBMITTERS] = list(submitters)
            return replace(delivery, agent=mapped.agent, status=DeliveryStatus.WAITING, event=event), None
        trigger = in_trace(
            mapped.trigger.compact() if len(body) > LARGE else mapped.trigger, traceparent, delivery.tenant
        )
        trigger = replace(trigger, submitters=submitters)
        submission = await self._submissions.prepare(mapped.agent, trigger, source.mapping.admission)
        return replace(delivery, agent=mapped.agent), submission

    async def _keep(self, delivery: Delivery, status: DeliveryStatus, why: str) -> DeliveryStored:
        """Store what triggers nothing, and raise why, unless it was delivered before."""
        stored = await self._stored(ReceiveDelivery(replace(delivery, status=status, reason=why)))
        if stored.duplicate or status is DeliveryStatus.REFUSED:
            return stored
        raise WebhookUnmappedError(delivery.source, delivery.delivery_id, why)

    async def _refuse(self, tenant: TenantId, source: str, why: str, now: datetime) -> None:
        told = self._refused.get((source, why))
        if told is not None and self._clock.monotonic() - told < _REFUSED_SECONDS:
            return
        self._refused[source, why] = self._clock.monotonic()
        if not await self._exists(tenant):  # nobody's inbox has it, which is no news for who has not signed
            return
        minute = now.replace(second=0, microsecond=0).isoformat()
        delivery_id = DeliveryId(derived_id("whr", tenant, source, why, minute))
        receipt = self._ids.make("rcp")
        delivery = Delivery(delivery_id, tenant, source, receipt, now, DeliveryStatus.REFUSED, why)
        try:
            await self._stored(ReceiveDelivery(delivery))
        except OwlClawError:
            self._refused.pop((source, why), None)  # the next one is to be stored
            raise

    async def _stored(self, command: ReceiveDelivery) -> DeliveryStored:
        outcome = (await self._store.apply([command]))[0]
        if not isinstance(outcome, DeliveryStored):
            raise StoreUnavailableError(f"the webhook was not stored: {outcome}")
        return outcome
