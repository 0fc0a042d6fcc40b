"""Callbacks: what is told of a run's end to an address on the web, by a signed webhook (H2)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from datetime import datetime
from enum import Enum
from typing import TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.ids import CallbackId, RunId, derived_id

MAX_URL = 2_000
MAX_NETWORKS = 100
"""Of one tenant."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_COMPATIBLE = ipaddress.ip_network("::/96")
_OF_ITSELF = frozenset(map(ipaddress.ip_address, ("::", "::1")))
"""Addresses in `_COMPATIBLE` that stand for no IPv4 address."""
_UNICAST = ipaddress.ip_network("2000::/3")
"""What IANA gives out of IPv6. All else is not public, such as fc00::/7, fec0::/10, and 64:ff9b:1::/48 for a network's own NAT64."""
_NOT_PUBLIC = tuple(
    ipaddress.ip_network(each)
    for each in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",
        "2001::/23",
        "2001:db8::/32",
        "3fff::/20",
    )
)
"""The special-purpose registries of IANA, with multicast and what is reserved. Python's own table, `is_global`, is another one in each
patch version.
"""
IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


class CallbackStatus(Enum):
    """Where a callback stands."""

    WAITING = "waiting"
    """Its run is not over."""
    PENDING = "pending"
    """It is to be sent, perhaps again."""
    DELIVERED = "delivered"
    """The receiver answered with a success."""
    DEAD = "dead"
    """It was tried as often as it may be, or the receiver wants no more. Somebody may have it sent again."""

    @property
    def settled(self) -> bool:
        """Whether it is not to be sent, unless somebody asks for it."""
        return self in {CallbackStatus.DELIVERED, CallbackStatus.DEAD}


class Callback(Struct, frozen=True):
    """What is to be told to one address of the end of one run."""

    callback_id: CallbackId
    """Derived from run and address: each address is told once of a run, whoever named it."""
    agent: AgentRef
    run_id: RunId
    url: str
    created_at: datetime
    status: CallbackStatus = CallbackStatus.WAITING
    attempts: int = 0
    """Of sending it, since it was last made pending."""
    next_try_at: datetime | None = None
    """When it is sent (again), while it is pending. While it is under way: when it counts as lost."""
    tried_at: datetime | None = None
    problem: str = ""
    """Why the last attempt failed."""
    delivered_at: datetime | None = None
    version: int = 1
    """How often it changed."""
    changed_by: str = ""
    """An id of whoever changed it last: two who change it at once do not take each other's change for their own."""

    @property
    def host(self) -> str:
        """Who is told: the name or address, with the port if the URL has one."""
        return urlsplit(self.url).netloc.lower()


def callback_id_of(run_id: str, url: str) -> CallbackId:
    """Return the id of the callback that tells this address of this run."""
    return CallbackId(derived_id("cb", run_id, url))


class CallbackRules(Struct, frozen=True):
    """Where callbacks may go: to addresses that everybody on the internet can reach, and to these networks."""

    allowed_networks: tuple[str, ...] = ()
    """In the form 10.1.0.0/16."""

    def problem(self, url: str) -> str:
        """Return why no callback can go to the address, as far as the address alone says it, or nothing."""
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname or "", parts.port
        except ValueError as error:
            return f"is no URL: {error}"
        if len(url) > MAX_URL or not url.isascii() or not url.isprintable() or " " in url:
            return f"must be up to {MAX_URL:,} visible ASCII characters"
        if parts.scheme not in {"http", "https"} or not host:
            return "must begin with https:// or http:// and name a host"
        if parts.username is not None or parts.password is not None:
            return "must have no user and no password"
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return self.refusal("127.0.0.1") if host == "localhost" or host.endswith(".localhost") else ""
        return self.refusal(str(address))

    def refusal(self, address: str) -> str:
        """Return why nothing is sent to an IP address, or nothing."""
        ip = _meant(ipaddress.ip_address(address.partition("%")[0]))
        if any(ip in ipaddress.ip_network(network) for network in self.allowed_networks):
            return ""
        if (ip.version == 4 or ip in _UNICAST) and not any(ip in network for network in _NOT_PUBLIC):
            return ""
        return (
            f"leads to {ip}, which is not a public address (webhooks.callbacks.allowed_networks, or callback_networks of the tenant, "
            "allows networks)"
        )


ANYWHERE = CallbackRules(("0.0.0.0/0", "::/0"))
"""For addresses of which only the form is checked."""


def network_problem(networks: Iterable[str]) -> str:
    """Return what is wrong with one of the networks, or nothing."""
    for each in networks:
        try:
            ipaddress.ip_network(each)
        except ValueError as error:
            return f"has {each!r}, which is no network: {error}"
    return ""


def _meant(address: IpAddress) -> IpAddress:
    """Return the IPv4 address that an IPv6 address leads to, if it does."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64 or (address in _COMPATIBLE and address not in _OF_ITSELF):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


NO_CALLBACKS = "cannot be served: there is no webhooks.callbacks.secret in owlclaw.yaml to sign with"
