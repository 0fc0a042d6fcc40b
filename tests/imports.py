"""Says within a second or two which imports of our own names cannot succeed; collecting the tests says it after half a minute.

`python -m tests.imports` reads the files and imports none of them, so it sees imports inside of functions, too. A name is there
if its module binds it anywhere at its top level, or has a submodule of it; a module with a `__getattr__` or a `*` has all names.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("owlclaw_ray", "actors", "serve", "console", "benchmarks", "tests", "examples")


class Tree:
    """The packages of a folder, as far as they were read."""

    def __init__(self, root: Path, packages: Sequence[str] = PACKAGES) -> None:
        self._root, self._packages = root, packages
        self._names: dict[str, frozenset[str] | None] = {}

    def broken(self) -> list[str]:
        """Return `path:line: what is missing` of every import that cannot succeed."""
        found = []
        for path in [path for package in self._packages for path in sorted((self._root / package).rglob("*.py"))]:
            for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
                for module, name in _imported(node):
                    if module.partition(".")[0] in self._packages and (lack := self._lack(module, name)):
                        found.append(f"{path.relative_to(self._root)}:{node.lineno}: {lack}")
        return found

    def _lack(self, module: str, name: str) -> str:
        names = self._names_of(module)
        if names is None:
            return f"there is no module {module}"
        if names & {name, "*", "__getattr__"} or self._names_of(f"{module}.{name}") is not None:
            return ""
        return f"{module} has no {name}"

    def _names_of(self, module: str) -> frozenset[str] | None:
        """Return what the module binds and `*` if that is not known, or None if there is no such module."""
        if module not in self._names:
            path = self._root.joinpath(*module.split("."))
            file = next((each for each in (path / "__init__.py", path.with_suffix(".py")) if each.is_file()), None)
            if file is not None:
                self._names[module] = frozenset(_bound(ast.parse(file.read_bytes(), str(file)).body)) | {""}
            else:
                self._names[module] = frozenset({""}) if path.is_dir() else None
        return self._names[module]


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the modules that a statement imports, each with the name that it takes of it, "" for none."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, "") for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield from ((node.module, "" if alias.name == "*" else alias.name) for alias in node.names)


def _bound(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the names that statements bind, those within `if`, `try`, `with` and loops included."""
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield statement.name
            case ast.Import() | ast.ImportFrom():
                yield from (alias.asname or alias.name.partition(".")[0] for alias in statement.names)
            case _:
                yield from (
                    node.id
                    for node in ast.walk(statement)
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
                )
                for inner in ast.iter_child_nodes(statement):
                    if isinstance(inner, ast.stmt | ast.ExceptHandler):
                        yield from _bound([inner] if isinstance(inner, ast.stmt) else inner.body)


if __name__ == "__main__":
    problems = Tree(ROOT).broken()
    sys.stderr.write("".join(f"{each}\n" for each in problems))
    sys.exit(bool(problems))
