from __future__ import annotations

import pytest

from tests.imports import ROOT, Tree


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "shop" / "till").mkdir(parents=True)
    (tmp_path / "shop" / "till" / "__init__.py").write_text("from shop.till.coins import Coin\n")
    (tmp_path / "shop" / "till" / "coins.py").write_text(
        "import os\n\nclass Coin:\n    pass\n\nif os.name:\n    ONE = 1\n"
    )

    def with_line(line):
        (tmp_path / "shop" / "door.py").write_text(f"def open():\n    {line}\n")
        return Tree(tmp_path, ["shop"])

    return with_line


@pytest.mark.parametrize(
    "line",
    [
        "import os, missing_elsewhere",
        "import shop.till.coins",
        "from shop import till",
        "from shop.till import coins, Coin",
        "from shop.till.coins import ONE, os",
        "from shop.till import *",
    ],
)
def test_an_import_that_succeeds_is_not_named(tree, line):
    assert tree(line).broken() == []


@pytest.mark.parametrize(
    ("line", "lack"),
    [
        ("import shop.tills", "there is no module shop.tills"),
        ("from shop.till.notes import Note", "there is no module shop.till.notes"),
        ("from shop.till import Coin, Note", "shop.till has no Note"),
        ("from shop.till.coins import TWO", "shop.till.coins has no TWO"),
    ],
)
def test_an_import_of_what_is_not_there_is_named_with_its_place(tree, line, lack):
    assert tree(line).broken() == [f"shop/door.py:2: {lack}"]


def test_every_import_of_this_project_can_succeed():
    assert Tree(ROOT).broken() == []
