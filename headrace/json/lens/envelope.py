"""Lens documents, read strictly: what is accepted here can be run, though nothing is proven yet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from headrace.errors import Conflict, InvalidRequest
from headrace.json import pointer
from headrace.json.lens import ops
from headrace.json.lens.apply import Step, compile_ops
from headrace.json.lens.growth import Growth, growth_of
from headrace.json.pointer import Path

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
    """All operations, nested ones too, each with its pointer in the lens."""
    if depth > MAX_NESTING:
        raise InvalidRequest(f"invalid lens: {location}: nested too deeply: limit={MAX_NESTING}")
    for number, op in enumerate(operations):
        yield f"{location}/{number}", op
        if isinstance(op, ops.In | ops.Map):
            yield from _walk(op.ops, f"{location}/{number}/ops", depth + 1)


def _check(op: ops.Op) -> None:
    """What the document's schema cannot say: pointers are well formed, and nothing is moved into itself."""
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
