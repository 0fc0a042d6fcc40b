"""What texts of people may have in them, as regular expressions that mean the same to Python and to ECMAScript."""

from __future__ import annotations

UNSEEN = (
    r"\u0000-\u001f\u007f-\u00a0\u00ad\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000"
    r"\ue000-\uf8ff\ufeff\ufff9-\ufffb"
)
"""Controls, blanks of other kinds, and what has no look or an agreed one only."""
NAME = rf"[^ {UNSEEN}]([^{UNSEEN}]*[^ {UNSEEN}])?"
"""One line, without a blank at its ends."""
