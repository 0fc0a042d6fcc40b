from __future__ import annotations

from typing import get_type_hints

from owlclaw_ray.store.queries import Query
from owlclaw_ray.store.sql import queries, sql_store


def kinds():
    """Return all types of queries, from wherever the store knows them."""
    assert sql_store
    return set(Query.__subclasses__())


def test_every_query_has_an_answer_in_sql():
    assert len(kinds()) > 40
    assert set(queries._READERS) == kinds()


def test_an_answer_is_registered_for_the_query_that_it_takes():
    for kind, function in queries._READERS.items():
        hints = get_type_hints(function)
        hints.pop("return")
        hints.pop("connection")
        assert list(hints.values()) == [kind], function.__name__
