"""Names of the product: a class name means one thing, a module is called by a noun, and the glossary leads to types that exist.

The tables list what is not so yet. They only shrink: a test fails for what is missing in them, and for what is in them without need.
"""

import ast
import re
from collections import defaultdict
from pathlib import PurePosixPath

from tests.docs.snippets import ROOT

MIRROR = "owlclaw_ray/wire.py"
"""Says how the facts look in JSON, under their names."""

CLASSES_OF_ONE_NAME: dict[str, tuple[str, ...]] = {}
NOUNS = frozenset(
    [
        "counting",
        "embedding",
        "keyring",
        "mapping",
        "packing",
        "signing",
        "tracing",
    ]
)
"""Nouns of the field that end like participles."""
PARTICIPLES = frozenset({"owlclaw_ray/client/blocking.py"})
_ROW = re.compile(r"^\| ([^|]+) \| [^|]+ \| `(\w+)` in `([\w/.]+)` \|$", re.MULTILINE)


def product():
    """Return the syntax of all modules of the product by their paths."""
    files = (
        file for package in ("owlclaw_ray", "actors", "serve", "console") for file in (ROOT / package).rglob("*.py")
    )
    return {file.relative_to(ROOT).as_posix(): ast.parse(file.read_text(encoding="utf-8")) for file in files}


def test_a_class_name_exists_once():
    places = defaultdict(list)
    for path, tree in product().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and path != MIRROR:
                places[node.name].append(path)
    assert {name: tuple(sorted(found)) for name, found in places.items() if len(found) > 1} == CLASSES_OF_ONE_NAME


def test_modules_are_called_by_nouns():
    paths = [PurePosixPath(path) for path in product()]
    assert {str(path) for path in paths if path.stem.endswith("ing") and path.stem not in NOUNS} == PARTICIPLES
    assert {path.stem for path in paths} >= NOUNS


def test_every_term_of_the_glossary_is_in_the_code_where_it_says_and_terms_are_in_it_once():
    text = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    rows, trees = _ROW.findall(text), product()
    assert len(rows) == sum(line.startswith("| ") and not line.startswith("| term ") for line in text.splitlines())
    missing = [(name, path) for _, name, path in rows if path not in trees or name not in _names(trees[path])]
    assert not missing
    terms = [term for term, _, _ in rows]
    assert len(terms) == len({*terms})


def _names(tree):
    assigned = (target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets)
    return {getattr(each, "name", None) or getattr(each, "id", None) for each in [*tree.body, *assigned]}
