"""Makes the picture of README.md: the page of the run that `make demo` has just left in its data folder."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

from playwright.sync_api import ViewportSize, sync_playwright

from examples.demo import AGENT, DATA, RuntimeProcess
from owlclaw_ray.client import SyncClient
from serve.loopback import free_ports
from tests.console.pictures import keep

SIZE: ViewportSize = {"width": 1280, "height": 800}


def main() -> int:
    """Start the runtime of the demo again and keep what its first run looks like, in the folder that is named."""
    (folder,) = map(Path, sys.argv[1:])
    if not DATA.exists():
        raise SystemExit("there is no run of the demo: make demo")
    (port,) = free_ports(1)
    with RuntimeProcess(port) as runtime:
        asyncio.run(runtime.wait_until_ready())
        with SyncClient(runtime.url) as client:
            first = client.runs(AGENT)["runs"][-1]["run_id"]
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = chromium.new_page(viewport=SIZE)
            page.goto(f"{runtime.url}/console/runs/{first}")
            page.locator("#e4").wait_for()
            keep(page, folder, "demo")
            chromium.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
