"""The refusals of whom a door does not obey."""

from __future__ import annotations


class Unauthorized(Exception):
    """The request has no key, or an unknown one."""


class Forbidden(Exception):
    """The key lacks the scope, or does not allow this name."""
