"""Keeping Ray Serve on the loopback interface, and free ports of it."""

from __future__ import annotations

import importlib
import socket
from collections.abc import Iterator
from itertools import islice
from random import SystemRandom
from typing import Any

_OWN_PORTS = range(20_000, 32_768)


def keep_replica_on_loopback() -> None:
    """Have the replica that calls this bind its gRPC server, which takes pickles from anybody, to the loopback interface.

    Ray Serve 2.60 starts that server in every replica, on every interface, with no setting for either.
    """
    replica: Any = importlib.import_module("ray.serve._private.replica")
    bind = replica.add_port_to_grpc_server

    def bind_to_loopback(server: object, address: str) -> int:
        port: int = bind(server, address.replace("[::]", "127.0.0.1"))
        return port

    replica.add_port_to_grpc_server = bind_to_loopback


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface that nobody listens on now.

    They are none that a system (from 32768 or higher) or Ray's workers (10002 to 19999) take by themselves: between this choice
    and its use Ray starts dozens of servers on such ports.
    """
    ports = list(islice(filter(_is_free, _shuffled()), count))
    if len(ports) < count:
        raise _no_free_port()
    return ports


def free_range(count: int) -> range:
    """Return as many ports as `free_ports`, one after the other."""
    for first in _shuffled():
        ports = range(first, first + count)
        if ports.stop <= _OWN_PORTS.stop and all(map(_is_free, ports)):
            return ports
    raise _no_free_port()


def _shuffled() -> Iterator[int]:
    return iter(SystemRandom().sample(_OWN_PORTS, len(_OWN_PORTS)))


def _no_free_port() -> OSError:
    return OSError(f"no free port on 127.0.0.1 from {_OWN_PORTS.start} to {_OWN_PORTS.stop - 1}")


def _is_free(port: int) -> bool:
    with socket.socket() as candidate:
        try:
            candidate.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
