"""Buffered answers: what fits into one result of a Lambda function.

Every request to a Lambda function is an event, a JSON text of at most 6 MB. The HTTP API takes back one result with the
same limit, and a larger answer would be lost. So pages of records are cut to fit (`streams/reads.py`), and answers that
can't be cut are refused. The streaming door sends an answer piece by piece.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType

ANSWER_BYTES = 6_000_000  # maximum body in a result; Lambda accepts 6,291,556 bytes with the headers
TEXT_TYPES = (
    "text/",
    "application/json",
)  # bodies of these types are sent as text if they are UTF-8; all others as base64
_MOST_GROWTH = 6  # how much JSON text can grow: a control character becomes \u0000


class AnswerTooLarge(Exception):
    """The answer does not fit through this door (a buffered result is limited to 6 MB).

    Attributes:
        headers: headers that tell the client how to continue without it.
    """

    def __init__(self, what: str = "answer", headers: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(f"the {what} is too large for a buffered response: limit={ANSWER_BYTES}")
        self.headers = headers


def fits(body: bytes, content_type: str, sent: int = 0) -> bool:
    """Returns whether a response body fits into a Lambda result (6 MB as JSON text) of which `sent` bytes are used
    already.
    """
    return sent + len(body) * _MOST_GROWTH <= ANSWER_BYTES or sent + grown(body, content_type) <= ANSWER_BYTES


def grown(body: bytes, content_type: str) -> int:
    """Returns the bytes that a body takes in a Lambda result: as a JSON string with escapes or, if it is of no text
    type or not UTF-8, as base64.
    """
    if any(text in content_type for text in TEXT_TYPES):
        try:
            return len(json.dumps(body.decode()))
        except UnicodeDecodeError:
            pass
    return 4 * ((len(body) + 2) // 3)
