"""What axe finds on a page (axe-core, which the package axe-playwright-python brings)."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

_AXE = Axe()


def violations(page: Page, scheme: str) -> list[str]:
    """Return what is wrong with the page as it is, in light or dark: which rule, where, and what axe says of it."""
    page.emulate_media(color_scheme=scheme)
    found = _AXE.run(page).response["violations"]
    return [
        f"{page.url} ({scheme}): {each['id']}: {node['html'][:200]}: {' '.join(node['failureSummary'].split())}"
        for each in found
        for node in each["nodes"]
    ]
