"""What functions load that serve no feature table: the pipeline, with its operators, is for those that compute."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "loaded", ["headrace.aws", "functions.sealer.handler", "functions.indexer.handler", "functions.relay.handler"]
)
def test_a_function_that_computes_no_feature_loads_no_pipeline(loaded: str) -> None:
    program = f"""
import sys, {loaded}
assert "headrace.features.values" in sys.modules, "the states of lanes are known"
print(*(name for name in sys.modules if name.startswith(("headrace.features.pipeline", "headrace.features.register"))))
"""
    finished = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert finished.stdout.split() == []
