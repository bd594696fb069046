"""The errors that only feature tables have; `code` is the contract's (§ 1)."""

from __future__ import annotations


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
