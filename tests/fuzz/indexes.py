"""The formats of the index as fuzz targets: manifest, descriptor, and parts as readers see them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from headrace.errors import Damaged, NewerFormat
from headrace.index import descriptors, families, fetching
from headrace.index import manifest as index_manifests
from headrace.index.descriptors import Descriptor, Run
from headrace.index.manifest import IndexManifest
from headrace.index.postings import TermRequest
from headrace.index.reading import Runs
from headrace.objects.memory import MemoryObjects
from tests.fuzz.samples import EDITED, RAW, SOURCE, check_edits, edited, framed, mode, named, unframed
from tests.unit.index.samples import LOG, col, rows, run, written


@cache
def _manifest() -> IndexManifest:
    many = [run("a", 0, 10), run("b", 10, 30, plan="0" * 16), run("c", 10, 20), run("ac", 0, 20, level=1)]
    found = index_manifests.empty(LOG)
    for one in many:
        found = index_manifests.with_runs(found, [one], 7, plan="f" * 16)
    return found


@cache
def _stored() -> tuple[dict[str, bytes], Run]:
    """Returns the objects of a small run with every family that is read."""
    objects = MemoryObjects()
    kw = [(families.value_term("id", f"{number * 37 % 101:03d}"), number, None) for number in range(300)]
    fts = [(families.word_term("text", f"w{number % 7}"), number // 2, number % 2) for number in range(600)]
    lex = [(f"key-{number % 50}".encode(), number, None) for number in range(300)]
    content: Any = {
        "kw": (families.KW, list(rows(kw, "kw"))),
        "fts": (families.FTS, list(rows(fts, "fts"))),
        "lex": (families.LEX, list(rows(lex, "lex"))),
        "col": col(0, {"k": ("keyword", [f"v{n % 11}" if n % 5 else None for n in range(300)])}),
    }
    made = written(objects, content, first=0, end=300)
    return {key: objects.get(key) for key in objects.list("")}, made


def index_manifest(data: bytes) -> None:
    """Raw bytes, edits of a generation's object, or of its text in a right frame."""
    how, rest = mode(data)
    valid = index_manifests.encode(_manifest())
    if how == EDITED:
        found = named(SOURCE, lambda: index_manifests.decode(edited(valid, rest), SOURCE))
        assert found is None or found == _manifest(), "wrong data"
        return
    given = rest if how == RAW else framed(edited(unframed(valid), rest))
    decoded = named(SOURCE, lambda: index_manifests.decode(given, SOURCE))
    if decoded is not None:
        assert isinstance(decoded, IndexManifest)
        assert index_manifests.decode(index_manifests.encode(decoded), SOURCE) == decoded
        index_manifests.check(decoded, SOURCE)


def index_descriptor(data: bytes) -> None:
    """Raw bytes, edits of a descriptor's object, or of its content in a right frame."""
    how, rest = mode(data)
    objects, made = _stored()
    valid = objects[made.descriptor]
    if how == EDITED:
        check_edits(made.descriptor, valid, rest, lambda changed: descriptors.open_descriptor(made, changed))
        return
    given = rest if how == RAW else framed(edited(unframed(valid), rest))
    decoded = named(SOURCE, lambda: descriptors.decode(given, SOURCE))
    if decoded is not None:
        assert isinstance(decoded, Descriptor)
        assert 0 <= decoded.first_offset < decoded.end_offset
        assert descriptors.decode(descriptors.encode(decoded), SOURCE) == decoded


def index_part(data: bytes) -> None:
    """Edits of a part, chosen by the first byte: answers stay the same, or the reader names the part."""
    objects, made = _stored()
    names = sorted(key for key in objects if key.endswith(".parquet"))
    victim = names[data[0] % len(names)] if data else names[0]
    try:
        found = _answers({**objects, victim: edited(objects[victim], data[1:])}, made)
    except (Damaged, NewerFormat) as exc:
        assert victim in str(exc) or made.descriptor in str(exc)
        return
    assert found == _true_answers(), "wrong data"


@cache
def _true_answers() -> list[Any]:
    return _answers(*_stored())


def _answers(stored: Mapping[str, bytes], made: Run) -> list[Any]:
    """Returns what a reader of the run finds in these objects, one question for each way to read."""
    objects = MemoryObjects()
    for key, value in stored.items():
        objects.put(key, value)
    reader = fetching.run(Runs(decoded_bytes=0).open(made), objects)
    asked = [TermRequest.beginning("kw", b"id"), TermRequest.beginning("fts", b"text", positions=True)]
    found: list[Any] = [
        (one.term, one.docs.tolist(), one.pos.tolist() if one.pos is not None else None)
        for postings in fetching.run(reader.postings(asked), objects)
        for one in postings
    ]
    column = fetching.run(reader.columns(["k"]), objects)["k"]
    valid = column.valid.tolist() if column.valid is not None else None
    keys = fetching.run(reader.keys_after("key-1", 100), objects)
    rows_ = fetching.run(reader.rows_of_key("key-7"), objects).tolist()
    return [*found, column.values.tolist(), valid, column.dictionary, keys, rows_]
