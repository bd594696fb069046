"""Draws the dashboard of the committed template over captured metrics, and prints which of its alarms would have been
raised:

    headrace dev --metrics-file metrics.emf --seal-age 5s --index-age 1s --sweep-every 1s
    python -m local.cloudwatch metrics.emf --factor 60 --output dashboard.svg

The ages of such an emulator are a sixtieth of a deployment's, so `--factor 60` makes its time run 60 times as fast.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from local.cloudwatch.dashboard import svg, widgets_of
from local.cloudwatch.queries import alarms_of, states
from local.cloudwatch.samples import Lapse, first_ms, of_emf
from local.template import TEMPLATE_PATH, read_template

STACK = "headrace-prod"  # whose template is the committed one
PERIOD_S = 300


def main(arguments: list[str] | None = None) -> None:
    """Writes the picture, and prints a line for each alarm that would have been raised."""
    parser = argparse.ArgumentParser(prog="python -m local.cloudwatch", description=__doc__)
    parser.add_argument("emf", type=Path, help="EMF lines, as the functions write them")
    parser.add_argument("--factor", type=float, default=1.0, help="how much faster than the deployment it ran")
    parser.add_argument("--output", type=Path, default=Path("dashboard.svg"))
    parser.add_argument("--template", type=Path, default=TEMPLATE_PATH)
    options = parser.parse_args(arguments)
    lines = options.emf.read_text().splitlines()
    samples = of_emf(lines, Lapse(first_ms(lines), options.factor))
    end_s = int(samples.end_s // PERIOD_S + 1) * PERIOD_S
    template = read_template(options.template)
    options.output.write_text(svg(widgets_of(template), samples, 0, end_s))
    for alarm in alarms_of(template, STACK):
        times = [at for at, state in states(alarm, samples, 0, end_s) if state == "ALARM"]
        if times:
            print(f"{alarm.name}: {len(times)} periods, from {times[0] // 60} min on: {alarm.description}")


if __name__ == "__main__":
    main()
