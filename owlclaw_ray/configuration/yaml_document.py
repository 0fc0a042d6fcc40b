"""YAML documents whose every value knows the line that it came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import yaml
from msgspec import Struct, field

from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.errors import ConfigurationError, Problem

KeyPath: TypeAlias = tuple[str | int, ...]


class YamlDocument(Struct, frozen=True):
    """A mapping read from a file."""

    source: str
    """The file, as problems name it."""
    data: JsonObject
    lines: Mapping[KeyPath, int] = field(default_factory=dict)

    def where(self, path: Sequence[str | int]) -> str:
        """Return `file:line: dotted.path`; the line is that of the nearest part that the file has."""
        parts = tuple(path)
        known = next((parts[:length] for length in range(len(parts), -1, -1) if parts[:length] in self.lines), ())
        place = f"{self.source}:{self.lines[known]}" if known in self.lines else self.source
        return f"{place}: {dotted(parts)}" if parts else place


def dotted(path: Sequence[str | int]) -> str:
    """Return a path as people write it: `limits.turns`, `fallback[0]`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def read_yaml(text: str, source: str, first_line: int = 1) -> YamlDocument:
    """Parse a mapping with text keys; an empty text is an empty mapping. `first_line` is the text's place in its file.

    Raises ConfigurationError for bad YAML, for keys that appear twice, and for anything that is not a mapping.
    """
    try:
        node, data = _parse(text)
    except yaml.YAMLError as error:
        raise ConfigurationError([_syntax_problem(error, text, source, first_line)]) from error
    except (ValueError, RecursionError, OverflowError, TypeError) as error:
        raise ConfigurationError([Problem(source, f"is not valid YAML: {error}")]) from error
    if node is None or data is None:
        return YamlDocument(source, {})
    if not isinstance(data, dict):
        what = f"holds a {type(data).__name__}"
        raise ConfigurationError(
            [Problem(f"{source}:{first_line}", what, "it must be a mapping of `key: value` lines")]
        )
    walk = _Walk(source, first_line)
    walk.visit(node, ())
    if walk.problems:
        raise ConfigurationError(walk.problems)
    return YamlDocument(source, data, walk.lines)


def _parse(text: str) -> tuple[yaml.Node | None, JsonValue]:
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        return node, loader.construct_document(node) if node is not None else None
    finally:
        loader.dispose()


class _Walk:
    """Notes lines and finds bad keys. Each node is visited once, however often aliases repeat it."""

    def __init__(self, source: str, first_line: int) -> None:
        self.lines: dict[KeyPath, int] = {}
        self.problems: list[Problem] = []
        self._source, self._first_line = source, first_line
        self._seen: set[int] = set()

    def visit(self, node: yaml.Node, path: KeyPath, line: int | None = None) -> None:
        self.lines[path] = line if line is not None else self._line(node)
        if id(node) in self._seen:
            return
        self._seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            keys: set[str] = set()
            for key, value in node.value:
                self._check_key(key, path, keys)
                self.visit(value, (*path, str(key.value)), self._line(key))
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                self.visit(value, (*path, index))

    def _check_key(self, key: yaml.Node, path: KeyPath, keys: set[str]) -> None:
        where = f"{self._source}:{self._line(key)}: {dotted((*path, str(key.value)))}"
        if key.tag != "tag:yaml.org,2002:str":
            self.problems.append(Problem(where, "is no text key", "put it in quotes"))
        elif key.value in keys:
            self.problems.append(Problem(where, "appears twice", "remove one of the two"))
        keys.add(str(key.value))

    def _line(self, node: yaml.Node) -> int:
        return self._first_line + node.start_mark.line if node.start_mark is not None else self._first_line


def _syntax_problem(error: yaml.YAMLError, text: str, source: str, first_line: int) -> Problem:
    mark = getattr(error, "problem_mark", None)
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position)
        what = f"the character U+{ord(text[error.position]):04X} is not allowed"
    else:
        line = mark.line if mark is not None else 0
        what = str(getattr(error, "problem", None) or error)
    fix = "quote texts that contain ': ' or '#', or that start with a symbol"
    return Problem(f"{source}:{first_line + line}", f"is not valid YAML: {what}", fix)
