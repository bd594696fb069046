"""Measures everything that `headrace cost` estimates with, and writes the tables of docs/cost.md.

uv run python -m tests.cost              writes operators/cost/counts.json and the tables
uv run python -m tests.cost --tables     only the tables, from the counts that stand
"""

from __future__ import annotations

import sys

import msgspec

from operators.cost import counts
from tests.cost import measure, page


def main() -> None:
    """See the module's text."""
    if "--tables" not in sys.argv[1:]:
        data = msgspec.json.format(msgspec.json.encode(measure.counts()), indent=1)
        counts.FILE.write_bytes(data + b"\n")
        counts.counted.cache_clear()
    page.PAGE.write_text(page.rendered(page.PAGE.read_text()))


if __name__ == "__main__":
    main()
