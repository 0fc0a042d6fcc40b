"""YAML documents whose every value knows the line that it came from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import yaml
from msgspec import Struct, field

from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.errors import ConfigurationError, Problem

KeyPath: TypeAlias = tuple[str | int, ...]
_NO_COLON = re.compile(r"\s*(?P<key>[A-Za-z_][\w.-]*)((?P<colon>:)(?=\S)|\s+|$)(?P<value>(?!.*:(\s|$)).*)")
"""A line that begins with a key, and has no colon with a space after it."""


class YamlDocument(Struct, frozen=True):
    """A mapping read from a file."""

    source: str
    """The file, as problems name it."""
    data: JsonObject
    lines: Mapping[KeyPath, int] = field(default_factory=dict)

    def where(self, path: Sequence[str | int]) -> str:
        """Return `file:line: dotted.path`; the line is that of the nearest part that the file has."""
        place = self.line_of(path)
        return f"{place}: {dotted(path)}" if path else place

    def line_of(self, path: Sequence[str | int]) -> str:
        """Return `file:line` of the nearest part of a path that the file has."""
        parts = tuple(path)
        known = next((parts[:length] for length in range(len(parts), -1, -1) if parts[:length] in self.lines), ())
        return f"{self.source}:{self.lines[known]}" if known in self.lines else self.source

    def has(self, path: Sequence[str | int]) -> bool:
        """Return whether the file says something at a path."""
        value: JsonValue = self.data
        for part in path:
            match value, part:
                case list(), int(index) if index < len(value):
                    value = value[index]
                case dict(), str(key) if key in value:
                    value = value[key]
                case _:
                    return False
        return True


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
        what, fix = f"holds a {type(data).__name__}", "it must be a mapping of `key: value` lines"
        without = _colon_problem(text, node.start_mark.line, source, first_line) if isinstance(data, str) else None
        raise ConfigurationError([without or Problem(f"{source}:{first_line}", what, fix)])
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
                name = str(key.value)
                where = f"{self._source}:{self._line(key)}: {dotted((*path, name))}"
                if key.tag != "tag:yaml.org,2002:str":
                    self.problems.append(Problem(where, "is no text key", "put it in quotes"))
                elif name in keys:
                    self.problems.append(Problem(where, "appears twice", "remove one of the two"))
                keys.add(name)
                self.visit(value, (*path, name), self._line(key))
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                self.visit(value, (*path, index))

    def _line(self, node: yaml.Node) -> int:
        return self._first_line + node.start_mark.line if node.start_mark is not None else self._first_line


def _syntax_problem(error: yaml.YAMLError, text: str, source: str, first_line: int) -> Problem:
    mark = getattr(error, "problem_mark", None)
    line, what = mark.line if mark is not None else 0, str(getattr(error, "problem", None) or error)
    fix = "quote texts that contain ': ' or '#', or that start with a symbol"
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position)
        what = f"the character U+{ord(text[error.position]):04X} is not allowed"
    elif (suspect := _without_colon(error, text)) is not None and (
        found := _colon_problem(text, suspect, source, first_line)
    ):
        return found
    elif "\t" in _indentation(_line(text, line)):
        what, fix = "the line begins with a tab", "use spaces"
    elif "mapping values" in what:
        what += ": there is a second ': ' in the line, or a line above begins at another column"
    return Problem(f"{source}:{first_line + line}", f"is not valid YAML: {what}", fix)


def _without_colon(error: yaml.YAMLError, text: str) -> int | None:
    """Return the line that may be a key without its colon, if that is why the text cannot be parsed."""
    mark, context = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    if "could not find expected ':'" in str(error) and context is not None:
        return int(context.line)
    if mark is None or "mapping values" not in str(error) or mark.line == 0:
        return None
    aligned = _indentation(_line(text, mark.line - 1)) == _indentation(_line(text, mark.line))
    return int(mark.line) - 1 if aligned else None


def _colon_problem(text: str, line: int, source: str, first_line: int) -> Problem | None:
    """Return what is wrong with a line that begins with a key, and is no `key: value`."""
    found = _NO_COLON.fullmatch(_line(text, line))
    if found is None:
        return None
    what = f"a {'space is missing after the colon of' if found['colon'] else 'colon is missing after'} {found['key']!r}"
    return Problem(f"{source}:{first_line + line}", what, f"write {found['key']}: {found['value'] or '…'}")


def _line(text: str, number: int) -> str:
    lines = text.split("\n")
    return lines[number].rstrip() if number < len(lines) else ""


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
