"""A real browser that is signed in to a console over the real engine, and what is asked of its pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx
from playwright.sync_api import Browser, Page, expect

expect.set_options(timeout=60_000)


@contextmanager
def opened(chromium: Browser, http: httpx.Client, expected: str = "", **options: object) -> Iterator[Page]:
    """A page that is signed in by a link; in the end nothing but what is expected must have been complained about."""
    problems: list[str] = []
    host = urlsplit(str(http.base_url)).netloc
    context = chromium.new_context(**options)
    context.set_default_timeout(60_000)
    page = context.new_page()
    page.on("request", lambda asked: problems.append(asked.url) if urlsplit(asked.url).netloc != host else None)
    page.on("console", lambda said: problems.append(said.text) if said.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: (problems.append(dialog.message), dialog.dismiss()))
    code = http.post("/console/sign-in/codes").json()["code"]
    page.goto(f"{http.base_url}/console/sign-in?next=/console/agents#{code}")
    page.wait_for_url("**/console/agents")
    try:
        yield page
    finally:
        context.close()
    assert [each for each in problems if not expected or expected not in each] == []


NAMELESS = """[...document.querySelectorAll("input:not([type=hidden]), select, textarea, button, a")].filter((each) =>
    !(each.labels?.length || each.textContent.trim() || each.getAttribute("aria-label"))).map((each) => each.outerHTML)"""
"""Fields, buttons and links that have no name for who does not see them."""
PALE = """(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map((each) => each / 255)
    .map((each) => each <= .04045 ? each / 12.92 : ((each + .055) / 1.055) ** 2.4)
    .reduce((sum, each, at) => sum + each * [.2126, .7152, .0722][at], 0);
  const ground = (element) => { for (let each = element; each; each = each.parentElement) {
    const found = rgba(getComputedStyle(each).backgroundColor); if (found[3] === 255) return found; } return [255, 255, 255, 255]; };
  return [...document.querySelectorAll("body *")]
    .filter((each) => [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
    .filter((each) => each.checkVisibility() && !each.closest(".unseen, .skip, svg, option"))
    .map((each) => { const [a, b] = [light(rgba(getComputedStyle(each).color)), light(ground(each))];
      return [each, (Math.max(a, b) + .05) / (Math.min(a, b) + .05)]; })
    .filter(([, contrast]) => contrast < 4.5).map(([each, contrast]) => `${contrast.toFixed(2)} ${each.outerHTML.slice(0, 120)}`);
})()"""
"""Texts whose contrast is below 4.5 (WCAG 2.2 AA)."""
