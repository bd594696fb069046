"""The reader of pages is asked first: a check that can't fail would check nothing."""

from __future__ import annotations

import pytest

from tests.docs.sessions import Command, commands, missing

PAGE = """Try:

    $ headrace create a
    created a
    $ curl -d '{
      "x": 1}' \\
      http://there
    {"ok":
     true}

text

    headrace verify          # everything that's there
    not a command

```bash
curl a
curl b
```
```
[1]
```

```js
part(of, something)
```
```js
console.log(1)
```
```
1
```
"""


def test_every_form_of_a_command_is_found_with_its_output() -> None:
    assert commands(PAGE) == [
        Command(3, "headrace create a", ("created a",)),
        Command(5, "curl -d '{\n  \"x\": 1}' \\\n  http://there", ('{"ok":', " true}")),
        Command(13, "headrace verify", ()),
        Command(17, "curl a\ncurl b", ("[1]",)),
        Command(28, "node --input-type=module - <<'END'\nconsole.log(1)\nEND", ("1",)),
    ]


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        (("a  b", "3 hits of 8 in 472 ms"), "a b\nnoise\n3 hits of 8 in 9 ms\n"),
        (('{"a":1, … "z":2}',), '{"a":1,"b":9, "z":2}'),
        (("updated 2026-11-21T12:01:31.586Z",), "updated 2027-01-02T03:04:05Z"),
        (("│   ├── cache: hits=0  memory_hits=0",), "├── cache: hits=5  memory_hits=1"),
    ],
)
def test_what_differs_from_run_to_run_does_not_count(expected: tuple[str, ...], printed: str) -> None:
    assert missing(expected, printed) is None


@pytest.mark.parametrize(
    ("expected", "printed", "line"),
    [
        (("a", "b"), "b\na", "b"),
        (("3 hits of 8 in 472 ms",), "3 hits of 9 in 472 ms", "3 hits of 8 in 472 ms"),
        (("appended 2 records, 21 bytes",), "appended 3 records, 21 bytes", "appended 2 records, 21 bytes"),
        (
            ("2001-01-01T00:00:00.000Z  OAK  3",),
            "2001-01-02T00:00:00.000Z  OAK  3",
            "2001-01-01T00:00:00.000Z  OAK  3",
        ),
        (('{"a":1, … "z":2}',), '{"a":1, "z":3}', '{"a":1, … "z":2}'),
        (("├── looked_at: 0",), "├── looked: 0", "├── looked_at: 0"),
        (("x",), "", "x"),
    ],
)
def test_what_is_missing_is_named(expected: tuple[str, ...], printed: str, line: str) -> None:
    assert missing(expected, printed) == line


def test_what_two_commands_print_at_a_time_may_come_in_any_order() -> None:
    assert missing(("a", "b"), "b\na", in_order=False) is None
    assert missing(("a", "b"), "b\nc", in_order=False) == "a"


@pytest.mark.parametrize(
    ("text", "is_look"),
    [
        ("uv run python docs/examples/query_bucket.py dev.json flights \\\n  'select 1'", True),
        ("headrace work 'sales/*' --as billing --exec docs/examples/bill.sh --drain", False),
        ("headrace queue work thumbnails --exec 'python3 docs/examples/resize.py' --drain", False),
        ("uv run python docs/examples/room.py ws://127.0.0.1:8787/v0/ws", False),
    ],
)
def test_only_what_looks_at_stores_is_asked_again(text: str, is_look: bool) -> None:
    assert Command(1, text, ()).is_look == is_look


def test_what_runs_several_commands_at_a_time_prints_in_any_order() -> None:
    assert Command(1, "headrace work a --as b --exec c --drain", ()).is_in_order
    assert Command(1, "headrace work a --as b --exec c --concurrency 1", ()).is_in_order
    assert not Command(1, "headrace work 'a/*' --as b --exec c --concurrency 2 --drain", ()).is_in_order
