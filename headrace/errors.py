"""The errors that a caller of the library can get, distinguished by what the caller must do next.

    HeadraceError
    ├── InvalidRequest        the request is wrong; do not repeat it
    │   └── PayloadTooLarge   the same, and a smaller one would pass
    ├── NotFound              nothing has this name (or it has expired)
    ├── Gone                  it was deleted or expired but forks still need it, or the cursor is of an older incarnation
    │   └── BelowFloor        the cursor points to records that were removed
    ├── Conflict              the request contradicts the state of the log
    │   └── …                 a surface has its own: `headrace.streams.errors`
    ├── Overloaded            nothing was written; repeat later
    │   └── LimitReached      a limit of the server is reached; repeat when others have shed load
    ├── OutcomeUnknown        it may have been written; look before repeating
    ├── RequestTimeout        a read did not finish in time; repeat
    ├── NewerFormat           stored data was written by a newer release; upgrade this one
    └── Damaged               stored data contradicts itself; an operator must look
        └── SegmentMissing    the same, if the newest manifest still names it

`retryable` says whether the same request can succeed later; `may_have_written` whether it can have had an effect.
Messages are lower case, the values last.
"""

from __future__ import annotations

from typing import ClassVar


class HeadraceError(Exception):
    """The base class of all errors of this package except those of the stores (`StoreError`)."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False
    may_have_written: ClassVar[bool] = False


class InvalidRequest(HeadraceError):
    """The request is malformed, or names something that does not exist."""

    code = "bad_request"


class PayloadTooLarge(InvalidRequest):
    """The request, or what it would store or return, is larger than this server accepts."""

    code = "payload_too_large"


class NotFound(HeadraceError):
    """There is nothing with this name, or it has expired."""

    code = "not_found"


class Gone(HeadraceError):
    """The name was deleted or has expired while forks still need its data; or the cursor is from before the name was
    created again, or before a recovery.
    """

    code = "gone"


class BelowFloor(Gone):
    """Records that a cursor points to were removed, because they were too old or too many.

    Attributes:
        earliest: the first position that can be read, as a cursor text.
    """

    def __init__(self, earliest: str) -> None:
        super().__init__(f"offset is below what retention has kept: earliest={earliest}")
        self.earliest = earliest


class Conflict(HeadraceError):
    """The request contradicts the state of the log."""

    code = "conflict"


class Overloaded(HeadraceError):
    """Nothing was written; the same request can succeed after `retry_after_s` seconds."""

    code = "overloaded"
    retryable = True

    def __init__(self, message: str, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class LimitReached(Overloaded):
    """A limit of the server is reached; the same request can succeed when others have shed load.

    Attributes:
        detail: the limit's name, and how much it allows.
    """

    code = "throttled"

    def __init__(self, limit: str, most: int) -> None:
        super().__init__(f"a limit of this server is reached: {limit}={most}")
        self.detail: dict[str, object] = {"limit": limit, "max": most}


class OutcomeUnknown(HeadraceError):
    """The write may have been applied; the store did not say."""

    code = "append_timeout"
    may_have_written = True

    def __init__(self) -> None:
        super().__init__("append timed out; append outcome is unknown")


class RequestTimeout(HeadraceError):
    """The request did not finish within its budget; it changed nothing."""

    code = "request_timeout"
    retryable = True

    def __init__(self, message: str = "request timed out") -> None:
        super().__init__(message)


class NewerFormat(HeadraceError):
    """Stored data has a format version above the one that this release knows. Nothing is wrong with it."""

    code = "unavailable"
    retryable = True  # by a process of the newer release

    def __init__(self, source: str, found: int, known: int) -> None:
        super().__init__(f"written by a newer release: upgrade: source={source} version={found} known={known}")


class Damaged(HeadraceError):
    """Stored data contradicts itself: a gap in a log, or an object that fails its checks. Names the object."""

    code = "internal"


class SegmentMissing(Damaged):
    """The object of a published segment, or its key page, is missing.

    If a newer generation of the manifest no longer names it, it was merged with others; otherwise this is damage.
    """


class StoreError(Exception):
    """The base class of the errors that store adapters raise: the store refused, gave no answer, or was asked too late."""


class StoreThrottled(StoreError):
    """The store refused, in most cases because of load or contention; nothing was written."""


class SignatureExpired(StoreThrottled):
    """The store refused a call because of the time with which it was signed; nothing was written."""


class StoreTimeout(StoreError):
    """The store gave no answer, or an inconclusive one: a write may or may not have happened."""


class DeadlineExceeded(StoreTimeout):
    """The request's time was over before the call. This call was not made; earlier calls may have taken effect."""
