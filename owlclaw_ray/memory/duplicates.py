"""When two memories are one: when they are equal but for how Unicode, white space and the last full stop are written.

Nothing that could mean something folds: no case (`aB3` is no `ab3`, `IT` no `it`), no sign, no quotation mark, no word. What is
in doubt stays apart: a memory more costs little, a swallowed one is a fact lost. So

- characters are NFC, and those of full or half width are the plain ones; superscripts, ligatures and ① stay what they are;
- white space at the ends of lines and of the text does not count. Inside a text of one line a run is one blank, and typographic
  blanks beside Chinese characters do not count. In a text of several lines (lists, code) they do, and so do the lines;
- in a text that quotes something, each blank and each width counts;
- a full stop at the very end does not count, nor an exclamation mark after a Chinese character or a plain word, unless that word
  is what something `is` (a password may end with one, and 5! is 120). A question mark counts, and so do three dots.

Vectors are no judge of this: they put "the limit is 500" nearer to "the limit is 700" than to its own paraphrase.
"""

from __future__ import annotations

import re
import unicodedata
from hashlib import blake2b

_WIDTHS = {
    code: chr(int(unicodedata.decomposition(chr(code)).split()[1], 16))
    for code in (0x3000, *range(0xFF01, 0xFFEF))
    if unicodedata.decomposition(chr(code))
}
_LINE_END = re.compile("\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_QUOTES = re.compile("[\"`\u201c\u201d\u00ab\u00bb\u300c-\u300f\uff02\uff07\uff40]|(?<!\\w)['\u2018]")
_HAN = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_JOINTS = [re.compile(f"(?<=[{_HAN}]) ?(?=[{kind}])|(?<=[{kind}]) ?(?=[{_HAN}])") for kind in ("A-Za-z", "0-9")]
_AFTER_PUNCTUATION = re.compile(f"(?<=[,;:!?)\u3001\u3002]) (?=[{_HAN}])|(?<=[{_HAN}]) (?=\\()")
_BEFORE_FINAL = {
    ".": re.compile("[\\w)\\]}%\"'`\u00b0\u00bb\u2019\u201d\u300b\u300d\u300f]\\Z"),
    "\u3002": re.compile("[^\\s.!?\u2026]\\Z"),
    "!": re.compile(f"[{_HAN}]\\Z|(?<![:=])(?<!\\bis) [a-z]{{2,}}\\Z"),
}
"""What stands before a final mark that does not count."""


def likeness(content: str) -> bytes:
    """Return what is equal for texts that are one memory."""
    quotes = _QUOTES.search(content)
    text = content
    if not text.isascii():
        text = unicodedata.normalize("NFC", text if quotes else text.translate(_WIDTHS))
    lines = [line.rstrip() for line in _LINE_END.split(text)]
    while lines and not lines[-1]:
        lines.pop()
    text = "\n".join(lines).lstrip("\n")
    if "\n" not in text:
        text = text.strip() if quotes else _spaced(text)
    before = _BEFORE_FINAL.get(text[-1:])
    if before is not None and before.search(text, 0, len(text) - 1):
        text = text[:-1]
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _spaced(line: str) -> str:
    """Return the line with one blank where there are some, and none where it is typographic.

    A blank between Chinese and letters is, if there is one at all such places, and likewise one between Chinese and digits: where
    some have one and some have none, it may tell the items of a list apart.
    """
    line = " ".join(line.split())
    if line.isascii():
        return line
    line = _AFTER_PUNCTUATION.sub("", line)
    for joint in _JOINTS:
        if all(each[0] for each in joint.finditer(line)):
            line = joint.sub("", line)
    return line
