"""The sentences of the specification of the tool registry, and the table that docs/tools.md has of them."""

from pathlib import Path

from tests.docs.snippets import ROOT

LEFT_OUT = "left out"
_LIST = Path(__file__).with_name("tool_registry.tsv")
_DOCUMENT = ROOT / "docs" / "tools.md"
_TITLE = "| sentence | test |"


def sentences():
    """Return each sentence with its test, or with LEFT_OUT."""
    lines = _LIST.read_text(encoding="utf-8").splitlines()
    return [tuple(line.split("\t")) for line in lines if not line.startswith("#")]


def written():
    """Return docs/tools.md as it has to be."""
    lines = _DOCUMENT.read_text(encoding="utf-8").splitlines()
    begin = lines.index(_TITLE)
    end = next(at for at in range(begin, len(lines)) if not lines[at].startswith("|"))
    rows = [f"| {sentence} | `{test}` |" for sentence, test in sentences() if test != LEFT_OUT]
    return "\n".join([*lines[:begin], _TITLE, "|---|---|", *rows, *lines[end:], ""])


if __name__ == "__main__":
    _DOCUMENT.write_text(written(), encoding="utf-8")
