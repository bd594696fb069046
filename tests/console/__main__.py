"""Makes the pictures of docs/console.md: `uv run python -m tests.console`."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, expect

from tests.console.world import World, chromium, fill, opened, serving

Colours = Literal["light", "dark"]

FOLDER = Path(__file__).parents[2] / "docs" / "images"
LIGHT: Colours = "light"
PICTURES: dict[
    str, tuple[str, str, int, Colours]
] = {  # the place, what is there when it has loaded, the height, the colours
    "console-stream": ("/#/streams/requests/records", "live, 100 seen", 560, LIGHT),
    "console-search": ("/#/streams/requests/search", "14 found", 560, LIGHT),
    "console-rollup": ("/#/streams/requests/rollups", "By interval", 720, LIGHT),
    "console-queue": ("/#/topics/mail/jobs", "Last 24 hours", 720, LIGHT),
    "console-routers": ("/#/routers", "waits since", 420, LIGHT),
    "console-docs": ("/docs", "Creates a stream", 720, LIGHT),
}


def main() -> None:
    """Writes all of them, of a server that was just filled; one of a server that is empty."""
    argparse.ArgumentParser("python -m tests.console", description=__doc__).parse_args()
    with chromium() as browser:
        with serving() as world:
            draw(browser, world, "console-empty", "/", "There are no streams yet.", 420, "dark")
        with serving() as world:
            fill(world, time.time_ns() // 1_000_000)
            for name, picture in PICTURES.items():
                draw(browser, world, name, *picture)


def draw(browser: Browser, world: World, name: str, place: str, ready: str, height: int, colours: Colours) -> None:
    """Writes one picture."""
    with opened(browser, world, color_scheme=colours, viewport={"width": 1180, "height": height}) as watched:
        watched.go(place)
        page = watched.page
        if name == "console-search":
            page.get_by_label("Query").fill("status:>=500")
            page.get_by_role("combobox", name="Order").select_option("ms:desc")
            page.get_by_label("Query").focus()
        if name == "console-rollup":
            page.get_by_role("combobox", name="Grouped by").select_option("service")
            expect(page.get_by_role("columnheader", name="billing")).to_be_visible()
        if name == "console-docs":
            page.locator("#operations-tag-streams").click()
        expect(page.get_by_text(ready).first).to_be_visible()
        page.screenshot(path=FOLDER / f"{name}.png")
        watched.check()


if __name__ == "__main__":
    main()
