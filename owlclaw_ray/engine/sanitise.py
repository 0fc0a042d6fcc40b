"""What is taken out of texts that people write for models: characters that people do not see and models do."""

from __future__ import annotations

import re

_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and line feed
    r"\u202a-\u202e\u2066-\u2069"  # overrides of the writing direction
    r"\u200b\u2060\ufeff\ufff9-\ufffb"  # zero-width spaces, byte order marks, interlinear marks
    r"\U000e0000-\U000e007f]"  # tag characters, which spell hidden ASCII
)


def sanitise(text: str) -> str:
    """Return the text with line feeds only and without invisible characters; every visible character stays as it is.

    Doing it again changes nothing. Joiners (U+200C, U+200D) stay: emoji and several scripts need them.
    """
    return _INVISIBLE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
