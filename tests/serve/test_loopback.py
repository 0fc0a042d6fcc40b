import socket

import pytest

from serve import loopback
from serve.loopback import free_ports


def test_ports_are_free_different_and_none_that_systems_give_away():
    ports = free_ports(50)

    assert len(set(ports)) == 50
    assert all(20_000 <= port < 32_768 for port in ports)
    for port in ports:
        with socket.socket() as server:
            server.bind(("127.0.0.1", port))


def test_ports_in_use_are_passed_over_and_their_lack_is_said(monkeypatch):
    [first] = free_ports(1)
    monkeypatch.setattr(loopback, "_OWN_PORTS", range(first, first + 1))
    with socket.socket() as server:
        server.bind(("127.0.0.1", first))
        with pytest.raises(OSError, match=f"no free port on 127.0.0.1 from {first} to {first}"):
            free_ports(1)
    assert free_ports(1) == [first]
