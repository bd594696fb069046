"""Logs to be indexed, and what a run of them must hold, said as plainly as possible: a record at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from headrace.batch import Record
from headrace.definition import Definition
from headrace.index import families
from headrace.index.descriptors import NONE, Descriptor, Family, Plan, Run, plan_of
from headrace.index.job import JobInput, Task, Work
from headrace.json import jsontext, lens, registry
from headrace.json.registry import Registry
from headrace.objects import Objects, keys, packed
from headrace.query.language import canonical, rollup, rollup_request
from headrace.query.language.rollup import Groups
from headrace.segment import writer
from headrace.segment.descriptor import Segment
from headrace.streams import profiles
from tests.support.builders import batch_of

LOG = "log-1"
FIRST_MS = 1_700_000_000_000
CREATED_MS = 1_800_000_000_000

_NAME = "s"
_ANY: dict[str, Any] = {}


def _field(kind: str, pointer: str, *options: str, **more: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "bindings": [{"version": 1, "jsonPointer": pointer}],
        **dict.fromkeys(options, True),
        **more,
    }


_LATENCY = {"kind": "summary", "field": "cost", "histogram": "log2_v1"}
SEARCH: dict[str, Any] = {
    "primaryTimestampField": "at",
    "aliases": {"svc": "service"},
    "fields": {
        "at": _field("date", "/at", "column", "exists"),
        "service": _field("keyword", "/service", "exact", "prefix", normalizer="lowercase_v1"),
        "id": _field("keyword", "/deep/id", "exact"),
        "tag": _field("keyword", "/tags", "exact", "prefix", "exists"),
        "host": _field("keyword", "/host", "exists"),
        "status": _field("integer", "/status", "exact", "column"),
        "cost": _field("float", "/cost", "exact", "sortable", "aggregatable"),
        "ok": _field("bool", "/ok", "exact", "column"),
        "size": _field("integer", "/size", "exists"),
        "note": _field("text", "/note", analyzer="unicode_word_v1", positions=True),
        "title": _field("text", "/deep/title", analyzer="unicode_word_v1"),
    },
    "rollups": {
        "costs": {
            "dimensions": ["service"],
            "intervals": ["1s", "1m"],
            "measures": {"n": {"kind": "count"}, "bad": {"kind": "count", "include": "ok:false"}, "cost": _LATENCY},
        }
    },
}


def registry_of(search: dict[str, Any] | None = SEARCH, *, promoted_from: int | None = None) -> Registry:
    """Returns a registry; with `promoted_from`, records before that offset call `note` still `memo`."""
    body: dict[str, Any] = {"schema": {"type": "object"}}
    found = _updated(Registry(), {**body, **({"search": search} if search else {})}, 0)
    if promoted_from is not None:
        move = {"op": "rename", "from": "/memo", "to": "/note"}
        add = {"apiVersion": "durable.lens/v1", "schema": _NAME, "from": 1, "to": 2, "ops": [move]}
        schema = {"type": "object", "properties": {"memo": {"type": "string"}}, "required": ["memo"]}
        old = {**schema, "additionalProperties": True}
        new = {**old, "properties": {"note": {"type": "string"}}, "required": ["note"]}
        found = _updated(Registry(), {"schema": old, "search": search}, 0)
        found = _updated(found, {"schema": new, "lens": add}, promoted_from)
    return found


def _updated(before: Registry, body: dict[str, Any], next_offset: int) -> Registry:
    update = registry.parse_update(jsontext.dumps(body), _NAME)
    return registry.apply(before, update, name=_NAME, next_offset=next_offset, is_empty=next_offset == 0)


def definition(search: dict[str, Any] | None = SEARCH, *, promoted_from: int | None = None) -> Definition:
    """Returns a definition with the registry that `registry_of` returns."""
    return Definition(registry_of(search, promoted_from=promoted_from), profiles.DEFAULT)


# --- records

_texts = st.sampled_from(
    ["", "a", "A b", "b a b", "Straße", "ß", "İx", "naïve café", "x\0y", "日本 語", "\U0001f600", "é"]
)
_numbers = st.sampled_from(
    [0, 1, -1, 7, 1.5, -0.0, 0.1, 1e21, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**30, True, False]
)
_number_texts = st.sampled_from(["1", " 7 ", "1.50", "-0", "1e3", "x", "true", "FALSE"])
_instants = st.sampled_from(
    [
        *("2026-01-02T03:04:05.678Z", "2026-01-02T03:04:06Z", "2026-01-02T03:05:00+01:00", "2026", "never"),
        *(1_767_323_045_678, 1_767_323_046_000.5, -(10**9), 2**63, "1767323045678"),
    ]
)
_scalars = st.one_of(st.none(), _texts, _numbers, _number_texts, _instants)
_values = st.one_of(
    _scalars, st.lists(_scalars, max_size=3), st.lists(st.lists(_texts, max_size=2), max_size=2), st.just({"a": 1})
)


def _mostly(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(usual, usual, usual, usual, _values)


documents = st.one_of(
    *[
        st.fixed_dictionaries(
            {},
            optional={
                "at": _mostly(st.one_of(_instants, _instants, _instants, _numbers)),
                "service": _mostly(_texts),
                "tags": st.one_of(_texts, st.lists(_texts, max_size=3), _values),
                "host": _mostly(_texts),
                "status": _mostly(st.integers(0, 3)),
                "cost": _mostly(st.sampled_from([0.5, 1, 2.25, 1000])),
                "ok": _mostly(st.booleans()),
                "size": _mostly(_numbers),
                "note": _mostly(_texts),
                "deep": st.one_of(_values, st.fixed_dictionaries({}, optional={"id": _texts, "title": _values})),
            },
        )
    ]
    * 8,
    _values,
)
keys_ = st.one_of(st.none(), st.sampled_from(["k", "K", "k1", "日", "\U0001f600", "", "z" * 200]))


def records(given: Iterable[tuple[Any, str | None]], first_offset: int = 0) -> list[Record]:
    """Records of documents and keys."""
    return [
        Record(first_offset + row, FIRST_MS + row, key, jsontext.dumps(document))
        for row, (document, key) in enumerate(given)
    ]


# --- logs in a bucket


def put_definition(objects: Objects, found: Definition, number: int = 1) -> str:
    """Writes a definition object; its key."""
    key = keys.definition(LOG, number, "n")
    objects.put(key, packed.encode(found.document))
    return key


def put_segments(
    objects: Objects, found: Sequence[Record], counts: Iterable[int], log_id: str = LOG
) -> list[Segment]:
    """Seals records into segments of so many; the rest goes into a last one."""
    segments: list[Segment] = []
    start = 0
    for count in [*counts, len(found)]:
        some = found[start : start + count]
        if some:
            built = writer.build(some[0].offset, batch_of(some), text=True, log_id=log_id)
            key = keys.segment(log_id, len(segments), f"n{some[0].offset}")
            objects.put(key, built.data)
            objects.put(keys.segment_keys(key), built.key_page)
            segments.append(built.describe(len(segments), key))
            start += count
    return segments


def task(
    work: Work,
    run_id: str,
    found: Definition,
    key: str,
    *,
    segments: Sequence[Segment] = (),
    inputs: Sequence[Run] = (),
    log_id: str = LOG,
) -> Task:
    """Returns a task over all of these segments or runs."""
    plan = plan_of(found)
    sources: Sequence[Segment | Run] = segments or inputs
    return Task(
        work=work,
        log_id=log_id,
        run_id=run_id,
        level=max((run.level for run in inputs), default=-1) + 1,
        plan=plan.hash if plan else NONE,
        first_offset=sources[0].first_offset,
        end_offset=sources[-1].end_offset,
        definition=key,
        content_type="application/json",
        segments=tuple(segments),
        inputs=tuple(inputs),
    )


def put_input(objects: Objects, job_id: str, *tasks: Task) -> str:
    """Writes the input of a job; its key."""
    key = keys.job_input(job_id)
    objects.put(key, packed.encode(JobInput(1, job_id, CREATED_MS, tasks)))
    return key


def descriptor_of(objects: Objects, run: Run) -> Descriptor:
    """Returns the descriptor of a run."""
    return packed.decode_msgpack(objects.get(run.descriptor), Descriptor, run.descriptor)


def rows_of(objects: Objects, run: Run) -> dict[Family, list[dict[str, Any]]]:
    """Returns every row of a run, by family, in order. Times are milliseconds: some are beyond Python's."""
    found: dict[Family, list[dict[str, Any]]] = {}
    for family, parts in descriptor_of(objects, run).parts.items():
        found[family] = []
        for part in parts:
            table = pq.read_table(pa.BufferReader(objects.get(part.key)))
            for at, field in enumerate(table.schema):
                if pa.types.is_timestamp(field.type):
                    table = table.set_column(at, field.name, table.column(at).cast(pa.int64()))
            found[family] += table.to_pylist()
    return found


# --- what a run must hold


def expected(found: Sequence[Record], definition_: Definition) -> dict[Family, list[dict[str, Any]]]:
    """Returns the rows of a run of these records, but for `col`, see `expected_columns`."""
    plan = plan_of(definition_)
    rows: dict[Family, list[dict[str, Any]]] = {
        "lex": _chunked({}, [(one.key.encode(), one.offset, 0) for one in found if one.key is not None], "key")
    }
    if plan is None:
        return rows
    values = values_of(found, definition_)
    kw: list[tuple[bytes, int, int]] = []
    fts: list[tuple[bytes, int, int]] = []
    for record, of_record in zip(found, values, strict=True):
        for field in plan.fields:
            some = of_record.get(field.name, [])
            if some:
                (fts if field.kind == "text" else kw).append((families.has_term(field.name), record.offset, -1))
            if is_lossy(some):
                kw.append((families.lossy_term(field.name), record.offset, -1))
            if field.kind == "text":
                fts += _occurrences(field.name, some, record.offset, field.positions)
            elif field.terms:
                kw += [(families.value_term(field.name, value), record.offset, -1) for value in some]  # type: ignore[arg-type]
    rows["kw"] = _chunked({}, sorted(set(kw)), "term")
    rows["fts"] = _chunked({"pos": []}, fts, "term")
    rows["agg"] = _groups(found, values, definition_)
    return rows


def values_of(found: Sequence[Record], definition_: Definition) -> list[dict[str, list[Any]]]:
    """Returns the canonical values of each record, as readers see it."""
    search = definition_.search
    assert search is not None
    return [canonical.values(search, definition_.schema_version, document_of(one, definition_)) for one in found]


def document_of(record: Record, definition_: Definition) -> Any:
    """Returns the record's document, promoted."""
    document = jsontext.loads(record.data)
    version = definition_.version_at(record.offset)
    return lens.promote(definition_.lenses[version - 1 :], document) if version else document


def is_lossy(values: Sequence[Any]) -> bool:
    """Returns whether `col` can't hold the values of a record."""
    return len(values) > 1 or any(isinstance(value, int) and not -(2**63) <= value < 2**63 for value in values)


def _occurrences(
    name: str, texts: Sequence[tuple[str, ...]], offset: int, places: bool
) -> list[tuple[bytes, int, int]]:
    found, at = [], 0
    for text in texts:
        found += [
            (families.word_term(name, word), offset, at + row if places else -1) for row, word in enumerate(text)
        ]
        at += len(text) + 1
    return found


def _chunked(extra: dict[str, Any], postings: list[tuple[bytes, int, int]], name: str) -> list[dict[str, Any]]:
    rows: dict[tuple[bytes, int], dict[str, Any]] = {}
    for term, offset, place in sorted(postings):
        shown = term.decode() if name == "key" else term
        empty: dict[str, Any] = {name: shown, "chunk": offset >> 16, "docs": [], **({"pos": []} if extra else {})}
        row = rows.setdefault((term, offset >> 16), empty)
        row["docs"].append(offset & 65535)
        if extra and place >= 0:
            row["pos"].append(place)
    return list(rows.values())


def _groups(
    found: Sequence[Record], values: Sequence[dict[str, Any]], definition_: Definition
) -> list[dict[str, Any]]:
    assert definition_.search is not None
    compiled = rollup.rollups(definition_.search)
    groups = Groups(compiled.values())
    for record, of_record in zip(found, values, strict=True):
        groups.add(of_record, document_of(record, definition_))
    rows = sorted(groups.rows(), key=lambda row: rollup.sort_key(row, compiled))
    return [
        {"place": row[:4], "count": row.records, "fragment": rollup_request.fragment(compiled[row.rollup], row)}
        for row in rows
    ]


def groups_of(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `agg` as `expected` has them."""
    return [
        {
            "place": (
                *(row["rollup"], row["interval_ms"]),
                row["start"],
                tuple(row["dimensions"]),
            ),
            "count": row["count"],
            "fragment": row["fragment"],
        }
        for row in rows
    ]


def expected_columns(found: Sequence[Record], definition_: Definition, plan: Plan, table: pa.Table) -> None:
    """Checks the rows of `col`."""
    values = values_of(found, definition_)
    assert table.column("_offset").to_pylist() == [record.offset for record in found]
    for field in plan.fields:
        name = f"{field.name}#words" if field.kind == "text" else field.name
        if field.column == "none":
            assert name not in table.column_names
            continue
        wanted = [_cell(field.kind, of_record.get(field.name, [])) for of_record in values]
        column = table.column(name)
        shown = column.cast(pa.int64()) if field.kind == "date" else column
        assert shown.to_pylist() == wanted, field.name


def _cell(kind: str, values: Sequence[Any]) -> Any:
    if not values or is_lossy(values):
        return None
    (value,) = values
    return len(value) if kind == "text" else value


def distinct(values: Sequence[dict[str, list[Any]]], name: str) -> int:
    """Returns how many different values (words, of text) a field has."""
    found = {value for of_record in values for value in of_record.get(name, [])}
    if any(isinstance(value, tuple) for value in found):
        return len({word for text in found for word in text})
    return len({canonical.text(value) for value in found})


def close(one: float, other: float) -> bool:
    """Equal but for the order of addition."""
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
