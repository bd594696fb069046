"""Lens documents: parsed strictly, limited in how large they can make a record, proven, and run on records.

A lens that `parse` accepts can be run, but nothing is proven yet. Operations share what they copy, so a few of them can
make a value of a few kilobytes that would be terabytes when written out. Most lenses can't do that, and their results
need not be measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET

from headrace import decoding
from headrace.errors import Conflict, InvalidRequest
from headrace.json import jsontext
from headrace.json.jsontext import Path
from headrace.json.lens import ops
from headrace.json.lens.apply import Step, compile_ops

MAX_LEVELS = 500  # maximum nesting; half of what a JSON writer can take

_FEW_COPIES = 3
_FEW_LEVELS = 250  # on top of `jsontext.MAX_DEPTH`
_NUMBER_CHARS = 8
_MEMBER_CHARS = 4  # quotes, colon and comma


class Growth(NamedTuple):
    """An upper bound on how much operations can enlarge a document.

    Attributes:
        copies: number of operations that leave a value in two places; each can double the document.
        maps: whether one of them is `map`, which can add to each item. Other operations add no more than the length of
            the lens.
        levels: number of levels of nesting that they add.
    """

    copies: int
    maps: bool
    levels: int


def growth_of(operations: Iterable[ops.Op]) -> Growth:
    """Computes the growth by operations; nested operations must be listed, too."""
    copies, maps, levels = 0, False, 0
    for op in operations:
        match op:
            case ops.Copy():
                copies, levels = copies + 1, levels + _depth_of(op.to)
            case ops.Rename():
                levels += _depth_of(op.to)
            case ops.Hoist():
                copies, levels = copies + (not op.remove_from_host), levels + _depth_of(op.to)
            case ops.Plunge():
                copies, levels = copies + (not op.remove_from_source), levels + _depth_of(op.host) + 1
            case ops.Add():
                levels += _depth_of(op.path) + (0 if op.default is UNSET else _levels(op.default))
            case ops.Wrap():
                levels += 1
            case ops.Map():
                maps = True
    return Growth(copies, maps, levels)


def can_be_large(growths: Iterable[Growth]) -> bool:
    """Returns whether lenses with these growths can make a record so large that their result must be measured."""
    copies, levels = 0, 0
    for growth in growths:
        if growth.maps:
            return True
        copies, levels = copies + growth.copies, levels + growth.levels
    return copies > _FEW_COPIES or levels > _FEW_LEVELS


def exceeds(value: Any, limit_chars: int) -> bool:
    """Returns whether the JSON text of a value is longer than a limit, or nested deeper than `MAX_LEVELS`.

    The result is approximate: a number counts as eight characters. Shared parts are examined once.
    """
    return _chars(value, {}, limit_chars, MAX_LEVELS) > limit_chars


def _chars(value: Any, known: dict[int, int], limit_chars: int, levels: int) -> int:
    if isinstance(value, str):
        return len(value) + 2
    if not isinstance(value, (dict, list)):
        return _NUMBER_CHARS
    if not levels:
        return limit_chars + 1
    chars = known.get(id(value))
    if chars is None:
        chars = 2
        if isinstance(value, dict):
            for name, member in value.items():
                chars += len(name) + _MEMBER_CHARS + _chars(member, known, limit_chars, levels - 1)
        else:
            for item in value:
                chars += 1 + _chars(item, known, limit_chars, levels - 1)
        known[id(value)] = chars
    return chars


def _depth_of(path: str) -> int:
    return len(jsontext.parse_pointer(path))


def _levels(value: Any) -> int:
    """Returns the nesting depth of a value, as `jsontext` counts it."""
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max((1 + _levels(child) for child in children), default=0)


MAX_OPS = 256
MAX_NESTING = 16  # `in` and `map` within each other
MAX_PATH = 64  # keys of a pointer

_LOCATION: Final = re.compile(r" - at `\$(.*)`$")


class Lens(msgspec.Struct, frozen=True):
    """A conversion of documents of version `from_version` to version `to_version`.

    Attributes:
        document: the lens as it was sent.
        ops: its operations, as values.
        steps: its operations as functions, for `apply.run`.
        growth: bound on how much they can enlarge a document.
    """

    document: dict[str, Any]
    from_version: int
    to_version: int
    ops: tuple[ops.Op, ...]
    steps: tuple[Step, ...]
    growth: Growth


def parse(document: Any, name: str, version: int) -> Lens:
    """Parses a lens document; it must lead from `version` to the next version of the stream `name`.

    Raises:
        InvalidRequest: the document is no lens (missing or unknown keys, an invalid pointer, a value moved into
            itself), is of another stream, or exceeds the limits of this module.
        Conflict: the lens leads from or to another version.
    """
    envelope = _envelope(document)
    if envelope.schema != name:
        raise InvalidRequest(f"invalid lens: /schema: lens schema mismatch: expected={name} actual={envelope.schema}")
    if (envelope.from_, envelope.to) != (version, version + 1):
        raise Conflict(
            f"lens version mismatch: expected={version}->{version + 1} actual={envelope.from_}->{envelope.to}"
        )
    located = list(_walk(envelope.ops, "/ops"))
    if len(located) > MAX_OPS:
        raise InvalidRequest(f"invalid lens: too many operations: limit={MAX_OPS}")
    for location, op in located:
        try:
            _check(op)
        except InvalidRequest as exc:
            raise InvalidRequest(f"invalid lens: {location}: {exc}") from exc
    return Lens(
        document=document,
        from_version=envelope.from_,
        to_version=envelope.to,
        ops=envelope.ops,
        steps=compile_ops(envelope.ops),
        growth=growth_of(op for _, op in located),
    )


def _envelope(document: Any) -> ops.Envelope:
    try:
        return decoding.from_builtins(document, ops.Envelope)
    except msgspec.ValidationError as exc:
        where = _LOCATION.search(str(exc))
        what = _LOCATION.sub("", str(exc))
        path = re.sub(r"\[(\d+)\]", r"/\1", where[1].replace("[...]", "").replace(".", "/")) if where else ""
        raise InvalidRequest(f"invalid lens: {path + ': ' if path else ''}{what[0].lower()}{what[1:]}") from exc
    except RecursionError as exc:
        raise InvalidRequest("invalid lens: nested too deeply") from exc


def _walk(operations: Iterable[ops.Op], location: str, depth: int = 1) -> Iterator[tuple[str, ops.Op]]:
    """Yields all operations, including nested ones, each with its pointer in the lens. Raises InvalidRequest if they are
    nested too deeply.
    """
    if depth > MAX_NESTING:
        raise InvalidRequest(f"invalid lens: {location}: nested too deeply: limit={MAX_NESTING}")
    for number, op in enumerate(operations):
        yield f"{location}/{number}", op
        if isinstance(op, ops.In | ops.Map):
            yield from _walk(op.ops, f"{location}/{number}/ops", depth + 1)


def _check(op: ops.Op) -> None:
    """Raises InvalidRequest for what parsing does not notice: a pointer that is malformed or too long, a value moved
    into itself, or removal of the whole document.
    """
    match op:
        case ops.Rename():
            _check_move(_path(op.from_), _path(op.to))
        case ops.Copy():
            _path(op.from_), _path(op.to)
        case ops.Remove():
            _check_removal(_path(op.path))
        case ops.Hoist():
            source, target = (*_path(op.host), op.name), _path(op.to)
            if op.remove_from_host:
                _check_move(source, target)
        case ops.Plunge():
            source, target = _path(op.from_), (*_path(op.host), op.name)
            if op.remove_from_source:
                _check_move(source, target)
        case _:
            _path(op.path)


def _check_move(source: Path, target: Path) -> None:
    _check_removal(source)
    if len(target) > len(source) and target[: len(source)] == source:
        raise InvalidRequest("a value cannot be moved into itself")


def _check_removal(path: Path) -> None:
    if not path:
        raise InvalidRequest("the whole document cannot be removed")


def _path(text: str) -> Path:
    path = jsontext.parse_pointer(text)
    if len(path) > MAX_PATH:
        raise InvalidRequest(f"pointer is too long: limit={MAX_PATH} actual={len(path)}")
    return path


MAX_CHARS = 64 * 1024 * 1024  # maximum length of a promoted record as JSON; an appended record has at most 10 MiB


def promote(lenses: Sequence[Lens], document: Any) -> Any:
    """Runs a chain of lenses on a document, and returns the result; the document itself is not changed.

    The result may share parts with the document and with the lenses: the caller must not change it.

    Numbers that no operation touches are kept as they are, and so is the order of keys; a key that is added goes
    to the end of its object.

    Args:
        lenses: the lenses from the version under which the document was written up to the current version.

    Raises:
        InvalidRequest: an operation fails, which can't happen with documents that the lens's old schema accepts; or the
            result is longer than `MAX_CHARS` or deeper than `MAX_LEVELS`.
    """
    for lens in lenses:
        for number, step in enumerate(lens.steps):
            try:
                document = step(document)
            except InvalidRequest as exc:
                where = f"lens {lens.from_version}->{lens.to_version} /ops/{number}"
                raise InvalidRequest(f"{where} failed: {exc}") from exc
    if can_be_large(lens.growth for lens in lenses) and exceeds(document, MAX_CHARS):
        raise InvalidRequest(f"lenses make the record too long or too deep: limit_chars={MAX_CHARS}")
    return document


def prove(lens: Lens, old_schema: dict[str, Any] | bool, new_schema: dict[str, Any] | bool) -> dict[str, Any]:
    """Proves that the lens converts every document that the old schema accepts to one that the new schema accepts.

    The operations are followed, in order, on a description of all documents that the old schema accepts; the resulting
    description must be within the new schema. A default in an `add` or `remove` must fit the `schema` in the same
    operation.

    Returns:
        The lens's document; every `add` without a default now has one from the new schema.

    Raises:
        InvalidRequest: a document might make an operation fail, or become one that the new schema refuses; or the
            schemas are too complex to decide. The message names the operation and the path.
    """
    # Loads the schema library, which a process that only promotes does not need.
    from headrace.json.lens import proof

    document = proof.with_defaults(lens.document, lens.ops, new_schema)
    complete = parse(document, document["schema"], lens.from_version)
    try:
        proof.check_defaults(complete.ops)
        proof.check(complete.ops, old_schema, new_schema)
    except InvalidRequest as exc:
        raise InvalidRequest(f"lens not proven: {exc}") from exc
    return document
