"""Pictures of pages for the docs."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from playwright.sync_api import Page

MOST_BYTES = 150_000
_COLOURS = 256


def keep(page: Page, folder: Path | None, name: str) -> None:
    """Write what is seen of the page as `<folder>/<name>.png`, in few colours; nothing without a folder."""
    if folder is None:
        return
    from PIL import Image

    page.evaluate("document.activeElement.blur()")
    picture = Image.open(BytesIO(page.screenshot())).convert("RGB")
    target = folder / f"{name}.png"
    picture.quantize(_COLOURS, dither=Image.Dither.NONE).save(target, optimize=True)
    assert target.stat().st_size <= MOST_BYTES, f"{target} has {target.stat().st_size:,} bytes"
