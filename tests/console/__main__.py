"""Makes the pictures of docs/console.md: `uv run python -m tests.console`."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from playwright.sync_api import expect

from tests.console.world import KEY, Watched, chromium, fill, serving

FOLDER = Path(__file__).parents[2] / "docs" / "images"
PICTURES = {
    "console-stream": ("/#/streams/requests/records", "live, 100 seen", 560),
    "console-search": ("/#/streams/requests/search", "14 found", 560),
    "console-rollup": ("/#/streams/requests/rollups", "By interval", 720),
    "console-queue": ("/#/topics/mail/jobs", "Last 24 hours", 940),
    "console-routers": ("/#/routers", "waits since", 420),
}


def main() -> None:
    """Writes all of them, of a server that was just filled."""
    argparse.ArgumentParser("python -m tests.console", description=__doc__).parse_args()
    FOLDER.mkdir(exist_ok=True)
    with serving() as world, chromium() as browser:
        fill(world, time.time_ns() // 1_000_000)
        for name, (place, ready, height) in PICTURES.items():
            page = browser.new_page(color_scheme="light", viewport={"width": 1180, "height": height})
            page.add_init_script(f"sessionStorage.setItem('headrace.key', {json.dumps(KEY)})")
            Watched(page, world).go(place)
            if name == "console-search":
                page.get_by_label("Query").fill("status:>=500")
                page.get_by_role("combobox", name="Order").select_option("ms:desc")
                page.get_by_label("Query").focus()
            if name == "console-rollup":
                page.get_by_role("combobox", name="Grouped by").select_option("service")
                expect(page.get_by_role("columnheader", name="billing")).to_be_visible()
            expect(page.get_by_text(ready).first).to_be_visible()
            page.screenshot(path=FOLDER / f"{name}.png")
            page.close()


if __name__ == "__main__":
    main()
