"""The picture of the dashboard, as a browser draws it: nothing overlaps, and no panel is empty."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

PICTURE = Path(__file__).parents[2] / "docs" / "dashboard.svg"
# Each panel's frame, the boxes of its texts, and how many curves it has; boxes are left, top, right, bottom.
LOOK = """() => {
    const box = (element) => {
        const { left, top, right, bottom } = element.getBoundingClientRect();
        return [left, top, right, bottom];
    };
    return [...document.querySelectorAll("g")].map((panel) => ({
        frame: box(panel.querySelector("rect")),
        texts: [...panel.querySelectorAll("text")].map((text) => [text.textContent, box(text)]),
        curves: panel.querySelectorAll("polyline[stroke-width], circle").length,
    }));
}"""
Box = tuple[float, float, float, float]


def overlap(one: Box, other: Box) -> bool:
    """Returns whether two boxes share more than their edges; that of a text has a pixel of air above and below."""
    return one[0] < other[2] and other[0] < one[2] and one[1] + 1 < other[3] - 1 and other[1] + 1 < one[3] - 1


@pytest.mark.full  # the picture is drawn by a command, and seldom
def test_every_panel_has_curves_axes_and_units_and_nothing_overlaps(browser: Browser) -> None:
    page = browser.new_page()
    page.set_content(PICTURE.read_text())
    panels = page.evaluate(LOOK)
    page.close()
    assert len(panels) > 15
    for panel in panels:
        (title, _), *_ = texts = [(text, tuple(box)) for text, box in panel["texts"]]
        assert panel["curves"], title
        words = [text for text, _ in texts]
        assert "min" in words, title
        assert {"ms", "count", "bytes", "ratio", "units"} & {unit for text in words for unit in text.split(", ")}, (
            title
        )
        assert sum(text.replace(".", "").rstrip("kMG").isdigit() for text in words) >= 4, title
        left, top, right, bottom = panel["frame"]
        for number, (text, box) in enumerate(texts):
            assert left <= box[0] and box[2] <= right and top <= box[1] and box[3] <= bottom, (title, text)
            assert not [other for other, its in texts[:number] if overlap(box, its)], (title, text)
