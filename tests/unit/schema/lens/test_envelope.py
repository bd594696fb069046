"""Lens documents: what is read, and what is refused with the place that is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import Conflict, InvalidRequest
from headrace.json import lens
from headrace.json.lens.envelope import MAX_NESTING, MAX_OPS, MAX_PATH
from tests.unit.schema.lens.documents import (
    add,
    convert,
    copy,
    document_of,
    hoist,
    inside,
    lens_of,
    plunge,
    remove,
    rename,
)

ONE = rename("/a", "/b")


def refused(document: Any) -> str:
    with pytest.raises(InvalidRequest) as caught:
        lens.parse(document, "s", 1)
    return str(caught.value)


def test_a_lens_keeps_its_document_as_it_was_sent() -> None:
    document = {**document_of(ONE), "description": "new name"}
    parsed = lens.parse(document, "s", 1)
    assert parsed.document == document
    assert (parsed.from_version, parsed.to_version) == (1, 2)


@pytest.mark.parametrize(("start", "end"), [(0, 1), (2, 3), (1, 1), (1, 3), (2, 1)])
def test_a_lens_between_other_versions_is_a_conflict(start: int, end: int) -> None:
    with pytest.raises(Conflict, match="lens version mismatch"):
        lens.parse({**document_of(ONE), "from": start, "to": end}, "s", 1)


def test_a_lens_of_another_stream_is_refused() -> None:
    assert "lens schema mismatch" in refused({**document_of(ONE), "schema": "other"})


@pytest.mark.parametrize("key", ["apiVersion", "schema", "from", "to", "ops"])
def test_every_key_of_the_envelope_is_needed(key: str) -> None:
    document = document_of(ONE)
    del document[key]
    assert f"`{key}`" in refused(document)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"apiVersion": "durable.lens/v2"}, "/apiVersion"),
        ({"from": "1"}, "/from"),
        ({"from": True}, "/from"),
        ({"to": -1}, "/to"),
        ({"ops": []}, "/ops"),
        ({"ops": {}}, "/ops"),
        ({"schema": ""}, "/schema"),
        ({"extra": 1}, "`extra`"),
        ({"description": 1}, "/description"),
    ],
)
def test_a_wrong_envelope_is_refused_with_its_place(change: dict[str, Any], where: str) -> None:
    message = refused({**document_of(ONE), **change})
    assert message.startswith("invalid lens: ")
    assert where in message


@pytest.mark.parametrize(
    ("op", "where"),
    [
        ({"op": "move", "from": "/a", "to": "/b"}, "/ops/1/op"),
        ({"from": "/a", "to": "/b"}, "`op`"),
        ({"op": "rename", "from": "/a"}, "`to`"),
        ({"op": "rename", "from": "/a", "to": "b"}, "/ops/1: invalid json pointer: 'b'"),
        ({"op": "rename", "from": "/a~", "to": "/b"}, "/ops/1: invalid json pointer"),
        ({**ONE, "extra": 1}, "`extra`"),
        ({"op": "add", "path": "/a"}, "`schema`"),
        ({"op": "add", "path": "/a", "schema": 1}, "/ops/1/schema"),
        ({"op": "wrap", "path": "/a"}, "`mode`"),
        ({"op": "wrap", "path": "/a", "mode": "all"}, "/ops/1/mode"),
        ({"op": "wrap", "path": "/a", "mode": "singleton", "reverseMode": "last"}, "/ops/1/reverseMode"),
        ({"op": "hoist", "host": "/a", "name": "", "to": "/b"}, "/ops/1/name"),
        ({"op": "hoist", "host": "/a", "name": "b", "to": "/b", "removeFromHost": "no"}, "/ops/1/removeFromHost"),
        (convert("/a", "text", "string", "lowercase"), "/ops/1/fromType"),
        (convert("/a", "string", "string", "reverse"), "/ops/1/forward/builtin"),
        (convert("/a", "string", "string", {}), "/ops/1/forward"),
        (convert("/a", "string", "string", {"map": {"a": []}}), "/ops/1/forward/map"),
        (convert("/a", "string", "string", {"map": {}, "builtin": "lowercase"}), "/ops/1/forward"),
        (inside("/a"), "/ops/1/ops"),
        (inside("/a", {"op": "head"}), "/ops/1/ops/0"),
        (inside("/a", ONE, inside("/b", remove(""))), "/ops/1/ops/1/ops/0: the whole document"),
    ],
)
def test_a_wrong_operation_is_refused_with_its_place(op: dict[str, Any], where: str) -> None:
    assert where in refused(document_of(ONE, op))


@pytest.mark.parametrize(
    "op",
    [
        rename("/a", "/a/b"),
        rename("", "/a"),
        hoist("/a", "b", "/a/b/c"),
        plunge("/a", "/a", "b"),
        plunge("/a", "/a/b", "c"),
        remove(""),
    ],
)
def test_a_value_is_not_moved_into_itself_and_the_document_not_removed(op: dict[str, Any]) -> None:
    assert "/ops/0: " in refused(document_of(op))


@pytest.mark.parametrize(
    "op",
    [
        copy("/a", "/a/b"),
        copy("", "/a"),
        rename("/a/b", "/a"),
        rename("/ab", "/a"),
        rename("/a", "/ab"),
        rename("/a", "/a"),
        rename("/a", ""),
        hoist("/a", "b", "/a/b/c", removeFromHost=False),
        plunge("/a", "/a", "b", removeFromSource=False),
        add("", None),
    ],
)
def test_what_only_looks_like_that_is_read(op: dict[str, Any]) -> None:
    lens_of(op)


def test_a_lens_has_bounds() -> None:
    lens_of(*[ONE] * MAX_OPS)
    assert "too many operations" in refused(document_of(*[ONE] * (MAX_OPS + 1)))
    lens_of(rename("/a" * MAX_PATH, "/b"))
    assert "pointer is too long" in refused(document_of(rename("/a" * (MAX_PATH + 1), "/b")))
    nested = ONE
    for _ in range(MAX_NESTING - 1):
        nested = inside("/a", nested)
    lens_of(nested)
    assert "nested too deeply" in refused(document_of(inside("/a", nested)))


@pytest.mark.parametrize("document", [None, 1, "lens", [], {}, True])
def test_what_is_no_lens_at_all_is_refused(document: Any) -> None:
    assert refused(document).startswith("invalid lens: ")
