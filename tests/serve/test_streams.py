"""Shares of the places for requests that stay open."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from owlclaw_ray.domain.principal import LOCAL, Principal, PrincipalKind
from owlclaw_ray.ids import TenantId
from serve.errors import StreamShareError, TooManyStreamsError
from serve.problems import problem_of
from serve.streams import OpenRequestLimit


def key(name, tenant="acme"):
    return Principal(TenantId(tenant), PrincipalKind.KEY, name)


def test_one_key_takes_half_of_the_places_and_one_tenant_three_quarters():
    places = OpenRequestLimit(8)
    with ExitStack() as held:
        for _ in range(4):
            held.enter_context(places.one(key("a")))
        with pytest.raises(StreamShareError, match="this key has 4") as refused:
            held.enter_context(places.one(key("a")))
        for _ in range(2):
            held.enter_context(places.one(key("b")))
        with pytest.raises(StreamShareError, match="this tenant has 6"):
            held.enter_context(places.one(key("b")))
        for _ in range(2):
            held.enter_context(places.one(key("a", "other")))
        with pytest.raises(TooManyStreamsError):
            held.enter_context(places.one(key("c", "third")))
    assert not places._held

    problem = problem_of(refused.value)
    assert (problem.status, problem.kind, problem.headers) == (429, "stream-share", {"Retry-After": "5"})
    with places.one(key("a")):
        pass


def test_where_nobody_needs_a_key_all_places_are_for_whoever_comes():
    places = OpenRequestLimit(2)
    with places.one(LOCAL), places.one(LOCAL), pytest.raises(TooManyStreamsError), places.one(LOCAL):
        pass
