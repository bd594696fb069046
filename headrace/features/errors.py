"""The errors that only feature tables have; `code` is the contract's (§ 1)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from headrace.errors import Conflict, HeadraceError, InvalidRequest, NotFound, Overloaded

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
        version: the registry's version, if the caller set it.
        code: the contract's code.
        path: the place in the body, such as `nodes[1].ops[0].agg.f.params.field`; `<body>` for the body as a whole.
        reason: what is wrong, with the offending value, and what to do.
    """

    def __init__(self, code: str, path: str, reason: str) -> None:
        super().__init__(code, reason)
        self.path = path
        self.version = 0

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
        version: the registry's version, if the caller set it.
        diff: what would change: lists `additive`, `destructive` and `already_present`.
    """

    code = "force_required"

    def __init__(self, diff: dict[str, Any]) -> None:
        super().__init__("Destructive registry change requires force=true. See diff for details.")
        self.diff = diff
        self.version = 0


class KeyRefused(NotFound):
    """A key of a request has the wrong number of parts, or one of the wrong type."""

    code = "key_parse_failure"


class EventNotFound(NotFound):
    """No event has this name."""

    code = "event_not_found"

    def __init__(self, event: str) -> None:
        super().__init__(f"event '{event}' is not registered, or is derived from another: push to its source")


class TableNotFound(NotFound):
    """No table has this name."""

    code = "unknown_table"

    def __init__(self, table: str) -> None:
        super().__init__(f"table '{table}' is not registered")


class FeatureNotFound(NotFound):
    """A table has no feature of this name."""

    code = "feature_not_found"

    def __init__(self, table: str, features: Sequence[str]) -> None:
        super().__init__(f"table '{table}' has no such feature: {', '.join(features)[:_MAX_REASON_CHARS]}")


class JobNotFound(NotFound):
    """No export of the namespace has this id, or it is forgotten."""

    code = "job_not_found"

    def __init__(self, job_id: str) -> None:
        super().__init__(f"no job has this id: {job_id[:64]}")


class Behind(Overloaded):
    """So many events are not folded yet that a read would take too long. Nothing is lost: repeat later."""

    code = "unavailable"

    def __init__(self, event: str, unfolded: int) -> None:
        super().__init__(f"rows are being brought up to date: event={event} unfolded_bytes={unfolded}", 2)


class Unfolded(Overloaded):
    """So many events are not folded yet that no more are taken. Nothing was written."""

    code = "overloaded"

    def __init__(self, event: str, unfolded: int) -> None:
        super().__init__(f"events wait to be folded: event={event} unfolded_bytes={unfolded}", 2)


class WrongLane(Conflict):
    """An event's lanes were changed while it was pushed: this lane is not that of its key. Nothing was written."""

    def __init__(self, event: str) -> None:
        super().__init__(f"the lanes of event '{event}' are changing: push again")


class Stopped(HeadraceError):
    """A table's rows can't be brought up to date: an event made its features fail. An operator must look."""

    code = "table_stopped"

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(f"table '{table}' has stopped: {reason}. Register it again with force")


class ResetDisabled(HeadraceError):
    """A reset is asked for where none is allowed."""

    code = "reset_disabled_in_production"

    def __init__(self) -> None:
        super().__init__("this server does not allow a reset")
