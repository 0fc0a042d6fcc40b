"""What axe finds on a page (axe-core, which the package axe-playwright-python brings), and whether it fits screens."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

_AXE = Axe()
WIDTHS = (360, 1_280, 3_840)
"""Of a telephone, a laptop and a wall, in CSS pixels."""


def violations(page: Page, scheme: str) -> list[str]:
    """Return what is wrong with the page as it is, in light or dark: which rule, where, and what axe says of it."""
    page.emulate_media(color_scheme=scheme)
    found = _AXE.run(page).response["violations"]
    return [
        f"{page.url} ({scheme}): {each['id']}: {node['html'][:200]}: {' '.join(node['failureSummary'].split())}"
        for each in found
        for node in each["nodes"]
    ]


def faults(page: Page) -> list[str]:
    """Return what is wrong with the page with all that it can unfold, in light and dark, and where it is wider than a screen."""
    page.evaluate("document.querySelectorAll('main details').forEach((each) => { each.open = true; })")
    found = [*violations(page, "light"), *violations(page, "dark")]
    before = page.viewport_size
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        needed = page.evaluate("document.documentElement.scrollWidth")
        if needed > width:
            found.append(f"{page.url}: {needed} pixels wide on a screen of {width}")
    if before is not None:
        page.set_viewport_size(before)
    return found
