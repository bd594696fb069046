"""Draws docs/dashboard.svg again, over the captured healthy run; with --capture, stages the faults again first.

A stage takes about a minute. Under a heavy load a stage may raise alarms that it should not: it is run three times at most.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from local.cloudwatch.__main__ import widgets_of
from local.cloudwatch.picture import svg
from local.template import read_template
from tests.observability import captures
from tests.observability.stages import FAULTS, HEALTHY, capture

PICTURE = Path(__file__).parents[2] / "docs" / "dashboard.svg"
TRIES = 3


def main() -> int:
    """Writes captures and the picture."""
    names = (HEALTHY, *FAULTS)
    parser = argparse.ArgumentParser(prog="python -m tests.observability", description=__doc__)
    parser.add_argument("--capture", action="store_true", help="stage again and write tests/observability/captures")
    parser.add_argument("stages", nargs="*", help=f"which stages, if not all: {', '.join(names)}")
    options = parser.parse_args()
    stages = options.stages or names
    failed = [name for name in stages if options.capture and not _capture(name)]
    if HEALTHY not in stages:
        return int(bool(failed))
    healthy = captures.read(HEALTHY)
    PICTURE.write_text(svg(widgets_of(read_template()), healthy.samples(), 0, healthy.end_s // 300 * 300))
    return int(bool(failed))


def _capture(name: str) -> bool:
    """Stages a fault until it raises its own alarm and no other; returns whether it did, and was written."""
    for _ in range(TRIES):
        with tempfile.TemporaryDirectory() as folder:
            try:
                staged = capture(name, Path(folder))
            except AssertionError as exc:
                print(f"{name}: {exc}", flush=True)
                continue
        fired = [set(staged.fired(fills_empty=fills)) for fills in (True, False)]
        print(f"{name}: raised {sorted(fired[0] | fired[1])}", flush=True)
        if fired == [set() if name == HEALTHY else {name}] * 2:
            captures.write(name, staged)
            return True
    return False


if __name__ == "__main__":
    sys.exit(main())
