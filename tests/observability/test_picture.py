"""The picture of the dashboard: what is on it, and that the docs have the current one."""

from __future__ import annotations

from pathlib import Path

import pytest

from local.cloudwatch.__main__ import widgets_of
from local.cloudwatch.picture import scale, svg
from local.template import read_template
from tests.observability import captures
from tests.observability.stages import HEALTHY

PICTURE = Path(__file__).parents[2] / "docs" / "dashboard.svg"


@pytest.mark.parametrize(
    ("top", "step", "end"), [(0, 1, 1), (1, 0.2, 1), (6, 2, 6), (306, 100, 400), (501, 200, 600), (0.13, 0.05, 0.15)]
)
def test_an_axis_has_few_round_steps(top: float, step: float, end: float) -> None:
    assert scale(top) == pytest.approx((step, end))


def test_the_docs_have_the_picture_of_the_captured_run_and_of_this_dashboard() -> None:
    healthy = captures.read(HEALTHY)
    widgets = widgets_of(read_template())
    drawn = svg(widgets, healthy.samples(), 0, healthy.end_s // 300 * 300)
    assert drawn == PICTURE.read_text(), "uv run python -m tests.observability healthy"
    for widget in widgets:
        assert widget.title in drawn.replace("&amp;", "&") or not widget.lines, widget.title
