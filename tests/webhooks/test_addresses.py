"""Which addresses on the network callbacks may go to, whatever table this version of Python has."""

from __future__ import annotations

import pytest

from owlclaw_ray.domain.callback import CallbackRules

PUBLIC = [
    "8.8.8.8",
    "172.32.0.1",
    "192.0.1.1",
    "192.88.98.1",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2001:200::1",
    "2a00:1450:4001::1",
    "::ffff:8.8.8.8",
    "::8.8.8.8",
    "64:ff9b::8.8.8.8",
    "2002:808:808::1",
]
NOT_PUBLIC = [
    "0.0.0.0",
    "10.0.0.1",
    "100.64.0.1",
    "127.0.0.1",
    "169.254.169.254",
    "172.31.255.255",
    "192.0.0.8",
    "192.0.0.170",
    "192.0.2.1",
    "192.168.0.1",
    "198.19.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::10.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::10.0.0.1",
    "64:ff9b:1::10.0.0.1",
    "64:ff9b:1::8.8.8.8",
    "100::1",
    "2001::1",
    "2001:2::1",
    "2001:db8::1",
    "2002:a00:1::",
    "3fff::1",
    "5f00::1",
    "fd00::1",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff0e::1",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_an_address_that_everybody_on_the_internet_can_reach_is_for_callbacks(address):
    assert CallbackRules().refusal(address) == ""


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_any_other_address_is_not_unless_its_network_is_allowed(address):
    assert "not a public address" in CallbackRules().refusal(address)
    assert CallbackRules(("0.0.0.0/0", "::/0")).refusal(address) == ""


def test_a_network_that_is_allowed_allows_what_leads_there_and_nothing_beside_it():
    rules = CallbackRules(("10.1.0.0/16", "64:ff9b:1::/48", "::1/128"))

    for address in ("10.1.2.3", "::10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::10.1.2.3", "64:ff9b:1::10.2.0.1", "::1"):
        assert rules.refusal(address) == ""
    for address in ("10.2.0.1", "::10.2.0.1", "64:ff9b:2::1", "127.0.0.1"):
        assert "not a public address" in rules.refusal(address)
