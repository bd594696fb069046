"""Draws docs/dashboard.svg again, over a healthy run: `uv run python -m tests.observability`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from local.cloudwatch.dashboard import widgets_of
from local.cloudwatch.picture import svg
from tests.observability.stages import healthy

PICTURE = Path(__file__).parents[2] / "docs" / "dashboard.svg"


def main() -> None:
    """Writes the picture."""
    with tempfile.TemporaryDirectory() as folder:
        run = healthy(Path(folder))
    PICTURE.write_text(svg(widgets_of(run.template), run.samples(), 0, run.end_s // 300 * 300))


if __name__ == "__main__":
    main()
