"""One target under atheris, in a process of its own, since the engine ends it. Arguments: a target, then libFuzzer's."""

from __future__ import annotations

import importlib
import sys

import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]


def main() -> None:
    """Never returns: libFuzzer exits with 0 when its runs are over, with another number on a finding."""
    name, *arguments = sys.argv[1:]
    with atheris.instrument_imports(
        include=["headrace", "functions", "local", "tests.fuzz.grammar"], enable_loader_override=False
    ):
        targets = importlib.import_module("tests.fuzz.targets")
    atheris.Setup([sys.argv[0], *arguments], targets.TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
