"""The emulator's IAM: refuses what a role may not do, and notes what it did when asked to.

Processes say with their access key id which role of the template they run as; nothing checks a signature. Whoever comes
with another key is the emulator itself or a person, who may do everything and is not noted.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from local.access_calls import key_calls, role_of
from local.access_policies import Call, Statement, is_allowed

# Answers that are remembered: an emulator may run for weeks, and each object is a resource.
_REMEMBERED = 100_000


class Policies(msgspec.Struct, frozen=True):
    """The statements of each role, and the key that encrypts the stores; empty without one."""

    roles: dict[str, tuple[Statement, ...]] = {}
    key: str = ""


class Noted(msgspec.Struct, frozen=True):
    """A call that a role made, and whether it was allowed."""

    role: str
    call: Call
    allowed: bool


class AccessDoor:
    """Where requests come in.

    Args:
        policies: a file of Policies, read when the first role comes: it may be written later than this is made.
        record: a file to which each distinct call is appended as a line of JSON.
    """

    def __init__(self, policies: Path | None = None, record: Path | None = None) -> None:
        self._file = policies
        self._record = record
        self._answers: dict[tuple[str, Call], str | None] = {}

    def denied(self, authorization: str, calls: Callable[[], Iterable[Call]]) -> str | None:
        """Why a request is refused: a sentence that names role, action and resource. None: it is not.

        `calls` says what the request asks for; it is not called when nobody needs to know.
        """
        role = role_of(authorization)
        if role is None or self._file is None:
            return None
        return next(filter(None, (self._denied(role, call) for call in calls())), None)

    def _denied(self, role: str, call: Call) -> str | None:
        if (role, call) not in self._answers:
            if len(self._answers) >= _REMEMBERED:
                self._answers.clear()
            needed = (call, *key_calls(call, self._policies.key))
            refused = [one for one in needed if not self._may(role, one)]
            self._answers[role, call] = (
                f"{role} is not authorized to perform {refused[0].action} on resource {refused[0].resource}"
                if refused
                else None
            )
        return self._answers[role, call]

    def _may(self, role: str, call: Call) -> bool:
        allowed = is_allowed(self._policies.roles.get(role, ()), call)
        if self._record is not None:
            with self._record.open("ab") as file:
                file.write(msgspec.json.encode(Noted(role, call, allowed)) + b"\n")
        return allowed

    @functools.cached_property
    def _policies(self) -> Policies:
        assert self._file is not None
        return msgspec.json.decode(self._file.read_bytes(), type=Policies)


def noted(record: Path) -> list[Noted]:
    """What a record holds."""
    return [msgspec.json.decode(line, type=Noted) for line in record.read_bytes().splitlines()]


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of a process that has such a door."""
    parser.add_argument("--policies", type=Path, help="what roles may do; without it everything is allowed")
    parser.add_argument("--record", type=Path, help="note what roles did in this file")
