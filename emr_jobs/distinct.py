"""How many different values each field has, counted while its sorted terms pass by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from emr_jobs.postings import first_from, new_terms
from headrace.index import families


class Distinct:
    """Counts the terms of fields in a family of postings."""

    def __init__(self, fields: Sequence[str]) -> None:
        """Counts those of `fields`."""
        self.counts = dict.fromkeys(fields, 0)
        self._ranges = {name: (low := families.word_term(name, ""), families.after(low)) for name in fields}
        self._last: bytes | None = None

    def through(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, which must be in order."""
        for batch in batches:
            if self.counts and batch.num_rows:
                self._count(batch.column(0))
            yield batch

    def _count(self, found: pa.Array) -> None:
        passed = np.concatenate(([0], np.cumsum(new_terms(found, self._last))))
        self._last = found[-1].as_py()
        for name, (low, high) in self._ranges.items():
            self.counts[name] += int(passed[first_from(found, high)] - passed[first_from(found, low)])
