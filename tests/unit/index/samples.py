"""Index runs of postings, columns and groups, written as a job writes them."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from headrace.index import descriptors, families, fetching, reading, writing
from headrace.index.descriptors import VERSION, Descriptor, Family, Part, Run
from headrace.index.reading import RunReader
from headrace.objects import Objects, keys
from headrace.query.language.canonical import Kind

LOG = "0" * 32
PLAN = "f" * 16


def run(id_: str, first: int, end: int, *, level: int = 0, plan: str = PLAN) -> Run:
    """Returns a run that has no objects."""
    return Run(
        id=id_,
        level=level,
        plan=plan,
        first_offset=first,
        end_offset=end,
        min_time_ms=first,
        max_time_ms=end,
        least_timestamp=None,
        greatest_timestamp=None,
        sizes={"kw": 100},
        descriptor=keys.run_descriptor(LOG, id_),
        sha256="0" * 64,
        size=10,
        created_ms=5,
    )


def rows(occurrences: Sequence[tuple[bytes, int, int | None]], family: families.Postings) -> Iterator[pa.RecordBatch]:
    """Rows of `kw`, `fts` or `lex`, in small batches.

    Args:
        occurrences: term, offset and place, in any order.
    """
    schema = families.POSTINGS[family]
    found: dict[tuple[bytes, int], list[tuple[int, int | None]]] = defaultdict(list)
    for term, offset, place in occurrences:
        found[term, offset >> families.CHUNK_BITS].append((offset & families.CHUNK_MASK, place))
    for batch in itertools.batched(sorted(found), 7) if hasattr(itertools, "batched") else _batched(sorted(found)):
        documents = []
        for term, chunk in batch:
            docs = sorted(found[term, chunk], key=lambda one: (one[0], one[1] or 0))
            document: dict[str, Any] = {"chunk": chunk, "docs": [doc for doc, _ in docs]}
            document[schema.names[0]] = families.text_of(b"\0" + term) if family == "lex" else term
            if family == "fts":
                document["pos"] = [place for _, place in docs if place is not None]
            documents.append(document)
        yield pa.RecordBatch.from_pylist(documents, schema=schema)


def _batched(all_: Sequence[tuple[bytes, int]]) -> Iterator[Sequence[tuple[bytes, int]]]:
    return (all_[at : at + 7] for at in range(0, len(all_), 7))


def col(first: int, fields: Mapping[str, tuple[Kind, Sequence[Any]]]) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """Rows of `col`: the values of each field, from offset `first` on."""
    schema = families.col({name: kind for name, (kind, _) in fields.items()})
    count = max((len(values) for _, values in fields.values()), default=0)
    columns = [pa.array(range(first, first + count), pa.int64())]
    columns += [pa.array(values, type_) for (_, values), type_ in zip(fields.values(), schema.types[1:], strict=True)]
    table = pa.Table.from_arrays(columns, schema=schema)
    return schema, table.to_batches(max_chunksize=5)


def written(
    objects: Objects,
    content: Mapping[Family, tuple[pa.Schema, Sequence[pa.RecordBatch]]],
    *,
    first: int,
    end: int,
    run_id: str = "run",
    level: int = 0,
) -> Run:
    """Puts a run as a job does: parts, then the descriptor."""
    parts: dict[Family, tuple[Part, ...]] = {}
    for family, (schema, batches) in content.items():
        names = (keys.run_part(LOG, run_id, family, number, "n") for number in itertools.count())
        made = list(writing.write(family, schema, iter(batches), names))
        for one in made:
            assert objects.create(one.part.key, one.data)
        parts[family] = tuple(one.part for one in made)
    descriptor = Descriptor(
        version=VERSION,
        log_id=LOG,
        run_id=run_id,
        level=level,
        plan=PLAN,
        first_offset=first,
        end_offset=end,
        min_time_ms=1,
        max_time_ms=2,
        least_timestamp=None,
        greatest_timestamp=None,
        schema_version=1,
        inputs=(),
        parts=parts,
        fields={},
        rollups=(),
        created_ms=3,
    )
    key, data = keys.run_descriptor(LOG, run_id), descriptors.encode(descriptor)
    assert objects.create(key, data)
    return descriptors.describe(descriptor, key, data)


def postings_run(
    objects: Objects, occurrences: Mapping[families.Postings, Sequence[tuple[bytes, int, int | None]]]
) -> Run:
    """Returns a run of postings: offsets from 100 on."""
    content: dict[Family, tuple[pa.Schema, Sequence[pa.RecordBatch]]] = {
        family: (families.POSTINGS[family], list(rows(found, family))) for family, found in occurrences.items()
    }
    return written(objects, content, first=100, end=1_000_000)


def opened(objects: Objects, found: Run) -> RunReader:
    """Returns the reader of a run."""
    return fetching.run(reading.Runs(decoded_bytes=0).open(found), objects)
