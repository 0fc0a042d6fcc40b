"""The page about retention names everything that there is to remove."""

import re

from owlclaw_ray.store.sql.schema import metadata
from tests.docs.snippets import table


def test_every_table_of_the_store_is_listed_once():
    named = [name for names, _ in table("docs/retention.md", "table") for name in re.findall(r"`(\w+)`", names)]

    assert sorted(named) == sorted(metadata.tables)
