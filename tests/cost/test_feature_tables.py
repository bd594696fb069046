"""What feature tables cost: pushes, passes of the folder, rows and reads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from functions.fold_queue import SLOT_MS
from headrace.features import fold
from operators.cost.charges import Estimate
from operators.cost.counts import counted
from operators.cost.model import bill
from operators.cost.prices import standard
from operators.cost.workload import SECONDS, Assumptions, Workload


def estimated(work: Workload) -> Estimate:
    return Estimate(work, counted(), standard())


def test_an_event_is_one_entry_and_a_write_for_each_row_that_it_changes() -> None:
    """Three rows of 1.5 KB are six units; the mark is written once in two seconds."""
    month = Workload(events=1e8, record_bytes=50, feature_tables=3, row_bytes=1500, retention_days=0, cold_share=0)
    found = bill(estimated(month))
    marks = SECONDS / Assumptions().fold_s
    assert found.of("feature", "dynamodb.write") == pytest.approx((2e8 + 6e8 + marks) / 1e6 * 0.625, rel=0.001)
    assert found.of("feature", "lambda.request") == pytest.approx((2e8 + marks) / 1e6 * 0.20, rel=0.01)
    assert found.of("feature", "sqs.request_fifo") == pytest.approx((1e8 + 2 * marks) / 1e6 * 0.50)
    batched = bill(estimated(replace(month, event_batch=100)))
    deduped = bill(estimated(replace(month, deduped=True)))
    assert batched.of("feature", "dynamodb.write") < found.of("feature", "dynamodb.write") * 0.8
    more = deduped.of("feature", "dynamodb.write") - found.of("feature", "dynamodb.write")
    assert more == pytest.approx(5e8 / 1e6 * 0.625)
    idle = bill(estimated(Workload()))
    assert set(found.parts()) - set(idle.parts()) == {"feature", "seal", "own metrics"}


def test_rows_and_reads_of_feature_tables_are_paid_by_their_size() -> None:
    kept = bill(estimated(Workload(feature_rows=1e6, row_bytes=2000)))
    assert kept.of("feature", "dynamodb.storage") == pytest.approx(2 * 0.25)
    reads = [
        bill(estimated(Workload(feature_reads=1e6, row_bytes=size))).of("feature", "dynamodb.read")
        for size in (4096, 4097)
    ]
    assert reads[1] - reads[0] == pytest.approx(0.125)


def test_the_folder_folds_as_the_model_assumes() -> None:
    assumed = Assumptions()
    assert (assumed.fold_s * 1000, assumed.fold_writers) == (SLOT_MS, fold._WRITERS._count)
