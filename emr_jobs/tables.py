"""The family `col`: tables of segments, or of runs, to tables of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from emr_jobs import build, segments, stores
from emr_jobs.compact import Reference
from emr_jobs.stores import Door
from headrace.errors import Damaged
from headrace.index import families
from headrace.index.job import Task
from headrace.index.plan import MAX_DICTIONARY, Plan
from headrace.query.language.config import Kind

_ROWS = 1_000_000  # of a batch; all of its columns are in memory
_MOST_COUNTED = 65_536  # different numbers up to which they are counted

Source = Callable[[], Iterator[pa.Table]]


def source(door: Door, task: Task, bodies: Sequence[pa.Array]) -> Source:
    """The tables in bodies of partial rows, in order, as often as they are asked for.

    Its tables raise:
        Damaged: a part is not what the descriptor says.
        StoreError: the store fails and fails.
    """
    if task.work == "build":
        return lambda: (build.table(body.as_buffer()) for array in bodies for body in array)
    references = [msgspec.msgpack.decode(body.as_py(), type=Reference) for array in bodies for body in array]
    return lambda: (_table(door, reference) for reference in references)


def _table(door: Door, reference: Reference) -> pa.Table:
    raw = stores.patiently(lambda: segments.checked(stores.opened(door), reference.key, reference.sha256))
    try:
        buffer = pa.BufferReader(raw)
        schema = pq.read_schema(buffer)
        texts = [
            field.name for field in schema if pa.types.is_dictionary(field.type) or pa.types.is_string(field.type)
        ]
        return pq.read_table(pa.BufferReader(raw), read_dictionary=texts, use_threads=False)
    except (pa.ArrowException, OSError) as exc:
        raise Damaged(f"part is not Parquet: object={reference.key}") from exc


def kept(plan: Plan, tables: Source) -> dict[str, Kind]:
    """The fields that get a column: those that always do, and the keywords that turn out to have few values."""
    candidates: dict[str, set[str]] = {field.name: set() for field in plan.fields if field.column == "few"}
    if candidates:
        for table in tables():
            for name in list(candidates):
                if name in table.column_names:
                    candidates[name].update(*(chunk.dictionary.to_pylist() for chunk in table.column(name).chunks))
                if name not in table.column_names or len(candidates[name]) > MAX_DICTIONARY:
                    del candidates[name]
    return {field.name: field.kind for field in plan.fields if field.column == "always" or field.name in candidates}


def batches(tables: Source, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows, in batches of up to a million with one dictionary per column."""
    held: list[pa.Table] = []
    rows = 0
    for table in tables():
        held.append(table.select(schema.names))
        rows += table.num_rows
        while rows >= _ROWS:
            whole = pa.concat_tables(held)
            yield from _joined(whole.slice(0, _ROWS), schema)
            held, rows = [whole.slice(_ROWS)], rows - _ROWS
    if rows:
        yield from _joined(pa.concat_tables(held), schema)


def _joined(table: pa.Table, schema: pa.Schema) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = table.unify_dictionaries().combine_chunks().cast(schema).to_batches()
    return found


class Counter:
    """Counts the different values of fields that stand in no postings; from `_MOST_COUNTED` on no further."""

    def __init__(self, plan: Plan, fields: Mapping[str, Kind]) -> None:
        """Counts those of `fields` that the plan gives no terms and no words."""
        named = {field.name: field.kind for field in plan.fields if not field.terms and not field.words}
        self._seen: dict[str, pa.Array | None] = {
            families.column_name(name, kind): None for name, kind in named.items() if name in fields
        }

    @property
    def counts(self) -> dict[str, int]:
        """So far."""
        return {name: 0 if seen is None else len(seen) for name, seen in self._seen.items()}

    def through(self, batches_: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches."""
        for batch in batches_:
            for name, seen in self._seen.items():
                if seen is None or len(seen) <= _MOST_COUNTED:
                    column = batch.column(name)
                    values = (
                        column.dictionary if pa.types.is_dictionary(column.type) else pc.unique(column.drop_null())
                    )
                    self._seen[name] = values if seen is None else pc.unique(pa.concat_arrays([seen, values]))
            yield batch
