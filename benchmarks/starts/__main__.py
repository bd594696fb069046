"""Times the starts of every function, from its built artifact, with and without byte code.

    uv run python -m benchmarks.starts
    uv run python -m benchmarks.starts --repeat 9 --json starts.json --artifact api

Artifacts are built for this machine, and for the Python that Lambda runs if there is one here. The functions talk to an
emulated cloud on loopback.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import result
from benchmarks.starts import streaming
from benchmarks.starts.measure import EVENTS, Start, start
from infra import wheels
from infra.bundle import build
from infra.machine import LAMBDA, Machine, here
from tests.support.emulated_cloud import emulated_cloud

COLUMNS = ("function", "byte code", "modules", "import ms", "answer ms", "total ms", "CPU ms")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures starts of the functions and prints a table; returns the exit code."""
    parser = argparse.ArgumentParser("benchmarks.starts", description=__doc__)
    parser.add_argument("--artifact", action="append", choices=sorted(EVENTS), help="only this one; may be repeated")
    parser.add_argument("--repeat", type=int, default=5, help="starts of each; the median is shown")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args(arguments)
    machine, python = _machine()
    rows = []
    with emulated_cloud() as cloud, tempfile.TemporaryDirectory() as scratch:
        for artifact in options.artifact or EVENTS:
            compiled, plain = Path(scratch) / artifact, Path(scratch) / f"{artifact}-plain"
            compiled.mkdir()
            build(artifact=artifact, target=compiled, machine=machine)
            shutil.copytree(compiled, plain, ignore=shutil.ignore_patterns("__pycache__"))
            start(artifact, compiled, python, cloud.environment)  # the disk is warm, as it is not on Lambda
            for has_byte_code, folder in ((True, compiled), (False, plain)):
                starts = [start(artifact, folder, python, cloud.environment) for _ in range(options.repeat)]
                rows.append(_row(artifact, has_byte_code, starts))
                if artifact == "api":
                    starts = [streaming.start(folder, python, cloud.environment) for _ in range(options.repeat)]
                    rows.append(_row("streaming", has_byte_code, starts))
    facts = {**result.machine(), "python": machine.python}
    print(result.markdown(rows, COLUMNS))
    print(json.dumps(facts), file=sys.stderr)
    if options.json:
        options.json.write_text(json.dumps({"machine": facts, "rows": rows}, indent=2) + "\n")
    return 0


def _machine() -> tuple[Machine, str]:
    """Returns what to build for, and the interpreter to run it with; one without packages of its own, where that can
    be had.
    """
    found = wheels.matching_python(LAMBDA.python)
    if found is not None:
        return here(LAMBDA.python), found
    return here(), os.path.realpath(sys.executable)


def _row(artifact: str, has_byte_code: bool, starts: Sequence[Start]) -> dict[str, Any]:
    return {
        "function": artifact,
        "byte code": "yes" if has_byte_code else "no",
        "modules": len(starts[0].modules) or "",  # the streaming function is not asked
        "import ms": round(statistics.median(one.import_ms for one in starts)),
        "answer ms": round(statistics.median(one.answer_ms for one in starts)),
        "total ms": round(statistics.median(one.total_ms for one in starts)),
        "CPU ms": round(statistics.median(one.cpu_ms for one in starts)),
    }


if __name__ == "__main__":
    sys.exit(main())
