"""Objects of a run that were altered, cut or lost: told with their name, and never taken for what they are not."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from headrace.errors import Damaged
from headrace.index import descriptors, families, fetching
from headrace.index.descriptors import Run
from headrace.index.fetching import CachedRanges
from headrace.index.parts import PartReader
from headrace.index.postings import TermRequest
from headrace.index.reading import RunReader
from headrace.objects import ObjectMissing, Range
from headrace.objects.memory import MemoryObjects
from tests.unit.index import samples
from tests.unit.index.test_columns import GROUPS


@pytest.fixture(scope="module")
def stored() -> tuple[MemoryObjects, Run]:
    objects = MemoryObjects()
    kw = [(families.value_term("id", f"{number * 7919 % 10_007:05d}"), number, None) for number in range(2000)]
    fts = [(families.word_term("text", f"w{number % 7}"), number // 3, number % 3) for number in range(2000)]
    lex = [(f"key-{number % 50}".encode(), number, None) for number in range(2000)]
    content: dict[Any, Any] = {
        "kw": (families.KW, list(samples.rows(kw, "kw"))),
        "fts": (families.FTS, list(samples.rows(fts, "fts"))),
        "lex": (families.LEX, list(samples.rows(lex, "lex"))),
        "col": samples.col(
            0,
            {
                "k": ("keyword", [f"value {number % 11}" if number % 5 else None for number in range(2000)]),
                "i": ("integer", [number * number for number in range(2000)]),
                "f": ("float", [number / 7 for number in range(2000)]),
            },
        ),
        "agg": (families.AGG, [pa.RecordBatch.from_pylist(GROUPS, schema=families.AGG)]),
    }
    return objects, samples.written(objects, content, first=0, end=2000)


def _everything(reader: RunReader, objects: Any) -> list[Any]:
    """Answers of every kind, as plain values."""
    asked = [TermRequest.beginning("kw", b"id"), TermRequest.beginning("fts", b"text", positions=True)]
    found = [
        (one.term, one.docs.tolist(), one.pos.tolist() if one.pos is not None else None)
        for postings in fetching.run(reader.postings(asked), objects)
        for one in postings
    ]
    columns = fetching.run(reader.columns(["k", "i", "f"]), objects)
    values = [
        (name, column.values.tolist(), column.valid.tolist() if column.valid is not None else None, column.dictionary)
        for name, column in columns.items()
    ]
    keys = fetching.run(reader.keys_after("key-1", 100), objects)
    rows = fetching.run(reader.rows_of_key("key-7"), objects).tolist()
    groups = fetching.run(reader.groups("a", 1000, 0, 50_000, families.AGG.names), objects).to_pylist()
    return [found, values, keys, rows, groups]


def _altered(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data))
    match chance.randrange(4):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + data[at : at + 1] + data[at:]
        case 2:
            return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        case _:
            return data[:at] + chance.randbytes(8) + data[at + 8 :]


@pytest.mark.parametrize("seed", range(150))
def test_an_altered_object_is_told_or_says_the_same(stored: tuple[MemoryObjects, Run], seed: int) -> None:
    original, run = stored
    expected = _everything(samples.opened(original, run), original)
    chance = random.Random(seed)
    altered = MemoryObjects()
    keys = list(original.list(""))
    victim = chance.choice(keys)
    for key in keys:
        data = original.get(key)
        altered.put(key, _altered(data, chance) if key == victim else data)
    try:
        found = _everything(samples.opened(altered, run), altered)
    except Damaged as exc:
        assert "logs/" in str(exc)
        return
    assert found == expected


def test_every_altered_byte_of_a_column_chunk_is_noticed(stored: tuple[MemoryObjects, Run]) -> None:
    """Bytes of page headers too, which the checksums of Parquet's pages leave out: a header without its checksum, or with
    another number of values, can be decoded to other values.
    """
    objects, run = stored
    for family, parts in descriptors.decode(objects.get(run.descriptor), run.descriptor).parts.items():
        schema = families.AGG if family == "agg" else families.POSTINGS.get(family)
        names = schema.names if schema is not None else ["k", "i", "f"]
        for part in parts:
            reader = PartReader(part)
            for group, name in product(range(reader.groups), names):
                span = reader.span(group, [name])
                data = bytearray(objects.get_range(*span))
                assert reader.table([group], [name], {span.start: bytes(data)}).num_rows == reader.rows(group)
                for at in range(len(data)):
                    data[at] ^= 1 << at % 8
                    with pytest.raises(Damaged, match=part.key):
                        reader.table([group], [name], {span.start: bytes(data)})
                    data[at] ^= 1 << at % 8


def test_a_lost_object_is_damage(stored: tuple[MemoryObjects, Run]) -> None:
    original, run = stored
    for lost in original.list(""):
        objects = MemoryObjects()
        for key in original.list(""):
            if key != lost:
                objects.put(key, original.get(key))
        with pytest.raises(Damaged, match="missing") as told:
            _everything(samples.opened(objects, run), CachedRanges(objects).fetches())
        assert lost in str(told.value)


def test_another_descriptor_is_not_taken(stored: tuple[MemoryObjects, Run]) -> None:
    objects, run = stored
    for changed in (
        replace(run, sha256="0" * 64),
        replace(run, end_offset=run.end_offset + 1),
        replace(run, plan="0" * 16),
        replace(run, size=run.size - 1),
        replace(run, size=run.size + 1),
    ):
        with pytest.raises(Damaged, match=r"run\.msgpack\.zst"):
            samples.opened(objects, changed)


def test_a_descriptor_that_contradicts_itself_is_damaged(stored: tuple[MemoryObjects, Run]) -> None:
    objects, run = stored
    descriptor = descriptors.decode(objects.get(run.descriptor), run.descriptor)
    part = descriptor.parts["kw"][0]
    for wrong in (
        replace(descriptor, version=0),
        replace(descriptor, end_offset=descriptor.first_offset),
        replace(descriptor, first_offset=-1),
        replace(descriptor, parts={"kw": (replace(part, footer=b""),)}),
        replace(descriptor, parts={"kw": (replace(part, size=10),)}),
        replace(descriptor, parts={"kw": (replace(part, first=(b"b", b"a")),)}),
    ):
        with pytest.raises(Damaged):
            descriptors.decode(descriptors.encode(wrong), "k")


def test_parts_that_are_not_as_the_descriptor_says_are_damaged(stored: tuple[MemoryObjects, Run]) -> None:
    objects, run = stored
    descriptor = descriptors.decode(objects.get(run.descriptor), run.descriptor)
    part = descriptor.parts["kw"][0]
    for wrong in (
        replace(part, rows=part.rows + 1),
        replace(part, footer=part.footer[:-1] + b"?"),
        replace(part, footer=part.footer[5:]),
        replace(part, first=(*part.first, b"zzz")),
        replace(part, first=(*part.first, b"zzz"), chunks=(*part.chunks, 7)),
        replace(part, sums=part.sums[1:]),
        replace(part, sums=part.sums[::-1]),
        replace(part, chunks=(*part.chunks, 7)),
        replace(part, size=len(part.footer) + 20),
        descriptor.parts["col"][0],
    ):
        changed = replace(descriptor, run_id="other", parts={"kw": (wrong,)})
        data = descriptors.encode(changed)
        other = MemoryObjects()
        for key in objects.list(""):
            other.put(key, objects.get(key))
        other.put("d", data)
        with pytest.raises(Damaged):
            reader = samples.opened(other, descriptors.describe(changed, "d", data))
            fetching.run(reader.postings([TermRequest.beginning("kw", b"id")]), other)


def test_an_object_that_is_missing_is_told_by_the_cache() -> None:
    with pytest.raises(ObjectMissing):
        CachedRanges(MemoryObjects()).fetches().get_ranges([Range("k", 0, 1)])
