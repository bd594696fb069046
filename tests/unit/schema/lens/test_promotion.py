"""What each operation does to a document, and what it leaves alone."""

from __future__ import annotations

import copy as copies
from typing import Any

import pytest

from headrace.errors import InvalidRequest
from headrace.json import jsontext, lens
from tests.unit.schema.lens.documents import (
    add,
    convert,
    copy,
    each,
    head,
    hoist,
    inside,
    lens_of,
    plunge,
    remove,
    rename,
    wrap,
)


def promoted(document: Any, *ops: dict[str, Any]) -> Any:
    before = copies.deepcopy(document)
    result = lens.promote([lens_of(*ops)], document)
    assert document == before, "the input was changed"
    return result


@pytest.mark.parametrize(
    ("op", "before", "after"),
    [
        (rename("/a", "/b"), {"a": 1}, {"b": 1}),
        (rename("/a", "/b"), {"a": 1, "b": 2}, {"b": 1}),
        (rename("/a/b", "/a"), {"a": {"b": 1}}, {"a": 1}),
        (rename("/a/b", "/c"), {"a": {"b": 1}}, {"a": {}, "c": 1}),
        (rename("/a", "/a"), {"a": 1}, {"a": 1}),
        (rename("/a", ""), {"a": {"x": 1}, "b": 2}, {"x": 1}),
        (rename("/a/0", "/b"), {"a": [1, 2]}, {"a": [2], "b": 1}),
        (copy("/a", "/b"), {"a": [1]}, {"a": [1], "b": [1]}),
        (copy("/a", "/a/b"), {"a": {"c": 1}}, {"a": {"c": 1, "b": {"c": 1}}}),
        (copy("", "/a"), {"b": 1}, {"b": 1, "a": {"b": 1}}),
        (copy("/a/1", "/a/0"), {"a": [1, 2]}, {"a": [2, 2]}),
        (add("/a", None), {}, {"a": None}),
        (add("/a", []), {"a": ["kept not"]}, {"a": []}),
        (add("", {"x": 1}), {"a": 1}, {"x": 1}),
        (remove("/a"), {"a": None, "b": 1}, {"b": 1}),
        (remove("/a/0"), {"a": [1, 2]}, {"a": [2]}),
        (hoist("/a", "b", "/c"), {"a": {"b": 1}}, {"a": {}, "c": 1}),
        (hoist("/a", "b", "/c", removeFromHost=False), {"a": {"b": 1}}, {"a": {"b": 1}, "c": 1}),
        (hoist("/a", "b", "/a"), {"a": {"b": 1, "c": 2}}, {"a": 1}),
        (plunge("/a", "/h", "n"), {"a": 1}, {"h": {"n": 1}}),
        (plunge("/a", "/g/h", "n"), {"a": 1}, {"g": {"h": {"n": 1}}}),
        (plunge("/a", "/h", "n"), {"a": 1, "h": {"m": 2, "n": 3}}, {"h": {"m": 2, "n": 1}}),
        (plunge("/a", "/h", "n", createHost=False), {"a": 1, "h": {}}, {"h": {"n": 1}}),
        (plunge("/a", "/h", "n", removeFromSource=False), {"a": 1}, {"a": 1, "h": {"n": 1}}),
        (plunge("/h/a", "/h", "a"), {"h": {"a": 1, "b": 2}}, {"h": {"a": 1, "b": 2}}),
        (wrap("/a"), {"a": None}, {"a": [None]}),
        (wrap(""), {"a": 1}, [{"a": 1}]),
        (head("/a"), {"a": [[1], 2]}, {"a": [1]}),
        (convert("/a", "string", "string", "lowercase"), {"a": "ÀB"}, {"a": "àb"}),
        (inside("/a", rename("/b", "/c"), add("/d", 1)), {"a": {"b": 1}}, {"a": {"c": 1, "d": 1}}),
        (inside("", rename("/b", "/c")), {"b": 1}, {"c": 1}),
        (each("/a", rename("/b", "/c")), {"a": [{"b": 1}, {"b": 2}]}, {"a": [{"c": 1}, {"c": 2}]}),
        (each("/a", wrap("")), {"a": [1, 2]}, {"a": [[1], [2]]}),
        (each("/a", each("", add("", 0))), {"a": [[1, 2], []]}, {"a": [[0, 0], []]}),
        (each("/a", remove("/b")), {"a": []}, {"a": []}),
    ],
)
def test_an_operation(op: dict[str, Any], before: Any, after: Any) -> None:
    assert promoted(before, op) == after


@pytest.mark.parametrize(
    ("op", "document"),
    [
        (rename("/a", "/b"), {}),
        (rename("/a", "/a"), {}),
        (rename("/a", "/b"), ["a"]),
        (rename("/a", "/b/c"), {"a": 1}),
        (rename("/a", "/b/0"), {"a": 1, "b": []}),
        (copy("/a/0", "/b"), {"a": []}),
        (add("/a/b", 1), {"a": 1}),
        (remove("/a"), {}),
        (remove("/a/b"), {"a": None}),
        (hoist("/a", "b", "/c"), {"a": {}}),
        (hoist("/a", "0", "/c"), {"a": [1]}),
        (plunge("/a", "/h", "n", createHost=False), {"a": 1}),
        (plunge("/a", "/h", "n"), {"a": 1, "h": 2}),
        (plunge("/a", "/h", "0"), {"a": 1, "h": [2]}),
        (plunge("/a", "/g/h", "n"), {"a": 1, "g": 2}),
        (wrap("/a"), {}),
        (head("/a"), {"a": []}),
        (head("/a"), {"a": "text"}),
        (convert("/a", "string", "string", "lowercase"), {"a": 1}),
        (inside("/a", add("/b", 1)), {"a": [1]}),
        (each("/a", add("/b", 1)), {"a": {}}),
        (each("/a", add("/b", 1)), {"a": [{}, 1]}),
    ],
)
def test_an_operation_that_cannot_be_done_says_which_lens_and_operation(op: dict[str, Any], document: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"^lens 1->2 /ops/1 failed: "):
        promoted(document, copy("", ""), op)


def test_lenses_run_one_after_the_other() -> None:
    second = lens.parse({**lens_of(wrap("/b")).document, "from": 2, "to": 3}, "s", 2)
    assert lens.promote([lens_of(rename("/a", "/b")), second], {"a": 1}) == {"b": [1]}
    assert lens.promote([], {"a": 1}) == {"a": 1}


def test_a_copy_and_its_source_go_separate_ways() -> None:
    result = promoted({"a": {"x": 1}}, copy("/a", "/b"), add("/a/y", 2), inside("/b", remove("/x")))
    assert result == {"a": {"x": 1, "y": 2}, "b": {}}


def test_a_default_is_not_shared_between_documents() -> None:
    one = lens_of(add("/a", {}), add("/a/b", 1))
    first = lens.promote([one], {})
    first["a"]["b"] = 2
    assert lens.promote([one], {}) == {"a": {"b": 1}}


def test_numbers_and_the_order_of_keys_survive() -> None:
    text = b'{"z":9007199254740993,"a":1.10,"m":{"y":123456789012345678901234567890,"b":[1.0,-0.0]},"k":"e"}'
    result = promoted(jsontext.loads(text), rename("/k", "/c"), inside("/m", add("/y2", 1)))
    expected = (
        b'{"z":9007199254740993,"a":1.1,"m":{"y":123456789012345678901234567890,"b":[1.0,-0.0],"y2":1},"c":"e"}'
    )
    assert jsontext.dumps(result) == expected


def test_a_record_goes_through_every_operation() -> None:
    table = {"map": {"open": "todo", "closed": "done"}, "default": "todo"}
    result = promoted(
        {"id": 7, "by": "ann", "state": "closed", "tags": [{"n": "x"}], "who": {"login": "l", "id": 1}, "h": 170},
        rename("/by", "/owners"),
        wrap("/owners"),
        add("/notes", []),
        convert("/state", "string", "string", table),
        each("/tags", rename("/n", "/name")),
        hoist("/who", "login", "/login"),
        remove("/who"),
        copy("/id", "/oldId"),
        plunge("/h", "/body", "height"),
        head("/tags"),
        inside("/tags", convert("/name", "string", "string", "uppercase")),
    )
    expected = {"id": 7, "state": "done", "tags": {"name": "X"}, "owners": ["ann"], "notes": [], "login": "l"}
    assert result == {**expected, "oldId": 7, "body": {"height": 170}}
