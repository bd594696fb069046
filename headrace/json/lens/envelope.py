"""Lens documents: read strictly, bounded in what they can make of a record, proven, and run on records.

What `parse` accepts can be run, though nothing is proven yet. Operations share what they copy, so that a few of them make
a value of a few kilobytes that would be written as terabytes. Most lenses cannot: their results need no measuring.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET

from headrace.errors import Conflict, InvalidRequest
from headrace.json import pointer
from headrace.json.lens import ops
from headrace.json.lens.apply import Step, compile_ops
from headrace.json.pointer import Path

MAX_LEVELS = 500  # of nesting; half of what a writer of JSON can take

_FEW_COPIES = 3
_FEW_LEVELS = 250  # on top of `jsontext.MAX_DEPTH`
_NUMBER_CHARS = 8
_MEMBER_CHARS = 4  # quotes, colon and comma


class Growth(NamedTuple):
    """What operations can do to the size of a document at most.

    Attributes:
        copies: how many leave a value in two places: each can double the document.
        maps: one of them is `map`, which adds to each item. Others add no more than the length of the lens.
        levels: by how much they deepen it.
    """

    copies: int
    maps: bool
    levels: int


def growth_of(operations: Iterable[ops.Op]) -> Growth:
    """Returns the growth by operations, nested ones listed too."""
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
    """Returns whether the result of lenses with these growths, together, has to be measured."""
    copies, levels = 0, 0
    for growth in growths:
        if growth.maps:
            return True
        copies, levels = copies + growth.copies, levels + growth.levels
    return copies > _FEW_COPIES or levels > _FEW_LEVELS


def exceeds(value: Any, limit_chars: int) -> bool:
    """Returns whether the JSON text of a value is longer than a limit, or nested deeper than `MAX_LEVELS`.

    Roughly: a number counts as eight characters. What is shared is looked at once.
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
    return len(pointer.parse(path))


def _levels(value: Any) -> int:
    """Returns the levels of nesting of a value as `jsontext` reads it."""
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max((1 + _levels(child) for child in children), default=0)


MAX_OPS = 256
MAX_NESTING = 16  # `in` and `map` within each other
MAX_PATH = 64  # keys of a pointer

_LOCATION: Final = re.compile(r" - at `\$(.*)`$")


class Lens(msgspec.Struct, frozen=True):
    """How documents of version `from_version` become documents of version `to_version`.

    Attributes:
        document: the lens as it was sent.
        ops: its operations, as values.
        steps: the same as functions, for `apply.run`.
        growth: how much larger they can make a document.
    """

    document: dict[str, Any]
    from_version: int
    to_version: int
    ops: tuple[ops.Op, ...]
    steps: tuple[Step, ...]
    growth: Growth


def parse(document: Any, name: str, version: int) -> Lens:
    """Reads the lens from `version` to the next, for the stream `name`.

    Raises:
        InvalidRequest: it is not a lens: a key too many or too few, a pointer that is none, a value moved into itself;
            or it is a lens of another stream, or over the limits of this module.
        Conflict: it leads from another version, or to another.
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
        return msgspec.convert(document, ops.Envelope)
    except msgspec.ValidationError as exc:
        where = _LOCATION.search(str(exc))
        what = _LOCATION.sub("", str(exc))
        path = re.sub(r"\[(\d+)\]", r"/\1", where[1].replace("[...]", "").replace(".", "/")) if where else ""
        raise InvalidRequest(f"invalid lens: {path + ': ' if path else ''}{what[0].lower()}{what[1:]}") from exc
    except RecursionError as exc:
        raise InvalidRequest("invalid lens: nested too deeply") from exc


def _walk(operations: Iterable[ops.Op], location: str, depth: int = 1) -> Iterator[tuple[str, ops.Op]]:
    """Returns all operations, nested ones too, each with its pointer in the lens."""
    if depth > MAX_NESTING:
        raise InvalidRequest(f"invalid lens: {location}: nested too deeply: limit={MAX_NESTING}")
    for number, op in enumerate(operations):
        yield f"{location}/{number}", op
        if isinstance(op, ops.In | ops.Map):
            yield from _walk(op.ops, f"{location}/{number}/ops", depth + 1)


def _check(op: ops.Op) -> None:
    """Checks what the document's schema cannot say: pointers are well formed, and nothing is moved into itself."""
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
    path = pointer.parse(text)
    if len(path) > MAX_PATH:
        raise InvalidRequest(f"pointer is too long: limit={MAX_PATH} actual={len(path)}")
    return path


MAX_CHARS = 64 * 1024 * 1024  # of a promoted record as JSON; a record as written has 10 MiB at most


def promote(lenses: Sequence[Lens], document: Any) -> Any:
    """Runs a chain of lenses on a document, and returns the result; the document itself is not changed.

    The result may share parts with the document and with the lenses: it is to be read, not to be changed.

    Numbers that no operation touches are kept as they are, and so is the order of keys; a key that is added goes
    to the end of its object.

    Args:
        lenses: from the version under which the document was written, up to the current one.

    Raises:
        InvalidRequest: an operation fails, which no document does that was accepted by the schema of the lens's proof;
            or the result is longer than `MAX_CHARS` or deeper than `growth.MAX_LEVELS`.
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
    """Shows that the lens turns every document of the old schema into one of the new schema.

    The operations are followed, in order, on a description of all documents that the old schema accepts; what comes
    out has to be within the new schema. An `add` or `remove` with a default must have one that fits its own `schema`.

    Returns:
        The lens's document, with a default from the new schema in every `add` that had none.

    Raises:
        InvalidRequest: a document might make an operation fail, or come out as one that the new schema refuses; or
            the schemas are too complex to tell. Names the operation and the path.
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
