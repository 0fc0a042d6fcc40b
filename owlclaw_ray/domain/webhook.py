"""Webhooks that come in: who may send them, how they are signed, what becomes of each delivery (S5)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from msgspec import Struct

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.trigger import ENQUEUED, Admission
from owlclaw_ray.ids import DEFAULT_TENANT, DeliveryId, RunId, TenantId

PLACE = re.compile(r"\{(body|header)((?:\.[^{}.\s]+)*)\}")
"""What a mapping's texts may have in them: `{body}`, `{body.path.to.0.something}`, `{header.Name}`."""
SIGNED_PART = re.compile(r"\{(body|timestamp|header\.[A-Za-z0-9_-]+)\}")
"""What the text that says what is signed may have in it."""
MAX_FAILURES = 3
"""After how many heartbeats that saw a delivery and failed it is refused."""


class BodyForm(Enum):
    """What a source's bodies are."""

    JSON = "json"
    FORM = "form"
    """Fields of an HTML form: an object of texts, of several values the first."""
    TEXT = "text"


class SecretForm(Enum):
    """How a secret is written down."""

    TEXT = "text"
    BASE64 = "base64"
    """Its bytes, as Standard Webhooks has them: with or without `whsec_` before them."""


class SignatureForm(Struct, frozen=True):
    """How a source signs, in words that cover GitHub's, Stripe's, Slack's and Standard Webhooks' ways."""

    header: str = "X-Signature-256"
    """Where the digests are: one, or several with blanks between them; or, with `digest_key`, pairs `key=value` with commas."""
    algorithm: str = "sha256"
    """A name that hashlib knows."""
    encoding: str = "hex"
    """`hex` or `base64`."""
    prefix: str = ""
    """What stands before each digest; digests without it do not count."""
    digest_key: str = ""
    """The key of the pairs that hold a digest."""
    timestamp_key: str = ""
    """The key of the pair that holds the time."""
    timestamp_header: str = ""
    """The header that holds the time, if it is not in a pair. Without any time there is no replay window."""
    signed: str = "{body}"
    """What is signed: `{body}`, `{timestamp}` and `{header.Name}` stand for what they name."""
    tolerance: float = 300.0
    """How many seconds the time may differ from ours, in either direction."""

    @property
    def timed(self) -> bool:
        """Whether deliveries carry the time when they were signed."""
        return bool(self.timestamp_key or self.timestamp_header)


class DeliverTo(Enum):
    """How a delivery reaches its agent."""

    RUN = "run"
    """It is a trigger: a run of its own, at once."""
    HEARTBEAT = "heartbeat"
    """It waits in the inbox until the agent's next heartbeat, which sees all that wait together."""


class Mapping(Struct, frozen=True):
    """What a delivery becomes. Texts may have `{body.path}` and `{header.Name}` in them; see engine.webhook_mapping."""

    agent: str
    payload: JsonValue = "{body}"
    focus: str = ""
    session: str = ""
    """Of the trace; as `user`, without what no such label may have in it."""
    user: str = ""
    task_type: str = ""
    when: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """What must hold for a delivery to matter: a template, and the texts that it may be."""
    dedupe: str = ""
    """A template of what is the same for repetitions of a delivery; empty: the signature, if it covers a time."""
    admission: Admission = ENQUEUED
    deliver: DeliverTo = DeliverTo.RUN


@dataclass(frozen=True, slots=True)
class WebhookSource:
    """Somebody who may send webhooks."""

    name: str
    secrets: tuple[str, ...] = field(repr=False)
    """Without any it cannot be told whose a webhook is, and none is taken."""
    """Any of them may have signed, so that they can be changed without a gap. Until `filled`, with placeholders of variables."""
    mapping: Mapping
    signature: SignatureForm = field(default_factory=SignatureForm)
    secret_form: SecretForm = SecretForm.TEXT
    body: BodyForm = BodyForm.JSON
    tenant: TenantId = DEFAULT_TENANT
    """Whose agents it triggers, and whose its deliveries are."""
    tenant_secrets: tuple[str, ...] = ()
    """The names of that tenant's secrets that sign, in the place of `secrets`."""


class DeliveryStatus(Enum):
    """What became of a delivery."""

    TRIGGERED = "triggered"
    """It queued a run, or joined one."""
    IGNORED = "ignored"
    """The source's `when` says that it does not matter."""
    WAITING = "waiting"
    """It waits for a heartbeat of its agent."""
    HANDLED = "handled"
    """A heartbeat of its agent saw to it: the run."""
    UNMAPPED = "unmapped"
    """It was signed rightly, but no trigger can be made of it."""
    REFUSED = "refused"
    """It was not signed rightly, or its agent took no trigger."""

    @property
    def settled(self) -> bool:
        """Whether the same delivery, come again, changes nothing."""
        return self not in {DeliveryStatus.UNMAPPED, DeliveryStatus.REFUSED}


class Delivery(Struct, frozen=True):
    """A webhook that came in."""

    delivery_id: DeliveryId
    """Derived from what makes it the same delivery when it comes again."""
    tenant: TenantId
    source: str
    receipt: str
    """The one time that it came: a repetition has another receipt and the same id."""
    received_at: datetime
    status: DeliveryStatus
    reason: str = ""
    """Why it has not triggered."""
    agent: AgentRef | None = None
    run_id: RunId | None = None
    headers: JsonObject = {}
    """Those that the mapping reads, by their names in small letters."""
    body: str = ""
    """Empty if it was not signed rightly: nobody vouches for it."""
    whole: bool = False
    """Whether the body is the one that came: signed rightly, and text."""
    event: JsonObject | None = None
    """What a heartbeat is told of it, if it is for one: focus and payload, and who had it delivered again, which its model does not see."""
    failures: int = 0
    """How many heartbeats saw it and failed."""

    @property
    def repeatable(self) -> bool:
        """Whether it can be mapped again: it is whole, and has not triggered."""
        return self.whole and not self.status.settled
