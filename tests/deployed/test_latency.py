"""What an append takes through the deployed door. The emulator's figures are no promise of AWS's: they find slips."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.result import machine, percentile
from tests.conformance.contract.client import Api, expect

WARM_UP = 10
APPENDS = 200
RECORD = [{"n": 1, "text": "x" * 100}]
SLOWEST_P50_MS = 1_000


def test_a_warm_append_takes_milliseconds(api: Api, findings: dict[str, Any]) -> None:
    stream = api.stream()
    took_ms = []
    for _ in range(WARM_UP + APPENDS):
        started = time.perf_counter()
        expect(stream.append(RECORD), 204)
        took_ms.append((time.perf_counter() - started) * 1000)
    warm = took_ms[WARM_UP:]
    found = {f"p{rank}_ms": percentile(warm, rank) for rank in (50, 95, 99)}
    findings["warm_append"] = {"appends": APPENDS, **found, "machine": machine()}
    assert len(stream.records()) == WARM_UP + APPENDS
    assert found["p50_ms"] < SLOWEST_P50_MS
