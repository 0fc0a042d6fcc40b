"""The examples in the documents: fenced code blocks, each with its place."""

import itertools
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- (\w+): (\S+) -->\n\Z")


@dataclass(frozen=True)
class Snippet:
    """A fenced block; `mark` is what a comment right before it says, such as ("file", "app.py")."""

    document: Path
    line: int
    language: str
    text: str
    mark: tuple[str, str] | None

    def __str__(self):
        return f"{self.document.relative_to(ROOT)}:{self.line}"

    @property
    def is_of_tutorial(self):
        """Whether it is a file of the project that docs/tutorial.md builds, which has a test of its own."""
        return self.mark is not None and self.mark[0] == "tutorial"

    @property
    def file(self):
        """The file that the snippet is, from its mark or its first comment; empty if it names none."""
        if self.mark and self.mark[0] in {"file", "tutorial"}:
            return self.mark[1]
        comment = re.match(r"# ([\w./<>@-]+\.yaml)\n", self.text)
        return comment[1] if comment else ""


def snippets(*languages):
    """Return all snippets in these languages, of all languages if none is given."""
    return [each for document in DOCUMENTS for each in _in(document) if not languages or each.language in languages]


def table(document, *titles):
    """Return the rows of the table whose first titles are these; cells as they are written."""
    tables = [rows for rows in _tables(ROOT / document) if tuple(rows[0][: len(titles)]) == titles]
    assert len(tables) == 1, f"{document} has {len(tables)} tables that begin with {titles}"
    return tables[0][2:]


def code(cell):
    """Return what stands between a cell's backticks."""
    return re.fullmatch(r"`(.*)`", cell)[1]


def _tables(document):
    lines = document.read_text(encoding="utf-8").splitlines()
    for is_table, group in itertools.groupby(lines, lambda line: line.startswith("|")):
        if is_table:
            yield [[cell.strip() for cell in line.split("|")[1:-1]] for line in group]


def _in(document):
    text = document.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        mark = _MARK.search(text, 0, found.start())
        line = text.count("\n", 0, found.start()) + 1
        yield Snippet(document, line, found[1], found[2], (mark[1], mark[2]) if mark else None)
