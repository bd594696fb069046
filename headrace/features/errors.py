"""The errors that only feature tables have; `code` is the contract's (§ 1)."""

from __future__ import annotations

import re
from typing import Any

from headrace.errors import Conflict, InvalidRequest, NotFound

UNPRINTABLE = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\ud800-\\udfff]")
"""Control characters, and halves of surrogate pairs, which JSON can escape and UTF-8 can't encode."""
_MAX_REASON_CHARS = 1000  # reasons show what clients sent


class OperatorError(Exception):
    """The parameters of one aggregation are refused. Registration turns it into an error with the path of `param`.

    Attributes:
        code: the contract's code.
        param: the name of the offending parameter; None if the operator itself is refused.
        reason: what is wrong, with the offending value, and what to do.
    """

    def __init__(self, code: str, param: str | None, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.param = param
        self.reason = reason


class CodedRefusal(InvalidRequest):
    """The base class of refusals whose code is the contract's."""

    code: str  # type: ignore[misc]  # each instance has its own

    def __init__(self, code: str, reason: str) -> None:
        self.code = code
        self.reason = UNPRINTABLE.sub("?", reason[:_MAX_REASON_CHARS])
        super().__init__(self.reason)


class RegistrationError(CodedRefusal):
    """A node of a registration is refused; nothing was changed.

    Attributes:
        code: the contract's code.
        path: the place in the body, such as `nodes[1].ops[0].agg.f.params.field`; `<body>` for the body as a whole.
        reason: what is wrong, with the offending value, and what to do.
    """

    def __init__(self, code: str, path: str, reason: str) -> None:
        super().__init__(code, reason)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class EventRefused(CodedRefusal):
    """A pushed event does not match its event's schema; nothing was written.

    Attributes:
        code: the contract's code.
        reason: what is wrong, with the offending field or value.
    """


class ForceRequired(Conflict):
    """A registration would drop state, and was not forced; nothing was changed.

    Attributes:
        diff: what would change: lists `additive`, `destructive` and `already_present`.
    """

    code = "force_required"

    def __init__(self, diff: dict[str, Any]) -> None:
        super().__init__("Destructive registry change requires force=true. See diff for details.")
        self.diff = diff


class KeyRefused(NotFound):
    """A key of a request has the wrong number of parts, or one of the wrong type."""

    code = "key_parse_failure"
